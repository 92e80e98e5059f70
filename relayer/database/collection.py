"""Statements on which stored objects something refers to.

Not here: what becomes of the others (`relayer.recovery.collection`).
"""

import uuid
from collections.abc import Sequence
from typing import Final

from relayer.database.accounts import lock_account
from relayer.database.pool import Connection, Database
from relayer.sealed.envelope import blob_hash
from relayer.sealed.keys import AccountId

# Which of these some row refers to, or is to be deleted because nothing does any more.
_REFERRED: Final = """
SELECT blob_id FROM memories WHERE account_id = $1 AND blob_id = ANY ($2)
UNION ALL
SELECT state_blob FROM memories WHERE account_id = $1 AND state_blob = ANY ($2)
UNION ALL
SELECT blob_id FROM episodes WHERE account_id = $1 AND blob_id = ANY ($2) AND state <> 'done'
UNION ALL
SELECT blob_id FROM blob_outbox WHERE account_id = $1 AND blob_id = ANY ($2) AND NOT stray
"""
# Which of these signed objects stand in a row.
_SIGNED_OBJECTS: Final = """
SELECT object FROM grants WHERE account_id = $1 AND object = ANY ($2)
UNION ALL
SELECT succession FROM grants WHERE account_id = $1 AND succession = ANY ($2)
UNION ALL
SELECT object FROM namespace_keys WHERE account_id = $1 AND object = ANY ($2)
"""
_RECEIPTS: Final = "SELECT seq, object FROM receipts WHERE account_id = $1 AND seq = ANY ($2)"
_LIVING: Final = """
SELECT memory_id FROM memories
WHERE account_id = $1 AND memory_id = ANY ($2) AND revision_of IS NULL
"""
_TOMBSTONED: Final = """
SELECT memory_id FROM tombstones WHERE account_id = $1 AND memory_id = ANY ($2)
"""
# Which of these are episodes whose facts were taken, and which were not to be kept.
_EXTRACTED: Final = """
SELECT episode_id FROM episodes
WHERE account_id = $1 AND episode_id = ANY ($2) AND state = 'done'
"""
_TOMBSTONED_BLOBS: Final = """
SELECT unnest(blob_ids) AS blob_id FROM tombstones WHERE account_id = $1 AND blob_ids && $2
"""
_ACCOUNT_IDS: Final = """
SELECT whole_id FROM accounts
WHERE ($1::bigint IS NULL OR account_id > $1) AND closed_at IS NULL
ORDER BY account_id LIMIT 1
"""
# Which of these are noted so. One by one, as in `memories._KNOWN_BLOBS`.
_NOTED: Final = """
SELECT l.blob_id FROM unnest($2::bytea[]) AS n (blob_id) CROSS JOIN LATERAL (
    SELECT blob_id FROM lasting_objects WHERE account_id = $1 AND blob_id = n.blob_id LIMIT 1) l
"""
# What stays of the journal, so that nobody looking for memories need read it.
_NOTE_LASTING: Final = """
INSERT INTO lasting_objects (account_id, blob_id)
SELECT $1, blob_id FROM unnest($2::bytea[]) AS b (blob_id) ON CONFLICT DO NOTHING
"""


async def find_referred(
    database: Database, *, account: AccountId, blob_ids: Sequence[bytes]
) -> set[bytes]:
    """Return those of these blobs that something refers to, or that are noted to go."""
    return {r["blob_id"] for r in await database.fetch(_REFERRED, account, blob_ids)}


async def find_signed_objects(
    database: Database, *, account: AccountId, objects: Sequence[bytes]
) -> set[bytes]:
    """Return those of these that are grants, what a grant rests on, or names of namespaces."""
    return {r["object"] for r in await database.fetch(_SIGNED_OBJECTS, account, objects)}


async def receipts(
    database: Database, *, account: AccountId, seqs: Sequence[int]
) -> dict[int, bytes]:
    """Return number → signed receipt, of those there are."""
    rows = await database.fetch(_RECEIPTS, account, seqs)
    return {r["seq"]: r["object"] for r in rows}


async def find_living(
    database: Database, *, account: AccountId, ids: Sequence[uuid.UUID]
) -> set[uuid.UUID]:
    """Return those of these memories that live."""
    return {r["memory_id"] for r in await database.fetch(_LIVING, account, ids)}


async def find_tombstoned(
    database: Database, *, account: AccountId, ids: Sequence[uuid.UUID]
) -> set[uuid.UUID]:
    """Return those of these memories that were erased."""
    return {r["memory_id"] for r in await database.fetch(_TOMBSTONED, account, ids)}


async def find_extracted(
    database: Database, *, account: AccountId, ids: Sequence[uuid.UUID]
) -> set[uuid.UUID]:
    """Return those of these episodes that are done with."""
    return {r["episode_id"] for r in await database.fetch(_EXTRACTED, account, ids)}


async def find_tombstoned_blobs(
    database: Database | Connection, *, account: AccountId, blob_ids: Sequence[bytes]
) -> set[bytes]:
    """Return those of these blobs that were erased; reads all tombstones of the account."""
    rows = await database.fetch(_TOMBSTONED_BLOBS, account, blob_ids)
    return {r["blob_id"] for r in rows} & set(blob_ids)


async def next_account(database: Database, after: AccountId | None) -> AccountId | None:
    """Return the account behind another, in order of their numbers; the first for None."""
    row = await database.fetchrow(_ACCOUNT_IDS, after)
    return None if row is None else AccountId(row["whole_id"])


async def note_lasting(database: Database, account: AccountId, names: Sequence[str]) -> None:
    """Remember objects that were verified as the journal's, and stay as long as the account."""
    if not names:
        return
    hashes = [blob_hash(name) for name in names]
    noted = {r["blob_id"] for r in await database.fetch(_NOTED, account, hashes)}
    if not (unnoted := [blob for blob in hashes if blob not in noted]):
        return  # nearly always: the journal is walked through once an hour
    async with database.transaction() as connection:
        # Else a row could come after all of a closed account's were deleted.
        if await lock_account(connection, account) is not None:
            await connection.execute(_NOTE_LASTING, account, unnoted)
