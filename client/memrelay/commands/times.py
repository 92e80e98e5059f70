"""Reads times and spans of time as people type them, in this machine's zone.

It does not own the options that take them, or what a relayer makes of a time.

- RFC 3339 goes to the relayer as it was written. Every other form has a `note` of how it was read,
  which people are shown.
- Days, weeks, months and years keep the time on the clock; hours and less are exact. A time that
  the clock shows twice, or skips, is refused, and a day begins at its first moment.
"""

import re
from argparse import ArgumentTypeError
from datetime import UTC, date, datetime, timedelta, timezone

FORMS = (
    '2026-05-04, "2026-05-04 14:00", 2026-05-04T14:00:00+02:00, yesterday, "tomorrow 9:00",'
    ' "3 days ago" or "in 2 weeks"'
)
FORMS_PAST = (
    '2026-05-04, "2026-05-04 14:00", 2026-05-04T14:00:00+02:00, "yesterday 9:00", "3 days ago"'
    " or 30d"
)
FORMS_FUTURE = (
    '2026-12-31, "2026-12-31 14:00", 2026-12-31T14:00:00+02:00, "tomorrow 9:00", "in 2 weeks"'
    " or 30d"
)
FORMS_SPAN = '45s, 30m, 12h, 90d, 4w, 1h30m or "2 weeks"'

_CHARS_MAX = 64
_SKEW = timedelta(minutes=5)  # the relayer's clock, which wrote the time, may be ahead by that
_PAST, _ANY, _FUTURE = -1, 0, 1
_RFC_3339 = r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)"
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CLOCK = r"(?P<hour>\d{1,2})(:(?P<minute>\d\d)(:(?P<second>\d\d))?)? ?(?P<half>am|pm)?"
_DAY = (
    r"(?P<date>\d{4}-\d{1,2}-\d{1,2})|(?P<word>today|yesterday|tomorrow)"
    r"|((?P<which>last|next) |on )?(?P<weekday>[a-z]{3,9}day)"
)
_ZONE = r"z|utc|[+-]\d\d(:?\d\d)?"
_ON_A_DAY = rf"({_DAY})(( at |[ t]){_CLOCK}( ?(?P<zone>{_ZONE}))?)?"
_SECONDS = {"second": 1, "minute": 60, "hour": 3600}
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "year": 12}
_SHORT = {
    **{"s": "second", "sec": "second", "m": "minute", "min": "minute", "h": "hour", "hr": "hour"},
    **{"d": "day", "w": "week", "wk": "week", "mo": "month", "y": "year", "yr": "year"},
}


class Moment(str):
    """A time in RFC 3339, as the API takes it.

    `time` is the same in UTC, and `note` says how another form was read.
    """

    time: datetime
    note: str | None = None


class _Wrong(ValueError):
    """A text that is no time; a message says what to write, where that is not any of the forms."""


def parse_time(text: str) -> Moment:
    """Return any time; what may be past or to come is refused."""
    return read_time(text, now=datetime.now(UTC), leaning=_ANY)


def parse_bound(text: str) -> Moment:
    """Return any time; a span, or a day of the week, is the one that is past."""
    return read_time(text, now=datetime.now(UTC), leaning=_PAST)


def parse_past(text: str) -> Moment:
    """Return a time that is past."""
    now = datetime.now(UTC)
    moment = read_time(text, now=now, leaning=_PAST)
    if moment.time > now + (_SKEW if moment.note is None else timedelta()):
        raise ArgumentTypeError(f"{_name(moment)} is still to come; write {FORMS_PAST}")
    return moment


def parse_future(text: str) -> Moment:
    """Return a time that is still to come."""
    now = datetime.now(UTC)
    moment = read_time(text, now=now, leaning=_FUTURE)
    if moment.time <= now:
        raise ArgumentTypeError(f"{_name(moment)} is past; write {FORMS_FUTURE}")
    return moment


def _name(moment: Moment) -> str:
    """Return a time as it was typed, and how it was read where that is something else."""
    return str(moment) if moment.note is None else f"{moment.note}, which"


