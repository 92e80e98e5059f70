"""Dynamic batches: what waits for its turn to be indexed goes along with others of its account.

Not here: indexing itself (`indexer.py`), the jobs that ask for it (`jobs.py`).

- Whoever has the turn takes along what waits and may be opened by the same keys: one transaction,
  and runs of texts of like lengths, instead of several.
- Where a batch fails, each of it is tried by itself: a fault is of what it lies in alone.
- What may end its process goes by itself from the beginning: others would end with it.
"""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from relayer.memories.indexer import PAGE, Indexer
from relayer.sealed.keys import AccountId
from relayer.tenants.custody import Keys

# Queries are embedded by the same processors. The queue's own limit would be one for all processes.
AT_ONCE: Final = 2


@dataclass(eq=False)
class _Waiting:
    """Memories of one call, and what it waits for.

    Attributes:
        alone: others neither go along with it nor take it along.
        answer: whether those who took it along did well, or None: it has a turn of its own.
    """

    account: AccountId
    keys: Keys
    ids: Sequence[uuid.UUID]
    alone: bool
    answer: "asyncio.Future[bool | None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def goes_with(self, other: "_Waiting") -> bool:
        """Return true if the same keys open both, and neither goes alone."""
        same = (self.account, self.keys) == (other.account, other.keys)
        return same and not (self.alone or other.alone)


class BatchedIndexer:
    """Brings memories up to date, a few batches at a time."""

    def __init__(self, indexer: Indexer) -> None:
        self._indexer = indexer
        self._turns = AT_ONCE  # that are free
        self._waiting: list[_Waiting] = []  # as many as jobs at once, at most

    async def embed(
        self,
        account: AccountId,
        keys: Keys,
        ids: Sequence[uuid.UUID],
        go_on: Callable[[], bool] = lambda: True,
        *,
        alone: bool = False,
    ) -> None:
        """Bring those of these memories up to date that still live.

        Raises:
            NotAllowed: a key is missing.
            Unavailable: the embedder or a store is away.
            Unfinished: within a long memory, `go_on` says that the slice is over.
        """
        own = _Waiting(account, keys, ids, alone)
        well = await self._take_answer(own)
        if well is None:
            try:
                await self._lead(self._board(own), go_on)
            finally:
                self._give()
        elif not well:
            await self.embed(account, keys, ids, go_on, alone=True)

    async def _take_answer(self, own: _Waiting) -> bool | None:
        """Return the answer; None gives a turn, which must be given back."""
        self._waiting.append(own)
        self._call()
        try:
            return await own.answer
        except asyncio.CancelledError:
            if own in self._waiting:
                self._waiting.remove(own)
            elif not own.answer.cancelled() and own.answer.result() is None:
                self._give()  # it was this one's turn just now
            raise

    def _give(self) -> None:
        self._turns += 1
        self._call()

    def _call(self) -> None:
        """Give turns to those that have waited longest."""
        while self._turns and self._waiting:
            first = self._waiting.pop(0)
            if not first.answer.done():  # it was stopped
                self._turns -= 1
                first.answer.set_result(None)

    def _board(self, own: _Waiting) -> list[_Waiting]:
        """Return this one, and all that wait and can go along; these wait no more."""
        batch, size = [own], len(own.ids)
        for other in self._waiting:
            if own.goes_with(other) and size + len(other.ids) <= PAGE:
                batch.append(other)
                size += len(other.ids)
        self._waiting = [one for one in self._waiting if one not in batch]
        return batch

    async def _lead(self, batch: Sequence[_Waiting], go_on: Callable[[], bool]) -> None:
        own, *others = batch
        well = False
        try:
            together = [memory_id for one in batch for memory_id in one.ids]
            await self._indexer.embed(own.account, own.keys, together, go_on)
            well = True
        except Exception:
            if not others:
                raise
        finally:
            for other in others:
                if not other.answer.done():  # it was stopped
                    other.answer.set_result(well)
        if not well:
            await self._indexer.embed(own.account, own.keys, own.ids, go_on)
