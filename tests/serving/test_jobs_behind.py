"""What is put in while a job like it runs is not lost: that one may have looked already.

Not here: what jobs do (`test_jobs.py`).
"""

import asyncio
import json
import uuid
from datetime import timedelta
from typing import Any

from pgqueuer import AsyncpgDriver, Queries
from pgqueuer.ports.repository import EntrypointExecutionParameter

from relayer.database import queue
from relayer.sealed.keys import AccountId
from tests.queueing import JOBS, VECTORS
from tests.services import Bench

PICKED = "UPDATE pgqueuer SET status = 'picked'"
BLOCKED = (
    "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
    " WHERE NOT granted AND a.datname = current_database()"
)
STATES = "SELECT string_agg(status::text, ' ' ORDER BY id) FROM pgqueuer"


async def test_what_one_that_runs_does_not_do_is_done_behind_it(hybrid: Bench) -> None:
    """A worker that had looked before: it does nothing more, and ends."""
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.")
    await hybrid.sql(f"{PICKED}, heartbeat = now() + interval '1 hour'")
    [ids] = [queue.decode_payload(r["payload"])[1] for r in await payloads(hybrid)]
    for _ in range(2):
        async with hybrid.storage.database.transaction() as connection:
            await queue.enqueue(connection, queue.EMBED, caller.access.account, ids)
    async with hybrid.working():
        await hybrid.until("SELECT (sum(attempts) > 0)::text FROM pgqueuer", "true")
        assert await hybrid.value(VECTORS) == 0
        await hybrid.sql("DELETE FROM pgqueuer WHERE headers -> 'behind' IS NULL")
        await hybrid.until(JOBS, 0)
    assert await hybrid.value(VECTORS) == 1


async def test_it_does_nothing_when_the_one_before_it_waits_again(hybrid: Bench) -> None:
    """That one looks from the beginning by itself."""
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.")
    await hybrid.sql(PICKED)
    [ids] = [queue.decode_payload(r["payload"])[1] for r in await payloads(hybrid)]
    async with hybrid.storage.database.transaction() as connection:
        await queue.enqueue(connection, queue.EMBED, caller.access.account, ids)
    put_off = "UPDATE pgqueuer SET status = 'queued', execute_after = now() + interval '1 hour'"
    await hybrid.sql(f"{put_off} WHERE status = 'picked'")
    assert await hybrid.value(JOBS) == 2
    async with hybrid.working():
        await hybrid.until(JOBS, 1)
    assert await hybrid.value(VECTORS) == 0


async def test_one_that_waits_is_taken_when_what_it_is_put_in_for_is_there(bench: Bench) -> None:
    account = (await bench.account()).account
    async with bench.storage.database.transaction() as connection:
        await queue.enqueue(connection, queue.REINDEX, account)
    async with bench.storage.database.connection() as worker:
        async with bench.storage.database.transaction() as connection:
            await queue.enqueue(connection, queue.REINDEX, account)
            assert await taken(worker) == 0
        assert await taken(worker) == 1
    assert await bench.value(JOBS) == 1


async def test_one_behind_another_is_not_taken_sooner_either(bench: Bench) -> None:
    account = (await bench.account()).account
    await put_in(bench, account)
    await bench.sql(PICKED)
    await put_in(bench, account)
    await bench.sql("UPDATE pgqueuer SET execute_after = now() WHERE status = 'queued'")
    async with bench.storage.database.connection() as worker:
        async with bench.storage.database.transaction() as connection:
            await queue.enqueue(connection, queue.REINDEX, account)
            await bench.sql("DELETE FROM pgqueuer WHERE status = 'picked'")
            assert await taken(worker) == 0
        assert await taken(worker) == 1


async def test_one_that_is_taken_begins_when_what_it_is_put_in_for_is_there(bench: Bench) -> None:
    account = (await bench.account()).account
    behind = await one_behind(bench, account)
    async with bench.storage.database.transaction() as connection:
        await queue.enqueue(connection, queue.REINDEX, account)
        await bench.sql("DELETE FROM pgqueuer WHERE id <> $1", behind["id"])
        beginning = asyncio.create_task(begin(bench, behind))
        await bench.until(BLOCKED, 1)
        assert not beginning.done()
    assert await beginning is None
    assert await bench.value(STATES) == "picked"


async def test_one_that_began_is_like_any_other(bench: Bench) -> None:
    """What comes meanwhile is behind it, not beside it; that it failed is known, too."""
    account = (await bench.account()).account
    behind = await one_behind(bench, account)
    assert await begin(bench, behind) == "picked"
    await bench.sql("DELETE FROM pgqueuer WHERE id <> $1", behind["id"])
    await bench.sql("UPDATE pgqueuer SET attempts = 9")
    assert await begin(bench, behind) is None
    await put_in(bench, account)
    assert await bench.value(STATES) == "picked queued"
    assert (await bench.sql("SELECT attempts FROM pgqueuer ORDER BY id"))[0][0] == 0
    await bench.sql("DELETE FROM pgqueuer WHERE id <> $1", behind["id"])
    await bench.sql("UPDATE pgqueuer SET status = 'failed'")
    async with bench.storage.database.connection() as connection:
        assert not await queue.not_there(connection, queue.REINDEX, account, [[]])


async def test_one_behind_another_counts_as_waiting_and_not_as_tried(bench: Bench) -> None:
    """Who follows the work of an account is not done, nor given up, before it began."""
    account = (await bench.account()).account
    behind = await one_behind(bench, account)
    await bench.sql("DELETE FROM pgqueuer WHERE id <> $1", behind["id"])
    await bench.sql("UPDATE pgqueuer SET attempts = 9")
    async with bench.storage.database.connection() as connection:
        jobs = await queue.waiting(connection, queue.REINDEX, [account])
    assert list(jobs.values()) == [0]


async def test_each_of_them_waits_behind_its_own(bench: Bench) -> None:
    accounts = [(await bench.account()).account for _ in range(2)]
    await put_in(bench, *accounts)
    await bench.sql(f"{PICKED} WHERE id = (SELECT min(id) FROM pgqueuer)")
    await put_in(bench, *accounts)
    assert await bench.value(STATES) == "picked queued queued"
    found = [queue.decode_payload(row["payload"])[0] for row in await payloads(bench)]
    assert found == [*accounts, accounts[0]]


async def put_in(bench: Bench, *accounts: AccountId) -> None:
    async with bench.storage.database.transaction() as connection:
        for account in accounts:
            await queue.enqueue(connection, queue.REINDEX, account)


async def one_behind(bench: Bench, account: AccountId) -> Any:
    """A job that a worker took while another one runs."""
    for _ in range(2):
        await put_in(bench, account)
        await bench.sql(PICKED)
    [_, behind] = await bench.sql("SELECT id, headers::text FROM pgqueuer ORDER BY id")
    return behind


async def begin(bench: Bench, job: Any) -> str | None:
    headers = json.loads(job["headers"])
    return await queue.take_place(bench.storage.database, job["id"], headers)


async def payloads(bench: Bench) -> list[Any]:
    return await bench.sql("SELECT payload FROM pgqueuer ORDER BY id")


async def taken(worker: Any) -> int:
    """How many jobs a worker gets that asks now."""
    jobs = await Queries(AsyncpgDriver(worker)).dequeue(
        batch_size=10,
        entrypoints={queue.REINDEX: EntrypointExecutionParameter(0)},
        queue_manager_id=uuid.uuid4(),
        global_concurrency_limit=None,
        heartbeat_timeout=timedelta(seconds=30),
    )
    return len(jobs)
