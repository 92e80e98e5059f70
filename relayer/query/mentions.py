"""The days that a text mentions and a question names, as terms of the index: `2023-05-07`.

Not here: which words name a time (`periods`), hashing (`sealed.index`). Pure.

- A text is indexed by each day of a short span, and by its months and years: "yesterday", said on 8
  May 2023, by 2023-05-07, 2023-05 and 2023.
- A question looks up the largest of these that cover its span.
- Only the beginning of a long text is looked at, sentence by sentence.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import chain, islice
from typing import Final

from relayer.query.periods import periods

CHARACTERS_MAX: Final = 8_192
TERMS_MAX: Final = 48  # of one text, and of one question
_DAYS_MAX: Final = 7  # of a span that is indexed by its days: a weekend, a week
_YEARS_MAX: Final = 3  # of a span that is indexed at all: "since 1990" is no time of anything
_DAY_CHARACTERS: Final = len("2023-05-07")
_SENTENCE_END: Final = re.compile(r"\n|(?<=[^\d\s][.!?])\s|(?<=[。！？])")

Span = tuple[datetime, datetime]


def mention_terms(text: str, moment: datetime) -> list[str]:
    """Return the terms of the times that a text mentions, which was said at a moment."""
    sentences = _SENTENCE_END.split(text[:CHARACTERS_MAX])
    spans = chain.from_iterable(periods(sentence, moment) for sentence in sentences if sentence)
    return list(islice(dict.fromkeys(chain.from_iterable(map(_index_span, spans))), TERMS_MAX))


def span_terms(spans: Sequence[Span]) -> list[str]:
    """Return the terms to look up for the spans of a question."""
    return list(islice(dict.fromkeys(chain.from_iterable(map(_cover_span, spans))), TERMS_MAX))


def is_day(term: str) -> bool:
    """Return true if a term is of a day, no longer span."""
    return len(term) == _DAY_CHARACTERS


def moment_of_saying(event_time: datetime | None, said_at: datetime, text: str) -> datetime:
    """Return the moment from which a text counts its days: when it happened, or was said.

    Where the former is a day that the text counts to from the latter, this is not counted twice.
    """
    if event_time is None:
        return said_at
    day = _day(event_time)
    named = (periods(part, said_at) for part in _SENTENCE_END.split(text[:CHARACTERS_MAX]) if part)
    is_named = any(start.date() == day for start, _ in chain.from_iterable(named))
    return said_at if is_named else event_time


def _index_span(span: Span) -> Iterator[str]:
    first, end = (_day(moment) for moment in span)
    days = (end - first).days
    if days > _YEARS_MAX * 366:
        return
    last = end - timedelta(days=1)
    if days <= _DAYS_MAX:
        yield from (day.isoformat() for day in _days(first, end))
    months = (last.year - first.year) * 12 + last.month - first.month + 1
    if months <= 12:
        for n in range(months):
            year, month = divmod(first.year * 12 + first.month - 1 + n, 12)
            yield f"{year:04}-{month + 1:02}"
    yield from (f"{year:04}" for year in range(first.year, last.year + 1))


def _cover_span(span: Span) -> Iterator[str]:
    at, end = (_day(moment) for moment in span)
    if (end - at).days > _YEARS_MAX * 366:
        return
    while at < end:
        if (at.month, at.day) == (1, 1) and date(at.year + 1, 1, 1) <= end:
            yield f"{at.year:04}"
            at = date(at.year + 1, 1, 1)
        elif at.day == 1 and (following := _next_month(at)) <= end:
            yield f"{at.year:04}-{at.month:02}"
            at = following
        else:
            yield at.isoformat()
            at += timedelta(days=1)


def _days(first: date, end: date) -> Iterable[date]:
    return (first + timedelta(days=n) for n in range((end - first).days))


def _next_month(first: date) -> date:
    return date(first.year + first.month // 12, first.month % 12 + 1, 1)


def _day(moment: datetime) -> date:
    return moment.astimezone(UTC).date()
