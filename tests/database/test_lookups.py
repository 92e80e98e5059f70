"""Look-ups of what an account refers to, and of what is over, read no more than they find."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from relayer.database import (
    collection,
    consolidation,
    erasure,
    index_steps,
    inventory,
    memories,
    outbox,
    postings,
)
from tests.services import Bench

MANY = 20_000
# Of so many rows a server before PostgreSQL 17 would rather read all than look up 200 names.
BLOBS = [bytes([n]) * 32 for n in range(20)]
BY_BLOB = {
    "collection._REFERRED": collection._REFERRED,
    "collection._NOTED": collection._NOTED,
    "memories._KNOWN_BLOBS": memories._KNOWN_BLOBS,
    "memories._KNOWN_STATES": memories._KNOWN_STATES,
    "outbox._REFERENCED": outbox._REFERENCED,
    "erasure._TURNS_OF_BLOBS": erasure._TURNS_OF_BLOBS,
}


@pytest.fixture
async def account(bench: Bench) -> bytes:
    """An account of many memories, a quarter with a state, turns, steps and erasures."""
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
    await bench.sql(
        "INSERT INTO lasting_objects"
        " SELECT $1, sha256(('receipt' || n)::bytea) FROM generate_series(1, $2::int) n",
        account,
        MANY,
    )
    await bench.sql("ANALYZE")
    return account


@pytest.mark.parametrize("name", BY_BLOB)
async def test_of_blobs_stay_on_indexes(bench: Bench, account: bytes, name: str) -> None:
    await check(bench, BY_BLOB[name], account, BLOBS)


async def test_of_blobs_in_namespaces_stay_on_indexes(bench: Bench, account: bytes) -> None:
    await check(bench, inventory._BLOBS_OF, account, BLOBS, ["team"])


async def test_of_old_steps_stays_on_an_index(bench: Bench, account: bytes) -> None:
    await check(bench, index_steps._DELETE_OLD, index_steps.KEPT)


async def test_of_old_marks_asks_each_account(bench: Bench, account: bytes) -> None:
    """A newer server also looks for those of any account by this index; an older one reads all."""
    await bench.sql(
        "INSERT INTO idempotency (account_id, mark, text_mark, memory_id, expires_at)"
        " SELECT $1, sha256(n::text::bytea), '', gen_random_uuid(), now() + interval '1 hour'"
        " FROM generate_series(1, $2::int) n",
        account,
        MANY,
    )
    await bench.sql("ANALYZE idempotency")
    plan = await check(bench, memories._DELETE_EXPIRED_MARKS)
    assert any("(account_id = a.account_id)" in node.get("Index Cond", "") for node in nodes(plan))


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


async def test_each_word_of_what_may_be_alike_is_counted_once(bench: Bench, account: bytes) -> None:
    """However many memories of a page have it."""
    ids = [uuid.UUID(int=n) for n in range(50)]
    plan = await explained(
        bench,
        consolidation._ALIKE,
        account,
        1,
        bench.clock(),
        [i for i in ids for _ in range(10)],
        [1] * 500,
        [token for _ in ids for token in range(10)],
        100,
        10,
    )
    counted = [node for node in nodes(plan) if node.get("Relation Name") == "postings"]
    assert sum(node["Actual Loops"] for node in counted) == 10


async def test_what_has_a_rare_tag_is_read_once(bench: Bench, account: bytes) -> None:
    tokens = [(1, ordinal, ordinal) for ordinal in range(3)]
    plan = await explained(
        bench, postings._HOLDERS, account, *zip(*tokens, strict=True), postings.FEW
    )
    asked = [node for node in nodes(plan) if node.get("Relation Name") == "postings"]
    assert sum(node["Actual Loops"] for node in asked) == len(tokens)


async def check(bench: Bench, statement: str, *arguments: object) -> dict[str, Any]:
    """The plan of a statement that finds little, once nothing that grows is read for it."""
    plan = await explained(bench, statement, *arguments)
    read = [node for node in nodes(plan) if "Relation Name" in node]
    assert read
    for node in read:
        kept = node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0)
        assert kept * node["Actual Loops"] <= 100, node
    return plan


async def explained(bench: Bench, statement: str, *arguments: object) -> dict[str, Any]:
    """The plan of a statement, carried out."""
    [row] = await bench.sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", *arguments)
    plan: dict[str, Any] = json.loads(row[0])[0]["Plan"]
    return plan


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)
