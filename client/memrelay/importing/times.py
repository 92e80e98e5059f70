"""Days and times of the day at the beginning of headings and notes.

It does not own words such as "yesterday" (`relative.py`), or what is dated by them (`markdown.py`).

- A time is one only in a usual form: `14:00`, `2:30 PM`, `2pm`, `14h30`, `14.30 Uhr`, `下午2点`.
- Of a span, its beginning counts. A zone counts if it is an offset, UTC or an IANA name.
- Work is linear: each pattern looks at the beginning of a text, over a bounded stretch.
"""

import re
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from memrelay.importing.drafts import moment

DAY: Final = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)")

_LEAD_CHARS_MAX: Final = 160  # no day or time ends further on
_EDGES: Final = " *_`:"
_OPENING: Final = r"[^\w\n+-]{0,6}"
_LEADING_DAY: Final = re.compile(
    rf"{_OPENING}(?:[^\W\d_]{{2,12}}\.?,?\s{{1,2}})?(?P<day>\d{{4}}-\d{{2}}-\d{{2}})(?!\d)"
)
_TRAILING_DAY: Final = re.compile(
    rf"(?P<title>.*?\S)[\s,:–—(\[-]{{1,4}}(?P<day>{DAY.pattern})[)\]]?"
)
_BEFORE_CLOCK: Final = re.compile(rf"T?{_OPENING}(?:(?:Session|at|um|ab|gegen|à|às|alle)\s)?")
_CLOCKS: Final = tuple(
    re.compile(rf"{pattern}(?!:\d|(?!Z\b)\w)")
    for pattern in (
        r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::\d{2}(?:\.\d{1,6})?)?"
        r"(?:\s?(?P<half>[AaPp])\.?[Mm]\b\.?|\s?Uhr\b)?",
        r"(?P<hour>\d{1,2})(?:\.(?P<minute>\d{2}))?\s?(?P<half>[AaPp])\.?[Mm]\b\.?",
        r"(?P<hour>\d{1,2})(?:[.:](?P<minute>\d{2}))?\s?Uhr\b",
        r"(?P<hour>\d{1,2})[hH](?P<minute>\d{2})",
        r"(?P<half>上午|下午|晚上|午前|午後|오전|오후)?\s?(?P<hour>\d{1,2})\s?"
        r"(?:[点點時时]|시)(?:\s?(?P<minute>\d{1,2})\s?[分분])?",
    )
)
_PAST_NOON: Final = frozenset("pP") | {"下午", "晚上", "午後", "오후"}
_TO: Final = re.compile(r"\s{0,2}(?:[-–—~]|to|bis|à|a)\s{0,2}")
_ZONE: Final = re.compile(
    r"[\s(\[]{0,3}(?P<zone>(?:UTC|GMT)[+-]\d{1,2}|UTC|GMT|Z|[+-]\d{2}:?\d{2}|[A-Z][A-Za-z_]{1,20}/[A-Za-z_/+-]{1,30})"
    r"(?![\w/])"
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?([0-5]\d))?")
_UTC: Final = frozenset({"UTC", "GMT", "Z"})
_AFTER: Final = re.compile(r"[\s*_`\])】]{0,4}[\s:–—|,·-]{0,6}")

_WRITTEN_CHARS_MAX: Final = 64
_TO_THE_SECOND: Final = re.compile(
    r"(?P<half>오전|오후|上午|下午|午前|午後)?\s?(?<!\d)(?P<hour>\d{1,2}):(?P<minute>\d{2}):(?P<second>\d{2})"
    r"(?:\s?(?P<half_behind>[AaPp])\.?\s?[Mm]\b\.?)?"
)
_GMT: Final = re.compile(
    r"(?:GMT|UTC)(?:(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?)?"
)
_ABBREVIATIONS: Final = {
    **{"Z": 0, "WET": 0, "BST": 1, "CET": 1, "MEZ": 1, "CEST": 2, "MESZ": 2, "EET": 2, "EEST": 3},
    **{"MSK": 3, "JST": 9, "KST": 9, "BRT": -3, "EDT": -4, "EST": -5, "CDT": -5, "MDT": -6},
    **{"MST": -7, "PDT": -7, "PST": -8},
}
# The first letters of the months in en, de, fr, es, it, pt, nl, pl, ru and tr.
_MONTHS: Final = {
    letters: number
    for number, row in enumerate(
        (
            "jan ene gen янв sty oca",
            "feb fév fev фев lut şub",
            "mar mär mrt maa мар",
            "apr avr abr апр kwi nis",
            "may mai mag mei maj май мая",
            "jun juin giu июн cze haz",
            "jul juil lug июл lip tem",
            "aug aoû ago авг sie ağu",
            "sep set сен wrz eyl",
            "oct okt out ott окт paź eki",
            "nov ноя lis kas",
            "dec dez déc dic дек gru ara",
        ),
        1,
    )
    for letters in row.split()
}


