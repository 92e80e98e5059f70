"""Time: the clock that everything is handed, and the milliseconds that formats use."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, overload

Clock = Callable[[], datetime]
EPOCH: Final = datetime.fromtimestamp(0, UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
MOMENT_MS_MAX: Final = 253_402_300_799_999  # the last millisecond of the year 9999


def is_lasting(moment: datetime) -> bool:
    """Return true if a moment survives a change of time zone: not in the first or last year."""
    return 1 < moment.year < 9999


def utc_now() -> datetime:
    """Return the time by the clock of a running relayer, in whole milliseconds."""
    return whole_ms(datetime.now(UTC))


@overload
def whole_ms(moment: datetime) -> datetime: ...
@overload
def whole_ms(moment: datetime | None) -> datetime | None: ...
def whole_ms(moment: datetime | None) -> datetime | None:
    """Return a moment without what formats do not hold: a row and what is sealed are the same."""
    if moment is None:
        return None
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@overload
def to_ms(moment: datetime) -> int: ...
@overload
def to_ms(moment: datetime | None) -> int | None: ...
def to_ms(moment: datetime | None) -> int | None:
    """Return the nearest Unix millisecond; None for None."""
    return None if moment is None else round(moment.timestamp() * 1000)


@overload
def from_ms(milliseconds: int) -> datetime: ...
@overload
def from_ms(milliseconds: int | None) -> datetime | None: ...
def from_ms(milliseconds: int | None) -> datetime | None:
    """Return the UTC moment of Unix milliseconds; None for None.

    Raises:
        ValueError, OverflowError: no `datetime` holds it.
    """
    return None if milliseconds is None else EPOCH + milliseconds * MILLISECOND


def from_claimed_ms(milliseconds: int) -> datetime:
    """Return the moment that others signed or sealed; at most the last before `MOMENT_MS_MAX`."""
    return from_ms(min(milliseconds, MOMENT_MS_MAX))


@overload
def rfc3339(moment: datetime) -> str: ...
@overload
def rfc3339(moment: datetime | None) -> str | None: ...
def rfc3339(moment: datetime | None) -> str | None:
    """Return RFC 3339 in UTC with milliseconds, as answers show a moment; None for None."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@overload
def rfc3339_ms(milliseconds: int) -> str: ...
@overload
def rfc3339_ms(milliseconds: int | None) -> str | None: ...
def rfc3339_ms(milliseconds: int | None) -> str | None:
    """Return the same from Unix milliseconds, whoever claims them."""
    return None if milliseconds is None else rfc3339(from_claimed_ms(milliseconds))
