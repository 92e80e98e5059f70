"""Times that a model states: which of them are believed, and what of a text is left without.

It does not own days and other dates of a text (`support.py`).

- A time, and a year in a fact's text, is believed only where something shown to the model names one
  or counts the years to it. An invented date at the end of a fact is cut off.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, time
from typing import Final

from relayer.extraction.dates import MONTH, day_ms

_YEAR: Final = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_COUNTED: Final = re.compile(
    r"(?<![\w.,])(\d{1,3}|[a-zäöüß]{1,8})[ -](?:years?|jahre?n?)\b", re.IGNORECASE
)
_NUMBERS: Final = {
    word: n
    for words in (
        "one two three four five six seven eight nine ten eleven twelve",
        "ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    )
    for n, word in enumerate(words.split(), start=1)
} | {"a": 1, "fifteen": 15, "twenty": 20, "thirty": 30, "fünfzehn": 15, "zwanzig": 20}
_UNIT: Final = (
    r"euros?|dollars?|pounds?|francs?|usd|eur|gbp|chf|metres|meters|miles|km|m|kg|g|gb|mb|ms|people|rows|users|items"
    r"|words|tokens|characters|steps|times|hours|days|weeks|months|years|jahre?n?|stunden|tagen?"
)
_IN: Final = (
    "in|on|since|by|until|till|from|before|after|around|im|am|seit|bis|ab|vor|nach|born|geboren"
    "|spring|summer|autumn|winter|frühling|sommer|herbst|q[1-4]"
)
_DAY: Final = r"\d{1,2}(?:st|nd|rd|th|\.)?"
# A year where a date stands. An amount is none, nor is the number of a room or a model.
_DATE: Final = re.compile(
    rf"(?P<lead>(?:^|,? )(?:{_IN})(?: the| dem)?(?: year| jahr)?)?"
    rf"(?: \(?(?:{_DAY} )?(?:of )?(?:{MONTH})\.?,?| (?:{MONTH})\.? {_DAY},?"
    rf"| \d{{1,2}}[./-]\d{{1,2}}[./-](?=\d{{4}})| (?=\d{{4}}-\d\d)| \((?=\d{{4}}\))|(?(lead)|(?!)))"
    rf" ?(?P<year>(?:19|20)\d\d)(?:-\d\d){{0,2}}\)?(?![\w€%]|[.,]\d| (?:{_UNIT})\b)",
    re.IGNORECASE,
)
_NEEDS_MORE: Final = re.compile(
    r"(?:^|\s)(?:is|are|was|were|be|due|it's|ist|sind|war|waren|wird|am|in|on)$", re.IGNORECASE
)


def cut_invented_date(text: str, years: set[str]) -> str:
    """Return `text` without an invented date at its end; nothing if it is worth nothing then."""
    invented = [match for match in _DATE.finditer(text) if match["year"] not in years]
    if not invented:
        return text
    first = invented[0]
    rest, end = text[: first.start()], text[first.end() :]
    whole = bool(first["lead"]) and not _NEEDS_MORE.search(rest)
    return rest + end if whole and not end.strip(".!") else ""


def collect_years(texts: Sequence[str], occurred_at: datetime | None) -> set[str]:
    """Return the years that a fact may name.

    Those in what is shown, those next to the conversation's, and those that "ten years" counts to.
    """
    years = {year for text in texts for year in _YEAR.findall(text)}
    if occurred_at is not None:
        counted = {0}.union(*(map(_parse_count, _COUNTED.findall(text)) for text in texts))
        spans = {sign * n + near for n in counted for sign in (-1, 1) for near in (-1, 0, 1)}
        years |= {str(occurred_at.year + span) for span in spans}
    return years


def _parse_count(word: str) -> int:
    return int(word) if word.isdecimal() else _NUMBERS.get(word.casefold(), 0)


def read_time_ms(value: object, years: set[str], occurred_at: datetime | None = None) -> int | None:
    """Return an RFC 3339 time in ms, if its year is one that a fact may name.

    A day, or its midnight without an offset or in UTC, is that day where the conversation was.
    """
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        if not 1 < moment.year < 9999:  # beyond, converting between time zones overflows
            return None
        if str(moment.year) not in years:
            return None
        if moment.time() == time() and not moment.utcoffset():
            return day_ms(moment.date(), occurred_at)
        zone = moment.tzinfo or (occurred_at and occurred_at.tzinfo) or UTC
        return int(moment.replace(tzinfo=zone).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
