"""The one day that a sentence names, if it names one.

It does not own whether the sentence is worth keeping (`judge.py`).

- Nothing is invented: a date without a year, a mere weekday and a sentence with several dates have
  no time, nor has a week or a month, which is no day. Nor has a day in the year 1 or 9999, which no
  request may name either: the database takes the first moment for no moment at all.
- A day's time is one at which it is that day in UTC, by which recalls count days, as well as in the
  zone of whoever said it. Only the offset at the time of saying is known: where the day is in
  winter, clocks may be an hour behind it.
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

MONTH: Final = (
    "jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|märz|apr(?:il)?|may|mai|june?|juni|july?|juli"
    "|aug(?:ust)?|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?"
)
FULL_DATE: Final = re.compile(
    rf"\b(\d{{4}})-(\d\d)-(\d\d)\b"
    rf"|\b(\d{{1,2}})(?:st|nd|rd|th|\.)? (?:of )?({MONTH})\.?,? (\d{{4}})\b"
    rf"|\b({MONTH})\.? (\d{{1,2}})(?:st|nd|rd|th)?,? (\d{{4}})\b"
    rf"|\b(\d{{1,2}})\.(\d{{1,2}})\.(\d{{4}})\b",
    re.IGNORECASE,
)
MONTHS: Final = {
    **{"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9},
    **{"oct": 10, "nov": 11, "dec": 12, "mär": 3, "mai": 5, "okt": 10, "dez": 12},
}
_SUMMER_TIME: Final = timedelta(hours=1)
_WEEKDAYS: Final = (
    "monday tuesday wednesday thursday friday saturday sunday".split(),
    "montag dienstag mittwoch donnerstag freitag samstag sonntag".split(),
)
_NUMBERS: Final = {
    word: n
    for words in (
        "one two three four five six seven eight nine ten",
        "einem zwei drei vier fünf sechs sieben acht neun zehn",
    )
    for n, word in enumerate(words.split(), 1)
} | {"a": 1, "einer": 1}
_COUNT: Final = rf"(\d{{1,3}}|{'|'.join(_NUMBERS)})"
# "Next" and "last" mean the nearest such day; of a month or of each week, they mean another.
_WEEKDAY: Final = re.compile(
    r"(?<!\bevery )(?<!\beach )(?<!\bjede[mnrs] )"
    r"\b(?:(next|coming|nächste[mnrs]?|kommende[mnrs]?)"
    r"|last|letzte[mnrs]?|vorige[mnrs]?|vergangene[mnrs]?) "
    rf"({'|'.join([day for days in _WEEKDAYS for day in days])}|sonnabend)\b"
    r"(?! (?:of|in|im|des|before|after|vor|nach)\b)",
    re.IGNORECASE,
)
_AGO: Final = re.compile(
    rf"\b(?:{_COUNT} (?:days?|(weeks?)) ago|vor {_COUNT} (?:tag(?:en?)?|(wochen?)))\b",
    re.IGNORECASE,
)
_RELATIVE: Final = (
    (re.compile(r"\b(?:day before yesterday|vorgestern)\b", re.IGNORECASE), -2),
    (re.compile(r"\b(?:day after tomorrow|übermorgen)\b", re.IGNORECASE), 2),
    (re.compile(r"\b(?:yesterday|gestern)\b", re.IGNORECASE), -1),
    (re.compile(r"\b(?:today|tonight|heute)\b", re.IGNORECASE), 0),
    # With a capital letter "Morgen" is the morning, as in "Guten Morgen".
    (re.compile(r"\b(?:[Tt]omorrow|morgen)\b"), 1),
)


def event_time_ms(sentence: str, occurred_at: datetime | None) -> int | None:
    """Return the time of the one day that `sentence` names, as milliseconds since 1970.

    A full date counts by itself; "yesterday" or "next Friday" only when `occurred_at` is given.
    """
    days = {_full_date(match) for match in FULL_DATE.finditer(sentence)}
    if not days and occurred_at is not None:
        today = occurred_at.date()
        days = {_shift(today, offset) for offset in _offsets(sentence, today)}
    if len(days) != 1 or (day := days.pop()) is None:
        return None
    return day_ms(day, occurred_at)


def day_ms(day: date, said_at: datetime | None) -> int | None:
    """Return the time of a day that was named at `said_at`, as milliseconds since 1970."""
    if not 1 < day.year < 9999:
        return None
    east = (said_at and said_at.utcoffset()) or timedelta()
    begun = timedelta() if east >= timedelta() else _SUMMER_TIME - east
    return int((datetime.combine(day, time(), UTC) + begun).timestamp() * 1000)


def _offsets(sentence: str, today: date) -> Iterator[int]:
    """Yield how many days from today the days lie that words name."""
    for match in _WEEKDAY.finditer(sentence):
        is_next, name = match[1], match[2].casefold().replace("sonnabend", "samstag")
        weekday = next(days.index(name) for days in _WEEKDAYS if name in days)
        side = 1 if is_next else -1
        yield side * ((side * (weekday - today.weekday()) - 1) % 7 + 1)
    for match in _AGO.finditer(sentence):
        said = (match[1] or match[3]).casefold()
        yield -(_NUMBERS.get(said) or int(said)) * (7 if match[2] or match[4] else 1)
    for pattern, offset in _RELATIVE:
        sentence, found = pattern.subn("?", sentence)
        if found:
            yield offset


def _shift(day: date, offset: int) -> date | None:
    try:
        return day + timedelta(days=offset)
    except OverflowError:  # the calendar ends with the year 9999
        return None


def _full_date(match: re.Match[str]) -> date | None:
    iso_y, iso_m, iso_d, d1, name1, y1, name2, d2, y2, dot_d, dot_m, dot_y = match.groups()
    name = name1 or name2
    year, day = iso_y or y1 or y2 or dot_y, iso_d or d1 or d2 or dot_d
    month = MONTHS.get(name[:3].casefold(), 0) if name else int(iso_m or dot_m)
    try:
        return date(int(year), month, int(day))
    except ValueError:
        return None
