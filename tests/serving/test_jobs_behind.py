"""What is put in while a job like it runs is not lost: that one may have looked already.

Not here: what jobs do (`test_jobs.py`).
"""

import asyncio
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pgqueuer import AsyncpgDriver, Queries
from pgqueuer.ports.repository import EntrypointExecutionParameter

from relayer.database import queue
from relayer.embedding.embedders import Embedder
from relayer.memories.recall import Query
from relayer.memories.revising import Edit
from relayer.sealed.keys import AccountId
from tests.conftest import BenchMaker
from tests.life import WAIT_S_MAX
from tests.queueing import JOBS, VECTORS
from tests.services import TEAM, Bench

STATES = "SELECT string_agg(status::text, ' ' ORDER BY id) FROM pgqueuer"


class _Held:
    """An embedder that has begun when it is first asked, and goes on when it may."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self.begun, self.may = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Any:
        self.begun.set()
        await self.may.wait()
        return await self._inner.embed(texts, account=account)


async def test_what_is_edited_while_it_is_embedded_is_embedded_again(
    make_bench: BenchMaker, embedder: Embedder
) -> None:
    held = _Held(embedder)
    bench = make_bench(embedder=held)
    caller = await bench.caller(await bench.account())
    async with bench.working():
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        await asyncio.wait_for(held.begun.wait(), WAIT_S_MAX)
        for text in ("Ben sails.", "Ben repairs old bicycles."):
            edit = Edit(changes={"text": text})
            await bench.services.reviser.edit(caller, stored.id, edit)
        assert await bench.value(STATES) == "picked picked queued", (
            "one is behind it, however often"
        )
        held.may.set()
        await bench.until(JOBS, 0)
    asked = Query(text="Who mends things with wheels?", namespaces=[TEAM], mode="vector")
    recalled = await bench.services.recaller.recall(caller, asked)
    assert [found.memory.text for found in recalled.found] == ["Ben repairs old bicycles."]
    assert not recalled.degraded


async def test_it_does_nothing_when_the_one_before_it_waits_again(hybrid: Bench) -> None:
    """That one looks from the beginning by itself."""
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.")
    await hybrid.sql("UPDATE pgqueuer SET status = 'picked', heartbeat = now()")
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


async def test_each_of_them_waits_behind_its_own(bench: Bench) -> None:
    accounts = [(await bench.account()).account for _ in range(2)]
    await put_in(bench, *accounts)
    await bench.sql(
        "UPDATE pgqueuer SET status = 'picked' WHERE id = (SELECT min(id) FROM pgqueuer)"
    )
    await put_in(bench, *accounts)
    assert await bench.value(STATES) == "picked queued queued"
    found = [queue.decode_payload(row["payload"])[0] for row in await payloads(bench)]
    assert found == [*accounts, accounts[0]]


async def put_in(bench: Bench, *accounts: AccountId) -> None:
    async with bench.storage.database.transaction() as connection:
        for account in accounts:
            await queue.enqueue(connection, queue.REINDEX, account)


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
