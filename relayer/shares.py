"""So many requests of one account at a time: the others wait in a line of their own.

Not here: how many requests there may be in a minute (`http/windows.py`).

- Whoever asks a lot waits for itself: another account's request never stands behind its line.
- A request that waits for somebody outside, a model say, gives its place to the next meanwhile.
- Lines are a process's own, and nothing is kept of an account without requests.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final

from relayer.errors import RateLimited

STATE: Final = "place"  # in a request's state: the place that it has
_PLACE: ContextVar["Place | None"] = ContextVar("place", default=None)


class Shares:
    """Gives each account `at_once` places, and as many more requests as `waiting_max` a wait."""

    def __init__(self, *, at_once: int, waiting_max: int) -> None:
        self._at_once = at_once
        self._waiting_max = waiting_max
        self._lines: dict[bytes, _Line] = {}

    async def enter(self, account: bytes) -> "Place":
        """A place of the account, as soon as it has one; this task's until it leaves.

        Raises:
            RateLimited: too many of the account's requests are waiting.
        """
        line = self._lines.setdefault(account, _Line())
        if len(line.waiting) >= self._waiting_max:
            raise RateLimited("Too many requests at once.", code="rate.at_once", retry_after_s=1)
        place = Place(self, account, waited=await self.take(account))
        _PLACE.set(place)
        return place

    async def take(self, account: bytes) -> bool:
        """Wait for a free place and take it; whether there was a wait."""
        line = self._lines.setdefault(account, _Line())
        if line.taken < self._at_once and not line.waiting:
            line.taken += 1
            return False
        turn = asyncio.get_running_loop().create_future()
        line.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(account)  # it was this one's turn just now
            raise
        return True

    def give(self, account: bytes) -> None:
        """Give a place to the next that waits."""
        line = self._lines[account]
        while line.waiting:
            turn = line.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        line.taken -= 1
        if not line.taken:
            del self._lines[account]


class _Line:
    def __init__(self) -> None:
        self.taken = 0
        self.waiting: deque[asyncio.Future[None]] = deque()


class Place:
    """A request's place, from when it may begin until its answer does."""

    def __init__(self, shares: Shares, account: bytes, *, waited: bool = False) -> None:
        self.waited = waited
        self._shares = shares
        self._account = account
        self._outside = 0  # parts of the request that wait for others
        self._left = False

    def leave(self) -> None:
        """Done; a second time means nothing."""
        if not self._left and not self._outside:
            self._shares.give(self._account)
        self._left = True

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[None]:
        """Do without the place meanwhile."""
        self._outside += 1
        if self._outside == 1 and not self._left:
            self._shares.give(self._account)
        try:
            yield
        except asyncio.CancelledError:
            raise  # stopped: it does not wait for its place, and what is left of it needs none
        except BaseException:
            await self._back()
            raise
        await self._back()

    async def _back(self) -> None:
        if self._outside == 1 and not self._left:
            await self._shares.take(self._account)
        self._outside -= 1


@asynccontextmanager
async def outside() -> AsyncIterator[None]:
    """Wait for somebody else without holding a place, if this is part of a request."""
    place = _PLACE.get()
    if place is None:
        yield
        return
    async with place.outside():
        yield
