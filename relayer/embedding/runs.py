"""Runs of a model, one at a time, short ones first.

Not here: the model, and how texts become runs (`embedders.py`).

- A question is a short run and somebody waits for it; a batch of memories is many long ones. So a
  question waits for the run under way and never for a batch.
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
    """A worker thread, and who waits for it."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed")
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []  # a heap
        self._number = count()
        self._busy = False

    def close(self) -> None:
        """Wait for the run under way and end the thread."""
        self._worker.shutdown(cancel_futures=True)

    async def run(self, cost: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, done in the thread after all that cost less or came before."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        heapq.heappush(self._waiting, (cost, next(self._number), turn))
        if not self._busy:
            self._begin_next()
        try:
            await turn
            return await loop.run_in_executor(self._worker, lambda: work(*args, **kwargs))
        finally:
            if turn.done() and not turn.cancelled():
                self._begin_next()

    def _begin_next(self) -> None:
        self._busy = False
        while self._waiting and not self._busy:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():  # its caller was cancelled
                turn.set_result(None)
                self._busy = True
