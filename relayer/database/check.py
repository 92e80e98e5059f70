"""Statements that verify what is stored, account by account.

Not here: what counts as wrong (`relayer.check`).
"""

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from relayer.database.pool import Database, Row
from relayer.sealed.keys import AccountId, PublicKey

_MEMORIES_AFTER: Final = """
SELECT m.memory_id, m.seq, m.type, m.revision, m.epoch, m.format, m.blob_id, k.key_id
FROM memories m
LEFT JOIN namespace_keys k ON k.account_id = m.account_id AND k.namespace_id = m.namespace_id
                          AND k.epoch = m.epoch
WHERE m.account_id = $1 AND m.seq > $2 ORDER BY m.seq LIMIT $3
"""
_PRESENT: Final = """
SELECT memory_id FROM memories WHERE account_id = $1 AND memory_id = ANY ($2)
UNION ALL
SELECT episode_id FROM episodes
WHERE account_id = $1 AND episode_id = ANY ($2) AND state = 'pending'
"""
_EPISODES: Final = """
SELECT e.episode_id AS memory_id, 2 AS type, 1 AS revision, e.epoch, 'sealed' AS format, e.blob_id,
       k.key_id
FROM episodes e
LEFT JOIN namespace_keys k ON k.account_id = e.account_id AND k.namespace_id = e.namespace_id
                          AND k.epoch = e.epoch
WHERE e.account_id = $1 AND e.state = 'pending' AND e.episode_id > $2
ORDER BY e.episode_id LIMIT $3
"""
_GRANTS: Final = """
SELECT serial, recipient, object FROM grants WHERE account_id = $1 ORDER BY serial
"""
_CLOCK: Final = "SELECT clock_timestamp() AS now"
_OWNERS: Final = "SELECT public_key, account_id FROM key_owner WHERE public_key = ANY ($1)"

# What namespaces and the account claim to hold, where it is not what they hold.
_COUNTS_OFF: Final = """
SELECT n.name FROM namespaces n
LEFT JOIN (SELECT namespace_id, count(*) AS memories, sum(word_count) AS words,
                  sum(size_bytes) AS bytes
           FROM memories WHERE account_id = $1 GROUP BY namespace_id) m USING (namespace_id)
WHERE n.account_id = $1
  AND (n.memory_count, n.word_count, n.storage_bytes)
      IS DISTINCT FROM (coalesce(m.memories, 0), coalesce(m.words, 0), coalesce(m.bytes, 0))
UNION ALL
SELECT 'account' FROM accounts a
WHERE a.account_id = $1
  AND (a.memory_count, a.storage_bytes) IS DISTINCT FROM (
      (SELECT count(*) FROM memories WHERE account_id = $1),
      (SELECT coalesce(sum(size_bytes), 0) FROM memories WHERE account_id = $1)
      + (SELECT coalesce(sum(size_bytes), 0) FROM episodes
         WHERE account_id = $1 AND state = 'pending'))
"""

# Postings, vectors and tombstones that contradict the memories.
_STRAY_ROWS: Final = """
SELECT DISTINCT p.memory_id, 'a posting of a memory that is gone' AS what FROM postings p
WHERE p.account_id = $1
  AND NOT EXISTS (SELECT FROM memories m WHERE m.account_id = $1 AND m.memory_id = p.memory_id
                                           AND m.namespace_id = p.namespace_id
                                           AND p.token = ANY (m.tokens))
UNION ALL
SELECT m.memory_id, 'a posting is missing' FROM memories m
WHERE m.account_id = $1
  AND cardinality(m.tokens) > (SELECT count(*) FROM postings p
                               WHERE p.account_id = $1 AND p.namespace_id = m.namespace_id
                                 AND p.token = ANY (m.tokens) AND p.memory_id = m.memory_id)
UNION ALL
SELECT m.memory_id, 'its vectors are missing' FROM memories m
WHERE m.account_id = $1 AND m.embedding_model NOT IN ('none', 'lost')
  AND NOT EXISTS (SELECT FROM vectors v WHERE v.account_id = $1 AND v.memory_id = m.memory_id
                                          AND v.model = m.embedding_model)
UNION ALL
SELECT DISTINCT v.memory_id, 'it has vectors of another model too' FROM vectors v
JOIN memories m ON m.account_id = $1 AND m.memory_id = v.memory_id
WHERE v.account_id = $1 AND v.model IS DISTINCT FROM m.embedding_model
UNION ALL
SELECT DISTINCT v.memory_id, 'a vector is of another namespace or epoch' FROM vectors v
JOIN memories m ON m.account_id = $1 AND m.memory_id = v.memory_id
WHERE v.account_id = $1 AND (v.namespace_id, v.epoch) IS DISTINCT FROM (m.namespace_id, m.epoch)
UNION ALL
SELECT v.memory_id, 'the vectors of some of its parts are missing' FROM vectors v
WHERE v.account_id = $1 GROUP BY v.memory_id, v.model HAVING count(*) <= max(v.part)
UNION ALL
SELECT t.memory_id, 'it was erased and has a row' FROM tombstones t
JOIN memories m ON m.account_id = $1 AND m.memory_id = t.memory_id
WHERE t.account_id = $1
LIMIT 100
"""


async def database_clock(database: Database) -> datetime:
    """The time of the database's machine."""
    row = await database.fetchrow(_CLOCK)
    assert row is not None
    now: datetime = row["now"]
    return now


async def memories_after(database: Database, account: AccountId, seq: int, limit: int) -> list[Row]:
    """A page of memories with the key id of their epoch, in order of acceptance."""
    return await database.fetch(_MEMORIES_AFTER, account, seq, limit)


async def episodes_after(
    database: Database, account: AccountId, episode_id: uuid.UUID, limit: int
) -> list[Row]:
    """A page of waiting turns, shaped like memories."""
    return await database.fetch(_EPISODES, account, episode_id, limit)


async def present(
    database: Database, account: AccountId, ids: Sequence[uuid.UUID]
) -> set[uuid.UUID]:
    """Which of these memories and waiting turns are still there."""
    return {r["memory_id"] for r in await database.fetch(_PRESENT, account, ids)}


async def grants(database: Database, account: AccountId) -> list[Row]:
    """Every grant and revocation with the columns beside it, in order."""
    return await database.fetch(_GRANTS, account)


async def owners(database: Database, keys: Sequence[PublicKey]) -> dict[PublicKey, AccountId]:
    """Key → the account it belongs to."""
    rows = await database.fetch(_OWNERS, keys)
    return {PublicKey(r["public_key"]): AccountId(r["account_id"]) for r in rows}


async def counts_off(database: Database, account: AccountId) -> list[str]:
    """Names of namespaces, or `account`, whose counts are wrong."""
    return [r["name"] for r in await database.fetch(_COUNTS_OFF, account)]


async def stray_rows(database: Database, account: AccountId) -> list[Row]:
    """Rows that contradict each other as (memory_id, what), the first hundred."""
    return await database.fetch(_STRAY_ROWS, account)
