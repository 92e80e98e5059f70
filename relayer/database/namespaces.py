"""Statements on namespaces: their rows, their keys' ids, their counts.

Not here: what is in them (`memories`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from relayer.database.index_steps import note_change
from relayer.database.pool import Connection, Database, Row
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.keys import AccountId, Namespace, PublicKey

_NAMESPACES: Final = """
SELECT n.namespace_id, n.name, k.epoch, k.key_id, k.named_by, n.memory_count, n.storage_bytes,
       n.updated_at, n.sealed_index, n.index_moves, a.index_choices
FROM namespaces n
JOIN namespace_keys k ON k.account_id = n.account_id AND k.namespace_id = n.namespace_id
JOIN accounts a ON a.account_id = n.account_id
WHERE n.account_id = $1 AND ($2::text[] IS NULL OR n.name = ANY ($2))
ORDER BY n.name, k.epoch
"""

_LATEST: Final = """
SELECT name FROM namespaces WHERE account_id = $1 AND memory_count > 0
ORDER BY updated_at DESC LIMIT $2
"""
_SUMMARIES: Final = """
SELECT n.namespace_id, n.name, n.memory_count, n.storage_bytes, n.index_bytes, n.updated_at,
       n.ttl_s, n.sealed_index, n.index_moves, k.epochs, k.key_ids
FROM namespaces n
JOIN (SELECT namespace_id, array_agg(epoch ORDER BY epoch DESC) AS epochs,
             array_agg(key_id ORDER BY epoch DESC) AS key_ids
      FROM namespace_keys WHERE account_id = $1 GROUP BY namespace_id) k USING (namespace_id)
WHERE n.account_id = $1 AND ($2::text[] IS NULL OR n.name = ANY ($2))
  AND (n.erased_at IS NULL OR n.memory_count > 0
       OR EXISTS (SELECT 1 FROM episodes e
                  WHERE e.account_id = $1 AND e.namespace_id = n.namespace_id
                    AND e.state <> 'done'))
ORDER BY n.name
"""

# A namespace takes the next number of its account; the account row serialises the takers.
_INSERT_NAMESPACE: Final = """
WITH numbered AS (
    UPDATE accounts SET namespace_count = namespace_count + 1
    WHERE account_id = $1 AND namespace_count < $4
      AND NOT EXISTS (SELECT 1 FROM namespaces WHERE account_id = $1 AND name = $2)
    RETURNING namespace_count
)
INSERT INTO namespaces (account_id, namespace_id, name, updated_at)
SELECT $1, namespace_count, $2, $3 FROM numbered
ON CONFLICT DO NOTHING
"""
_INSERT_NAMESPACE_KEY: Final = """
WITH fresh AS (
    INSERT INTO namespace_keys (account_id, namespace_id, epoch, key_id, object, named_by)
    SELECT $1, namespace_id, $3, $4, $5, $8 FROM namespaces WHERE account_id = $1 AND name = $2
    ON CONFLICT DO NOTHING
    RETURNING object
)
INSERT INTO blobs (account_id, blob_id, bytes, created_at)
SELECT $1, $6, object, $7 FROM fresh
ON CONFLICT DO NOTHING
"""
_NAMED_KEY: Final = """
SELECT object FROM namespace_keys
WHERE account_id = $1 AND namespace_id = $2 AND epoch = $3 AND key_id = $4
"""
# The object of before has had its time; that of today may have had its own before.
_REPLACE_KEY: Final = """
WITH changed AS (
    UPDATE namespace_keys SET key_id = $4, object = $5, named_by = $6
    WHERE account_id = $1 AND namespace_id = $2 AND epoch = $3
), staged AS (
    DELETE FROM blobs WHERE account_id = $1 AND blob_id = $8
), kept AS (
    DELETE FROM blob_outbox WHERE account_id = $1 AND blob_id = $7
), outbox AS (
    INSERT INTO blob_outbox (account_id, blob_id, due_at)
    SELECT $1, $8, $9 WHERE $10 AND $8::bytea IS NOT NULL
    ON CONFLICT (account_id, blob_id) DO UPDATE SET due_at = excluded.due_at
)
INSERT INTO blobs (account_id, blob_id, bytes, created_at) VALUES ($1, $7, $5, $9)
ON CONFLICT DO NOTHING
"""
_VOUCH: Final = """
UPDATE namespace_keys SET named_by = $5
WHERE account_id = $1 AND namespace_id = $2 AND epoch = $3 AND key_id = $4
"""
# Counts as the rows are, before lost ones are restored and counted again.
_RECOUNT_NAMESPACES: Final = """
WITH counted AS (
    SELECT n.namespace_id, count(m.memory_id) FILTER (WHERE m.revision_of IS NULL) AS memories,
           coalesce(sum(m.word_count) FILTER (WHERE m.revision_of IS NULL), 0) AS words,
           coalesce(sum(m.size_bytes), 0) AS bytes,
           coalesce(sum(m.index_bytes), 0) AS index_bytes
    FROM namespaces n
    LEFT JOIN memories m ON m.account_id = n.account_id AND m.namespace_id = n.namespace_id
    WHERE n.account_id = $1 GROUP BY n.namespace_id
)
UPDATE namespaces n
SET memory_count = c.memories, word_count = c.words, storage_bytes = c.bytes,
    index_bytes = c.index_bytes
