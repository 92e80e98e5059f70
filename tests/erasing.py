"""What is erased, and what is left then."""

import uuid
from typing import Any

from relayer.memories.opener import Caller
from relayer.record import new_id
from relayer.sealed import envelope
from relayer.upkeep import check
from tests.chains import assert_chain_holds
from tests.services import TEAM, Bench

# Every table that speaks of a memory, but for tombstones and receipts.
LEFT = """
SELECT (SELECT count(*) FROM memories) + (SELECT count(*) FROM postings)
     + (SELECT count(*) FROM vectors) + (SELECT count(*) FROM links)
     + (SELECT count(*) FROM episodes WHERE state <> 'done')
     + (SELECT sum(memory_count + storage_bytes + index_bytes) FROM accounts)
     + (SELECT sum(memory_count + word_count + storage_bytes + index_bytes) FROM namespaces)
"""
LIVING = "SELECT memory_id FROM memories WHERE revision_of IS NULL"


async def holds(bench: Bench, caller: Caller) -> None:
    """Receipts, counts, blobs and rows agree."""
    await assert_chain_holds(bench, caller.access.account)
    assert (await check.check(bench.storage)).problems == []


async def link(bench: Bench, caller: Caller, one: uuid.UUID, relation: str, other: Any) -> None:
    await bench.sql(
        "INSERT INTO links VALUES ($1, $2, $3, $4, now())",
        caller.access.account, one, relation, other,
    )  # fmt: skip


async def keep_turn(
    bench: Bench,
    caller: Caller,
    text: str,
    state: str = "kept",
    turn_id: uuid.UUID | None = None,
) -> uuid.UUID:
    """A sealed turn, as one is kept beside its facts."""
    key = caller.keys.of(TEAM)[0]
    turn = turn_id or new_id()
    address = envelope.Address(envelope.EPISODE, caller.access.account, turn, 1)
    blob = envelope.seal(key, address, text.encode(), created_ms=0)
    name = envelope.blob_id(blob)
    await bench.storage.blobs.put_many(caller.access.account, {name: blob})
    await bench.sql(
        "INSERT INTO episodes SELECT $1, $2, namespace_id, $3, $4, $5, $6, $7, 0, now()"
        " FROM namespaces WHERE name = 'team' AND account_id = $1",
        caller.access.account, turn, key.epoch, caller.access.key, envelope.blob_hash(name),
        len(blob), state,
    )  # fmt: skip
    await bench.sql(
        "UPDATE accounts SET storage_bytes = storage_bytes + $2 WHERE account_id = $1",
        caller.access.account, len(blob),
    )  # fmt: skip
    return turn


async def living(bench: Bench) -> set[uuid.UUID]:
    return {r["memory_id"] for r in await bench.sql(LIVING)}
