"""What is put in while a job like it runs is not lost: that one may have looked already.

Not here: what jobs do (`test_jobs.py`).
"""

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest
from pgqueuer import AsyncpgDriver, Queries
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.types import QueueEntrypoint, QueueManagerId

from relayer.acknowledgements import Acknowledgements
from relayer.database import queue
from relayer.embedding.embedders import Embedder
from relayer.errors import Unavailable
from relayer.sealed.keys import AccountId
from tests.conftest import BenchMaker
from tests.queueing import CUT_OFF, JOBS, RUNS, VECTORS, RunningJob, running_job
from tests.services import Bench

PICKED = "UPDATE pgqueuer SET status = 'picked'"
BLOCKED = (
    "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
    " WHERE NOT granted AND a.datname = current_database()"
)
LINES = "SELECT string_agg(status::text, ' ' ORDER BY id) FROM pgqueuer_log"


async def ask(job: RunningJob, connection: Any) -> None:
    """Put the same job in once more."""
    await queue.enqueue(connection, queue.EMBED, job.caller.access.account, [job.memory_id])


async def test_it_begins_again_when_it_is_over(make_bench: BenchMaker, embedder: Embedder) -> None:
    """Once, however often it was asked for; and it waits without being looked at."""
    async with running_job(make_bench, embedder) as job:
        for _ in range(3):
            async with job.bench.storage.database.transaction() as connection:
                await ask(job, connection)
        assert await job.bench.value(JOBS) == 1
        job.embedder.go.set()
        await job.bench.until(JOBS, 0)
        assert await job.bench.value(LINES) == "queued picked queued picked successful"


@pytest.mark.parametrize("commits", [True, False])
async def test_it_ends_when_who_asks_for_it_has_committed(
    make_bench: BenchMaker, embedder: Embedder, commits: bool
) -> None:
    """What is written after it has looked, and not there before it ends, is not lost either."""
    async with running_job(make_bench, embedder) as job:
        async with job.bench.storage.database.connection() as connection:
            asking = connection.transaction()
            await asking.start()
            await ask(job, connection)
            job.embedder.go.set()
            await job.bench.until(BLOCKED, 1)
            assert (await job.bench.value(VECTORS), await job.bench.value(JOBS)) == (1, 1)
            await (asking.commit if commits else asking.rollback)()
        await job.bench.until(JOBS, 0)
        assert await job.bench.value(RUNS) == 1 + commits


async def test_one_that_failed_meanwhile_is_not_held(
    make_bench: BenchMaker, embedder: Embedder
) -> None:
    """What it is asked for has not been tried."""
    async with running_job(make_bench, embedder) as job:
        job.embedder.fault = RuntimeError("nobody foresaw it")
        async with job.bench.storage.database.connection() as connection:
            await ask(job, connection)
        job.embedder.go.set()
        await job.bench.until(VECTORS, 1)
        await job.bench.until(JOBS, 0)


async def test_one_that_waits_again_is_not_held_since_its_worker_lost_its_connection(
    make_bench: BenchMaker, embedder: Embedder
) -> None:
    async with running_job(make_bench, embedder) as job:
        job.embedder.fault = Unavailable("away", code="embedder.unavailable")
        await job.bench.sql(CUT_OFF)
        job.embedder.go.set()
        await job.bench.until(
            f"SELECT ({VECTORS}) = 1 OR ({JOBS} WHERE status = 'failed') = 1", True
        )
        assert await job.bench.value(VECTORS) == 1


async def test_one_that_a_worker_ended_over_is_done_for_both(bench: Bench) -> None:
    """The next one to take it knows how often it was asked for by then."""
    account = (await bench.account()).account
    await put_in(bench, account)
    async with bench.storage.database.connection() as worker:
        [_] = await dequeued(worker, queue.RESEAL)
        await put_in(bench, account)
        await bench.sql("UPDATE pgqueuer SET heartbeat = now() - interval '1 hour'")
        [job] = await dequeued(worker, queue.RESEAL)
        assert await queue.begin_again(worker, {job.id: queue.count_asked(job.headers)}) == set()


