"""Slots for an account's requests, and threads for long computing: none holds up the others.

Not here: how many requests there may be in a minute (`http/rate_limits.py`).

- Whoever asks a lot waits for itself: another account's request never stands behind its queue.
- A request that waits for somebody outside, a model say, gives its slot to the next meanwhile.
- Queues are a process's own, and nothing is kept of an account without requests.
- Much computing goes to a thread (`offload`). It helps where the work is of many short steps: a
  thread that is inside one call of Python's own keeps the interpreter for itself.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final, ParamSpec, TypeVar

from relayer.errors import RateLimited

STATE: Final = "slot"  # in a request's state: the slot that it holds
_SLOT: ContextVar["Slot | None"] = ContextVar("slot", default=None)


class ConcurrencyLimit:
    """Gives each account `at_once` slots, and `waiting_max` requests a wait for one."""

    def __init__(self, *, at_once: int, waiting_max: int) -> None:
        self._at_once = at_once
        self._waiting_max = waiting_max
        self._queues: dict[bytes, _Queue] = {}

    async def acquire(self, account: bytes) -> "Slot":
        """Wait for a slot of the account, and hold it for this task until it is released.

        Raises:
            RateLimited: too many of the account's requests are waiting.
        """
        queue = self._queues.setdefault(account, _Queue())
        if len(queue.waiting) >= self._waiting_max:
            raise RateLimited("Too many requests at once.", code="rate.at_once", retry_after_s=1)
        slot = Slot(self, account, has_waited=await self.take(account))
        _SLOT.set(slot)
        return slot

    async def take(self, account: bytes) -> bool:
        """Wait for a free slot and take it; return True if there was a wait."""
        queue = self._queues.setdefault(account, _Queue())
        if queue.taken < self._at_once and not queue.waiting:
            queue.taken += 1
            return False
        turn = asyncio.get_running_loop().create_future()
        queue.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(account)  # it was this one's turn just now
            raise
        return True

    def give(self, account: bytes) -> None:
        """Give a slot to the next that waits."""
        queue = self._queues[account]
        while queue.waiting:
            turn = queue.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        queue.taken -= 1
        if not queue.taken:
            del self._queues[account]


class _Queue:
    def __init__(self) -> None:
        self.taken = 0
        self.waiting: deque[asyncio.Future[None]] = deque()


class Slot:
    """A request's slot, from when it may begin until its answer does."""

    def __init__(
        self, limit: ConcurrencyLimit, account: bytes, *, has_waited: bool = False
    ) -> None:
        self.has_waited = has_waited
        self._limit = limit
        self._account = account
        self._paused = 0  # parts of the request that wait for others
        self._is_released = False

    def release(self) -> None:
        """Give the slot back; a second time means nothing."""
        if not self._is_released and not self._paused:
            self._limit.give(self._account)
        self._is_released = True

    @asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        """Give the slot away meanwhile, and wait for one afterwards."""
        self._paused += 1
        if self._paused == 1 and not self._is_released:
            self._limit.give(self._account)
        try:
            yield
        except asyncio.CancelledError:
            raise  # stopped: it does not wait for its slot, and what is left of it needs none
        except BaseException:
            await self._resume()
            raise
        await self._resume()

    async def _resume(self) -> None:
        if self._paused == 1 and not self._is_released:
            await self._limit.take(self._account)
        self._paused -= 1


@asynccontextmanager
async def pause_slot() -> AsyncIterator[None]:
    """Hold no slot while the block waits for somebody else, if this is part of a request."""
    slot = _SLOT.get()
    if slot is None:
        yield
        return
    async with slot.pause():
        yield


# Work is measured in characters of a text that is looked through for secrets.
OFFLOADED_MIN: Final = 16_384  # about ten milliseconds
# What else there is to do, in such characters:
HASHING: Final = 8  # a word for the index
TURNING: Final = 4  # one number of a vector, for the first time
PARSING: Final = 16  # a character of a query, for its words, tags and times
OPENED_BYTES: Final = 64  # so many sealed bytes are opened in the time of one
P = ParamSpec("P")
T = TypeVar("T")


async def offload(size: int, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return the result of some computing of this size, in a thread when there is much of it."""
    if size < OFFLOADED_MIN:
        return work(*arguments, **named)
    return await asyncio.to_thread(work, *arguments, **named)
