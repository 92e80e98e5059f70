"""Statements that verify what is stored, account by account.

Not here: what counts as wrong (`relayer.check`).
"""

from typing import Final

from relayer.database.pool import Database, Row
from relayer.sealed.keys import AccountId

_MEMORIES_AFTER: Final = """
SELECT m.memory_id, m.seq, m.type, m.revision, m.epoch, m.format, m.blob_id, k.key_id
FROM memories m
LEFT JOIN namespace_keys k ON k.account_id = m.account_id AND k.namespace_id = m.namespace_id
                          AND k.epoch = m.epoch
WHERE m.account_id = $1 AND m.seq > $2 ORDER BY m.seq LIMIT $3
"""
_NAMESPACE_COUNTS: Final = """
SELECT n.namespace_id, n.memory_count, count(m.memory_id) AS counted
FROM namespaces n
LEFT JOIN memories m ON m.account_id = n.account_id AND m.namespace_id = n.namespace_id
WHERE n.account_id = $1 GROUP BY n.namespace_id, n.memory_count
"""

# Postings and tombstones that contradict the memories.
_STRAY_ROWS: Final = """
SELECT DISTINCT p.memory_id, 'a posting' AS what FROM postings p
WHERE p.account_id = $1
  AND NOT EXISTS (SELECT FROM memories m WHERE m.account_id = $1 AND m.memory_id = p.memory_id)
UNION ALL
SELECT t.memory_id, 'a living row' FROM tombstones t
JOIN memories m ON m.account_id = $1 AND m.memory_id = t.memory_id
WHERE t.account_id = $1
LIMIT 100
"""


async def memories_after(database: Database, account: AccountId, seq: int, limit: int) -> list[Row]:
    """A page of memories with the key id of their epoch, in order of acceptance."""
    return await database.fetch(_MEMORIES_AFTER, account, seq, limit)


async def namespace_counts(database: Database, account: AccountId) -> list[Row]:
    """Namespaces with the count they claim and the count that is."""
    return await database.fetch(_NAMESPACE_COUNTS, account)


async def stray_rows(database: Database, account: AccountId) -> list[Row]:
    """Rows that outlived their memory, the first hundred."""
    return await database.fetch(_STRAY_ROWS, account)
