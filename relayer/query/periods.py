"""The spans of time that a text names, and its terms of the index: yesterday, in May 2023, 上周.

It does not own the words (`period_words`), hashing (`sealed.index`), nor what a named time is worth
(`rank`).

- Every span is whole days in UTC: an event that is known by its day only is at midnight.
- Nothing is invented: a word counts as a time only in one of the forms listed below.
- Linear in the text: each form is searched once and matches a bounded number of words.
- A text is indexed by each day of a short span, and by its months and years: "yesterday", said on 8
  May 2023, by 2023-05-07, 2023-05 and 2023. Of a long text, only the beginning is looked at,
  sentence by sentence. A question looks up the largest of these terms that cover its span.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import chain, islice
from typing import Final, NamedTuple

from relayer.query.period_words import DAY, MONTH, QUARTER, WEEK, WEEKEND, YEAR, tokens

PERIODS_MAX: Final = 4
_SATURDAY: Final = 5
_BEGINNING: Final = date(1, 1, 1)
_NAMING: Final = frozenset("UMmSQyYJDRNWwk")  # kinds of which every form has one, or a period
_MONTHS: Final = {MONTH: 1, QUARTER: 3, YEAR: 12}
CHARACTERS_MAX: Final = 8_192
TERMS_MAX: Final = 48  # of one text, and of one question
_DAYS_MAX: Final = 7  # of a span that is indexed by its days: a weekend, a week
_YEARS_MAX: Final = 3  # of a span that is indexed at all: "since 1990" is no time of anything
_DAY_CHARACTERS: Final = len("2023-05-07")
# By the blank first, which is looked for many times as fast as what is before it.
_SENTENCE_END: Final = re.compile(r"\s(?:(?<=\n)|(?<=[^\d\s][.!?]\s))")
_WIDE_SENTENCE_END: Final = re.compile(rf"{_SENTENCE_END.pattern}|(?<=[。！？])")

Span = tuple[datetime, datetime]


class _Period(NamedTuple):
    """Half-open; `in_year` gives the same days of another year when the text names no year."""

    start: date
    end: date
    in_year: "Callable[[int], _Period | None] | None" = None


class _Item(NamedTuple):
    """A word, or the reading of several: kind "P" with its period, or "Y" and "Q"."""

    kind: str
    value: int = 0
    period: _Period | None = None


def periods(text: str, now: datetime) -> list[tuple[datetime, datetime]]:
    """Return the half-open spans that `text` names, in UTC and in its order, at most four.

    A month, day or quarter without a year is the latest one that has begun. A weekday or a weekend
    without "last" or "next" is both the latest and the coming one.
    """
    found = tokens(text)
    if _NAMING.isdisjoint(token.kind for token in found):
        return []
    today = now.astimezone(UTC).date()
    row = [_Item(*token) for token in found]
    kinds = "".join(item.kind for item in row)
    for form, read in _READINGS:
        if form.search(kinds):
            row = _replace(row, form, read, today)
            kinds = "".join(item.kind for item in row)
    named = [(_midnight(p.start), _midnight(p.end)) for _, _, p in row if p is not None]
    return list(dict.fromkeys(named))[:PERIODS_MAX]


def mention_terms(text: str, moment: datetime) -> list[str]:
    """Return the terms of the times that a text mentions, which was said at a moment."""
    spans = chain.from_iterable(periods(sentence, moment) for sentence in _sentences(text))
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
    named = (periods(sentence, said_at) for sentence in _sentences(text))
    is_named = any(start.date() == day for start, _ in chain.from_iterable(named))
    return said_at if is_named else event_time


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, of a long one those that it begins with."""
    text = text[:CHARACTERS_MAX]
    end = _SENTENCE_END if text.isascii() else _WIDE_SENTENCE_END
    return filter(None, end.split(text))


def _replace(
    row: list[_Item], form: str | re.Pattern[str], read: "_Reader", today: date
) -> list[_Item]:
    """Return the row with what `read` makes of each match of `form`, or the match as it was."""
    kinds = "".join(item.kind for item in row)
    done: list[_Item] = []
    at = 0
    for match in re.finditer(form, kinds):
        if made := _read(read, row[match.start() : match.end()], today):
            done += row[at : match.start()] + made
            at = match.end()
    return done + row[at:]


def _read(read: "_Reader", items: Sequence[_Item], today: date) -> list[_Item]:
    try:
        return read(items, today)
    except (OverflowError, ValueError):
        return []  # beyond the calendar, which has the years 1 to 9999


