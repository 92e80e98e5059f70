"""Statements that erase memories, episodes and what belongs to them, and remember that they did.

Not here: what is to be erased and the receipts of it (`relayer.memories.eraser`), whole accounts
(`closing`).
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from relayer.database.episodes import is_too_old
from relayer.database.pool import Connection, Database, Row
from relayer.sealed.keys import AccountId

# Erase rows, postings, vectors and blobs of these revisions, and episodes; leave tombstones by id.
_ERASE: Final = """
WITH doomed AS (
    SELECT memory_id, revision_of IS NULL AS current, namespace_id, blob_id, state_blob, word_count,
           size_bytes, index_bytes, CASE WHEN frequencies IS NULL THEN tokens END AS row_tokens
    FROM memories WHERE account_id = $1 AND memory_id = ANY ($2)
), turn AS (
    DELETE FROM episodes WHERE account_id = $1 AND episode_id = ANY ($10)
    RETURNING blob_id, CASE WHEN state = 'done' THEN 0 ELSE size_bytes END AS size_bytes
), posting AS (
    DELETE FROM postings p
    USING (SELECT memory_id, namespace_id, unnest(row_tokens) AS token FROM doomed) d
    WHERE p.account_id = $1 AND p.namespace_id = d.namespace_id AND p.token = d.token
      AND p.memory_id = d.memory_id
), vector AS (
    DELETE FROM vectors WHERE account_id = $1 AND memory_id = ANY ($2)
), link AS (
    DELETE FROM links
    WHERE account_id = $1 AND (memory_id = ANY ($2) OR other_id = ANY ($2) OR other_id = ANY ($10))
), stone AS (
    INSERT INTO tombstones (account_id, memory_id, namespace_id, blob_ids, erased_at, expired)
    SELECT $1, stone_id, min(namespace_id), array_agg(blob_id), $3::timestamptz, $15
    FROM unnest($11::uuid[], $12::int[], $13::bytea[]) AS t (stone_id, namespace_id, blob_id)
    GROUP BY stone_id
    ON CONFLICT DO NOTHING
), unreferenced AS (
    SELECT DISTINCT d.blob_id FROM doomed d
    WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE m.account_id = $1 AND m.blob_id = d.blob_id
                                               AND NOT m.memory_id = ANY ($2))
    UNION SELECT state_blob FROM doomed WHERE state_blob IS NOT NULL
    UNION SELECT blob_id FROM turn
    UNION SELECT unnest($14::bytea[])
), blob AS (
    DELETE FROM blobs b USING unreferenced d WHERE b.account_id = $1 AND b.blob_id = d.blob_id
), outbox AS (
    INSERT INTO blob_outbox (account_id, blob_id, due_at)
    SELECT $1, blob_id, $3 FROM unreferenced WHERE $4 ORDER BY blob_id
    ON CONFLICT (account_id, blob_id)
    DO UPDATE SET due_at = excluded.due_at, stray = excluded.stray
), noted AS (
    DELETE FROM blob_outbox WHERE account_id = $1 AND blob_id = ANY ($14) AND NOT $4
), memory AS (
    DELETE FROM memories WHERE account_id = $1 AND memory_id = ANY ($2)
), counted AS (
    UPDATE namespaces n
    SET memory_count = n.memory_count - c.memories, word_count = n.word_count - c.words,
        storage_bytes = n.storage_bytes - c.bytes, index_bytes = n.index_bytes - c.index_bytes,
        updated_at = $3
    FROM (SELECT namespace_id, count(*) FILTER (WHERE current) AS memories,
                 coalesce(sum(word_count) FILTER (WHERE current), 0) AS words,
                 sum(size_bytes) AS bytes, sum(index_bytes) AS index_bytes
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
    receipt_seq = $7, receipt_head = $8, changed_at = $3,
    memory_count = memory_count - (SELECT count(*) FROM doomed WHERE current),
    storage_bytes = storage_bytes - (SELECT coalesce(sum(size_bytes), 0) FROM doomed)
                                  - (SELECT coalesce(sum(size_bytes), 0) FROM turn),
    index_bytes = index_bytes - (SELECT coalesce(sum(index_bytes), 0) FROM doomed)
WHERE account_id = $1
"""

_EARLIER_BLOBS: Final = """
SELECT memory_id, blob_id, due_at FROM blob_outbox WHERE account_id = $1 AND memory_id = ANY ($2)
"""

# Whether a memory `m` that was made of others is somebody's own by now.
_IS_OWN: Final = """
(m.revision_of IS NOT NULL OR m.revision > 1 OR m.pinned OR m.seen_count > 1
 OR m.kind = 'procedural' AND m.review IS NULL)
"""

# What was made of these memories and is nobody's own; what somebody rejected is recalled by nobody.
_MADE_OF: Final = f"""
SELECT DISTINCT m.memory_id FROM links l
JOIN memories m ON m.account_id = $1 AND m.memory_id = l.memory_id
JOIN memories s ON s.account_id = $1 AND s.memory_id = l.other_id
               AND s.namespace_id = m.namespace_id
WHERE l.account_id = $1 AND l.other_id = ANY ($2) AND l.relation = 'source'
  AND m.review IS DISTINCT FROM 'rejected' AND NOT {_IS_OWN}
"""

# These memories and episodes, and everything that still says what they said: the episodes that
# memories came from, what was merged into them, what was made of them, and so on. Never what is
# in another namespace: whoever erases may not write there, and an archive may link anything with
# anything. Where only time is over ($3), what was made of them stays if somebody made it their own
# since.
# Where it is meant ($4), what they were merged into goes as well.
_ENTAILED: Final = f"""
WITH RECURSIVE doomed (id) AS (
    SELECT unnest($2::uuid[])
    UNION
    SELECT e.id FROM doomed d CROSS JOIN LATERAL (
        SELECT l.other_id AS id FROM memories m
        JOIN links l ON l.account_id = $1 AND l.memory_id = m.memory_id
        WHERE m.account_id = $1 AND (m.memory_id = d.id OR m.revision_of = d.id)
          AND (l.relation = 'turn'
                  AND NOT EXISTS (SELECT 1 FROM episodes t
                                  WHERE t.account_id = $1 AND t.episode_id = l.other_id
                                    AND t.namespace_id <> m.namespace_id)
                  AND NOT EXISTS (SELECT 1 FROM memories t
                                  WHERE t.account_id = $1 AND t.memory_id = l.other_id)
               OR l.relation = 'merged'
                  AND EXISTS (SELECT 1 FROM memories o
                              WHERE o.account_id = $1 AND o.memory_id = l.other_id
                                AND o.superseded_by = d.id AND o.namespace_id = m.namespace_id))
        UNION ALL
        SELECT coalesce(m.revision_of, m.memory_id) FROM links l
        JOIN memories m ON m.account_id = $1 AND m.memory_id = l.memory_id
        WHERE l.account_id = $1 AND l.other_id = d.id AND l.relation = 'source'
          AND NOT EXISTS (SELECT 1 FROM memories s
                          WHERE s.account_id = $1 AND s.memory_id = d.id
                            AND s.namespace_id <> m.namespace_id)
          AND NOT ($3 AND {_IS_OWN})
        UNION ALL
        SELECT k.memory_id FROM memories m
        JOIN memories k ON k.account_id = $1 AND k.memory_id = m.superseded_by
                       AND k.namespace_id = m.namespace_id
        JOIN links l ON l.account_id = $1 AND l.memory_id = k.memory_id AND l.relation = 'merged'
                    AND l.other_id = m.memory_id
        WHERE $4 AND m.account_id = $1 AND m.memory_id = d.id
    ) e
)
SELECT id FROM doomed
"""

# Every revision of these memories.
_LOCK_MEMORIES: Final = """
SELECT coalesce(m.revision_of, m.memory_id) AS memory_id, m.memory_id AS row_id, m.namespace_id,
       ns.name AS namespace, m.epoch, m.revision, m.blob_id
FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1
  AND ((m.memory_id = ANY ($2) AND m.revision_of IS NULL) OR m.revision_of = ANY ($2))
ORDER BY m.memory_id FOR UPDATE OF m
"""
_LOCK_TURNS: Final = """
SELECT e.episode_id AS memory_id, e.namespace_id, ns.name AS namespace, e.epoch, 1 AS revision,
       e.blob_id, e.state
FROM episodes e
JOIN namespaces ns ON ns.account_id = e.account_id AND ns.namespace_id = e.namespace_id
WHERE e.account_id = $1 AND e.episode_id = ANY ($2)
ORDER BY e.episode_id FOR UPDATE OF e
"""
_TURNS_OF_BLOBS: Final = """
SELECT episode_id FROM episodes WHERE account_id = $1 AND blob_id = ANY ($2)
"""
_STILL_EXPIRED: Final = f"""
SELECT memory_id FROM memories
WHERE account_id = $1 AND memory_id = ANY ($2) AND expires_at <= $3
UNION ALL
SELECT e.episode_id FROM episodes e
JOIN namespaces ns ON ns.account_id = $1 AND ns.namespace_id = e.namespace_id
WHERE e.account_id = $1 AND e.episode_id = ANY ($2) AND {is_too_old("$3")}
"""
_REVISION_COUNTS: Final = """
SELECT revision_of AS memory_id, count(*) AS earlier FROM memories
WHERE account_id = $1 AND revision_of = ANY ($2) GROUP BY revision_of
"""
_TOMBSTONED: Final = """
SELECT memory_id FROM tombstones WHERE account_id = $1 AND memory_id = ANY ($2)
"""
# What was erased, with the namespace it was in where that is known.
_TOMBSTONES: Final = """
SELECT t.memory_id, ns.name AS namespace FROM tombstones t
LEFT JOIN namespaces ns ON ns.account_id = $1 AND ns.namespace_id = t.namespace_id
WHERE t.account_id = $1 AND t.memory_id = ANY ($2)
"""
_ERASED_BLOBS: Final = """
SELECT unnest(blob_ids) AS blob_id FROM tombstones WHERE account_id = $1 AND memory_id = ANY ($2)
"""
# Tombstones of memories that a journal says were erased, whatever this database remembers of them.
_INSERT_TOMBSTONES: Final = """
INSERT INTO tombstones (account_id, memory_id, namespace_id, blob_ids, erased_at, expired)
SELECT $1, i.memory_id, min(n.namespace_id), array_agg(i.blob_id), $2, $6
FROM unnest($3::uuid[], $4::bytea[]) AS i (memory_id, blob_id)
LEFT JOIN namespaces n ON n.account_id = $1 AND n.name = $5
GROUP BY i.memory_id
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True)
class Erased:
    """The rows and episodes to erase, and the receipts of it.

    Attributes:
        rows: revisions, by the ids of their rows.
        tombstones: (id to remember it under, namespace, blob) of each blob that there was of them.
        earlier: blobs that they had before they were sealed anew, and that are still to go.
        receipts: (seq, signed), which are also the journal's tombstones.
        expired: whether it goes because time is over.
    """

    rows: Sequence[uuid.UUID]
    episodes: Sequence[uuid.UUID]
    tombstones: Sequence[tuple[uuid.UUID, int, bytes]]
    earlier: Sequence[bytes]
    receipts: Sequence[tuple[int, bytes]]
    receipt_blob_ids: Sequence[bytes]
    receipt_head: bytes
    expired: bool


async def find_entailed(
    connection: Connection,
    *,
    account: AccountId,
    ids: Sequence[uuid.UUID],
    expired: bool,
    upward: bool,
) -> list[uuid.UUID]:
    """Return these memories and episodes, and all that would still say what they said.

    Where they have `expired`, without what was made of them and is somebody's own by now: pinned,
    edited, said again or, a procedure, approved. Only `upward` with what they were merged into.
    """
    found = await connection.fetch(_ENTAILED, account, ids, expired, upward)
    return [r["id"] for r in found]


async def find_made_of(
    connection: Connection, *, account: AccountId, ids: Sequence[uuid.UUID]
) -> list[uuid.UUID]:
    """Return summaries and procedures of these memories that nobody has touched since.

    Nobody pinned, edited, said again, approved or rejected them.
    """
    return [r["memory_id"] for r in await connection.fetch(_MADE_OF, account, ids)]


async def lock_memories(
    connection: Connection, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> list[Row]:
    """Return the rows of all revisions of memories, locked until the transaction ends."""
    return list(await connection.fetch(_LOCK_MEMORIES, account, memory_ids))


async def lock_episodes(
    connection: Connection, *, account: AccountId, episode_ids: Sequence[uuid.UUID]
) -> list[Row]:
    """Return the rows of episodes in any state, shaped like memories', locked likewise."""
    return list(await connection.fetch(_LOCK_TURNS, account, episode_ids))


async def episodes_of_blobs(
    connection: Connection, *, account: AccountId, blob_ids: Sequence[bytes]
) -> list[uuid.UUID]:
    """Return the episodes that have one of these blobs; looks at every episode of the account."""
    found = await connection.fetch(_TURNS_OF_BLOBS, account, blob_ids)
    return [r["episode_id"] for r in found]


async def still_expired(
    connection: Connection, *, account: AccountId, ids: Sequence[uuid.UUID], now: datetime
) -> list[uuid.UUID]:
    """Return those of these memories and episodes whose time is over."""
    if not ids:
        return []
    return [r["memory_id"] for r in await connection.fetch(_STILL_EXPIRED, account, ids, now)]


async def revision_counts(
    database: Database, *, account: AccountId, ids: Sequence[uuid.UUID]
) -> dict[uuid.UUID, int]:
    """Return memory → how many earlier revisions it has, where there are any."""
    rows = await database.fetch(_REVISION_COUNTS, account, ids)
    return {r["memory_id"]: int(r["earlier"]) for r in rows}


async def earlier_blobs(
    connection: Connection, *, account: AccountId, row_ids: Sequence[uuid.UUID]
) -> list[tuple[uuid.UUID, bytes, datetime]]:
    """Return (row or episode, blob, when it goes) of blobs that are still to go.

    These had them before they were sealed anew.
    """
    rows = await connection.fetch(_EARLIER_BLOBS, account, row_ids)
    return [(r["memory_id"], r["blob_id"], r["due_at"]) for r in rows]


async def erase(
    connection: Connection,
    *,
    account: AccountId,
    erased: Erased,
    now: datetime,
    outside_store: bool,
) -> None:
    """Erase locked rows; their receipts are stored with it."""
    await connection.execute(
        _ERASE,
        account,
        erased.rows,
        now,
        outside_store,
        [n for n, _ in erased.receipts],
        [signed for _, signed in erased.receipts],
        erased.receipts[-1][0],
        erased.receipt_head,
        erased.receipt_blob_ids,
        erased.episodes,
        [tombstone for tombstone, _, _ in erased.tombstones],
        [number for _, number, _ in erased.tombstones],
        [blob for _, _, blob in erased.tombstones],
        erased.earlier,
        erased.expired,
    )


async def find_tombstoned(
    connection: Connection, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> set[uuid.UUID]:
    """Return those of these memories that were erased."""
    rows = await connection.fetch(_TOMBSTONED, account, memory_ids)
    return {r["memory_id"] for r in rows}


async def tombstones(
    database: Database, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> dict[uuid.UUID, str | None]:
    """Return those of these that were erased → the namespace they were in, None if not known."""
    rows = await database.fetch(_TOMBSTONES, account, memory_ids)
    return {r["memory_id"]: r["namespace"] for r in rows}


async def find_erased_blobs(
    database: Database, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> list[bytes]:
    """Return the blobs that these erased memories had."""
    rows = await database.fetch(_ERASED_BLOBS, account, memory_ids)
    return [r["blob_id"] for r in rows]


async def insert_tombstones(
    connection: Connection,
    *,
    account: AccountId,
    items: Sequence[tuple[uuid.UUID, bytes]],
    namespace: str | None,
    now: datetime,
    expired: bool,
) -> None:
    """Remember that these (memory, blob) were erased, unless that is known."""
    ids, blobs = [i for i, _ in items], [b for _, b in items]
    await connection.execute(_INSERT_TOMBSTONES, account, now, ids, blobs, namespace, expired)
