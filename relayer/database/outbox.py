"""Statements on what a blob store has still to delete.

Not here: deleting (`relayer.journal.outbox`).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from relayer.database.pool import Connection, Database
from relayer.sealed.keys import AccountId

# That blobs are to go unless a transaction comes to refer to them.
_INTEND: Final = """
INSERT INTO blob_outbox (account_id, blob_id, due_at, stray)
SELECT $1, blob_id, $3, $4 FROM unnest($2::bytea[]) AS b (blob_id)
ON CONFLICT DO NOTHING RETURNING blob_id
"""
# That noted blobs, which are put once more, are not to go before that.
_POSTPONE: Final = """
UPDATE blob_outbox SET due_at = greatest(due_at, $3) WHERE account_id = $1 AND blob_id = ANY ($2)
"""
# In the order of all who lock several, so that none waits for another that waits for it.
_LOCK: Final = """
SELECT blob_id FROM blob_outbox
WHERE account_id = $1 AND blob_id = ANY ($2) ORDER BY blob_id FOR UPDATE
"""
_NOT_DUE: Final = """
SELECT blob_id FROM blob_outbox
WHERE account_id = $1 AND blob_id = ANY ($2) AND due_at > $3
ORDER BY blob_id FOR UPDATE
"""
# That strays are not to go: they are found, and noted, again.
_SPARE: Final = "DELETE FROM blob_outbox WHERE account_id = $1 AND blob_id = ANY ($2) AND stray"
# Receipts that were lost with an older database count, too: the mark of what came since is newer.
_NEWEST: Final = "SELECT receipt_seq + store_ahead AS mark FROM accounts WHERE account_id = $1"
# What is due: no stray blob of an account some of whose memories may have lost their rows.
_OUTBOX: Final = """
SELECT a.whole_id, o.blob_id FROM blob_outbox o JOIN accounts a ON a.account_id = o.account_id
WHERE o.due_at <= $2 AND NOT (o.stray AND a.incomplete)
ORDER BY o.due_at, o.account_id, o.blob_id LIMIT $1 OFFSET $3
"""
_REFERENCED: Final = """
SELECT blob_id FROM memories WHERE account_id = $1 AND blob_id = ANY ($2)
UNION ALL
SELECT blob_id FROM episodes WHERE account_id = $1 AND blob_id = ANY ($2) AND state <> 'done'
"""
_LOCK_DUE: Final = """
SELECT blob_id FROM blob_outbox
WHERE account_id = $1 AND blob_id = $2 AND due_at <= $3 FOR UPDATE
"""
_DELETE_OUTBOX: Final = "DELETE FROM blob_outbox WHERE account_id = $1 AND blob_id = $2"
_OUTBOX_HOLDS: Final = """
SELECT count(*) FROM blob_outbox WHERE account_id = $1 AND blob_id = ANY ($2)
"""


async def newest_mark(database: Database, account: AccountId) -> int:
    """Return the mark of the account's newest receipt for its store, 0 without one."""
    row = await database.fetchrow(_NEWEST, account)
    return 0 if row is None else int(row["mark"])


async def intend(
    database: Database | Connection,
    *,
    account: AccountId,
    blob_ids: Sequence[bytes],
    due_at: datetime,
    stray: bool = False,
) -> set[bytes]:
    """Note blobs about to be put outside, or found astray: they go at that time unless a row
    refers to them. Those that were not noted yet."""
    rows = await database.fetch(_INTEND, account, blob_ids, due_at, stray)
    return {r["blob_id"] for r in rows}


async def postpone(
    database: Database, *, account: AccountId, blob_ids: Sequence[bytes], due_at: datetime
) -> None:
    """Let those of these blobs that are noted go at that time at the earliest; one that is being
    deleted just now is waited for."""
    async with database.transaction() as connection:
        await connection.execute(_LOCK, account, blob_ids)
        await connection.execute(_POSTPONE, account, blob_ids, due_at)


async def not_due(
    connection: Connection, *, account: AccountId, blob_ids: Sequence[bytes], now: datetime
) -> set[bytes]:
    """Return those of these blobs that are noted and not due.

    None is deleted before the transaction ends.
    """
    rows = await connection.fetch(_NOT_DUE, account, blob_ids, now)
    return {r["blob_id"] for r in rows}


async def spare(connection: Connection, *, account: AccountId, blob_ids: Sequence[bytes]) -> None:
    """Take back that strays are to go, until they are found once more."""
    await connection.execute(_SPARE, account, blob_ids)


async def due_deletions(
    database: Database, *, now: datetime, after: int, limit: int
) -> list[tuple[AccountId, bytes]]:
    """Return blobs that an outside store has to delete by now, behind the first `after`.

    Those that are due longest come first.
    """
    rows = await database.fetch(_OUTBOX, limit, now, after)
    return [(AccountId(r["whole_id"]), r["blob_id"]) for r in rows]


async def lock_due(
    connection: Connection, *, account: AccountId, blob_id: bytes, now: datetime
) -> bool:
    """Lock a blob's note; true if it is due still, which holds until the transaction ends.

    The note is locked, not its account: an outside store may take long.
    """
    return await connection.fetchval(_LOCK_DUE, account, blob_id, now) is not None


async def find_referenced(
    connection: Connection, *, account: AccountId, blob_ids: Sequence[bytes]
) -> set[bytes]:
    """Return those of these blobs that a memory or episode refers to."""
    rows = await connection.fetch(_REFERENCED, account, blob_ids)
    return {r["blob_id"] for r in rows}


async def confirm_deletion(connection: Connection, *, account: AccountId, blob_id: bytes) -> None:
    """Forget that anything is due for this blob."""
    await connection.execute(_DELETE_OUTBOX, account, blob_id)


async def deletions_pending(
    database: Database, *, account: AccountId, blob_ids: Sequence[bytes]
) -> int:
    """Count those of these blobs that an outside store has still to delete."""
    row = await database.fetchrow(_OUTBOX_HOLDS, account, blob_ids)
    assert row is not None
    return int(row[0])
