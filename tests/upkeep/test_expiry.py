"""When a key that the operator makes ends: the forms that `--expires` takes.

Not here: what a key that has ended may do.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import click
import pytest

from relayer.commands.accounts import parse_expiry

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone that is two hours ahead, without summer time."""
    monkeypatch.setenv("TZ", "XXX-2")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("90d", timedelta(days=90)),
        ("12h", timedelta(hours=12)),
        ("30m", timedelta(minutes=30)),
        ("4w", timedelta(weeks=4)),
        ("in 2 weeks", timedelta(weeks=2)),
        ("In 1 day", timedelta(days=1)),
        ("3 hours", timedelta(hours=3)),
    ],
)
def test_spans_count_from_now(text: str, after: timedelta) -> None:
    assert parse_expiry(text, NOW) == NOW + after


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-12-31", datetime(2026, 12, 30, 22, tzinfo=UTC)),
        ("2026-12-31 14:00", datetime(2026, 12, 31, 12, tzinfo=UTC)),
        ("2026-12-31T14:00:00Z", datetime(2026, 12, 31, 14, tzinfo=UTC)),
        ("2026-12-31T14:00:00+05:30", datetime(2026, 12, 31, 8, 30, tzinfo=UTC)),
    ],
)
def test_times_without_an_offset_are_of_this_machines_zone(text: str, moment: datetime) -> None:
    assert parse_expiry(text, NOW) == moment


def test_without_one_it_does_not_end() -> None:
    assert parse_expiry(None, NOW) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "--expires is 90d"),
        ("soon", "--expires is 90d"),
        ("0d", "--expires is 90d"),
        ("in -2 weeks", "--expires is 90d"),
        ("9999-12-31T23:59:59-14:00", "--expires is 90d"),
        ("2026-11-28", "is over: 2026-11-27T22:00:00"),
        ("2026-11-28T11:59:59Z", "is over"),
    ],
)
def test_what_is_none_or_over_is_refused(text: str, told: str) -> None:
    with pytest.raises(click.BadParameter, match=told):
        parse_expiry(text, NOW)
