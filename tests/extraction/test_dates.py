"""When things happened, as texts say it."""

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from relayer.extraction.dates import event_time_ms
from tests.extraction.ruled import SUNDAY, day_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("due on 2026-05-03", day_ms(2026, 5, 3)),
        ("due on 3 May 2026", day_ms(2026, 5, 3)),
        ("due on May 3rd, 2026", day_ms(2026, 5, 3)),
        ("fällig am 3. Mai 2026", day_ms(2026, 5, 3)),
        ("fällig am 14. März 2026", day_ms(2026, 3, 14)),
        ("fällig am 03.05.2026", day_ms(2026, 5, 3)),
        ("we met yesterday", day_ms(2026, 2, 28)),
        ("we meet tomorrow", day_ms(2026, 3, 2)),
        ("heute ist Abgabe", day_ms(2026, 3, 1)),
        ("vorgestern unterschrieben", day_ms(2026, 2, 27)),
        ("signed the day before yesterday", day_ms(2026, 2, 27)),
        ("due the day after tomorrow", day_ms(2026, 3, 3)),
        ("due next Friday", day_ms(2026, 3, 6)),
        ("due next Sunday", day_ms(2026, 3, 8)),
        ("Last Tuesday we met", day_ms(2026, 2, 24)),
        ("last Sunday we met", day_ms(2026, 2, 22)),
        ("Letzten Dienstag war ich dort", day_ms(2026, 2, 24)),
        ("am nächsten Sonnabend", day_ms(2026, 3, 7)),
        ("signed 3 days ago", day_ms(2026, 2, 26)),
        ("signed two weeks ago", day_ms(2026, 2, 15)),
        ("vor einer Woche unterschrieben", day_ms(2026, 2, 22)),
        ("vor zehn Tagen unterschrieben", day_ms(2026, 2, 19)),
        # Nothing is invented:
        ("due on 3 May", None),
        ("due on Friday", None),
        ("the last Friday of the month", None),
        ("every last Friday we meet", None),
        ("jeden letzten Freitag im Monat", None),
        ("next Friday or next Monday", None),
        ("last month we moved", None),
        ("we move next week", None),
        ("in two weeks it was done", None),
        ("signed 3 months ago", None),
        ("signed 999 weeks ago, on 3 May 2026", day_ms(2026, 5, 3)),
        ("due on 31 February 2026", None),
        ("due on 2026-13-01", None),
        ("due on 3 maı 2026", None),
        ("due on 3 May 0000", None),
        ("from 3 May 2026 to 5 May 2026", None),
        ("yesterday or today", None),
        ("Guten Morgen", None),
        ("since 2026", None),
        ("TL-2026-0318", None),
        ("version 2026.05.03", None),
        ("no date", None),
    ],
)
def test_event_time(text: str, expected: int | None) -> None:
    assert event_time_ms(text, SUNDAY) == expected


def test_relative_day_counts_in_the_zone_of_the_speaker() -> None:
    late = datetime(2026, 3, 1, 23, 30, tzinfo=timezone(timedelta(hours=-8)))
    assert day_in("Etc/GMT+8", "we meet tomorrow", late) == date(2026, 3, 2)


@pytest.mark.parametrize("said", [datetime(2026, 1, 20, 21), datetime(2026, 7, 20, 21)])
@pytest.mark.parametrize("text", ["due on 2026-02-03", "due on 12 June 2027", "we met yesterday"])
@pytest.mark.parametrize(
    "zone",
    [
        *("UTC", "Europe/London", "Europe/Berlin", "Asia/Kolkata", "Asia/Tokyo"),
        *("Pacific/Auckland", "Pacific/Kiritimati", "Atlantic/Cape_Verde", "America/St_Johns"),
        *("America/New_York", "America/Los_Angeles", "Pacific/Honolulu", "America/Santiago"),
    ],
)
def test_a_day_is_that_day_where_it_was_said_and_in_utc(
    zone: str, text: str, said: datetime
) -> None:
    here = said.replace(tzinfo=ZoneInfo(zone))
    offset = here.utcoffset()
    assert offset is not None
    told = here.replace(tzinfo=timezone(offset))  # summer time is not
    expected = {
        "due on 2026-02-03": date(2026, 2, 3),
        "due on 12 June 2027": date(2027, 6, 12),
        "we met yesterday": said.date() - timedelta(days=1),
    }
    assert {day_in(name, text, told) for name in (zone, "UTC")} == {expected[text]}


def day_in(zone: str, text: str, said: datetime) -> date:
    ms = event_time_ms(text, said)
    assert ms is not None
    return datetime.fromtimestamp(ms / 1000, ZoneInfo(zone)).date()


def test_a_day_begins_soon_where_it_was_said() -> None:
    for hours, begun in ((-8, 9), (-4, 5), (0, 0), (2, 0)):
        said = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=hours)))
        assert event_time_ms("on 2026-05-03", said) == day_ms(2026, 5, 3) + begun * 3_600_000


@pytest.mark.parametrize(
    "text", ["we met yesterday", "we meet next Friday", "signed 3 days ago", "heute ist Abgabe"]
)
def test_relative_day_without_occurred_at_is_no_time(text: str) -> None:
    assert event_time_ms(text, None) is None


@pytest.mark.parametrize(
    "last", [datetime(9999, 12, 31, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)]
)
def test_end_of_the_calendar_is_no_crash(last: datetime) -> None:
    assert {event_time_ms(text, last) for text in ("yesterday", "tomorrow")} & {None}


@pytest.mark.parametrize(
    "text", ["since 0001-01-01", "on 31.12.0001", "until 9999-12-31", "on 1 January 9999"]
)
def test_days_that_no_request_may_name_are_no_time(text: str) -> None:
    assert event_time_ms(text, None) is None


def test_full_date_needs_no_occurred_at() -> None:
    assert event_time_ms("due on 3 May 2026", None) == day_ms(2026, 5, 3)
