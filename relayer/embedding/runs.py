"""Runs of a model, a few at a time, short ones first.

Not here: the model, and how texts become runs (`builtin.py`).

- Of those that wait, what costs least is done first.
- Threads may yield to all others: nobody waits for what they do, and the loop answers meanwhile.
"""

import asyncio
import heapq
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final, ParamSpec, TypeVar

from relayer.errors import Unavailable

P = ParamSpec("P")
T = TypeVar("T")

_NICENESS: Final = 10  # a tenth of what a thread that does not yield has beside them

_Run = tuple[int, int, asyncio.Future[Any], Callable[[], object]]  # cost, number, result, work


class Runs:
    """Worker threads, and who waits for one."""

    def __init__(self, threads: int = 1, *, yields: bool = False) -> None:
        """Have so many threads; with `yields`, they leave the processors to what others do."""
        self._workers = ThreadPoolExecutor(
            max_workers=threads,
            thread_name_prefix="embed",
            initializer=_yield_processors if yields else None,
        )
        # A heap, pushed to here and popped by the threads. As no two numbers are the same, only
        # integers are compared, and each is one step that no other thread comes into.
        self._waiting: list[_Run] = []
        self._number = count()

    def close(self) -> None:
        """Wait for the runs under way, give up those that wait, and end the threads."""
        self._workers.shutdown(cancel_futures=True)
        self._give_up()

    def _give_up(self) -> None:
        """Tell all that wait, from whatever thread, that nothing is done any more."""
        with suppress(IndexError):  # it is empty, whoever emptied it
            while True:
                _, _, done, _ = self._waiting.pop()
                with suppress(RuntimeError):  # its loop has ended, and nobody waits for it
                    stops = Unavailable("The relayer stops.")
                    done.get_loop().call_soon_threadsafe(_tell, done, done.set_exception, stops)

    async def run(self, cost: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `work`, done in a thread after all that cost less or came before.

        Raises:
            Unavailable: the threads end; or what `work` raises.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        run: _Run = (cost, next(self._number), done, partial(work, *args, **kwargs))
        heapq.heappush(self._waiting, run)
        # Not for this run: a thread that becomes free takes what is the first then.
        try:
            self._workers.submit(self._take)
        except RuntimeError:  # they end
            self._give_up()
        return await done

    def _take(self) -> None:
        """In a thread: do the first of what waits, and tell its caller."""
        _, _, done, work = heapq.heappop(self._waiting)
        if done.cancelled():
            return
        tell: Callable[[Any], None] = done.set_result
        try:
            outcome = work()
        except BaseException as error:
            tell, outcome = done.set_exception, error
        done.get_loop().call_soon_threadsafe(_tell, done, tell, outcome)
        del outcome, work  # an error's frames, of which this is one, would keep both


def _tell(done: asyncio.Future[Any], tell: Callable[[Any], None], outcome: object) -> None:
    if not done.done():
        tell(outcome)


def _yield_processors() -> None:
    """Let this thread yield; elsewhere than on Linux a niceness is of a whole process."""
    if sys.platform == "linux":
        with suppress(OSError):  # it only takes longer then
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
