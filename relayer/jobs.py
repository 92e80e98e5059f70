"""The work after the 202: embedding, late extraction, deletions outside, housekeeping.

Also the work that follows a change of the embedding model.

Not here: what these steps do (`memories/indexer.py`, `memories/analysis.py`), queueing a job
(`database.queue`), queueing again what waits (`sweeper.py`).

- At least once: every handler may run again and then finds nothing left to do.
- A job names ids only; whoever runs it needs the account's keys. Without them it is put back for
  as long as some process could hold them, then left until `sweeper.py` queues it again.
- Each kind of job has places of its own: none waits for another kind, and re-sealing and erasing
  least of all. A job that takes long works in slices: it gives its place back behind each.
- A job that ends every worker which takes it is parked (`quarantine.py`), so that others go on.
- A job that failed is held until it is forgotten; so there is one at a time.
- What ends by time is left alone while this machine's clock is not the database's: requests signed
  by the right time are refused then, and what is erased by the wrong one is erased for good.
- Nothing an exception says reaches the queue's log: handlers raise with fixed words.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

import asyncpg
from pgqueuer import AsyncpgDriver, Job, QueueManager
from pgqueuer.errors import RetryRequested

from relayer import quarantine
from relayer.acknowledgements import Acknowledgements
from relayer.backlog import Backlog
from relayer.clock import utc_now
from relayer.database import index_steps, queue
from relayer.database import memories as rows
from relayer.database import requests as request_rows
from relayer.database.check import database_clock
from relayer.database.pool import STATEMENT_TIMEOUT_S, Database
from relayer.database.word_moves import move_words
from relayer.errors import (
    Corrupted,
    Misdirected,
    NotAllowed,
    QuotaExceeded,
    RelayerError,
    Unavailable,
    UpstreamTimeout,
)
from relayer.journal.outbox import Outbox
from relayer.logs import warn
from relayer.memories.analysis import Analysis
from relayer.memories.consolidation import Consolidator
from relayer.memories.index_batches import BatchedIndexer
from relayer.memories.index_choice import IndexMover
from relayer.memories.indexer import Indexer
from relayer.memories.partial import Unfinished
from relayer.memories.reseal import Resealer
from relayer.memory_index.index import MemoryIndex
from relayer.recovery.restore import Restore
from relayer.sealed.keys import AccountId, Namespace
from relayer.sealed.unlock import HOLD_S_MAX
from relayer.settings import Limits
from relayer.sweeper import KeysOf, Sweeper
from relayer.telemetry.work import observe
from relayer.tenants.custody import Custody, Keys

log = logging.getLogger("relayer.jobs")

HELD: Final = timedelta(minutes=10)  # of a job that failed, and of what the queue's log says
FORGOTTEN_PAGES_MAX: Final = 20  # in one round of housekeeping
# Places, so that requests keep their share of connections and processors. Of one worker:
EMBEDDED_MAX: Final = 8  # short jobs, of which an account has few
REINDEXED_MAX: Final = 2  # accounts, each with all that it has waiting
# Of all workers:
EXTRACTIONS_MAX: Final = 2  # since each is a paid model call
RESEALED_MAX: Final = 2  # accounts
CONSOLIDATED_MAX: Final = 1  # namespaces
BATCH: Final = 4  # jobs that are taken at once
SLICE_S: Final = 5  # of one account before the next has its turn
HOUSEKEEPING_S: Final = 60
RECONNECT_S: Final = 1.0
STEADY_S: Final = 3.0  # with a connection, before jobs count as taken
AWAY_S: Final = 30.0  # without that, before nobody may rely on jobs
HEARTBEAT_S: Final = 10
POLL_S: Final = 1  # how late a job that was put back is noticed; new ones announce themselves
PUT_BACK_S: Final = 0.5
PUT_BACK_S_MAX: Final = 3.0  # or the process that holds the keys hardly ever is the one that asks
BACKOFF_S_MAX: Final = 60.0
SLOW_S_MAX: Final = 900.0  # between calls of a model that works until its time is over
T = TypeVar("T")
# The last one says whether a worker ended over the job before.
Work = Callable[[AccountId, Keys, Sequence[Any], bool], Awaitable[None]]
Chore = Callable[[], Awaitable[None]]


class _SliceOver(Exception):
    """An account had its time, and goes on after those that had less."""


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """The workers' services for each kind of job; each round of housekeeping does the `chores`."""

    indexer: Indexer
    mover: IndexMover
    memory_index: MemoryIndex
    analysis: Analysis
    resealer: Resealer
    consolidator: Consolidator
    restore: Restore
    outbox: Outbox
    chores: Sequence[Chore] = ()


