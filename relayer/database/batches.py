"""Questions of the same moment, put to the database together: their way costs more than an answer.

Not here: what is asked (`requests.py`).

- An answer is never older than its question: who asks while a batch is under way goes with another.
- Nobody who finds the way free waits for others.
- A batch belongs to nobody: who stops waiting takes no answer from the others of it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from functools import partial
from typing import Final, Generic, Self, TypeVar

from relayer.database.pool import Database
from relayer.errors import Unavailable

Q = TypeVar("Q")
A = TypeVar("A")

SIZE_MAX: Final = 64  # questions of a batch
UNDER_WAY_MAX: Final = 2  # so that one connection that hangs does not stop everybody


class Batches(Generic[Q, A]):
    """Puts questions to `ask`, which answers each of them in their order.

    Where not `together`, each goes by itself: a cluster's nodes fail one by one, and a question for
    one that is away would take others' answers along.
    """

    def __init__(
        self, ask: Callable[[Sequence[Q]], Awaitable[Sequence[A]]], *, together: bool = True
    ) -> None:
        self._ask = ask
        self._together = together
        self._waiting: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop keeps no strong reference
        self._under_way = 0
        self._boarding = False

    @classmethod
    def of(
        cls,
        database: Database,
        statement: Callable[[Database, Sequence[Q]], Awaitable[Sequence[A]]],
    ) -> Self:
        """Return those that a statement of a database answers."""
        return cls(partial(statement, database), together=not database.is_cluster)

    def ask(self, question: Q) -> "asyncio.Future[A]":
        """Return the answer to come; it fails as `ask` does. Nobody has to wait for it."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        self._set_out()
        return answer

    def _set_out(self) -> None:
        """Begin a batch, if there is a way for it, in the loop's next turn.

        So whoever asks in this one is aboard.
        """
        if self._boarding or (self._together and self._under_way >= UNDER_WAY_MAX):
            return
        self._boarding = True
        self._under_way += 1
        task = asyncio.create_task(self._carry(), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self) -> None:
        self._boarding = False
        try:
            while batch := self._next():
                if self._waiting:
                    self._set_out()
                await self._answer(batch)
        finally:
            self._under_way -= 1

    def _next(self) -> list[tuple[Q, "asyncio.Future[A]"]]:
        batch: list[tuple[Q, asyncio.Future[A]]] = []
        while self._waiting and len(batch) < (SIZE_MAX if self._together else 1):
            question, answer = self._waiting.popleft()
            if not answer.done():  # who asked has been stopped
                batch.append((question, answer))
        return batch

    async def _answer(self, batch: Sequence[tuple[Q, "asyncio.Future[A]"]]) -> None:
        try:
            found = await self._ask([question for question, _ in batch])
            answered = list(zip(batch, found, strict=True))
        except Exception as error:
            # Without its frames: those know the answers, which know the error.
            _fail(batch, error.with_traceback(None))
        except BaseException:  # stopped: nobody may wait for ever
            _fail([*batch, *self._waiting], Unavailable("The relayer stops."))
            self._waiting.clear()
            raise
        else:
            for (_, answer), result in answered:
                if not answer.done():
                    answer.set_result(result)


def _fail(asked: Sequence[tuple[Q, "asyncio.Future[A]"]], error: Exception) -> None:
    for _, answer in asked:
        if not answer.done():
            answer.set_exception(error)
            answer.exception()  # marks it as seen, should nobody wait for it
