"""Request windows: how many weighted requests an account and each of its keys may make at a time.

Not here: counting them (`database.requests`), refusing what is too many (`checks.py`).

- A window is a minute or an hour of the clock, one for all replicas.
- What is left is told with every answer, so that a client can slow down before it is refused.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from relayer.sealed.keys import AccountId, PublicKey
from relayer.settings import Settings

STATE: Final = "room"  # in a request's state: the room that it found
OF_KEY: Final = "key_minute"  # the window of a key's own
# Of text that is indexed, in units of a short recall: its words, its vectors, what holds both.
PER_KIB: Final = 4
WindowId = tuple[bytes, datetime]  # subject and start: what names a window of an account


@dataclass(frozen=True)
class Room:
    """The room that a window has left after a request, which may be less than nothing."""

    name: str
    limit: int
    left: int
    reset_s: int


@dataclass(frozen=True)
class Window:
    """A window of an account, `name` as `/v1/usage` has it."""

    name: str
    id: WindowId
    length: timedelta
    limit: int

    def room(self, used: int, now: datetime) -> Room:
        """Return the room left after `used` requests, and the seconds until the next window."""
        ends = self.id[1] + self.length
        reset_s = math.ceil((ends - now).total_seconds())
        return Room(self.name, self.limit, self.limit - used, max(1, reset_s))


def weight_with_text(settings: Settings, weight: int, body_bytes: int) -> int:
    """Return the weight of a request with so much text to be indexed.

    No more than an empty window of each kind has room for: what may be sent once is not refused
    for ever.
    """
    limits = (
        settings.requests_per_hour,
        settings.requests_per_minute,
        settings.key_requests_per_minute,
    )
    return max(weight, min(weight + PER_KIB * (body_bytes // 1024), *limits))


def windows(settings: Settings, key: PublicKey, now: datetime) -> list[Window]:
    """Return the windows that a request of this key counts in, the longest first."""
    minute = now.replace(second=0, microsecond=0)
    hour = minute.replace(minute=0)
    a_minute, an_hour = timedelta(minutes=1), timedelta(hours=1)
    return [
        Window("hour", (b"hour", hour), an_hour, settings.requests_per_hour),
        Window("minute", (b"minute", minute), a_minute, settings.requests_per_minute),
        Window(OF_KEY, (key, minute), a_minute, settings.key_requests_per_minute),
    ]


def rooms(counted: list[Window], used: Mapping[WindowId, int], now: datetime) -> tuple[Room, ...]:
    """Return the room in each window, the one that is nearest to its end first."""
    found = [window.room(used[window.id], now) for window in counted]
    return tuple(sorted(found, key=lambda room: (room.left, -room.reset_s)))


class FullKeys:
    """The keys whose own window is full for this minute, and what was used when it became so.

    What they ask further is refused without being counted: it would use up their account's windows.
    """

    def __init__(self) -> None:
        self._minute = datetime.min
        self._used: dict[tuple[AccountId, PublicKey], Mapping[WindowId, int]] = {}

    def of(
        self, account: AccountId, key: PublicKey, now: datetime
    ) -> Mapping[WindowId, int] | None:
        """Return the counts of a full key, or None where the key's window has room."""
        minute = now.replace(second=0, microsecond=0)
        if minute != self._minute:
            self._minute, self._used = minute, {}
        return self._used.get((account, key))

    def note(
        self, account: AccountId, key: PublicKey, now: datetime, used: Mapping[WindowId, int]
    ) -> None:
        """Note that a request of now has found the key's window full."""
        if now.replace(second=0, microsecond=0) == self._minute:
            self._used[account, key] = used


def headers(found: tuple[Room, ...]) -> list[tuple[bytes, bytes]]:
    """Return the `ratelimit-…` headers of an answer: the window that is nearest to its end."""
    if not found:
        return []
    room = found[0]
    return [
        (b"ratelimit-limit", b"%d" % room.limit),
        (b"ratelimit-remaining", b"%d" % max(0, room.left)),
        (b"ratelimit-reset", b"%d" % room.reset_s),
    ]
