"""Statements on namespaces: their rows, their keys' ids, their counts.

Not here: what is in them (`memories`).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from relayer.database.accounts import Lock
from relayer.database.index_steps import note_change
from relayer.database.pool import Database, Row
from relayer.sealed.keys import AccountId, Namespace

_NAMESPACES: Final = """
SELECT n.namespace_id, n.name, k.epoch, k.key_id, n.memory_count, n.storage_bytes, n.updated_at
FROM namespaces n
JOIN namespace_keys k ON k.account_id = n.account_id AND k.namespace_id = n.namespace_id
WHERE n.account_id = $1 AND ($2::text[] IS NULL OR n.name = ANY ($2))
ORDER BY n.name, k.epoch
"""

_SUMMARIES: Final = """
SELECT n.namespace_id, n.name, n.memory_count, n.storage_bytes, n.updated_at, n.ttl_s, k.epochs,
       k.key_ids
FROM namespaces n
JOIN (SELECT namespace_id, array_agg(epoch ORDER BY epoch DESC) AS epochs,
             array_agg(key_id ORDER BY epoch DESC) AS key_ids
      FROM namespace_keys WHERE account_id = $1 GROUP BY namespace_id) k USING (namespace_id)
WHERE n.account_id = $1 AND ($2::text[] IS NULL OR n.name = ANY ($2))
  AND (n.erased_at IS NULL OR n.memory_count > 0
       OR EXISTS (SELECT FROM episodes e
                  WHERE e.account_id = $1 AND e.namespace_id = n.namespace_id
                    AND e.state <> 'done'))
ORDER BY n.name
"""

# A namespace takes the next number of its account; the account row serialises the takers.
_INSERT_NAMESPACE: Final = """
WITH numbered AS (
    UPDATE accounts SET namespace_count = namespace_count + 1
    WHERE account_id = $1 AND namespace_count < $4
      AND NOT EXISTS (SELECT FROM namespaces WHERE account_id = $1 AND name = $2)
    RETURNING namespace_count
)
INSERT INTO namespaces (account_id, namespace_id, name, updated_at)
SELECT $1, namespace_count, $2, $3 FROM numbered
ON CONFLICT DO NOTHING
"""
_INSERT_NAMESPACE_KEY: Final = """
WITH fresh AS (
    INSERT INTO namespace_keys (account_id, namespace_id, epoch, key_id, object)
    SELECT $1, namespace_id, $3, $4, $5 FROM namespaces WHERE account_id = $1 AND name = $2
    ON CONFLICT DO NOTHING
    RETURNING object
)
INSERT INTO blobs (account_id, blob_id, bytes, created_at)
SELECT $1, $6, object, $7 FROM fresh
ON CONFLICT DO NOTHING
"""
# Counts as the rows are, before lost ones are restored and counted again.
_RECOUNT_NAMESPACES: Final = """
WITH counted AS (
    SELECT n.namespace_id, count(m.memory_id) FILTER (WHERE m.revision_of IS NULL) AS memories,
           coalesce(sum(m.word_count) FILTER (WHERE m.revision_of IS NULL), 0) AS words,
           coalesce(sum(m.size_bytes), 0) AS bytes
    FROM namespaces n
    LEFT JOIN memories m ON m.account_id = n.account_id AND m.namespace_id = n.namespace_id
    WHERE n.account_id = $1 GROUP BY n.namespace_id
)
UPDATE namespaces n
SET memory_count = c.memories, word_count = c.words, storage_bytes = c.bytes
FROM counted c WHERE n.account_id = $1 AND n.namespace_id = c.namespace_id
"""
_RECOUNT_ACCOUNT: Final = """
WITH memory AS (
    SELECT count(*) FILTER (WHERE revision_of IS NULL) AS memories,
           coalesce(sum(size_bytes), 0) AS bytes
    FROM memories WHERE account_id = $1
), episode AS (
    SELECT coalesce(sum(size_bytes), 0) AS bytes
    FROM episodes WHERE account_id = $1 AND state <> 'done'
)
UPDATE accounts a SET memory_count = m.memories, storage_bytes = m.bytes + e.bytes
FROM memory m, episode e WHERE a.account_id = $1
"""


async def summaries(
    database: Database, account: AccountId, names: Sequence[Namespace] | None
) -> list[Row]:
    """One row for each namespace, all of them for None: what is in it, and its epochs' key ids,
    newest first. One that was erased and is empty since is left out."""
    return await database.fetch(_SUMMARIES, account, names)


async def find_namespaces(
    database: Database, account: AccountId, names: Sequence[Namespace] | None
) -> list[Row]:
    """Rows of namespaces with each of their epochs; all of them for None."""
    return await database.fetch(_NAMESPACES, account, names)


async def create_namespace(
    database: Database,
    *,
    lock: Lock,
    account: AccountId,
    name: Namespace,
    epoch: int,
    key_id: bytes,
    signed: bytes,
    object_id: bytes,
    now: datetime,
    namespaces_max: int,
) -> None:
    """The namespace's rows, unless they exist; nothing at all when the account has too many.

    `signed` is the object that names it in the journal, `object_id` the name of that.
    """
    async with database.transaction() as connection:
        # A statement sees what was committed before it began, so the lock needs one of its own.
        await lock(connection)
        await connection.execute(_INSERT_NAMESPACE, account, name, now, namespaces_max)
        await connection.execute(
            _INSERT_NAMESPACE_KEY, account, name, epoch, key_id, signed, object_id, now
        )


async def recount(database: Database, account: AccountId) -> None:
    """Set an account's counts to what its rows say."""
    async with database.transaction() as connection:
        await note_change(connection, account)
        await connection.execute(_RECOUNT_NAMESPACES, account)
        await connection.execute(_RECOUNT_ACCOUNT, account)
