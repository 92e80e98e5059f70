"""What is asked at each write, or each minute, reads no more where an account has more."""

import re

import pytest

from relayer.database import queue, reseal, write_statement
from relayer.words.tokens import INDEX_VERSION
from tests.services import Bench


async def plan_of(bench: Bench, statement: str, *arguments: object) -> str:
    return "\n".join(row[0] for row in await bench.sql(f"EXPLAIN {statement}", *arguments))


@pytest.fixture
async def large(bench: Bench) -> tuple[Bench, bytes]:
    """An account with a thousand memories that have their vectors, all under the newest epoch."""
    caller = await bench.caller(await bench.account())
    for kind in range(10):
        await bench.remember(caller, *(f"tea {kind} {n}" for n in range(100)))
    await bench.sql("UPDATE memories SET embedding_version = 'some', epoch = 7")
    await bench.sql("UPDATE namespaces SET reseal_below = 7")
    await bench.sql("UPDATE accounts SET epoch = 7")
    await bench.sql("VACUUM ANALYZE memories, namespaces, accounts")
    return bench, caller.access.account


async def test_how_many_memories_wait_is_counted_by_its_index(large: tuple[Bench, bytes]) -> None:
    bench, account = large
    plan = await plan_of(bench, queue._MEMORIES_BEHIND, account, 1_000, INDEX_VERSION)
    assert "memories_versions" in plan
    assert "Filter" not in plan


async def test_nothing_is_read_in_search_of_what_is_left_of_an_epoch(
    large: tuple[Bench, bytes],
) -> None:
    bench, account = large
    explained = f"(ANALYZE, TIMING OFF, SUMMARY OFF) {reseal._ACCOUNTS_DUE}"
    plan = await plan_of(bench, explained, None)
    assert re.search(
        r"Index Scan using memories_epoch on memories m .*\(actual rows=0(\.00)? loops=1\)", plan
    )
    assert plan.count("(never executed)") == 1
    await bench.sql("UPDATE memories SET epoch = 6 WHERE seq = 1000")
    assert [row["whole_id"] for row in await bench.sql(reseal._ACCOUNTS_DUE, None)] == [account]


async def test_new_memories_are_stored_by_a_kept_plan(bench: Bench) -> None:
    """Planning takes as long as storing one."""
    caller = await bench.caller(await bench.account())
    for n in range(8):
        await bench.remember(caller, f"tea {n}")
        await bench.remember(caller, f"milk {n}", idempotency_key=f"milk {n}")
    kept = "SELECT generic_plans > 0 FROM pg_prepared_statements WHERE statement = $1"
    for statement in (write_statement._WRITE_MEMORIES, write_statement._WRITE):
        [row] = await bench.sql(kept, statement)
        assert row[0]


async def test_what_is_said_again_is_planned_anew(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    for n in range(8):
        await bench.remember(caller, "tea", f"milk {n}")
    kept = "SELECT generic_plans > 0 FROM pg_prepared_statements WHERE statement = $1"
    [row] = await bench.sql(kept, write_statement._WRITE_MEMORIES)
    assert not row[0]
