"""All that an account has waiting to be found by its vectors, or by today's words, in slices.

Not here: short jobs about a few new memories (`memories/index_batches.py`), what is due and how it
is brought up to date (`memories/indexer.py`), whose slice it is (`jobs.py`).

- What has a job of its own is left to that one: it waits, runs, failed lately, or is parked.
- A slice that failed, or over which a worker ended, leaves each of its memories to a job of its
  own, so that the one which is the cause fails, or is parked, by itself.
"""

import logging
import uuid
from collections.abc import Callable, Set
from typing import Final

from relayer.database import queue
from relayer.database import vectors as vector_rows
from relayer.database.pool import Database
from relayer.errors import RelayerError
from relayer.logs import warn
from relayer.memories.index_choice import IndexMover
from relayer.memories.indexer import Indexer
from relayer.memories.partial import Unfinished
from relayer.sealed.keys import AccountId
from relayer.sweeper import Sweeper
from relayer.tenants.custody import Custody, Keys

log = logging.getLogger("relayer.backlog")

APART_MAX: Final = 64  # memories that get jobs of their own at a time: as many as a page has


class Backlog:
    """Works through what is due of one account at a time."""

    def __init__(
        self,
        *,
        database: Database,
        indexer: Indexer,
        mover: IndexMover,
        custody: Custody,
        sweeper: Sweeper,
    ) -> None:
        self._database = database
        self._mover = mover
        self._indexer = indexer
        self._custody = custody
        self._sweeper = sweeper

    async def work(
        self, account: AccountId, keys: Keys, go_on: Callable[[], bool], *, apart: bool = False
    ) -> bool:
        """Bring up to date what these keys open, while `go_on` says so; True if nothing is left.

        `apart` gives the first that are due jobs of their own instead.

        Raises:
            Unavailable: the embedder or a store is away.
        """
        if apart and await self._queue_separately(account, keys):
            return False
        if not await self._mover.work(account, keys, go_on):
            return False
        having: Keys | None = keys
        # Keys that are lent during a pass, and what becomes due behind it, have no other job.
        while having is not None:
            try:
                more = await self._pass(account, having, go_on)
            except Unfinished:
                return False
            except RelayerError:
                raise
            except Exception as error:
                # Whichever of them it lies in fails by itself from now on, and holds up no other.
                if not await self._queue_separately(account, having):
                    raise
                warn(log, "a backlog is parted", "jobs.parted", error)
                return False
            if more is None:
                return False
            having = await self._custody.job_keys(account) if more else None
        return True

    async def _pass(self, account: AccountId, keys: Keys, go_on: Callable[[], bool]) -> bool | None:
        """Go once through what is due; True if there may be more now, None if the slice is over."""
        numbers = await self._sweeper.numbers_of(account, keys)
        elsewhere = await self._elsewhere(account)
        position, changed = vector_rows.START, False
        while page := await self._indexer.next_page(
            account, keys, position, numbers, passing_over=elsewhere, go_on=go_on
        ):
            position, changed = page.after, changed or page.changed
            # A slice that changed nothing would begin the same pass again for ever.
            if changed and not go_on():
                return None
        if changed or await self._custody.job_keys(account) != keys:
            return True
        if position != vector_rows.START and not elsewhere:
            self._sweeper.rest(account)
        return False

    async def _queue_separately(self, account: AccountId, keys: Keys) -> bool:
        """Give the first memories that are due jobs of their own; False if none are."""
        found = await vector_rows.due(
            self._database,
            account=account,
            namespace_ids=await self._sweeper.numbers_of(account, keys),
            versions=self._indexer.versions,
            limit=APART_MAX,
        )
        elsewhere = await self._elsewhere(account)
        alone = [row["memory_id"] for row in found if row["memory_id"] not in elsewhere]
        async with self._database.connection() as connection:
            for memory_id in alone:
                # Some may be long, and are not worked on in slices: what is new comes first.
                await queue.enqueue(
                    connection, queue.EMBED, account, [memory_id], priority=queue.LAST
                )
        return bool(alone)

    async def _elsewhere(self, account: AccountId) -> Set[uuid.UUID]:
        """Return the memories that have a job of their own."""
        return set(await queue.list_named(self._database, queue.EMBED, account))