def split_time(title: str, when: datetime | None, zone: tzinfo) -> tuple[datetime | None, str]:
    """Return the moment that a heading gives to what follows, and what else the heading says.

    `when` is the moment so far, whose day a time alone belongs to. A time without any day is left
    in the title. What has no offset is of `zone`.
    """
    found, end = _parse_leading(title[:_LEAD_CHARS_MAX], when, zone)
    if end:
        return found, title[end:].strip(_EDGES)
    if len(title) <= _LEAD_CHARS_MAX and (trailing := _TRAILING_DAY.fullmatch(title)):
        day = moment(trailing["day"], zone)
        if day is not None:
            return day, trailing["title"].strip(_EDGES)
    return when, title


def note_time(text: str, when: datetime | None, zone: tzinfo) -> datetime | None:
    """Return the moment of a note, which may begin with a day, a time or both."""
    return _parse_leading(text[:_LEAD_CHARS_MAX], when, zone)[0]


def zone_of(name: str, default: tzinfo) -> tzinfo:
    """Return the time zone of a name or an offset; the default if this machine knows none such."""
    offset = _OFFSET.fullmatch("+0" if name in _UTC else name)
    if offset and int(offset[2]) < 24:
        delta = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(-delta if offset[1] == "-" else delta)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not known on this machine, or no name at all
        return default


def _parse_leading(text: str, when: datetime | None, zone: tzinfo) -> tuple[datetime | None, int]:
    """Return the moment that a text begins with, and where what follows it begins; 0 for none."""
    end = 0
    day = _LEADING_DAY.match(text)
    if day is not None and (midnight := moment(day["day"], zone)) is not None:
        when, end = midnight, day.end()
    if when is None:
        return None, 0
    before = _BEFORE_CLOCK.match(text, end)
    hours, after = _clock(text, before.end() if before else end)
    if hours is not None:
        end = after
        if (to := _TO.match(text, end)) and (till := _clock(text, to.end()))[0] is not None:
            end = till[1]
        known = when.tzinfo
        if named := _ZONE.match(text, end):
            known, end = zone_of(named["zone"], zone), named.end()
        when = datetime.combine(when.date(), hours, tzinfo=known)
    rest = _AFTER.match(text, end)
    return when, rest.end() if rest and end else end


def _clock(text: str, at: int) -> tuple[time | None, int]:
    """Return the time of the day that stands at a place of a text, and where it ends."""
    for pattern in _CLOCKS:
        found = pattern.match(text, at)
        if found is None:
            continue
        hour, minute, half = int(found["hour"]), int(found["minute"] or 0), _half(found)
        if half and 1 <= hour <= 12:
            hour = hour % 12 + (12 if half in _PAST_NOON else 0)
        if hour < 24 and minute < 60:
            return time(hour, minute), found.end()
    return None, at


def _half(found: re.Match[str]) -> str:
    return found.groupdict().get("half") or ""


def parse_written_time(line: str, zone: tzinfo) -> datetime | None:
    """Return the moment of a line that is one to the second, as programs write it for people.

    In any of ten languages: "Nov 20, 2026, 2:30:05 PM CET", "20.11.2026, 14:30:05 MEZ". Of a zone
    that is none of the usual ones, it is one of `zone`.
    """
    clock = _TO_THE_SECOND.search(line) if len(line) <= _WRITTEN_CHARS_MAX else None
    day = None if clock is None else _parse_day(line[: clock.start()])
    if clock is None or day is None:
        return None
    hour, half = int(clock["hour"]), clock["half"] or clock["half_behind"]
    if half and 1 <= hour <= 12:
        hour = hour % 12 + (12 if half in _PAST_NOON else 0)
    try:
        at = time(hour, int(clock["minute"]), int(clock["second"]))
    except ValueError:
        return None
    return datetime.combine(day, at, _parse_zone(line[clock.end() :].strip(" ()"), zone))


def _parse_day(text: str) -> date | None:
    """Return the day before a time: a year, a day, and a month by its number or name."""
    numbers = [int(number) for number in re.findall(r"(?<![0-9])[0-9]{1,4}(?![0-9])", text)]
    year = next((number for number in numbers if 2000 <= number < 2100), None)
    months = map(_month_of, re.findall(r"[^\W\d_]+", text))
    month = next(filter(None, months), None)
    rest = [number for number in numbers if number != year]
    if month is None and len(rest) == 2:  # the year first or last decides the order
        month, day = rest if numbers[0] == year else rest[::-1]
    elif month is not None and len(rest) == 1:
        day = rest[0]
    else:
        return None
    try:
        return None if year is None else date(year, month, day)
    except ValueError:
        return None


def _parse_zone(text: str, zone: tzinfo) -> tzinfo:
    offset = _GMT.fullmatch(text)
    if offset:
        minutes = int(offset["hours"] or 0) * 60 + int(offset["minutes"] or 0)
        delta = timedelta(minutes=-minutes if offset["sign"] == "-" else minutes)
        return timezone(delta) if delta < timedelta(hours=24) else zone
    return timezone(timedelta(hours=_ABBREVIATIONS[text])) if text in _ABBREVIATIONS else zone


def _month_of(word: str) -> int | None:
    lower = word.lower()
    return _MONTHS.get(lower[:4]) or _MONTHS.get(lower[:3])
