"""One flight for all callers: a reading is taken once for all who ask in the same moment.

Not here: what is read.

- However many ask, there is one reading at a time, and none while the last one is new enough.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Returns what `read` gave at most `kept_s` seconds ago; `read` raises nothing expected."""

    def __init__(
        self,
        read: Callable[[], Awaitable[T]],
        *,
        kept_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._kept_s = kept_s
        self._now = now
        self._last: tuple[float, T] | None = None
        self._reading: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """Return the last reading, or a new one."""
        if self._last is not None and self._now() - self._last[0] < self._kept_s:
            return self._last[1]
        if self._reading is None:
            # Nobody's own: whoever asked first may give up, and its ids and places are its own.
            self._reading = asyncio.create_task(self._take(), context=Context())
        return await asyncio.shield(self._reading)

    async def _take(self) -> T:
        try:
            value = await self._read()
            self._last = (self._now(), value)
            return value
        finally:
            self._reading = None
