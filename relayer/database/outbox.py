"""Statements on what an outside blob store has still to delete.

Not here: deleting (`relayer.outbox`).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from relayer.database.accounts import lock_account
from relayer.database.pool import Connection, Database
from relayer.sealed.keys import AccountId

# That blobs put outside are to go unless a transaction comes to refer to them.
_INTEND: Final = """
INSERT INTO blob_outbox (account_id, blob_id, due_at)
SELECT $1, blob_id, $3 FROM unnest($2::bytea[]) AS b (blob_id)
ON CONFLICT DO NOTHING
"""
_OUTBOX: Final = """
SELECT account_id, blob_id FROM blob_outbox WHERE due_at <= $2 ORDER BY due_at LIMIT $1
"""
_REFERENCED: Final = """
SELECT EXISTS (SELECT FROM memories WHERE account_id = $1 AND blob_id = $2)
    OR EXISTS (SELECT FROM episodes
               WHERE account_id = $1 AND blob_id = $2 AND state = 'pending')
"""
_DELETE_OUTBOX: Final = "DELETE FROM blob_outbox WHERE account_id = $1 AND blob_id = $2"
_OUTBOX_HOLDS: Final = """
SELECT count(*) FROM blob_outbox WHERE account_id = $1 AND blob_id = ANY ($2)
"""


async def intend(
    database: Database, *, account: AccountId, blob_ids: Sequence[bytes], due_at: datetime
) -> None:
    """Note blobs about to be put outside: they go at that time unless a row refers to them."""
    await database.execute(_INTEND, account, blob_ids, due_at)


async def due_deletions(
    database: Database, *, now: datetime, limit: int
) -> list[tuple[AccountId, bytes]]:
    """Blobs that an outside store has to delete by now, longest due first."""
    rows = await database.fetch(_OUTBOX, limit, now)
    return [(AccountId(r["account_id"]), r["blob_id"]) for r in rows]


async def lock_blob(connection: Connection, *, account: AccountId, blob_id: bytes) -> bool:
    """Whether no memory refers to the blob; none can begin to until the transaction ends."""
    await lock_account(connection, account)
    return not await connection.fetchval(_REFERENCED, account, blob_id)


async def confirm_deletion(connection: Connection, *, account: AccountId, blob_id: bytes) -> None:
    """Nothing is due for this blob any more."""
    await connection.execute(_DELETE_OUTBOX, account, blob_id)


async def deletions_pending(
    database: Database, *, account: AccountId, blob_ids: Sequence[bytes]
) -> int:
    """How many of these blobs an outside store has still to delete."""
    row = await database.fetchrow(_OUTBOX_HOLDS, account, blob_ids)
    assert row is not None
    return int(row[0])
