"""Statements on which memories differ between two states of an account's index.

Not here: what a copy of the index reads (`memory_index`), and when (`relayer.memory_index`).

- An account's receipts and its `index_changes` grow with every change, under the lock of its row:
  their sum numbers the states of its index.
- A step leads from one state to a later one. Where a change left none there is a gap, and whoever
  finds one looks at all memories: so a step may be missing, but never say too little.
- Steps are for copies that are asked often, and go after `KEPT`.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from relayer.database.pool import Connection, Database
from relayer.sealed.keys import AccountId

KEPT: Final = timedelta(minutes=10)

_NOTE_CHANGE: Final = """
UPDATE accounts SET index_changes = index_changes + 1 WHERE account_id = $1
"""
_NOTE_STEP: Final = """
INSERT INTO index_steps
    (account_id, number, earlier, earlier_head, namespace_ids, seqs, created_at)
SELECT $1, receipt_seq + index_changes, receipt_seq + index_changes - 1, receipt_head,
       $2::int[], $3::bigint[], now()
FROM accounts WHERE account_id = $1 AND closed_at IS NULL
"""
# By account: before PostgreSQL 18 no index is searched without its first column.
_DELETE_OLD: Final = """
DELETE FROM index_steps s USING accounts a
WHERE s.account_id = a.account_id AND s.created_at < now() - $1::interval
"""


class IndexMark(NamedTuple):
    """A state of an account's index: its number, and the head of the receipts by then."""

    head: bytes
    number: int


def step(*, receipt_seq: str, namespace_ids: str, seqs: str) -> str:
    """Return a WITH query that notes the step of a statement, which holds the account's lock.

    Args:
        receipt_seq: the number of the last receipt that the statement stores, in SQL; without one
            it changes nothing.
        namespace_ids, seqs: arrays of what it changes, in SQL.
    """
    return f"""step AS (
    INSERT INTO index_steps
        (account_id, number, earlier, earlier_head, namespace_ids, seqs, created_at)
    SELECT $1, {receipt_seq} + index_changes, receipt_seq + index_changes, receipt_head,
           {namespace_ids}, {seqs}, now()
    FROM accounts WHERE account_id = $1 AND receipt_seq < {receipt_seq}
)"""


async def note_change(connection: Connection, account: AccountId) -> None:
    """Tell whoever holds the account's index in memory that it changes in this transaction.

    For changes of which no receipt or step tells; the first statement of all where the account is
    not locked yet, because it locks its row like any write.
    """
    await connection.execute(_NOTE_CHANGE, account)


async def note_step(
    connection: Connection, account: AccountId, changed: Sequence[tuple[int, int]]
) -> None:
    """Say that the change noted just now is of these memories alone, (namespace, number) each."""
    namespace_ids = sorted({namespace_id for namespace_id, _ in changed})
    await connection.execute(_NOTE_STEP, account, namespace_ids, [seq for _, seq in changed])


async def delete_old(database: Database) -> None:
    """Forget steps that no copy should need by now."""
    await database.execute(_DELETE_OLD, KEPT)
