"""Look-ups of what an account refers to, and of what is over, read no more than they find."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from relayer.database import collection, erasure, index_steps, inventory, memories, outbox
from tests.services import Bench

MANY = 20_000
BLOBS = [bytes([n]) * 32 for n in range(200)]
BY_BLOB = {
    "collection._REFERRED": collection._REFERRED,
    "memories._KNOWN_BLOBS": memories._KNOWN_BLOBS,
    "outbox._REFERENCED": outbox._REFERENCED,
    "erasure._TURNS_OF_BLOBS": erasure._TURNS_OF_BLOBS,
}


@pytest.fixture
async def account(bench: Bench) -> bytes:
    """An account of many memories, a quarter with a state, turns and steps."""
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Anna prefers tea.")
    account = caller.access.account
    await bench.sql(
        """
        INSERT INTO memories (account_id, memory_id, namespace_id, epoch, seq, revision, type,
            format, kind, importance, confidence, writer, created_at, blob_id, size_bytes,
            word_count, tokens, index_version, stored_at, state_blob)
        SELECT $1, gen_random_uuid(), 1, 1, 1000 + n, 1, 1, 'sealed', 'fact', 'standard', 'high',
               '', now(), sha256(n::text::bytea), 400, 3, '{}', 1, now(),
               CASE WHEN n % 4 = 0 THEN sha256(('state' || n)::bytea) END
        FROM generate_series(1, $2::int) n
        """,
        account, MANY,
    )  # fmt: skip
    await bench.sql(
        """
        INSERT INTO episodes
            (account_id, episode_id, namespace_id, epoch, writer, blob_id, size_bytes, state,
             created_at)
        SELECT $1, gen_random_uuid(), 1, 1, '', sha256(('turn' || n)::bytea), 400, 'done', now()
        FROM generate_series(1, $2::int) n
        """,
        account, MANY,
    )  # fmt: skip
    await bench.sql(
        """
        INSERT INTO index_steps
            (account_id, number, earlier, earlier_head, namespace_ids, seqs, created_at)
        SELECT $1, 1000 + n, 999 + n, '', '{1}', '{1}', now()
        FROM generate_series(1, $2::int) n
        """,
        account, MANY,
    )  # fmt: skip
    await bench.sql("ANALYZE")
    return account


@pytest.mark.parametrize("name", BY_BLOB)
async def test_of_blobs_stay_on_indexes(bench: Bench, account: bytes, name: str) -> None:
    await check(bench, BY_BLOB[name], account, BLOBS)


async def test_of_blobs_in_namespaces_stay_on_indexes(bench: Bench, account: bytes) -> None:
    await check(bench, inventory._BLOBS_OF, account, BLOBS, ["team"])


async def test_of_old_steps_stays_on_an_index(bench: Bench, account: bytes) -> None:
    await check(bench, index_steps._DELETE_OLD, index_steps.KEPT)


async def test_of_what_is_due_reads_a_page(bench: Bench, account: bytes) -> None:
    await bench.sql(
        "INSERT INTO blob_outbox (account_id, blob_id, due_at)"
        " SELECT $1, sha256(n::text::bytea), $3 FROM generate_series(1, $2::int) n",
        account,
        MANY,
        bench.clock(),
    )
    await bench.sql("ANALYZE blob_outbox")
    await check(bench, outbox._OUTBOX, 50, bench.clock(), 10)


async def check(bench: Bench, statement: str, *arguments: object) -> None:
    """Nothing that grows with the account is read for a statement that finds little."""
    [row] = await bench.sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", *arguments)
    read = [node for node in nodes(json.loads(row[0])[0]["Plan"]) if "Relation Name" in node]
    assert read
    for node in read:
        kept = node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0)
        assert kept * node["Actual Loops"] <= 100, node


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)
