"""A worker that loses its connection to the database, or its queue, while jobs run.

Not here: jobs whose worker ended (`test_jobs_parked.py`).
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from relayer.embedding.embedders import Embedder
from tests.conftest import BenchMaker
from tests.life import WAIT_S_MAX
from tests.queueing import JOBS, VECTORS

WORKERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
  AND application_name <> 'memrelay'
"""
CUT_OFF = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
  AND application_name <> 'memrelay'
"""

# Of the worker; where its statement is over, it has heard so by the next answer to anybody else.
AT_WORK = f"{WORKERS} AND state <> 'idle'"
TAKEN = "SELECT count(*) FROM pgqueuer_log WHERE status = 'picked'"
SILENT = "UPDATE pgqueuer SET heartbeat = now() - interval '1 hour'"

# No job is taken, and that they are not is remembered.
REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM nextval('refusals');
    RAISE 'refused';
END $$
"""


class _Slow:
    """An embedder that takes long for its first text."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Any:
        self.calls += 1
        if self.calls == 1:
            self.begun.set()
            await asyncio.wait_for(self.go.wait(), WAIT_S_MAX)
        return await self._inner.embed(texts, account=account)


async def test_others_go_on_while_a_long_one_is_not_over(
    make_bench: BenchMaker, embedder: Embedder
) -> None:
    slow = _Slow(embedder)
    bench = make_bench(embedder=slow)
    caller = await bench.caller(await bench.account())
    async with bench.working():
        await bench.remember(caller, "Anna prefers tea.")
        await asyncio.wait_for(slow.begun.wait(), WAIT_S_MAX)
        await bench.sql(CUT_OFF)
        await bench.remember(caller, "Ben sells cups.")
        try:
            await bench.until(VECTORS, 1)
            # Nobody else takes it for one whose worker has ended.
            await bench.until("SELECT count(*) FROM pgqueuer WHERE heartbeat > updated", 1)
        finally:
            slow.go.set()
        await bench.until(VECTORS, 2)


async def test_one_is_known_to_run_also_while_requests_have_all_connections(
    make_bench: BenchMaker, embedder: Embedder
) -> None:
    slow = _Slow(embedder)
    bench = make_bench(embedder=slow)
    caller = await bench.caller(await bench.account())
    watching = await asyncpg.connect(**bench.storage.connect_args)
    async with bench.working():
        await bench.remember(caller, "Anna prefers tea.")
        await asyncio.wait_for(slow.begun.wait(), WAIT_S_MAX)
        async with AsyncExitStack() as requests, asyncio.timeout(WAIT_S_MAX):
            for _ in range(bench.storage.database.load().max):
                await requests.enter_async_context(bench.storage.database.connection())
            while not await watching.fetchval("SELECT heartbeat > updated FROM pgqueuer"):
                await asyncio.sleep(0.05)
        slow.go.set()
        await bench.until(JOBS, 0)
    await watching.close()


async def test_a_long_one_is_not_begun_again_beside_itself(
    make_bench: BenchMaker, embedder: Embedder, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing could be written for a while, it looks like one whose worker ended."""
    slow = _Slow(embedder)
    bench = make_bench(embedder=slow)
    caller = await bench.caller(await bench.account())
    caplog.set_level("INFO", "relayer.jobs")
    async with bench.working():
        await bench.remember(caller, "Anna prefers tea.")
        await asyncio.wait_for(slow.begun.wait(), WAIT_S_MAX)
        await bench.sql(CUT_OFF)
        async with asyncio.timeout(WAIT_S_MAX):
            while await bench.value(TAKEN) < 2:
                await bench.sql(SILENT)
        slow.go.set()
        await bench.until(JOBS, 0)
    runs = [r for r in caplog.records if r.__dict__.get("event") == "jobs.run"]
    assert len(runs) == 1


async def test_a_long_one_is_not_lost_when_its_process_ends_just_then(
    make_bench: BenchMaker, embedder: Embedder
) -> None:
    slow = _Slow(embedder)
    bench = make_bench(embedder=slow)
    caller = await bench.caller(await bench.account())
    async with bench.working():
        await bench.remember(caller, "Anna prefers tea.")
        await asyncio.wait_for(slow.begun.wait(), WAIT_S_MAX)
        for _ in range(2):  # once more while the first one is not over
            await bench.until(WORKERS, 1)
            await bench.sql(CUT_OFF)
        await bench.until(WORKERS, 0)
    assert await bench.value(JOBS) == 1


async def test_one_that_is_stopped_while_its_queue_cannot_be_read_is_not_lost(
    make_bench: BenchMaker, embedder: Embedder
) -> None:
    slow = _Slow(embedder)
    bench = make_bench(embedder=slow)
    caller = await bench.caller(await bench.account())
    working = asyncio.create_task(bench.services.worker.run())
    try:
        await bench.remember(caller, "Anna prefers tea.")
        await asyncio.wait_for(slow.begun.wait(), WAIT_S_MAX)
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
