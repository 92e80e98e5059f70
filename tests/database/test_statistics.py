"""Look-ups stay on their indexes in a database that has just begun to grow."""

import asyncio
from dataclasses import replace

import pytest

from relayer.database import memories as rows
from relayer.database import statistics
from relayer.database.pool import STATEMENT_TIMEOUT_S
from tests.moving import founded, here, packed, there
from tests.services import Bench

__all__ = ["here", "there"]  # fixtures

KNOWN = "SELECT reltuples FROM pg_class WHERE relname = 'memories'"
LOOKED_UP = f"EXPLAIN {rows._KNOWN_FACTS}"


@pytest.fixture
async def young(bench: Bench) -> Bench:
    """A database whose server gathers nothing by itself."""
    await bench.sql("ALTER TABLE memories SET (autovacuum_enabled = off)")
    return bench


async def test_they_are_gathered_as_an_account_grows(young: Bench) -> None:
    caller = await young.caller(await young.account())
    await young.remember(caller, *(f"tea {n}" for n in range(99)))
    assert await young.value(KNOWN) == -1
    await young.remember(caller, "one more tea")
    assert await young.value(KNOWN) == 100
    for kind in range(9):
        await young.remember(caller, *(f"coffee {kind} {n}" for n in range(100)))
    assert await young.value(KNOWN) == 1000
    account, fingerprints = caller.access.account, [bytes([n] * 16) for n in range(9)]
    plan = "\n".join(row[0] for row in await young.sql(LOOKED_UP, account, fingerprints))
    assert "Index Scan using memories_fingerprint" in plan
    assert "Filter" not in plan


async def test_they_are_not_gathered_again_for_another_account(young: Bench) -> None:
    first = await young.caller(await young.account())
    await young.remember(first, *(f"tea {n}" for n in range(150)))
    known = await young.value(KNOWN)
    assert known == 150
    second = await young.caller(await young.account())
    await young.remember(second, *(f"tea {n}" for n in range(120)))
    assert await young.value(KNOWN) == known


@pytest.mark.parametrize("step", statistics.STEPS)
async def test_each_step_is_looked_at_once(young: Bench, step: int) -> None:
    caller = await young.caller(await young.account())
    await young.remember(caller, "tea")
    database = young.storage.database
    for before, after in ((step // 2, step - 1), (step, step + 1), (step, 10 * step - 1)):
        await statistics.gather(database, before, after)
        assert await young.value(KNOWN) == -1
    await statistics.gather(database, step - 1, step)
    assert await young.value(KNOWN) == 1


async def test_no_write_waits_for_another_that_gathers_them(young: Bench) -> None:
    caller = await young.caller(await young.account())
    async with young.storage.database.transaction() as connection:
        await connection.execute("LOCK TABLE memories IN SHARE UPDATE EXCLUSIVE MODE")
        async with asyncio.timeout(STATEMENT_TIMEOUT_S / 2):
            stored = await young.remember(caller, *(f"tea {n}" for n in range(100)))
    assert len(stored) == 100
    assert await young.value(KNOWN) == -1


async def test_they_are_gathered_for_an_account_that_arrives(here: Bench, there: Bench) -> None:
    """Its place in the sequence is kept for all of it before any of it comes."""
    founder = await here.account()
    caller = await here.caller(founder)
    await here.remember(caller, *(f"tea {n}" for n in range(100)))
    await there.sql("ALTER TABLE memories SET (autovacuum_enabled = off)")
    arrival = await packed(here, caller)
    mine = await founded(here, there, founder)
    for part, known in ((slice(0), -1), (slice(50), -1), (slice(50, None), 100)):
        some = replace(arrival, memories=arrival.memories[part])
        await there.services.importer.take_in(mine.access, some)
        assert await there.value(KNOWN) == known
