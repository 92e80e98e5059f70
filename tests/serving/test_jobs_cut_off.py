"""A worker that loses its connection to the database, or its queue, while jobs run.

Not here: jobs whose worker ended (`test_quarantine.py`).
"""

import asyncio
from contextlib import AsyncExitStack

import asyncpg
import pytest

from relayer.embedding.embedders import Embedder
from tests.conftest import BenchMaker
from tests.life import WAIT_S_MAX
from tests.queueing import CUT_OFF, JOBS, RUNS, VECTORS, HeldUp, running_job

WORKERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
  AND application_name <> 'memrelay'
"""

# Of the worker; where its statement is over, it has heard so by the next answer to anybody else.
AT_WORK = f"{WORKERS} AND state <> 'idle'"
SILENT = "UPDATE pgqueuer SET heartbeat = now() - interval '1 hour'"

IS_BACK = f"SELECT ({WORKERS} AND backend_start > $1) > 0"

# No job is taken, and that they are not is remembered.
REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM nextval('refusals');
    RAISE 'refused';
END $$
"""


async def test_others_go_on_while_a_long_one_is_not_over(
    make_bench: BenchMaker, embedder: Embedder
) -> None:
    async with running_job(make_bench, embedder) as job:
        await job.bench.sql(CUT_OFF)
        cut_off_at = await job.bench.value("SELECT clock_timestamp()")
        await job.bench.until(IS_BACK, True, cut_off_at)
        await job.bench.remember(job.caller, "Ben sells cups.")
        await job.bench.until(VECTORS, 1)
        # Nobody else takes it for one whose worker has ended.
        await job.bench.until("SELECT count(*) FROM pgqueuer WHERE heartbeat > updated", 1)
        job.embedder.go.set()
        await job.bench.until(VECTORS, 2)


async def test_one_is_known_to_run_also_while_requests_have_all_connections(
    make_bench: BenchMaker, embedder: Embedder
) -> None:
    async with running_job(make_bench, embedder) as job:
        storage = job.bench.storage
        watching = await asyncpg.connect(**storage.connect_args)
        async with AsyncExitStack() as requests, asyncio.timeout(WAIT_S_MAX):
            for _ in range(storage.database.load().max):
                await requests.enter_async_context(storage.database.connection())
            while not await watching.fetchval("SELECT heartbeat > updated FROM pgqueuer"):
                await asyncio.sleep(0.05)
        await watching.close()
        job.embedder.go.set()
        await job.bench.until(JOBS, 0)


async def test_a_long_one_is_not_begun_again_beside_itself(
    make_bench: BenchMaker, embedder: Embedder, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing could be written for a while, it looks like one whose worker ended."""
    caplog.set_level("INFO", "relayer.jobs")
    async with running_job(make_bench, embedder) as job:
        await job.bench.sql(CUT_OFF)
        async with asyncio.timeout(WAIT_S_MAX):
            while await job.bench.value(RUNS) < 2:
                await job.bench.sql(SILENT)
        job.embedder.go.set()
        await job.bench.until(JOBS, 0)
    runs = [r for r in caplog.records if r.__dict__.get("event") == "jobs.run"]
    assert len(runs) == 1


async def test_a_long_one_is_not_lost_when_its_process_ends_just_then(
    make_bench: BenchMaker, embedder: Embedder
) -> None:
    async with running_job(make_bench, embedder) as job:
        for _ in range(2):  # once more while the first one is not over
            await job.bench.until(WORKERS, 1)
            await job.bench.sql(CUT_OFF)
        await job.bench.until(WORKERS, 0)
    assert await job.bench.value(JOBS) == 1


async def test_one_that_is_stopped_while_its_queue_cannot_be_read_is_not_lost(
    make_bench: BenchMaker, embedder: Embedder
) -> None:
    held_up = HeldUp(embedder)
    bench = make_bench(embedder=held_up)
    caller = await bench.caller(await bench.account())
    working = asyncio.create_task(bench.services.worker.run())
    try:
        await bench.remember(caller, "Anna prefers tea.")
        await asyncio.wait_for(held_up.begun.wait(), WAIT_S_MAX)
        await bench.sql("CREATE SEQUENCE refusals")
        await bench.sql(REFUSE)
        await bench.sql(
            "CREATE TRIGGER refusing BEFORE UPDATE OF status ON pgqueuer"
            " FOR EACH ROW WHEN (NEW.status = 'picked') EXECUTE FUNCTION refuse()"
        )
        await bench.remember(caller, "Ben sells cups.")
        await bench.until("SELECT is_called FROM refusals", True)
        for _ in range(2):
            await bench.until(AT_WORK, 0)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    assert await bench.value(JOBS) == 2
