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
SELECT account_id, blob_id, bytes FROM blobs WHERE account_id <> ALL ($2::bytea[])
ORDER BY created_at LIMIT $1
"""
# Whose objects there are; for rebuilding alone.
_ACCOUNTS: Final = "SELECT DISTINCT account_id FROM blobs ORDER BY account_id"
# The newest accounts that ever had a memory.
_NEWEST_WRITTEN: Final = """
SELECT account_id FROM accounts WHERE closed_at IS NULL AND memory_seq > 0
ORDER BY created_at DESC, account_id LIMIT $1
"""
# The newest memory's blob, and whether that or the first memory's is here: one alone may be
# damaged, or come of a store that is being moved.
_NEWEST_BLOB: Final = """
SELECT m.account_id, m.blob_id,
  EXISTS (SELECT FROM blobs b WHERE b.account_id = $1 AND b.blob_id = m.blob_id)
  OR EXISTS (
    SELECT FROM memories f JOIN blobs b ON b.account_id = f.account_id AND b.blob_id = f.blob_id
    WHERE f.account_id = $1 AND b.account_id = $1
      AND f.seq = (SELECT min(o.seq) FROM memories o WHERE o.account_id = $1)) AS here
FROM memories m
WHERE m.account_id = $1
  AND m.seq = (SELECT max(n.seq) FROM memories n WHERE n.account_id = $1)
"""
# That an operator knows of accounts that have lost theirs for good. A backup has no comments.
_LOST: Final = "memrelay: of some accounts they are lost"
_ACCEPT: Final = f"COMMENT ON TABLE blobs IS '{_LOST}'"
_ACCEPTED: Final = f"SELECT obj_description('blobs'::regclass, 'pg_class') = '{_LOST}' AS accepted"


async def accounts(database: Database) -> list[AccountId]:
    """Every account that has objects."""
    return [AccountId(r["account_id"]) for r in await database.fetch(_ACCOUNTS)]


async def first(
    database: Database, *, passing_over: Collection[AccountId], limit: int
) -> list[tuple[AccountId, str, bytes]]:
    """(account, name, bytes) of the oldest objects of all accounts but these."""
    return [
        (AccountId(r["account_id"]), to_base64url(r["blob_id"]), r["bytes"])
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
    """A page of names, in order of their bytes."""
    start = blob_hash(after) if after else b""
    rows = await database.fetch(_NAMES_AFTER, account, start, limit)
    return [to_base64url(r["blob_id"]) for r in rows]


async def elsewhere(database: Database, limit: int) -> tuple[dict[AccountId, str], bool]:
    """Which of the newest accounts with memories have these outside, with the name of one each; and
    whether others have them here."""
    newest = [row["account_id"] for row in await database.fetch(_NEWEST_WRITTEN, limit)]
    rows = await database.fetchmany(_NEWEST_BLOB, [(account,) for account in newest])
    outside = {
        AccountId(row["account_id"]): to_base64url(row["blob_id"])
        for row in rows
        if not row["here"]
    }
    return outside, len(outside) < len(rows)


async def accept_lost(database: Database) -> None:
    """Note that those of some accounts are lost for good."""
    await database.execute(_ACCEPT)


async def lost_accepted(database: Database) -> bool:
    """Whether that was noted."""
    row = await database.fetchrow(_ACCEPTED)
    return bool(row and row["accepted"])