async def test_it_begins_as_if_it_were_put_in_then(bench: Bench) -> None:
    """But behind others: who asks all the time lets them have their turn."""
    accounts = [(await bench.account()).account for _ in range(2)]
    await put_in(bench, *accounts)
    async with bench.storage.database.connection() as worker:
        [first] = await dequeued(worker, queue.RESEAL, at_once=1)
        await bench.sql(
            "UPDATE pgqueuer SET attempts = 9, created = created - interval '1 day' WHERE id = $1",
            first.id,
        )
        await put_in(bench, accounts[0])
        assert await queue.begin_again(worker, {first.id: queue.count_asked(first.headers)}) == {
            first.id
        }
        [second] = await dequeued(worker, queue.RESEAL, at_once=1)
        assert queue.decode_payload(second.payload)[0] == accounts[1]
    [(attempts, is_new)] = await bench.sql(
        "SELECT attempts, created > now() - interval '1 hour' FROM pgqueuer WHERE id = $1", first.id
    )
    assert (attempts, is_new) == (0, True)
    assert await queue.count_taken(bench.storage.database, first.id) == 0


async def test_one_that_waits_is_taken_when_what_it_is_put_in_for_is_there(bench: Bench) -> None:
    account = (await bench.account()).account
    await put_in(bench, account)
    async with bench.storage.database.connection() as worker:
        async with bench.storage.database.transaction() as connection:
            await queue.enqueue(connection, queue.RESEAL, account)
            assert await dequeued(worker, queue.RESEAL) == []
        [job] = await dequeued(worker, queue.RESEAL)
        assert await queue.begin_again(worker, {job.id: queue.count_asked(job.headers)}) == set()


async def test_what_is_put_in_behind_one_that_failed_is_a_job_of_its_own(bench: Bench) -> None:
    account = (await bench.account()).account
    await put_in(bench, account)
    await bench.sql("UPDATE pgqueuer SET status = 'failed'")
    await put_in(bench, account)
    async with bench.storage.database.connection() as worker:
        [job] = await dequeued(worker, queue.RESEAL)
        await bench.sql(f"{PICKED} WHERE id = $1", job.id)
        await put_in(bench, account)
        assert await queue.begin_again(worker, {job.id: queue.count_asked(job.headers)}) == {job.id}
    states = "SELECT string_agg(status::text, ' ' ORDER BY id) FROM pgqueuer"
    assert await bench.value(states) == "failed queued"


async def test_heartbeats_and_ends_of_the_same_ones_wait_for_each_other_in_turn(
    bench: Bench,
) -> None:
    """Both are written by connections of the pool, in whatever order the rows have by now."""
    accounts = [(await bench.account()).account for _ in range(2)]
    await put_in(bench, *accounts)
    database = bench.storage.database
    async with database.connection() as worker:
        ended = await dequeued(worker, queue.RESEAL)
        worker_queries = Acknowledgements(AsyncpgDriver(worker), database=database, places={})
        await bench.sql("UPDATE pgqueuer SET updated = now() WHERE id = $1", ended[0].id)
        async with database.transaction() as connection:
            await queue.enqueue(connection, queue.RESEAL, accounts[1])
            beating = asyncio.create_task(
                worker_queries.update_heartbeat([job.id for job in ended])
            )
            await bench.until(BLOCKED, 1)
            ending = asyncio.create_task(
                worker_queries.log_jobs([(job, "successful", None) for job in ended])
            )
            await bench.until(BLOCKED, 2)
        await asyncio.gather(beating, ending)
    assert await bench.value(JOBS) == 1


async def put_in(bench: Bench, *accounts: AccountId) -> None:
    async with bench.storage.database.transaction() as connection:
        for account in accounts:
            await queue.enqueue(connection, queue.RESEAL, account)


async def dequeued(worker: Any, kind: str, *, at_once: int = 10) -> list[Any]:
    """The jobs that a worker gets that asks now."""
    return await Queries(AsyncpgDriver(worker)).dequeue(
        batch_size=at_once,
        entrypoints={QueueEntrypoint(kind): EntrypointExecutionParameter(0)},
        queue_manager_id=QueueManagerId(uuid.uuid4()),
        global_concurrency_limit=None,
        heartbeat_timeout=timedelta(seconds=30),
    )
