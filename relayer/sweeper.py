"""A sweeper queues work that waits: for keys, or as its job was lost or another model came.

Not here: doing it (`jobs.py`), what is due (`database`), queueing a job (`database.queue`).

- Only what this process has the keys for is queued, unless it is queued already or failed lately.
- Queueing twice does no harm: every handler may run again and then finds nothing left to do.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final

from relayer.clock import Clock
from relayer.database import episodes as episode_rows
from relayer.database import index_choice as choice_rows
from relayer.database import queue
from relayer.database import rebuild as rebuild_rows
from relayer.database import reseal as reseal_rows
from relayer.database import vectors as vector_rows
from relayer.database.pool import Database, Row
from relayer.errors import Corrupted, NotFound, RelayerError
from relayer.logs import warn
from relayer.memories.index_choice import IndexMover
from relayer.memories.indexer import Indexer
from relayer.memories.runs import Runs
from relayer.sealed.keys import AccountId, Namespace
from relayer.tenants.custody import Custody, Keys, LentKeys
from relayer.tenants.namespaces import Namespaces

log = logging.getLogger("relayer.jobs")

REST: Final = timedelta(hours=1)  # of an account of which nothing that is due can be opened
LOST_AFTER: Final = timedelta(minutes=2)  # after which what waits without a job has lost it
LENT_PRIORITY: Final = 1  # of work whose keys are at hand for minutes only
RESUME_MAX: Final = 1_000
RESUMING_MAX: Final = 64  # requests whose keys are being made use of
KeysOf = Callable[[AccountId], Awaitable[Keys | None]]


@dataclass(frozen=True)
class Indexing:
    """Parts that bring up to date what memories are found by, and move it to another index."""

    indexer: Indexer
    mover: IndexMover


class Sweeper:
    """Queues the work that waits, of any account."""

    def __init__(
        self,
        *,
        database: Database,
        indexing: Indexing,
        runs: Runs,
        custody: Custody,
        namespaces: Namespaces,
        clock: Clock,
    ) -> None:
        self._database = database
        self._indexer = indexing.indexer
        self._mover = indexing.mover
        self._runs = runs
        self._custody = custody
        self._namespaces = namespaces
        self._clock = clock
        self._resting: dict[AccountId, datetime] = {}
        self._resuming: set[asyncio.Task[None]] = set()  # the loop keeps no strong reference

    def rest(self, account: AccountId) -> None:
        """Leave what is due of an account alone for an hour: nothing of it could be opened."""
        self._resting[account] = self._clock() + REST

    def resume_soon(self, account: AccountId, namespaces: Sequence[Namespace]) -> None:
        """Resume without keeping the request that brought the keys waiting.

        When too many do, nothing happens: the next request with the keys resumes as well.
        """
        if len(self._resuming) >= RESUMING_MAX:
            return
        task = asyncio.create_task(self._resume_quietly(account, namespaces))
        self._resuming.add(task)
        task.add_done_callback(self._resuming.discard)

    async def _resume_quietly(self, account: AccountId, namespaces: Sequence[Namespace]) -> None:
        try:
            await self.resume(account, namespaces)
        except Exception as error:
            warn(log, "resuming waits", "jobs.wait", error)

    async def resume(self, account: AccountId, namespaces: Sequence[Namespace]) -> None:
        """Queue the work that waited for these namespaces' keys, which the ring now holds.

        Work that runs already may have begun without them: then it is done once more.
        """
        if await rebuild_rows.is_incomplete(self._database, account):
            await self._queue(queue.RESTORE, account, [[]], once_more=True)
        numbers = await self._numbers(account, namespaces)
        episodes = await episode_rows.find_pending(
            self._database, account=account, namespace_ids=numbers, limit=RESUME_MAX
        )
        self._resting.pop(account, None)
        if await self._indexer.waits(account, numbers) or await self._mover.waits(account):
            await self._queue(queue.REINDEX, account, [[]], once_more=True)
        await self._queue(queue.EXTRACT, account, [[i] for i in episodes])
        if await reseal_rows.accounts_due(self._database, account):
            await self._queue(
                queue.RESEAL, account, [[]], self._custody.reseal_keys, once_more=True
            )
        await self._queue_consolidations(account)

    async def sweep(self) -> None:
        """Queue what has waited for minutes: its job was lost with its process, or another model
        or release left it behind."""
        now = self._clock()
        before = now - LOST_AFTER
        self._resting = {a: until for a, until in self._resting.items() if until > now}
        waiting = await episode_rows.find_pending_anywhere(
            self._database,
            before=before,
            limit=RESUME_MAX,
            but=await queue.list_named(self._database, queue.EXTRACT),
        )
        for account, ids in waiting:
            await self._queue(queue.EXTRACT, account, [[i] for i in ids])
        for account in await vector_rows.accounts_due(
            self._database, versions=self._indexer.versions, before=before
        ):
            if account not in self._resting:
                await self._queue(queue.REINDEX, account, [[]])
        for account in await choice_rows.accounts_due(self._database):
            await self._queue(queue.REINDEX, account, [[]])
        for account in await rebuild_rows.incomplete_accounts(self._database):
            await self._queue(queue.RESTORE, account, [[]])
        for account in await reseal_rows.accounts_due(self._database):
            await self._queue(queue.RESEAL, account, [[]], self._custody.reseal_keys)
        await self._queue_consolidations()

    async def _queue_consolidations(self, account: AccountId | None = None) -> None:
        """Begin runs that are due and go on with unfinished ones, where their keys are at hand."""
        async for page in self._runs.due(account):
            for due in await self._select_openable(page):
                await self._runs.begin(due)
        async for page in self._runs.find_unfinished(account):
            for run in await self._select_openable(page):
                owner = AccountId(run["whole_id"])
                await self._queue(queue.CONSOLIDATE, owner, [[run["run_id"]]])

    async def _select_openable(self, page: Sequence[Row]) -> list[Row]:
        """Return those of these rows whose namespace this process has the background keys of.

        The rows are an account's together.
        """
        opened: list[Row] = []
        for account, found in groupby(page, key=lambda row: AccountId(row["whole_id"])):
            try:
                keys = await self._custody.job_keys(account)
            except RelayerError:
                continue
            if keys is not None:
                opened += [row for row in found if _opens(keys, row["namespace"])]
        return opened

    async def numbers_of(self, account: AccountId, keys: Keys) -> list[int] | None:
        """Return the namespaces that were lent keys open; None for all of them."""
        if not isinstance(keys, LentKeys):
            return None
        return await self._numbers(account, list(keys.keys))

    async def _numbers(self, account: AccountId, namespaces: Sequence[Namespace]) -> list[int]:
        entries = [await self._namespaces.find(account, n) for n in namespaces]
        return [e.namespace_id for e in entries if e is not None]

    async def _queue(
        self,
        entrypoint: str,
        account: AccountId,
        jobs: Sequence[Sequence[uuid.UUID]],
        keys_of: KeysOf | None = None,
        *,
        once_more: bool = False,
    ) -> None:
        """Queue work that this process has the keys for, unless it is queued, or failed lately; one
        account's faults are its own. `once_more` queues it also where it runs, or failed."""
        try:
            keys = await (keys_of or self._custody.job_keys)(account)
        except (Corrupted, NotFound) as error:
            log.error("account skipped", extra={"event": "jobs.skipped", "code": error.code})
            return
        if keys is None:
            return
        priority = LENT_PRIORITY if isinstance(keys, LentKeys) else 0
        async with self._database.connection() as connection:
            again = jobs
            if not once_more:
                again = await queue.not_there(connection, entrypoint, account, jobs)
            for n, ids in enumerate(again):
                place = priority - n // queue.BACKLOG_STEP
                await queue.enqueue(connection, entrypoint, account, ids, priority=place)


def _opens(keys: Keys, namespace: str) -> bool:
    try:
        return bool(keys.of(Namespace(namespace)))
    except RelayerError:
        return False
