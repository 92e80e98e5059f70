"""The bytes of an account: whatever stores them, and however many at once, they never exceed the
quota by one."""

import asyncio
import os
import random
import string
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from relayer.database.accounts import lock_account
from relayer.database.index_size import index_bytes, vector_bytes
from relayer.errors import QuotaExceeded
from relayer.memories.opener import Caller
from tests.conftest import BenchMaker
from tests.services import TEAM, Bench

USED = "SELECT storage_bytes + index_bytes FROM accounts"
SIZES = """
SELECT coalesce((SELECT sum(size_bytes + index_bytes) FROM memories), 0)
     + coalesce((SELECT sum(size_bytes) FROM episodes WHERE state <> 'done'), 0)
"""
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
ENVELOPE_BYTES = 396  # of a short text
CUP_BYTES = ENVELOPE_BYTES + index_bytes(words=2)
UPLOAD_BYTES = ENVELOPE_BYTES + index_bytes(words=0) + vector_bytes(3)
ROOM = 4  # short memories that fit


def cup() -> str:
    """A short text that nobody has said."""
    return f"Cup {''.join(random.choices(string.ascii_lowercase, k=6))}."


async def remembered(bench: Bench, caller: Caller) -> None:
    await bench.remember(caller, cup())


async def uploaded(bench: Bench, caller: Caller) -> None:
    data = b"\2" + os.urandom(ENVELOPE_BYTES - 1)
    await bench.services.manual.remember(caller, TEAM, data, np.ones(3, np.float32))


Store = Callable[[Bench, Caller], Awaitable[None]]


@pytest.mark.parametrize(
    ("store", "size_bytes"), [(remembered, CUP_BYTES), (uploaded, UPLOAD_BYTES)]
)
async def test_writers_at_once_share_what_is_left(
    make_bench: BenchMaker, store: Store, size_bytes: int
) -> None:
    """Two replicas, twelve writers, room for four."""
    used_bytes = CUP_BYTES + (ROOM - 1) * size_bytes
    bench = make_bench(storage_bytes_max=used_bytes + size_bytes - 1)
    other = bench.another()
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, cup())  # the namespace exists
    done = await asyncio.gather(
        *(store(one, caller) for one in (bench, other) * 6), return_exceptions=True
    )
    assert sum(isinstance(one, QuotaExceeded) for one in done) == 12 - (ROOM - 1)
    assert [one for one in done if one is not None and not isinstance(one, QuotaExceeded)] == []
    assert await bench.value(USED) == await bench.value(SIZES) == used_bytes


async def test_what_is_said_again_at_once_counts_once(make_bench: BenchMaker) -> None:
    bench = make_bench(storage_bytes_max=2 * CUP_BYTES)
    caller = await bench.caller(await bench.account())
    same: list[Any] = await asyncio.gather(
        *(bench.remember(caller, "Black tea.") for _ in range(8))
    )
    assert len({stored.id for [stored] in same}) == 1
    assert await bench.value(USED) == CUP_BYTES


async def test_what_is_said_twice_takes_the_last_room_once(make_bench: BenchMaker) -> None:
    """Two writers of the same words, and room for one: the other is told that it is known."""
    bench = make_bench(storage_bytes_max=2 * CUP_BYTES)
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, cup())  # the namespace exists
    async with bench.storage.database.transaction() as connection:
        await lock_account(connection, caller.access.account)
        both = [asyncio.create_task(bench.remember(caller, "Black tea.")) for _ in range(2)]
        await bench.until(WAITING, 2)  # each has looked, and found nothing like it
    [one], [other] = await asyncio.gather(*both)
    assert one.id == other.id
    assert {one.duplicate, other.duplicate} == {True, False}
    assert await bench.value(USED) == 2 * CUP_BYTES


async def test_what_is_known_needs_no_room(make_bench: BenchMaker) -> None:
    """Also once less is allowed than is used."""
    bench = make_bench(storage_bytes_max=4 * CUP_BYTES)
    caller = await bench.caller(await bench.account())
    [first] = await bench.remember(caller, "Black tea.")
    await bench.remember(caller, cup())
    smaller = make_bench(storage_bytes_max=CUP_BYTES)
    assert smaller is not bench
    [again] = await smaller.remember(caller, "Black tea.", idempotency_key="a new key")
    assert (again.id, again.duplicate) == (first.id, True)
    with pytest.raises(QuotaExceeded):
        await smaller.remember(caller, cup())


async def test_another_accounts_bytes_are_its_own(make_bench: BenchMaker) -> None:
    bench = make_bench(storage_bytes_max=CUP_BYTES)
    full = await bench.caller(await bench.account())
    await bench.remember(full, cup())
    with pytest.raises(QuotaExceeded):
        await bench.remember(full, cup())
    await bench.remember(await bench.caller(await bench.account()), cup())


async def test_a_refused_write_leaves_nothing(make_bench: BenchMaker) -> None:
    bench = make_bench(storage_bytes_max=CUP_BYTES)
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, cup())
    before = await leftovers(bench)
    for store in (remembered, uploaded):
        with pytest.raises(QuotaExceeded):
            await store(bench, caller)
    assert await leftovers(bench) == before


async def leftovers(bench: Bench) -> list[int]:
    tables = ("memories", "blobs", "postings", "vectors", "receipts", "idempotency", "pgqueuer")
    return [await bench.value(f"SELECT count(*) FROM {table}") for table in tables]