_Reader = Callable[[Sequence[_Item], date], list[_Item]]


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


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _find(*found: _Period | None) -> list[_Item]:
    return [_Item("P", 0, period) for period in found if period is not None]


def _value(items: Sequence[_Item], kinds: str, default: int = 0) -> int:
    return next((item.value for item in items if item.kind in kinds), default)


def _period(items: Sequence[_Item]) -> _Period:
    return next(item.period for item in reversed(items) if item.period is not None)


def _shift(day: date, unit: int, count: int) -> date:
    """Return the day so many units later; a day that its month lacks becomes the last one."""
    if unit not in _MONTHS:
        return day + timedelta(days=count * (DAY if unit == DAY else WEEK))
    year, month = divmod(day.year * 12 + day.month - 1 + count * _MONTHS[unit], 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def _around(day: date, unit: int) -> _Period:
    """Return the day, week, month, quarter or year that holds the day; its week's weekend."""
    monday = day - timedelta(days=day.weekday())
    if unit == WEEKEND:
        return _Period(monday + timedelta(days=5), monday + timedelta(days=7))
    if unit in _MONTHS:
        start = day.replace(day=1, month=day.month - (day.month - 1) % _MONTHS[unit])
    else:
        start = monday if unit == WEEK else day
    return _Period(start, _shift(start, unit, 1))


def _in_year(part: dict[str, int], year: int) -> _Period | None:
    """Return the named part of a year; None when the year lacks it, as most lack 29 February."""
    month = part.get("season") or part.get("month") or 3 * part.get("quarter", 1) - 2
    try:
        start = date(year, month, part.get("day", 1))
        if "week" in part:
            start = date.fromisocalendar(year, part["week"], 1)
    except ValueError:
        return None
    units = {"week": WEEK, "day": DAY, "month": MONTH, "season": QUARTER, "quarter": QUARTER}
    return _Period(start, _shift(start, next((units[p] for p in units if p in part), YEAR), 1))


def _find_recurring(part: dict[str, int], today: date, offset: int | None) -> _Period | None:
    """Return the latest that has begun; for an offset the last complete, this or the next one."""
    first, last = today.year - 9, today.year + 9  # 29 February may be away for eight years
    late = (p for year in range(today.year + 1, first, -1) if (p := _in_year(part, year)))
    if offset is None:
        return next((p for p in late if p.start <= today), None)
    if offset < 0:
        return next((p for p in late if p.end <= today), None)
    if offset == 0:
        return next((p for p in late if p.start <= today < p.end), _in_year(part, today.year))
    coming = (p for year in range(today.year, last) if (p := _in_year(part, year)))
    return next((p for p in coming if p.start > today), None)


def _count(items: Sequence[_Item], _: date) -> list[_Item]:
    """Read a number before a unit or a counted word, which is neither a day nor a year."""
    return [_Item("n" if items[0].kind == "d" else "x", items[0].value)]


def _quarter(items: Sequence[_Item], _: date) -> list[_Item]:
    is_quarter = items[-1].value == QUARTER and 1 <= items[0].value <= 4
    return [_Item("Q", items[0].value)] if is_quarter else []


def _year(items: Sequence[_Item], today: date) -> list[_Item]:
    if _value(items, "U", YEAR) != YEAR:
        return []
    return [_Item("Y", _value(items, "y") or today.year + _value(items, "LTl"))]


_PARTS: Final = {"S": "season", "Q": "quarter", "k": "week"} | {
    **dict.fromkeys("yY", "year"), **dict.fromkeys("MmJ", "month"), **dict.fromkeys("doOn", "day"),
}  # fmt: skip


def _calendar(items: Sequence[_Item], today: date) -> list[_Item]:
    part = {_PARTS[item.kind]: item.value for item in items if item.kind in _PARTS}
    if "week" in part:
        part["week"] = part.pop("day")
    if year := part.pop("year", None):
        return _find(_in_year(part, year))
    offset = next((item.value for item in items if item.kind in "LTl"), None)
    period = _find_recurring(part, today, offset)
    if period is None or offset is not None:
        return _find(period)
    return _find(period._replace(in_year=lambda year: _in_year(part, year)))


def _whole_date(items: Sequence[_Item], _: date) -> list[_Item]:
    return _find(_around(date.fromordinal(items[0].value), DAY))


def _relative_day(items: Sequence[_Item], today: date) -> list[_Item]:
    return _find(_around(_shift(today, DAY, items[0].value), DAY))


def _night(items: Sequence[_Item], today: date) -> list[_Item]:
    return [] if items[0].value > 0 else _relative_day(items, today)


def _unit(items: Sequence[_Item], today: date) -> list[_Item]:
    unit = _value(items, "U")
    return [] if unit == DAY else _find(_around(_shift(today, unit, _value(items, "LTl")), unit))


def _ago(items: Sequence[_Item], today: date) -> list[_Item]:
    unit = _value(items, "U")
    return _find(_around(_shift(today, unit, -_value(items, "nd1")), unit))


def _find_rolling(items: Sequence[_Item], today: date) -> list[_Item]:
    """Read "the last two weeks" or "the next two weeks", to the day."""
    far = _shift(today, _value(items, "U"), _value(items, "nd1") * (_value(items, "Ll") or -1))
    return _find(_Period(min(far, today), max(far, today) + timedelta(days=1)))


def _part(items: Sequence[_Item], _: date) -> list[_Item]:
    """Read "the first week of May" or "the last two days of 2023"."""
    whole, unit, count = _period(items), _value(items, "U"), _value(items, "nd", 1)
    nth = _value(items, "Oo")
    if unit == WEEKEND and nth:  # a month that begins on a Sunday has its first weekend later
        return _find(_around(_shift(whole.start, DAY, WEEK * (nth - 1) + 1), WEEKEND))
    if unit == WEEKEND:
        return _find(_around(_shift(whole.end, DAY, -6), WEEKEND))
    if nth:
        start = _shift(whole.start, unit, nth - 1)
        return _find(_Period(start, _shift(start, unit, 1)))
    return _find(_Period(_shift(whole.end, unit, -count), whole.end))


def _beside(items: Sequence[_Item], _: date) -> list[_Item]:
    """Read "two weeks before 11 August" or "the Monday after it"."""
    near, after = _period(items), items[-2].kind == ">"
    anchor = near.end - timedelta(days=1) if after else near.start
    if items[-3].kind == "W":
        return _find(_around(_weekday(anchor, items[-3].value, 1 if after else -1), DAY))
    unit, count = items[-3].value, _value(items[:-3], "nd1", 1)
    if unit == WEEKEND and after:
        count -= 1  # the one of the same week is the first
    return _find(_around(_shift(anchor, unit, count if after else -count), unit))


def _weekday(day: date, weekday: int, sign: int) -> date:
    """Return the nearest such weekday before (-1) or after (1) the day."""
    return day + timedelta(days=sign * ((sign * (weekday - day.weekday()) - 1) % 7 + 1))


def _week_of(items: Sequence[_Item], _: date) -> list[_Item]:
    return _find(_around(_period(items).start, items[0].value))


def _same_day(items: Sequence[_Item], _: date) -> list[_Item]:
    """Read a weekday that the date after it repeats."""
    period = _period(items)
    return _find(period) if period.end - period.start == timedelta(days=1) else []


def _day_of_week(items: Sequence[_Item], today: date) -> list[_Item]:
    weekday = _value(items, "Ww")
    offset = next((item.value for item in items if item.kind in "LTl"), None)
    if offset is None:
        latest = _weekday(today + timedelta(days=1), weekday, -1)
        return _find(_around(latest, DAY), _around(latest + timedelta(days=7), DAY))
    unit = _value(items, "U")
    if unit not in (0, WEEK):
        return []
    if offset == 0 or unit or items[-1].kind == "w":
        monday = _around(_shift(today, WEEK, offset), WEEK).start
        return _find(_around(monday + timedelta(days=weekday), DAY))
    return _find(_around(_weekday(today, weekday, offset), DAY))


def _since_weekday(items: Sequence[_Item], today: date) -> list[_Item]:
    return [items[0], _day_of_week(items, today)[0]]


def _weekend(items: Sequence[_Item], today: date) -> list[_Item]:
    latest = _around(_weekday(today + timedelta(days=1), _SATURDAY, -1), WEEKEND)
    coming = _around(latest.end, WEEKEND)
    return _find(latest, coming) if items[-1].value == WEEKEND else []


def _range(items: Sequence[_Item], _: date) -> list[_Item]:
    """From the one to the other; the year that one of them lacks is the other's, or one beside."""
    left, last = next(item for item in items if item.kind in "Pd"), _period(items)
    first = left.period
    if left.kind == "d":
        first = _in_year({"month": last.start.month, "day": left.value}, last.start.year)
    if first is not None and last.in_year is not None:
        years = (last.in_year(first.start.year + n) for n in (0, 1))
        last = next((p for p in years if p is not None and p.start >= first.start), last)
    elif first is not None and first.in_year is not None:
        years = (first.in_year(last.start.year - n) for n in (0, 1))
        first = next((p for p in years if p is not None and p.start <= last.start), first)
    return _find(_Period(first.start, last.end)) if first and first.start < last.end else []


def _since(items: Sequence[_Item], today: date) -> list[_Item]:
    period = _period(items)
    start = period.end if items[0].kind == ">" else period.start
    return _find(_Period(start, today + timedelta(days=1))) if start <= today else []


def _before(items: Sequence[_Item], _: date) -> list[_Item]:
    period = _period(items)
    through = items[0].kind == "u" or items[-1].kind == "t"
    return _find(_Period(_BEGINNING, period.end if through else period.start))


# Rows of kinds as `period_words` lists them, in the order in which they are read: each form sees
# what those above have made of the words. No form repeats anything, so that each is short.
_FORMS: Final = (
    (r"[doO]\.?U", _quarter),  # third quarter, 3. Quartal
    (r"y(?=[cU])|d(?=[cU])", _count),  # 2023 euros, 8 days
    (r"[LT]U|Ul|Uy|(?<=[isbufge<>V])y|(?<=[isbf]y[&~u1])y", _year),  # last year, in 2023
    (
        r"YJd|Jd|Y[fi]?[MJSQ]|Yim"  # 2023年5月8日, last year in May
        r"|[doO]\.?f?[Mm]\.?,?f?[yY]|[Mm]\.?[do],?f?[yY]|[Mm]\.?,?f?[yY]"  # 8 May 2023
        r"|[SQ]f?[yY]|[LT][MS]|[Mm]l|Sl|k[dn]\.?[yY]?"  # summer 2022, last May, KW 19
        r"|[doO]f[Mm]|[do]M|om|(?<=[abisuV<>,])d\.M|(?<=[absuV<>])dm"  # the 8th of May, am 8. Mai
        r"|M\.?[do]|mo|(?<=[absuV<>])md"  # May 8th, on may 8
        r"|(?<=[iseuV<>])M|(?<=Uf)[Mm]|(?<=[isu])m(?![xc])|(?<=[isuV<>])Q|[YJ]",  # in May, in Q3
        _calendar,
    ),
    (r"D", _whole_date),  # 2023-05-08
    (r"[LT]N", _night),  # last night, this morning
    (r"R", _relative_day),  # yesterday
    # between May and July: one of several months
    (r"[Mm](?=~P)|M(?=&P)|(?<=P&)M|(?<=[bfs])[Mm](?=[&~u1][PMm])", _calendar),
    (r"(?<=[bfs]P[&~u1])[Mm]", _calendar),
    (r"[LTl]U[Ww]|W[LT]U|[LT]w", _day_of_week),  # Monday last week, 上周一
    (r"(?:[Ll][nd]U|nlU)(?!f[PLT]|[i<>V]P)|s[nd1]U", _find_rolling),  # the last two weeks
    (r"[LTl]U(?!f[PLT]|[i<>V]P)|Ul", _unit),  # last week, la semana pasada
    (r"[OoLl][nd]?U[fi]P", _part),  # the first week of May
    (r"(?:[nd1Ll])?U[<>V]P|W[<>V]P", _beside),  # two weeks before 11 August
    (r"U[fb]P", _week_of),  # the weekend of 8 May
    (r"[nd1]UA|[VH][nd1]U", _ago),  # two weeks ago, vor zwei Wochen
    (r"W,?P", _same_day),  # Monday, 8 May
    (r"sW", _since_weekday),  # since Monday
    (r"[LT]W|Wl|(?<=a)W|w", _day_of_week),  # last Monday, on Monday
    (r"[ai]U(?![<>V])", _weekend),  # at the weekend
    (r"[bfs](?:P|d\.?)[&~u1]P|[Pd][~u1]P|PzPt?", _range),  # between 3 and 8 May
    (r"sP|>P|Pz", _since),  # since May, after 2022
    (r"[<uV]P|P[At]", _before),  # before June
)
_READINGS: Final = tuple((re.compile(form), read) for form, read in _FORMS)
