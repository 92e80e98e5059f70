"""Statements of the blob store that lives in the database.

Not here: naming and verifying blobs (`relayer.blobs.store`). Blobs of a write go with their rows
(`memories.write`).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from relayer.database.pool import Connection, Database
from relayer.sealed.envelope import blob_hash
from relayer.sealed.keys import AccountId
from relayer.sealed.primitives import to_base64url

_INSERT: Final = """
INSERT INTO blobs (account_id, blob_id, bytes, created_at)
SELECT $1, blob_id, bytes, now() FROM unnest($2::bytea[], $3::bytea[]) AS b (blob_id, bytes)
ON CONFLICT DO NOTHING
"""
_FIND: Final = """
SELECT blob_id, bytes FROM blobs WHERE account_id = $1 AND blob_id = ANY ($2)
"""
_DELETE: Final = "DELETE FROM blobs WHERE account_id = $1 AND blob_id = $2"
_NAMES_AFTER: Final = """
SELECT blob_id FROM blobs WHERE account_id = $1 AND blob_id > $2 ORDER BY blob_id LIMIT $3
"""
# Journal objects that wait to be published to an outside store, oldest first, but for those of
# accounts whose turn is over.
_FIRST: Final = """
SELECT a.whole_id, b.blob_id, b.bytes FROM blobs b JOIN accounts a ON a.account_id = b.account_id
WHERE b.account_id <> ALL ($2::bigint[]) ORDER BY b.created_at LIMIT $1
"""
# Whose objects there are; for rebuilding alone.
_ACCOUNTS: Final = """
SELECT a.whole_id FROM accounts a
WHERE EXISTS (SELECT 1 FROM blobs b WHERE b.account_id = a.account_id) ORDER BY a.whole_id
"""
# The newest accounts that ever had a memory.
_NEWEST_WRITTEN: Final = """
SELECT whole_id FROM accounts WHERE closed_at IS NULL AND memory_seq > 0
ORDER BY created_at DESC, whole_id LIMIT $1
"""
# Whether an account has any memory's blob here: some may be lost. What was accepted as lost, all of
# it, does not count.
_HERE: Final = """
SELECT a.whole_id, EXISTS (
  SELECT 1 FROM memories m JOIN blobs b ON b.account_id = m.account_id AND b.blob_id = m.blob_id
  WHERE m.account_id = $1 AND b.account_id = $1 AND m.seq > a.lost_seq) AS here
FROM accounts a
WHERE a.account_id = $1
  AND EXISTS (SELECT 1 FROM memories n WHERE n.account_id = $1 AND n.seq > a.lost_seq)
"""
# Some, and not the newest alone: that may be lost.
_NEWEST_NAMES: Final = """
SELECT blob_id FROM memories WHERE account_id = $1 ORDER BY seq DESC LIMIT $2
"""
_ACCEPT: Final = "UPDATE accounts SET lost_seq = memory_seq WHERE account_id = $1"


async def accounts(database: Database) -> list[AccountId]:
    """Return every account that has objects."""
    return [AccountId(r["whole_id"]) for r in await database.fetch(_ACCOUNTS)]


async def first(
    database: Database, *, passing_over: Collection[AccountId], limit: int
) -> list[tuple[AccountId, str, bytes]]:
    """Return (account, name, bytes) of the oldest objects of all accounts but these."""
    return [
        (AccountId(r["whole_id"]), to_base64url(r["blob_id"]), r["bytes"])
        for r in await database.fetch(_FIRST, limit, list(passing_over))
    ]


async def insert(database: Database, account: AccountId, blobs: Mapping[str, bytes]) -> None:
    """Store blobs; equal ones are stored once."""
    await database.execute(
        _INSERT, account, [blob_hash(name) for name in blobs], list(blobs.values())
    )


async def find(database: Database, account: AccountId, names: Sequence[str]) -> dict[str, bytes]:
    """Name → bytes of those that exist."""
    rows = await database.fetch(_FIND, account, [blob_hash(name) for name in names])
    return {to_base64url(r["blob_id"]): r["bytes"] for r in rows}


async def delete(database: Database | Connection, account: AccountId, name: str) -> None:
    """Remove one blob."""
    await database.execute(_DELETE, account, blob_hash(name))


async def names_after(database: Database, account: AccountId, after: str, limit: int) -> list[str]:
    """Return a page of names, in order of their bytes."""
    start = blob_hash(after) if after else b""
    rows = await database.fetch(_NAMES_AFTER, account, start, limit)
    return [to_base64url(r["blob_id"]) for r in rows]


async def elsewhere(database: Database, limit: int) -> tuple[set[AccountId], bool]:
    """Return the newest accounts whose memories are elsewhere, and whether others' are here."""
    newest = [AccountId(row["whole_id"]) for row in await database.fetch(_NEWEST_WRITTEN, limit)]
    rows = await database.fetchmany(_HERE, [(account,) for account in newest])
    outside = {AccountId(row["whole_id"]) for row in rows if not row["here"]}
    return outside, len(outside) < len(rows)


async def newest_names(database: Database, account: AccountId, limit: int) -> list[str]:
    """Return the names of the newest memories' blobs, wherever these are."""
    rows = await database.fetch(_NEWEST_NAMES, account, limit)
    return [to_base64url(row["blob_id"]) for row in rows]


async def accept_lost(database: Database, accounts: Collection[AccountId]) -> None:
    """Note that what these accounts have remembered so far is lost for good."""
    await database.fetchmany(_ACCEPT, [(account,) for account in accounts])
