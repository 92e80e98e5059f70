"""Statements on how far accounts are behind their journals.

Not here: the journals and what is done about it (`relayer.recovery`: `examiner`, `replay`).
"""

from datetime import datetime
from typing import Final

from relayer.database.pool import Connection, Database, Row
from relayer.sealed.keys import AccountId

HELD: Final = 2**31 - 1  # the serial that an account lacks whose catching up has not ended

# How far every account is that was not closed.
_NEWEST: Final = """
SELECT whole_id, receipt_seq, changed_at, grant_serial, grant_serial_due, store_ahead
FROM accounts
WHERE closed_at IS NULL AND ($1::bigint IS NULL OR account_id = $1)
"""
_HOLD: Final = """
UPDATE accounts SET grant_serial_due = $2, store_ahead = greatest(store_ahead, $3 - receipt_seq)
WHERE account_id = $1
"""
_SET_DUE: Final = "UPDATE accounts SET grant_serial_due = $2 WHERE account_id = $1"
_SET_INCOMPLETE: Final = "UPDATE accounts SET incomplete = true WHERE account_id = $1"
# Accounts that may have blobs noted as being put, with their newest receipt's number.
_PUTTING: Final = """
SELECT whole_id, receipt_seq FROM accounts a
WHERE closed_at IS NULL AND EXISTS (
    SELECT 1 FROM blob_outbox o WHERE o.account_id = a.account_id AND NOT o.stray)
"""
# That what was being put when the database was of that age is to go, unless a row comes.
_END_PUTS: Final = """
DELETE FROM blob_outbox WHERE account_id = $1 AND NOT stray AND due_at > $2
"""


async def newest(database: Database, account: AccountId | None = None) -> list[Row]:
    """Return every account, or this one, with the numbers of its newest receipt and grant.

    There are also when it was changed, the grant that it lacks, and by how much its store is told
    of more receipts.
    """
    return await database.fetch(_NEWEST, account)


async def set_due(database: Database, account: AccountId, serial: int) -> None:
    """Let the account be answered from its chain of grants when that has come so far."""
    await database.execute(_SET_DUE, account, serial)


async def hold(database: Database, account: AccountId, mark: int) -> None:
    """Let the account not be answered before it has caught up with a store that was told of this
    receipt; what the store is told from now on is beyond that."""
    await database.execute(_HOLD, account, HELD, mark)


async def set_incomplete(connection: Connection, account: AccountId) -> None:
    """Note that memories of the account may lack their rows."""
    await connection.execute(_SET_INCOMPLETE, account)


async def accounts_putting(database: Database) -> list[tuple[AccountId, int]]:
    """Return accounts with noted blobs that are no strays, and their newest receipt's number."""
    rows = await database.fetch(_PUTTING)
    return [(AccountId(r["whole_id"]), r["receipt_seq"]) for r in rows]


async def end_puts(database: Database, account: AccountId, due_after: datetime) -> None:
    """Take back that blobs are to go after that time, which were noted as they were put."""
    await database.execute(_END_PUTS, account, due_after)