def parse_span(text: str) -> timedelta:
    """Return a span of time."""
    try:
        months, days, seconds = _amount(_normalise(text))
        span = timedelta(days=days, seconds=seconds)
    except (_Wrong, OverflowError):
        raise ArgumentTypeError(
            f"{text[:_CHARS_MAX]!r} is no span of time; write {FORMS_SPAN}"
        ) from None
    if months:
        raise ArgumentTypeError("months and years are not all of a length; write days or weeks")
    if not span:
        raise ArgumentTypeError(f"no time at all; write {FORMS_SPAN}")
    return span


def read_time(text: str, *, now: datetime, leaning: int) -> Moment:
    """Return the time that a text says at `now`.

    `leaning` is 1 or -1 where a bare span is to come or past, 0 where that is refused.

    Raises:
        ArgumentTypeError: it says none, or not which; the message says what to write.
    """
    forms = {_PAST: FORMS_PAST, _ANY: FORMS, _FUTURE: FORMS_FUTURE}[leaning]
    try:
        if re.fullmatch(_RFC_3339, text, re.ASCII):
            moment = Moment(text)
            moment.time = datetime.fromisoformat(text.upper()).astimezone(UTC)
            return moment
        return _read_form(text, now.astimezone().replace(microsecond=0), leaning)
    except (ValueError, OverflowError, OSError) as error:
        why = str(error) if isinstance(error, _Wrong) else ""
        raise ArgumentTypeError(why or f"{text[:_CHARS_MAX]!r} is no time; write {forms}") from None


def _read_form(text: str, now: datetime, leaning: int) -> Moment:
    form = _normalise(text)
    if form == "now":
        time = now
    elif on_day := re.fullmatch(_ON_A_DAY, form, re.ASCII):
        wall = _find_day(on_day, now, leaning)
        if zone := on_day["zone"]:
            time = wall.replace(tzinfo=_zone(zone))
        else:
            time = _place(wall, is_whole_day=on_day["hour"] is None)
    elif clock := re.fullmatch(_CLOCK, form, re.ASCII):
        if clock["minute"] is None and clock["half"] is None:
            raise _Wrong
        time = _place(_at(now.date(), clock))
    else:
        time = _count_from(now, form, leaning)
    offset = time.utcoffset() or timedelta()
    if offset.seconds % 60:  # as of zones of long ago, which RFC 3339 cannot write
        time = time.astimezone(UTC)
    moment = Moment(time.isoformat())
    moment.time = time.astimezone(UTC)
    moment.note = f"{' '.join(text.split())} is {_describe(time)}"
    return moment


def _normalise(text: str) -> str:
    if len(text) > _CHARS_MAX:
        raise _Wrong
    return " ".join(text.casefold().split())


def _find_day(found: re.Match[str], now: datetime, leaning: int) -> datetime:
    """Return what the clock shows at the time of a day."""
    if found["date"]:
        year, month, day = map(int, found["date"].split("-"))
        return _at(date(year, month, day), found)
    if found["zone"]:
        raise _Wrong("a zone goes with a whole date, such as 2026-05-04T14:00:00+02:00")
    if found["word"]:
        days = {"yesterday": -1, "today": 0, "tomorrow": 1}[found["word"]]
        return _at(now.date() + timedelta(days=days), found)
    if found["weekday"] not in _WEEKDAYS:
        raise _Wrong
    towards = {"last": _PAST, "next": _FUTURE, None: leaning}[found["which"]]
    if towards == _ANY:
        name = found["weekday"]
        raise _Wrong(f'a {name} may be past or to come: write "last {name}" or "next {name}"')
    ahead = (_WEEKDAYS.index(found["weekday"]) - now.weekday()) % 7
    days = (ahead or 7) if towards == _FUTURE else (ahead or 7) - 7 if ahead else -7
    return _at(now.date() + timedelta(days=days), found)


def _at(day: date, found: re.Match[str]) -> datetime:
    """Return a day with the time that a match of `_CLOCK` says, midnight without one."""
    hour = int(found["hour"] or 0)
    if found["half"]:
        if not 1 <= hour <= 12:
            raise _Wrong
        hour = hour % 12 + (12 if found["half"] == "pm" else 0)
    elif found["hour"] and found["minute"] is None:
        raise _Wrong
    minute, second = int(found["minute"] or 0), int(found["second"] or 0)
    return datetime(day.year, day.month, day.day, hour, minute, second)


