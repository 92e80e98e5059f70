"""Dynamic batches: what waits for its turn to be indexed goes along with others of its account.

Not here: indexing itself (`indexing.py`), the jobs that ask for it (`jobs.py`).

- Whoever has the turn takes along what waits and may be opened by the same keys: one transaction,
  and runs of texts of like lengths, instead of several.
- Where a batch fails, each of it is tried by itself: a fault is of what it lies in alone.
"""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from relayer.memories.indexing import PAGE, Indexer
from relayer.sealed.keys import AccountId
from relayer.tenants.custody import Keys

# Queries are embedded by the same processors. The queue's own limit would be one for all processes.
AT_ONCE: Final = 2


@dataclass(eq=False)
class _Waiting:
    """Memories of one call; `taken` is done once others have decided about them, true if well."""

    account: AccountId
    keys: Keys
    ids: Sequence[uuid.UUID]
    taken: "asyncio.Future[bool]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class BatchedIndexer:
    """Brings memories up to date, a few batches at a time."""

    def __init__(self, indexer: Indexer) -> None:
        self._indexer = indexer
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting: list[_Waiting] = []  # as many as jobs at once, at most

    async def embed(self, account: AccountId, keys: Keys, ids: Sequence[uuid.UUID]) -> None:
        """Bring those of these memories up to date that still live.

        Raises:
            NotAllowed: a key is missing.
            Unavailable: the embedder or a store is away.
        """
        own = _Waiting(account, keys, ids)
        self._waiting.append(own)
        try:
            async with self._turns:
                if own in self._waiting:  # nobody took it along
                    return await self._lead(self._board(own))
        finally:
            if own in self._waiting:
                self._waiting.remove(own)
        if not await own.taken:
            async with self._turns:
                await self._indexer.embed(account, keys, ids)

    def _board(self, own: _Waiting) -> list[_Waiting]:
        """This one, and those after it that can go along and wait no more."""
        batch, size = [own], len(own.ids)
        for other in self._waiting:
            if other is own or (other.account, other.keys) != (own.account, own.keys):
                continue
            if size + len(other.ids) <= PAGE:
                batch.append(other)
                size += len(other.ids)
        self._waiting = [one for one in self._waiting if one not in batch]
        return batch

    async def _lead(self, batch: Sequence[_Waiting]) -> None:
        own, *others = batch
        well = False
        try:
            together = [memory_id for one in batch for memory_id in one.ids]
            await self._indexer.embed(own.account, own.keys, together)
            well = True
        except Exception:
            if not others:
                raise
        finally:
            for other in others:
                if not other.taken.done():  # it was stopped
                    other.taken.set_result(well)
        if not well:
            await self._indexer.embed(own.account, own.keys, own.ids)
