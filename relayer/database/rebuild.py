"""Statements that found an account again from its journal, and follow how complete it is.

Not here: reading the journal (`relayer.upkeep.rebuild`), giving memories their rows
(`relayer.recovery.restore`).
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from relayer.database.index_steps import note_change
from relayer.database.pool import Connection, Database, Row
from relayer.sealed.keys import AccountId, PublicKey

# An account as its journal has it, with the receipt that begins its chain anew.
_FOUND_AGAIN: Final = """
WITH account AS (
    INSERT INTO accounts (account_id, whole_id, label, created_at, grant_serial, epoch,
                          receipt_seq, receipt_head, incomplete, closed_at)
    VALUES ($1, $16, '', $2, $3, $4, $5, $6, $15::timestamptz IS NULL, $15)
), chain AS (
    INSERT INTO grants (account_id, serial, recipient, label, object, created_at, succession)
    SELECT $1, serial, recipient, '', object, created_at, succession
    FROM unnest($7::int[], $8::bytea[], $9::bytea[], $10::timestamptz[], $11::bytea[])
        AS g (serial, recipient, object, created_at, succession)
), receipt AS (
    INSERT INTO receipts (account_id, seq, object) VALUES ($1, $5, $12)
)
INSERT INTO blobs (account_id, blob_id, bytes, created_at)
VALUES ($1, $13, $12, $14) ON CONFLICT DO NOTHING
"""
_INSERT_NAMESPACES: Final = """
INSERT INTO namespaces (account_id, namespace_id, name, updated_at)
SELECT $1, number, name, $3 FROM unnest($2::text[]) WITH ORDINALITY AS n (name, number)
"""
_COUNT_NAMESPACES: Final = "UPDATE accounts SET namespace_count = $2 WHERE account_id = $1"
_INSERT_KEYS: Final = """
INSERT INTO namespace_keys (account_id, namespace_id, epoch, key_id, object)
SELECT $1, number, epoch, key_id, object
FROM unnest($2::int[], $3::int[], $4::bytea[], $5::bytea[]) AS k (number, epoch, key_id, object)
"""
_INSERT_TOMBSTONES: Final = """
INSERT INTO tombstones (account_id, memory_id, namespace_id, blob_ids, erased_at, expired)
SELECT $1, memory_id, namespace_id, string_to_array(blob_ids, ' ')::bytea[], erased_at, expired
FROM unnest($2::uuid[], $3::int[], $4::text[], $5::timestamptz[], $6::bool[])
    AS t (memory_id, namespace_id, blob_ids, erased_at, expired)