def _place(wall: datetime, *, is_whole_day: bool = False) -> datetime:
    """Return the time at which the clock here shows this; of a day, its first moment."""
    # As of PEP 495: with a fold, what an hour that is repeated shows the second time; in a gap,
    # what the clock would show if it had changed already, which is earlier.
    first, second = (_in_zone(wall.replace(fold=fold)) for fold in (0, 1))
    if first == second or is_whole_day:
        return first
    if first < second:
        offsets = f"{_offset(first)} or {_offset(second)}"
        raise _Wrong(f"the clock shows {wall:%H:%M} twice that day: add the offset, {offsets}")
    raise _Wrong(f"the clock skips {wall:%H:%M} that day, as it goes forward; add an offset")


def _in_zone(wall: datetime) -> datetime:
    return datetime.fromtimestamp(wall.timestamp(), UTC).astimezone()


def _zone(text: str) -> timezone:
    if text in {"z", "utc"}:
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if minutes > 59:
        raise _Wrong
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def _count_from(now: datetime, form: str, leaning: int) -> datetime:
    """Return the time that is so far from now."""
    if parts := re.fullmatch(r"(last|next) ([a-z]+)", form):
        return _shift(now, f"1 {parts[2]}", 1 if parts[1] == "next" else -1)
    if form.startswith("in "):
        return _shift(now, form[3:], 1)
    if form.endswith(" from now"):
        return _shift(now, form.removesuffix(" from now"), 1)
    if form.endswith("ago"):
        return _shift(now, form.removesuffix("ago").rstrip(), -1)
    amount = _amount(form)
    if leaning == _ANY:
        raise _Wrong(f'{form} may be past or to come: write "{form} ago" or "in {form}"')
    return _shift_by(now, amount, leaning)


def _shift(now: datetime, form: str, sign: int) -> datetime:
    return _shift_by(now, _amount(form), sign)


def _shift_by(now: datetime, amount: tuple[int, float, float], sign: int) -> datetime:
    months, days, seconds = (sign * part for part in amount)
    if months or days:
        number = now.year * 12 + now.month - 1 + int(months)
        year, month = number // 12, number % 12 + 1
        first_day = now.replace(year=year, month=month, day=1, tzinfo=None)
        last_day = (first_day.replace(day=28) + timedelta(days=4)).replace(day=1)
        days_max = (last_day - timedelta(days=1)).day
        now = _in_zone(first_day.replace(day=min(now.day, days_max)) + timedelta(days=days))
    return (now.astimezone(UTC) + timedelta(seconds=seconds)).astimezone()


def _amount(form: str) -> tuple[int, float, float]:
    """Return the months, days and seconds of a span such as `1h30m` or `2 weeks and 3 days`.

    Raises:
        _Wrong: it is none.
    """
    plain = form.replace(" and ", " ").replace(",", " ")
    tokens = re.findall(r"\d+(?:\.\d+)?|[a-z]+|\S", plain, re.ASCII)
    if not tokens or len(tokens) % 2:
        raise _Wrong
    months, days, seconds = 0, 0.0, 0.0
    for number, word in zip(tokens[::2], tokens[1::2], strict=True):
        plain = word.removesuffix("s") if len(word) > 2 else word  # "ms" are no minutes
        unit = _SHORT.get(plain, plain)
        count = _count(number)
        if unit in _SECONDS:
            seconds += count * _SECONDS[unit]
        elif unit in _DAYS:
            days += count * _DAYS[unit]
        elif unit in _MONTHS and count.is_integer():
            months += int(count) * _MONTHS[unit]
        else:
            raise _Wrong
    return months, days, seconds


def _count(text: str) -> float:
    if text in {"a", "an", "one"}:
        return 1.0
    if not (text[0].isascii() and text[0].isdecimal()) or len(text) > 9:
        raise _Wrong
    return float(text)


def _describe(time: datetime) -> str:
    """Return a time with its zone, for people."""
    seconds = ":%S" if time.second else ""
    name = time.tzname() or ""
    zone = _offset(time)
    if name == "UTC":
        zone = "UTC"
    elif name.isalpha():
        zone = f"{zone} ({name})"
    return f"{time:%Y-%m-%d %H:%M{seconds}} {zone}"


def _offset(time: datetime) -> str:
    text = f"{time:%z}"
    return f"{text[:3]}:{text[3:5]}"