class _WatchedDriver(AsyncpgDriver):
    """A driver that sets `failed` where a statement fails.

    The manager takes no further jobs from then on, and says so only when all that run are over.
    And asyncpg (0.32) calls no termination listener where a statement began after the server said
    that it ends a connection, and before it closed it.
    """

    def __init__(self, connection: asyncpg.Connection, *, failed: asyncio.Event) -> None:
        super().__init__(connection)
        self._failed = failed

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        """Return the rows of a statement."""
        try:
            return await super().fetch(query, *args)
        except Exception:
            self._failed.set()
            raise


class Worker:
    """Runs queued jobs on a connection of its own until it is stopped."""

    def __init__(
        self,
        *,
        connect_args: dict[str, Any],
        database: Database,
        tasks: Tasks,
        custody: Custody,
        sweeper: Sweeper,
        slice_s: float = SLICE_S,
    ) -> None:
        self._connect_args = connect_args
        self._slice_s = slice_s
        self._database = database
        self._analysis = tasks.analysis
        self._resealer = tasks.resealer
        self._consolidator = tasks.consolidator
        self._restore = tasks.restore
        self._custody = custody
        self._sweeper = sweeper
        self._backlog = Backlog(
            database=database,
            indexer=tasks.indexer,
            mover=tasks.mover,
            custody=custody,
            sweeper=sweeper,
        )
        self._memory_index = tasks.memory_index
        self._outbox = tasks.outbox
        self._chores = tasks.chores
        self._manager: QueueManager | None = None
        self._leaving: set[asyncio.Task[None]] = set()  # whose connections were lost
        self._away_since_s: float | None = None
        self._stopped = asyncio.Event()
        self._batched = BatchedIndexer(tasks.indexer)

    async def run(self) -> None:
        """Work until cancelled, which stops it too; whatever fails is said and begun again."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._serve())
            group.create_task(self._keep_house())

    def works(self) -> bool:
        """Return true if jobs are taken, or were a moment ago."""
        away_s = self._away_since_s
        return not self._stopped.is_set() and (away_s is None or time.monotonic() - away_s < AWAY_S)

    def stop(self) -> None:
        """Take no further jobs, and put back what is being embedded."""
        self._stopped.set()
        self._take_no_more()

    def _take_no_more(self) -> None:
        if self._manager is not None:
            self._manager.shutdown.set()

    async def _serve(self) -> None:
        self._away_since_s = time.monotonic()
        try:
            while not self._stopped.is_set():
                try:
                    await self._work_connected()
                except Exception as error:
                    # A worker that ended silently would leave every memory without its vector.
                    warn(log, "worker begins again", "jobs.reconnect", error)
                    await asyncio.sleep(RECONNECT_S)
        finally:
            self.stop()
            await self._wait_left(0)

    async def _work_connected(self) -> None:
        """Work by one connection; where it is lost, what runs goes on, and nothing waits for it.

        Raises:
            ConnectionError: it was lost, or a statement failed.
        """
        await self._wait_left(1)
        # One that carries nothing any more, and is closed by nobody, the library ends where neither
        # a statement nor its cancelling is answered for so long.
        connection = await asyncpg.connect(
            **self._connect_args, command_timeout=STATEMENT_TIMEOUT_S
        )
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        driver = _WatchedDriver(connection, failed=lost)
        # A queue that cannot be read ends the work at once, connected or not.
        steady = asyncio.get_running_loop().call_later(STEADY_S, self._is_back)
        working = asyncio.create_task(self._work_on(driver))
        losing = asyncio.create_task(lost.wait())
        try:
            await asyncio.wait({working, losing}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                self._take_no_more()
                self._leaving.add(working)
                raise ConnectionError
            working.result()
        except asyncio.CancelledError:
            self.stop()  # else what runs would be waited for
            raise
        finally:
            for one in (steady, losing):
                one.cancel()
            if self._away_since_s is None:
                self._away_since_s = time.monotonic()
            if working not in self._leaving:
                working.cancel()
                await asyncio.wait({working})
            connection.terminate()

    async def _wait_left(self, besides: int) -> None:
        """Return when all but so many are over whose connection was lost."""
        while len(self._leaving) > besides:
            over, self._leaving = await asyncio.wait(
                self._leaving, return_when=asyncio.FIRST_COMPLETED
            )
            # What each ended of was its connection, as everybody knows by now.
            await asyncio.gather(*over, return_exceptions=True)

    def _is_back(self) -> None:
        self._away_since_s = None

    async def _work_on(self, driver: AsyncpgDriver) -> None:
        places = {queue.EMBED: EMBEDDED_MAX, queue.REINDEX: REINDEXED_MAX}
        manager = QueueManager(Acknowledgements(driver, database=self._database, places=places))
        if self._manager is not None:
            # What runs here since before is not begun again, however long it could not say so.
            manager.job_context = self._manager.job_context
        self._manager = manager
        for entrypoint, handler, limit in (
            (queue.EMBED, self._embed, 0),
            (queue.EXTRACT, self._extract, EXTRACTIONS_MAX),
            (queue.REINDEX, self._reindex, 0),
            (queue.RESEAL, self._reseal, RESEALED_MAX),
            (queue.CONSOLIDATE, self._consolidate, CONSOLIDATED_MAX),
            (queue.RESTORE, self._restore_rows, 1),
            (queue.DELETE_BLOBS, self._delete_blobs, 1),
        ):
            register = manager.entrypoint(entrypoint, on_failure="hold", concurrency_limit=limit)
            register(observe(entrypoint, handler, put_back=RetryRequested))
        await manager.run(
            dequeue_timeout=timedelta(seconds=POLL_S),
            batch_size=BATCH,
            heartbeat_timeout=timedelta(seconds=HEARTBEAT_S),
            shutdown_on_listener_failure=True,
            log_aggregation_interval=timedelta(0),  # into a table that only grows
        )

    async def _embed(self, job: Job) -> None:
        async def work(account: AccountId, keys: Keys, ids: Sequence[Any], doubted: bool) -> None:
            working = self._batched.embed(account, keys, ids, self._slice(), alone=doubted)
            try:
                await self._unless_stopped(working)
            except Unfinished:
                raise _SliceOver from None

        await self._with_keys(job, work)

    async def _extract(self, job: Job) -> None:
        async def work(account: AccountId, keys: Keys, ids: Sequence[Any], _: bool) -> None:
            go_on = self._slice()
            for number, episode_id in enumerate(ids):
                if number and not go_on():
                    raise _SliceOver
                await self._unless_stopped(
                    self._analysis.extract_episode(account, keys, episode_id)
                )

        await self._with_keys(job, work)

    async def _reindex(self, job: Job) -> None:
        async def work(account: AccountId, keys: Keys, _: object, doubted: bool) -> None:
            working = self._backlog.work(account, keys, self._slice(), apart=doubted)
            if not await self._unless_stopped(working):
                raise _SliceOver
            log.info("an account is reindexed", extra={"event": "jobs.reindexed"})

        await self._with_keys(job, work)

    def _slice(self) -> Callable[[], bool]:
        """Return a function that is true while time is left of a slice that begins now."""
        until = time.monotonic() + self._slice_s
        return lambda: time.monotonic() < until

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of some work, unless the process is stopped before.

        A long text takes minutes, and whoever ends a process waits for seconds.

        Raises:
            RetryRequested: the process ends before.
        """
        doing, stopped = asyncio.create_task(work), asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise RetryRequested(timedelta(0), "the process ends")
            return doing.result()
        finally:
            doing.cancel()
            stopped.cancel()
            await asyncio.gather(doing, stopped, return_exceptions=True)

    async def _reseal(self, job: Job) -> None:
        async def work(account: AccountId, keys: Keys | None, *_: object) -> None:
            go_on, done = self._slice(), None
            # Keys that are lent during a pass have no other job.
            while keys is not None and keys != done:
                if not await self._resealer.work(account, keys, go_on):
                    raise _SliceOver
                done, keys = keys, await self._custody.reseal_keys(account)

        await self._with_keys(job, work, self._custody.reseal_keys)

    async def _restore_rows(self, job: Job) -> None:
        async def work(account: AccountId, keys: Keys, *_: object) -> None:
            await self._restore.complete(account, keys)

        await self._with_keys(job, work)

    async def _consolidate(self, job: Job) -> None:
        async def work(account: AccountId, keys: Keys, ids: Sequence[Any], _: bool) -> None:
            go_on = self._slice()
            for run_id in ids:
                working = self._consolidator.work(account, keys, run_id, go_on)
                if not await self._unless_stopped(working):
                    raise _SliceOver

        await self._with_keys(job, work)

    async def _with_keys(self, job: Job, work: Work, keys_of: KeysOf | None = None) -> None:
        """Do the work of a job with the account's keys, or put it back, or leave it for later."""
        account, ids = queue.decode_payload(job.payload)
        try:
            taken = await queue.count_taken(self._database, job.id)
            if await quarantine.isolate(self._database, job, account, ids, taken=taken):
                return
            keys = await (keys_of or self._custody.job_keys)(account)
            if keys is None:
                raise NotAllowed("no key", code="unlock_required")
            await work(account, keys, ids, taken > 1)
        except _SliceOver:
            await self._step_behind(job)
            # Of those that are last the oldest is taken: it lets others go first by waiting.
            wait_s = POLL_S if job.priority <= queue.LAST else 0
            raise RetryRequested(timedelta(seconds=wait_s), "more is left") from None
        except RetryRequested:
            raise
        except (NotAllowed, Misdirected):  # no key, or none of an epoch that began meanwhile
            age_s = (datetime.now(UTC) - job.created).total_seconds()
            if age_s < HOLD_S_MAX:
                wait = _backoff(job, PUT_BACK_S, PUT_BACK_S_MAX)
                raise RetryRequested(wait, "no key here") from None
        except QuotaExceeded as error:
            raise RetryRequested(timedelta(hours=1), error.code) from None
        except UpstreamTimeout as error:
            raise RetryRequested(_backoff(job, 1.0, SLOW_S_MAX), error.code) from None
        except Unavailable as error:
            raise RetryRequested(_backoff(job, 1.0), error.code) from None
        except Corrupted as error:
            log.error("job found a corrupted object", extra={"event": "jobs.corrupted"})
            raise RuntimeError(error.code) from None
        except RelayerError as error:
            log.info("job dropped", extra={"event": "jobs.dropped", "code": error.code})
        except Exception as error:
            raise _unforeseen(error) from None

    async def _step_behind(self, job: Job) -> None:
        """Let others go first; where that cannot be written, the job goes on all the same."""
        try:
            await queue.step_behind(self._database, job.id)
        except Exception as error:
            warn(log, "a job keeps its place", "jobs.place", error)

    async def _delete_blobs(self, job: Job) -> None:
        try:
            if await self._is_off():
                raise RetryRequested(_backoff(job, 1.0), "the clock is wrong")
            await self._outbox.empty()
        except RetryRequested:
            raise
        except Unavailable as error:
            raise RetryRequested(_backoff(job, 1.0), error.code) from None
        except Exception as error:
            raise _unforeseen(error) from None

    async def _keep_house(self) -> None:
        while True:
            await self.keep_house_once()
            await asyncio.sleep(HOUSEKEEPING_S)

    async def keep_house_once(self) -> None:
        """Keep house once; while the clock is wrong, only where no time of others counts."""
        self._custody.forget_expired()  # by this machine's time alone, also while it is all alone
        await self._memory_index.release(self._opens)
        try:
            steps = await self._steps()
        except Exception as error:
            warn(log, "housekeeping waits", "jobs.wait", error)
            return
        for step in steps:
            try:
                await step()
            except Exception as error:
                warn(log, "housekeeping waits", "jobs.wait", error)

    async def _opens(self, account: AccountId, namespace: Namespace) -> bool:
        """Return true if this process holds a key of a namespace for background work."""
        keys = await self._custody.job_keys(account)
        return keys is not None and bool(keys.of(namespace))

    async def _steps(self) -> Sequence[Chore]:
        publish, empty = self._outbox.publish, self._outbox.empty
        if await self._is_off():
            log.error("the clock is wrong: nothing expires", extra={"event": "jobs.clock"})
            return [publish]
        over = (request_rows.delete_expired, index_steps.delete_old, rows.delete_expired_marks)
        expiring = [partial(delete, self._database) for delete in over]
        others: list[Chore] = [
            publish,
            empty,
            self._sweeper.sweep,
            partial(move_words, self._database),
        ]
        return [*expiring, self._forget_jobs, *self._chores, *others]

    async def _is_off(self) -> bool:
        """Return true if this machine's clock differs so much that it refuses requests.

        It is compared with the database's.
        """
        off = abs(utc_now() - await database_clock(self._database))
        return off > timedelta(seconds=Limits.clock_skew_s_max)

    async def _forget_jobs(self) -> None:
        await queue.forget(self._database, older_than=HELD, pages_max=FORGOTTEN_PAGES_MAX)


def _unforeseen(error: Exception) -> RuntimeError:
    """Return an error of fixed words: the queue keeps an exception's text, which may quote."""
    log.error("job failed", extra={"event": "jobs.failed", "cause": type(error).__name__})
    return RuntimeError("internal")


def _backoff(job: Job, first_s: float, longest_s: float = BACKOFF_S_MAX) -> timedelta:
    """Return the wait before a job is tried again: twice as long each time, up to a bound."""
    return timedelta(seconds=min(first_s * 2.0 ** min(job.attempts, 10), longest_s))