FROM counted c WHERE n.account_id = $1 AND n.namespace_id = c.namespace_id
"""
_RECOUNT_ACCOUNT: Final = """
WITH memory AS (
    SELECT count(*) FILTER (WHERE revision_of IS NULL) AS memories,
           coalesce(sum(size_bytes), 0) AS bytes, coalesce(sum(index_bytes), 0) AS index_bytes
    FROM memories WHERE account_id = $1
), episode AS (
    SELECT coalesce(sum(size_bytes), 0) AS bytes
    FROM episodes WHERE account_id = $1 AND state <> 'done'
)
UPDATE accounts a
SET memory_count = m.memories, storage_bytes = m.bytes + e.bytes, index_bytes = m.index_bytes
FROM memory m, episode e WHERE a.account_id = $1
"""


async def find_latest(database: Database, account: AccountId, limit: int) -> list[str]:
    """Return the names of those namespaces with memories that were written last."""
    rows = await database.fetch(_LATEST, account, limit)
    return [row["name"] for row in rows]


async def summaries(
    database: Database, account: AccountId, names: Sequence[Namespace] | None
) -> list[Row]:
    """Return one row for each namespace, all of them for None, newest first.

    It holds what is in it, and its epochs' key ids. One that was erased and is empty since is left
    out.
    """
    return await database.fetch(_SUMMARIES, account, names)


async def find_namespaces(
    database: Database, account: AccountId, names: Sequence[Namespace] | None
) -> list[Row]:
    """Return rows of namespaces with each of their epochs; all of them for None."""
    return await database.fetch(_NAMESPACES, account, names)


async def create_namespace(
    connection: Connection,
    *,
    account: AccountId,
    name: Namespace,
    epoch: int,
    key_id: bytes,
    signed: bytes,
    object_id: bytes,
    now: datetime,
    namespaces_max: int,
    named_by: PublicKey | None,
) -> None:
    """Insert the namespace's rows, unless they exist; nothing when the account has too many.

    A statement sees what was committed before it began, so the account's lock comes before it.
    `signed` is the object that names it in the journal, `object_id` the name of that.
    """
    await connection.execute(_INSERT_NAMESPACE, account, name, now, namespaces_max)
    await connection.execute(
        _INSERT_NAMESPACE_KEY, account, name, epoch, key_id, signed, object_id, now, named_by
    )


@dataclass(frozen=True)
class NamedAnew:
    """The key that a namespace has in an epoch from now on.

    Attributes:
        signed: the object that names it in the journal; `object_id` is the name of that.
        outside: whether the journal is outside the database.
    """

    key_id: bytes
    signed: bytes
    object_id: bytes
    named_by: PublicKey
    now: datetime
    outside: bool


async def replace_key(
    connection: Connection,
    *,
    account: AccountId,
    namespace_id: int,
    epoch: int,
    before: bytes,
    after: NamedAnew,
) -> bool:
    """Give a namespace another key's id in an epoch, under the account's lock; whether it still had
    the one of `before`."""
    place = (account, namespace_id, epoch)
    found = await connection.fetchrow(_NAMED_KEY, *place, before)
    if found is None:
        return False
    old = found["object"]  # None of an earlier release
    await connection.execute(
        _REPLACE_KEY,
        *place,
        after.key_id,
        after.signed,
        after.named_by,
        after.object_id,
        None if old is None else blob_hash(blob_id(old)),
        after.now,
        after.outside,
    )
    return True


async def vouch(
    database: Database,
    *,
    account: AccountId,
    namespace_id: int,
    epoch: int,
    key_id: bytes,
    named_by: PublicKey,
) -> None:
    """Note whose word it is that a namespace has the key of this id in an epoch."""
    await database.execute(_VOUCH, account, namespace_id, epoch, key_id, named_by)


async def recount(database: Database, account: AccountId) -> None:
    """Set an account's counts to what its rows say."""
    async with database.transaction() as connection:
        await note_change(connection, account)
        await connection.execute(_RECOUNT_NAMESPACES, account)
        await connection.execute(_RECOUNT_ACCOUNT, account)
