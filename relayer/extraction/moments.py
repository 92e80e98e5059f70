"""Times that stand before a message or an item: `[2026-11-20 10:00]`, `20/11/2026, 10:00 -`.

It does not own the day that a sentence names (`dates.py`).

- A time without a zone is one of the conversation's, as UTC where nothing tells that. A day and a
  month in doubt are taken as written in most countries.
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final

from relayer.extraction.dates import MONTH, MONTHS

_DAY_NAME: Final = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?,? )?"
_DATE: Final = (
    r"(?P<iso>\d{4}[-/.]\d{1,2}[-/.]\d{1,2})"
    r"|(?P<dotted>\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d\d))"
    rf"|(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.)? (?P<month>{MONTH})\.?,?(?: (?P<year>\d{{4}}))?"
    rf"|(?P<month2>{MONTH})\.? (?P<day2>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<year2>\d{{4}}))?"
)
_TIME: Final = (
    r"(?P<hour{n}>\d{{1,2}}):(?P<minute{n}>\d\d)(?::(?P<second{n}>\d\d)(?:[.,]\d{{1,9}})?)?"
    r"(?:[ \u202f\u00a0]?(?P<half{n}>[ap])\.?m\b\.?)?(?: ?(?P<zone{n}>Z|UTC|GMT|[+-]\d\d:?\d\d))?"
)
_STAMP: Final = (
    rf"{_DAY_NAME}(?:(?:{_DATE})(?:(?:T|,? (?:at |um )?){_TIME.format(n=1)})?|{_TIME.format(n=2)})"
)
# With or without brackets, and what parts it from what follows.
STAMP: Final = re.compile(
    rf"[ \t\u00a0\u200e]*(?P<open>[\[(])?{_STAMP}(?(open)[\])])(?![\w])"
    r"(?P<dash>[ \t]*[-–—|](?=[ \t]))?:?(?:[ \t]+|\Z)",
    re.IGNORECASE,
)

_UNNAMED: Final = timezone(timedelta(), "unnamed")  # UTC, until another is known
_SECONDS_MAX: Final = 10**11  # the year 5138; larger numbers count ms or µs


def moment_of(match: re.Match[str]) -> datetime | None:
    """Return the moment that a match of `STAMP` names; None for a time of no day, or of none."""
    day = _date(match)
    if day is None:
        return None
    year, month, date = day
    hour, minute, second, half, zone = (
        match[f"{part}1"] for part in ("hour", "minute", "second", "half", "zone")
    )
    hours = int(hour or 0)
    if half:
        hours = hours % 12 + (12 if half.casefold() == "p" else 0)
    try:
        moment = datetime(
            year, month, date, hours, int(minute or 0), int(second or 0), tzinfo=_zone(zone)
        )
    except ValueError:
        return None
    return moment if _is_possible(moment) else None


def _date(match: re.Match[str]) -> tuple[int, int, int] | None:
    """Return (year, month, day), which may be none of the calendar."""
    if match["iso"]:
        year, month, day = re.split("[-/.]", match["iso"])
        return int(year), int(month), int(day)
    if match["dotted"]:
        first, second, year = re.split("[-/.]", match["dotted"])
        day, month = (second, first) if int(second) > 12 else (first, second)
        return int(year) + (2000 if len(year) == 2 else 0), int(month), int(day)
    name, day = match["month"] or match["month2"], match["day"] or match["day2"]
    year = match["year"] or match["year2"]
    return (int(year), MONTHS[name[:3].casefold()], int(day)) if name and year else None


def _zone(text: str | None) -> timezone:
    if not text:
        return _UNNAMED
    if text[0] not in "+-":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def moment_named(value: object) -> datetime | None:
    """Return the moment that a transcript's field names: ISO 8601, a stamp, or since 1970 in s,
    ms or µs."""
    if isinstance(value, str):
        if re.fullmatch(r"\d{9,16}(?:\.\d{1,9})?", value):
            value = float(value)
        else:
            match = STAMP.fullmatch(value[:100])
            return None if match is None else moment_of(match)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        for _ in range(2):
            value = value / 1000 if value > _SECONDS_MAX else value
        moment = datetime.fromtimestamp(value, UTC)
    except (OverflowError, OSError, ValueError):  # also of an infinite one
        return None
    return moment if _is_possible(moment) else None


def settle_zone(moment: datetime, zone: tzinfo) -> datetime:
    """Return a moment of a conversation that took place in `zone`: UTC tells nobody's days."""
    if moment.tzinfo is _UNNAMED:
        return moment.replace(tzinfo=zone)
    return moment.astimezone(zone) if moment.tzinfo is UTC else moment


def _is_possible(moment: datetime) -> bool:
    """Tell whether no other zone has the moment beyond the calendar."""
    return 1 < moment.year < 9999
