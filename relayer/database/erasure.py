"""Statements that erase memories, episodes and what belongs to them, and remember that they did.

Not here: what is to be erased and the receipts of it (`relayer.eraser`).
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from relayer.database.pool import Connection, Database, Row
from relayer.sealed.keys import AccountId

# Erase rows, postings, vectors and blobs of these memories, and waiting turns; leave tombstones by
# id, of memories only: a turn's id is a fingerprint of what it says.
_ERASE: Final = """
WITH doomed AS (
    SELECT memory_id, namespace_id, blob_id, word_count, size_bytes, tokens
    FROM memories WHERE account_id = $1 AND memory_id = ANY ($2)
), turn AS (
    DELETE FROM episodes WHERE account_id = $1 AND episode_id = ANY ($2) AND state = 'pending'
    RETURNING blob_id, size_bytes
), posting AS (
    DELETE FROM postings p
    USING (SELECT memory_id, namespace_id, unnest(tokens) AS token FROM doomed) d
    WHERE p.account_id = $1 AND p.namespace_id = d.namespace_id AND p.token = d.token
      AND p.memory_id = d.memory_id
), vector AS (
    DELETE FROM vectors WHERE account_id = $1 AND memory_id = ANY ($2)
), stone AS (
    INSERT INTO tombstones (account_id, memory_id, blob_ids, erased_at)
    SELECT $1, memory_id, ARRAY[blob_id], $3 FROM doomed
    ON CONFLICT DO NOTHING
), unreferenced AS (
    SELECT DISTINCT d.blob_id FROM doomed d
    WHERE NOT EXISTS (SELECT FROM memories m WHERE m.account_id = $1 AND m.blob_id = d.blob_id
                                               AND NOT m.memory_id = ANY ($2))
    UNION SELECT blob_id FROM turn
), blob AS (
    DELETE FROM blobs b USING unreferenced d WHERE b.account_id = $1 AND b.blob_id = d.blob_id
), outbox AS (
    INSERT INTO blob_outbox (account_id, blob_id, due_at)
    SELECT $1, blob_id, $3 FROM unreferenced WHERE $4
    ON CONFLICT (account_id, blob_id) DO UPDATE SET due_at = excluded.due_at
), memory AS (
    DELETE FROM memories WHERE account_id = $1 AND memory_id = ANY ($2)
), counted AS (
    UPDATE namespaces n
    SET memory_count = n.memory_count - c.memories, word_count = n.word_count - c.words,
        storage_bytes = n.storage_bytes - c.bytes, updated_at = $3
    FROM (SELECT namespace_id, count(*) AS memories, sum(word_count) AS words,
                 sum(size_bytes) AS bytes
          FROM doomed GROUP BY namespace_id) c
    WHERE n.account_id = $1 AND n.namespace_id = c.namespace_id
), journal AS (
    INSERT INTO blobs (account_id, blob_id, bytes, created_at)
    SELECT $1, blob_id, bytes, $3 FROM unnest($9::bytea[], $6::bytea[]) AS j (blob_id, bytes)
    ON CONFLICT DO NOTHING
), receipt AS (
    INSERT INTO receipts (account_id, seq, object)
    SELECT $1, seq, object FROM unnest($5::bigint[], $6::bytea[]) AS r (seq, object)
)
UPDATE accounts SET
    receipt_seq = $7, receipt_head = $8,
    memory_count = memory_count - (SELECT count(*) FROM doomed),
    storage_bytes = storage_bytes - (SELECT coalesce(sum(size_bytes), 0) FROM doomed)
                                  - (SELECT coalesce(sum(size_bytes), 0) FROM turn)
WHERE account_id = $1
"""
_LOCK_MEMORIES: Final = """
SELECT m.memory_id, m.namespace_id, ns.name AS namespace, m.epoch, m.revision, m.blob_id
FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.memory_id = ANY ($2)
ORDER BY m.memory_id FOR UPDATE OF m
"""
_NAMESPACE_MEMORIES: Final = """
SELECT memory_id FROM memories WHERE account_id = $1 AND namespace_id = $2
UNION ALL
SELECT episode_id FROM episodes WHERE account_id = $1 AND namespace_id = $2 AND state = 'pending'
LIMIT $3
"""
_TOMBSTONED: Final = """
SELECT memory_id FROM tombstones WHERE account_id = $1 AND memory_id = ANY ($2)
"""


@dataclass(frozen=True)
class Erased:
    """What is left of a memory for its receipt."""

    memory_id: uuid.UUID
    namespace_id: int
    epoch: int
    revision: int
    blob_id: bytes


async def lock_memories(
    connection: Connection, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> list[Row]:
    """The rows of living memories, locked until the transaction ends."""
    return list(await connection.fetch(_LOCK_MEMORIES, account, memory_ids))


async def erase(
    connection: Connection,
    *,
    account: AccountId,
    memory_ids: Sequence[uuid.UUID],
    now: datetime,
    outside_store: bool,
    receipts: Sequence[tuple[int, bytes]],
    receipt_blob_ids: Sequence[bytes],
    receipt_head: bytes,
) -> None:
    """Erase locked memories; their receipts are also the journal's tombstones."""
    await connection.execute(
        _ERASE,
        account,
        memory_ids,
        now,
        outside_store,
        [n for n, _ in receipts],
        [signed for _, signed in receipts],
        receipts[-1][0],
        receipt_head,
        receipt_blob_ids,
    )


async def namespace_memories(
    database: Database, *, account: AccountId, namespace_id: int, limit: int
) -> list[uuid.UUID]:
    """Ids of a namespace's memories and waiting turns, in no order."""
    rows = await database.fetch(_NAMESPACE_MEMORIES, account, namespace_id, limit)
    return [r["memory_id"] for r in rows]


async def tombstoned(
    connection: Connection, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> set[uuid.UUID]:
    """Which of these were erased."""
    rows = await connection.fetch(_TOMBSTONED, account, memory_ids)
    return {r["memory_id"] for r in rows}
