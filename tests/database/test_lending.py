"""Connections that are lent again without the pool: whatever happens to requests, none is lost.

Not here: what a connection that was given back is at rest (`test_pool.py`).
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest
import pytest_asyncio

from relayer.database.pool import Database
from relayer.errors import Unavailable
from tests.conftest import TestDatabase

REQUESTS, ROUNDS, TURNS_MAX = 12, 30, 60
Work = Callable[[Database, random.Random], Awaitable[None]]


async def read(session: Database, _: random.Random) -> None:
    [found] = await session.fetch("SHOW work_mem")
    assert found[0] != "1MB", "what somebody else has begun"


async def write(session: Database, chance: random.Random) -> None:
    async with session.transaction() as connection:
        await connection.execute("SET LOCAL work_mem = '1MB'")
        for _ in range(chance.randrange(4)):
            await connection.fetch("SELECT 1")


async def fail(session: Database, _: random.Random) -> None:
    async with session.transaction() as connection:
        with pytest.raises(asyncpg.DivisionByZeroError):
            await connection.fetch("SELECT 1 / 0")
        raise LookupError


async def leave_open(session: Database, _: random.Random) -> None:
    async with session.connection() as connection:
        await connection.execute("BEGIN; SET LOCAL work_mem = '1MB'")


async def lose(session: Database, _: random.Random) -> None:
    async with session.connection() as connection:
        with pytest.raises(asyncpg.PostgresError):
            await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")


async def wait(session: Database, chance: random.Random) -> None:
    async with session.connection() as connection:
        await connection.execute(f"SELECT pg_sleep({chance.random() / 100})")


WORKS: tuple[Work, ...] = (read, read, write, write, fail, leave_open, lose, wait)


@pytest_asyncio.fixture(params=[1, 2, 5])
async def session(
    request: pytest.FixtureRequest, fresh_database: TestDatabase
) -> AsyncIterator[Database]:
    """A pool of few."""
    database = await Database.connect(fresh_database.connect_args, connections=request.param)
    yield database
    await asyncio.wait_for(database.close(), 60)


@pytest.mark.parametrize("seed", range(3))
async def test_requests_that_are_cut_off_anywhere_leave_the_pool_whole(
    session: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of them are cancelled after some turns of the loop, if they have not ended before."""
    monkeypatch.setattr("relayer.database.pool.WARM_S", 0.002)
    chance = random.Random(seed)

    async def request(work: Work, turns: int) -> None:
        task = asyncio.ensure_future(work(session, random.Random(turns)))
        for _ in range(turns):
            await asyncio.sleep(0)
        if turns % 2:
            task.cancel()
        await asyncio.wait({task})
        failure = None if task.cancelled() else task.exception()
        assert failure is None or isinstance(failure, LookupError | Unavailable), failure

    for _ in range(ROUNDS):
        works = [chance.choice(WORKS) for _ in range(REQUESTS)]
        turns = [chance.randrange(TURNS_MAX) for _ in works]
        await asyncio.wait_for(asyncio.gather(*map(request, works, turns)), 60)

    everyone = session.load().max

    async def settings(meeting: asyncio.Barrier) -> str:
        async with session.connection() as connection, meeting:
            return str(await connection.fetchval("SHOW work_mem"))

    meeting = asyncio.Barrier(everyone)
    found = await asyncio.wait_for(
        asyncio.gather(*(settings(meeting) for _ in range(everyone))), 60
    )
    assert "1MB" not in found
    async with asyncio.timeout(30):  # a warm one is on its way back for a moment
        while session.load().in_use:
            await asyncio.sleep(0.01)
    load = session.load()
    assert (load.open, load.in_use, load.waited_for) == (everyone, 0, 0)