"""
# Erased blobs whose deletion the lost database had still to see to.
_DELETE_AGAIN: Final = """
INSERT INTO blob_outbox (account_id, blob_id, due_at)
SELECT $1, blob_id, $3 FROM unnest($2::bytea[]) AS b (blob_id) ON CONFLICT DO NOTHING
"""
_KNOWN: Final = "SELECT whole_id FROM accounts"
_INCOMPLETE: Final = "SELECT whole_id FROM accounts WHERE incomplete AND closed_at IS NULL"
_IS_INCOMPLETE: Final = "SELECT incomplete FROM accounts WHERE account_id = $1"
_SET_COMPLETE: Final = "UPDATE accounts SET incomplete = false WHERE account_id = $1"

# What there is of memories some of whose revisions lost their rows.
_REVISIONS: Final = """
SELECT coalesce(revision_of, memory_id) AS id, revision, revision_of, stored_at FROM memories
WHERE account_id = $1 AND (memory_id = ANY ($2) OR revision_of = ANY ($2))
"""
# Under which epoch the revisions of memories, and episodes, are sealed by what their rows say.
_SEALED: Final = """
SELECT coalesce(revision_of, memory_id) AS id, revision, memory_id AS row_id, epoch, blob_id
FROM memories WHERE account_id = $1 AND (memory_id = ANY ($2) OR revision_of = ANY ($2))
UNION ALL
SELECT episode_id, 1, episode_id, epoch, blob_id
FROM episodes WHERE account_id = $1 AND episode_id = ANY ($2) AND state IN ('pending', 'kept')
"""
# Rows that are about to be made anew; their vectors and links go with them.
_DROP: Final = """
WITH dropped AS (
    SELECT memory_id, namespace_id, unnest(tokens) AS token FROM memories
    WHERE account_id = $1 AND memory_id = ANY ($2) AND blob_id = ANY ($3) AND frequencies IS NULL
), posting AS (
    DELETE FROM postings p USING dropped d
    WHERE p.account_id = $1 AND p.namespace_id = d.namespace_id AND p.token = d.token
      AND p.memory_id = d.memory_id
), turn AS (
    DELETE FROM episodes
    WHERE account_id = $1 AND episode_id = ANY ($2) AND blob_id = ANY ($3)
)
DELETE FROM memories WHERE account_id = $1 AND memory_id = ANY ($2) AND blob_id = ANY ($3)
"""
_SET_STATE_BLOBS: Final = """
UPDATE memories m SET state_blob = s.object_id
FROM unnest($2::uuid[], $3::bytea[]) AS s (memory_id, object_id)
WHERE m.account_id = $1 AND m.memory_id = s.memory_id
"""


@dataclass(frozen=True)
class Tombstone:
    """The erasure of a memory, as receipts of the journal say together."""

    memory_id: uuid.UUID
    namespace_id: int | None
    blob_ids: Sequence[bytes]
    erased_at: datetime
    expired: bool


@dataclass(frozen=True)
class JournalGrant:
    """A grant or revocation with what its columns show."""

    serial: int
    recipient: PublicKey
    signed: bytes
    created_at: datetime
    succession: bytes | None


async def insert_account(
    connection: Connection,
    *,
    account: AccountId,
    created_at: datetime,
    epoch: int,
    grants: Sequence[JournalGrant],
    receipt_seq: int,
    receipt: bytes,
    receipt_head: bytes,
    receipt_blob_id: bytes,
    now: datetime,
    closed_at: datetime | None,
) -> None:
    """Insert the rows of an account that is not there, its chain of grants, and its first receipt.

    Raises:
        UniqueViolation: it is there.
    """
    await connection.execute(
        _FOUND_AGAIN,
        account,
        created_at,
        len(grants),
        epoch,
        receipt_seq,
        receipt_head,
        [g.serial for g in grants],
        [g.recipient for g in grants],
        [g.signed for g in grants],
        [g.created_at for g in grants],
        [g.succession for g in grants],
        receipt,
        receipt_blob_id,
        now,
        closed_at,
        account,
    )


async def insert_namespaces(
    connection: Connection,
    account: AccountId,
    names: Sequence[str],
    keys: Sequence[tuple[int, int, bytes, bytes]],
    now: datetime,
) -> None:
    """Insert namespaces, from 1 on, and their keys as (number, epoch, key id, signed object)."""
    await connection.execute(_INSERT_NAMESPACES, account, names, now)
    await connection.execute(_COUNT_NAMESPACES, account, len(names))
    await connection.execute(
        _INSERT_KEYS,
        account,
        [number for number, _, _, _ in keys],
        [epoch for _, epoch, _, _ in keys],
        [key_id for _, _, key_id, _ in keys],
        [signed for _, _, _, signed in keys],
    )


async def insert_tombstones(
    connection: Connection, account: AccountId, tombstones: Sequence[Tombstone], now: datetime
) -> None:
    """Insert tombstones, and note those of the erased blobs that may still lie in the store."""
    await connection.execute(
        _INSERT_TOMBSTONES,
        account,
        [s.memory_id for s in tombstones],
        [s.namespace_id for s in tombstones],
        [" ".join(f"\\x{name.hex()}" for name in s.blob_ids) for s in tombstones],
        [s.erased_at for s in tombstones],
        [s.expired for s in tombstones],
    )
    blobs = sorted({name for s in tombstones for name in s.blob_ids})
    await connection.execute(_DELETE_AGAIN, account, blobs, now)


async def find_accounts(database: Database) -> set[AccountId]:
    """Return every account that the database knows, erased ones too."""
    return {AccountId(r["whole_id"]) for r in await database.fetch(_KNOWN)}


async def incomplete_accounts(database: Database) -> list[AccountId]:
    """Return accounts that were rebuilt and whose memories do not all have their rows yet."""
    return [AccountId(r["whole_id"]) for r in await database.fetch(_INCOMPLETE)]


async def is_incomplete(database: Database, account: AccountId) -> bool:
    """Return true if an account was rebuilt and lacks rows."""
    row = await database.fetchrow(_IS_INCOMPLETE, account)
    return row is not None and bool(row["incomplete"])


async def set_complete(connection: Connection, account: AccountId) -> None:
    """Note that every memory of the account has its row."""
    await connection.execute(_SET_COMPLETE, account)


async def revisions(
    database: Database, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> list[Row]:
    """Return (id, revision, revision_of, stored_at) of the rows that these memories have."""
    return await database.fetch_planned(_REVISIONS, account, memory_ids)


async def find_sealed(
    database: Database, account: AccountId, ids: Sequence[uuid.UUID]
) -> list[Row]:
    """Return (id, revision, row_id, epoch, blob_id) of the rows of these memories and episodes."""
    return await database.fetch_planned(_SEALED, account, ids)


async def drop(connection: Connection, account: AccountId, dropped: Sequence[Row]) -> None:
    """Take away rows, shaped like those of `find_sealed`, that are still the same; counts stay."""
    ids, blobs = [r["row_id"] for r in dropped], [r["blob_id"] for r in dropped]
    await note_change(connection, account)
    await connection.execute(_DROP, account, ids, blobs)


async def set_state_blobs(
    database: Database, account: AccountId, objects: dict[uuid.UUID, bytes]
) -> None:
    """Record, for each memory, the journal object that holds its state."""
    await database.execute(_SET_STATE_BLOBS, account, list(objects), list(objects.values()))
