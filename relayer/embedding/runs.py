"""Runs of a model, a few at a time, short ones first.

Not here: the model, and how texts become runs (`embedders.py`).

- A question is a short run and somebody waits for it; a batch of memories is many long ones. So a
  question waits for a run under way and never for a batch.
"""

import asyncio
import heapq
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Runs:
    """Worker threads, and who waits for one."""

    def __init__(self, threads: int = 1) -> None:
        self._workers = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="embed")
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []  # a heap
        self._number = count()
        self._free = threads

    def close(self) -> None:
        """Wait for the runs under way and end the threads."""
        self._workers.shutdown(cancel_futures=True)

    async def run(self, cost: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, done in a thread after all that cost less or came before."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        heapq.heappush(self._waiting, (cost, next(self._number), turn))
        self._begin()
        try:
            await turn
            return await loop.run_in_executor(self._workers, lambda: work(*args, **kwargs))
        finally:
            if turn.done() and not turn.cancelled():
                self._free += 1
                self._begin()

    def _begin(self) -> None:
        while self._waiting and self._free:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():  # its caller was cancelled
                turn.set_result(None)
                self._free -= 1
