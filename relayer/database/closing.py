"""Statements that close an account and then empty it.

Not here: its last receipt and its blobs outside (`relayer.tenants.closing`).

- From the statement that closes it, nobody can lock the account for writing (`lock_account`).
- Every table with rows of accounts is emptied here; a test goes through the schema.
"""

from datetime import datetime
from typing import Final

from relayer.database.pool import Connection, Database
from relayer.sealed.keys import AccountId

_CLOSE: Final = """
WITH receipt AS (
    INSERT INTO receipts (account_id, seq, object) VALUES ($1, $3, $4)
), journal AS (
    INSERT INTO blobs (account_id, blob_id, bytes, created_at) VALUES ($1, $6, $4, $2)
    ON CONFLICT DO NOTHING
)
UPDATE accounts
SET closed_at = $2, changed_at = $2, label = '', settings = '{}',
    recalls_since = NULL, receipt_seq = $3, receipt_head = $5, memory_count = 0,
    storage_bytes = 0, index_bytes = 0
WHERE account_id = $1
"""
_FREE_KEYS: Final = "DELETE FROM key_owner WHERE whole_id = $1"
_DROP_WEBHOOKS: Final = "DELETE FROM webhooks WHERE account_id = $1"

# Two that delete at once choose the same rows: the second would find none, and think it the end.
_LOCK: Final = "SELECT 1 FROM accounts WHERE account_id = $1 FOR UPDATE"

# Some memories with their postings; links, vectors and counts of recalls go with them.
_EMPTY_MEMORIES: Final = """
WITH doomed AS (
    SELECT memory_id, namespace_id, CASE WHEN frequencies IS NULL THEN tokens END AS row_tokens
    FROM memories WHERE account_id = $1 LIMIT $2
), posting AS (
    DELETE FROM postings p
    USING (SELECT memory_id, namespace_id, unnest(row_tokens) AS token FROM doomed) d
    WHERE p.account_id = $1 AND p.namespace_id = d.namespace_id AND p.token = d.token
      AND p.memory_id = d.memory_id
), memory AS (
    DELETE FROM memories m USING doomed d WHERE m.account_id = $1 AND m.memory_id = d.memory_id
    RETURNING m.memory_id
)
SELECT count(*) FROM memory
"""
_NOT_LAST: Final = "AND seq < (SELECT receipt_seq FROM accounts WHERE account_id = $1)"
_NOT_ITS_BLOB: Final = "AND blob_id <> $3"


def _build_emptying(table: str, *columns: str, but: str = "") -> str:
    key = ", ".join(columns)
    return f"""
WITH gone AS (
    DELETE FROM {table} WHERE account_id = $1 AND ({key}) IN (
        SELECT {key} FROM {table} WHERE account_id = $1 {but} LIMIT $2)
    RETURNING account_id
)
SELECT count(*) FROM gone
"""


_EMPTY_POSTINGS: Final = _build_emptying("postings", "namespace_id", "token", "memory_id")
_EMPTY_EPISODES: Final = _build_emptying("episodes", "episode_id")
_EMPTY_TOMBSTONES: Final = _build_emptying("tombstones", "memory_id")
_EMPTY_IDEMPOTENCY: Final = _build_emptying("idempotency", "mark")
_EMPTY_ACTIONS: Final = _build_emptying("consolidation_actions", "run_id", "action_id")
_EMPTY_CONSOLIDATIONS: Final = _build_emptying("consolidations", "run_id")
_EMPTY_GRANTS: Final = _build_emptying("grants", "serial")
# Not what is on its way into the store at this moment: that is deleted when it has come.
_EMPTY_OUTBOX: Final = _build_emptying("blob_outbox", "blob_id", but="AND (stray OR due_at <= $3)")
_EMPTY_LASTING: Final = _build_emptying("lasting_objects", "blob_id")
_EMPTY_KEY_USES: Final = _build_emptying("key_uses", "public_key")
_EMPTY_RECEIPTS: Final = _build_emptying("receipts", "seq", but=_NOT_LAST)
_EMPTY_NAMESPACES: Final = _build_emptying("namespaces", "namespace_id")
_EMPTY_BLOBS: Final = _build_emptying("blobs", "blob_id", but=_NOT_ITS_BLOB)
_EMPTY_WINDOWS: Final = "DELETE FROM request_windows WHERE account_id = $1"
_EMPTY_STEPS: Final = "DELETE FROM index_steps WHERE account_id = $1"
# Namespaces last: what is left of their memories would go with them in one go.
_PAGED: Final = (
    _EMPTY_MEMORIES, _EMPTY_POSTINGS, _EMPTY_EPISODES, _EMPTY_TOMBSTONES, _EMPTY_IDEMPOTENCY,
    _EMPTY_ACTIONS, _EMPTY_CONSOLIDATIONS, _EMPTY_GRANTS, _EMPTY_KEY_USES, _EMPTY_RECEIPTS,
    _EMPTY_LASTING, _EMPTY_NAMESPACES,
)  # fmt: skip
_PURGED: Final = "UPDATE accounts SET purged_at = $2 WHERE account_id = $1"
_UNSET_PURGED: Final = "UPDATE accounts SET purged_at = NULL WHERE account_id = $1"
_UNPURGED: Final = """
SELECT whole_id FROM accounts WHERE closed_at IS NOT NULL AND purged_at IS NULL
"""
_CLOSED: Final = "SELECT whole_id FROM accounts WHERE closed_at IS NOT NULL"
_LAST_RECEIPT: Final = """
SELECT r.object FROM receipts r
JOIN accounts a ON a.account_id = $1 AND a.receipt_seq = r.seq
WHERE r.account_id = $1 AND a.closed_at IS NOT NULL
"""
_OUTBOX_WAITS: Final = "SELECT EXISTS (SELECT 1 FROM blob_outbox WHERE account_id = $1)"
# What is left of an emptied account beside its row and its last receipt. Blobs on their way when it
# was closed are noted, and deleted when they are due; request windows are deleted by their age.
_LASTING: Final = (
    "memories", "postings", "links", "vectors", "memory_recalls", "episodes", "tombstones",
    "idempotency", "consolidations", "consolidation_actions", "grants", "key_uses", "namespaces",
    "namespace_keys", "webhooks", "webhook_events", "index_steps", "lasting_objects",
)  # fmt: skip
_REMNANTS: Final = " UNION ALL ".join(
    f"SELECT '{table}' AS what WHERE EXISTS (SELECT 1 FROM {table} WHERE account_id = $1 {but})"
    for table, but in (
        *((table, "") for table in _LASTING),
        ("receipts", _NOT_LAST),
        ("blobs", "AND blob_id <> $2"),
    )
)
# Keys lie apart from accounts, and no statement asks for both.
_KEYS_LEFT: Final = "SELECT EXISTS (SELECT 1 FROM key_owner WHERE whole_id = $1)"
_IS_PURGED: Final = "SELECT purged_at IS NOT NULL FROM accounts WHERE account_id = $1"
_NOTED: Final = "SELECT blob_id FROM blob_outbox WHERE account_id = $1"


async def close(
    connection: Connection,
    *,
    account: AccountId,
    now: datetime,
    seq: int,
    receipt: bytes,
    receipt_head: bytes,
    receipt_blob_id: bytes,
) -> None:
    """Close a locked account: nothing is written any more, and its keys are nobody's."""
    await connection.execute(_CLOSE, account, now, seq, receipt, receipt_head, receipt_blob_id)
    await connection.execute(_FREE_KEYS, account)
    await connection.execute(_DROP_WEBHOOKS, account)


async def empty(
    database: Database, *, account: AccountId, receipt_blob_id: bytes, limit: int, now: datetime
) -> int:
    """Delete at most `limit` rows of one table of a closed account; how many, 0 at the end."""
    async with database.transaction() as connection:
        await connection.execute(_LOCK, account)
        for statement in _PAGED:
            if deleted := int(await connection.fetchval(statement, account, limit)):
                return deleted
        if deleted := int(await connection.fetchval(_EMPTY_OUTBOX, account, limit, now)):
            return deleted
        await connection.execute(_EMPTY_WINDOWS, account)
        await connection.execute(_EMPTY_STEPS, account)
        return int(await connection.fetchval(_EMPTY_BLOBS, account, limit, receipt_blob_id))


async def outbox_waits(database: Database, account: AccountId) -> bool:
    """Return true if blobs of the account may still come into an outside store."""
    row = await database.fetchrow(_OUTBOX_WAITS, account)
    return row is not None and bool(row[0])


async def set_purged(database: Database, *, account: AccountId, now: datetime) -> None:
    """Note that nothing is left of a closed account."""
    await database.execute(_PURGED, account, now)


async def set_unpurged(database: Database, account: AccountId) -> None:
    """Note that something may be left of a closed account."""
    await database.execute(_UNSET_PURGED, account)


async def find_unpurged(database: Database) -> list[AccountId]:
    """Return closed accounts of which something may be left."""
    return [AccountId(r["whole_id"]) for r in await database.fetch(_UNPURGED)]


async def find_closed(database: Database) -> list[AccountId]:
    """Return every closed account."""
    return [AccountId(r["whole_id"]) for r in await database.fetch(_CLOSED)]


async def last_receipt(database: Database, account: AccountId) -> bytes | None:
    """Return the last receipt of a closed account, if it is there; None of one that is open."""
    row = await database.fetchrow(_LAST_RECEIPT, account)
    return None if row is None else bytes(row["object"])


async def is_purged(database: Database, account: AccountId) -> bool:
    """Return true if a closed account was emptied to the end."""
    row = await database.fetchrow(_IS_PURGED, account)
    return row is not None and bool(row[0])


async def remnants(database: Database, account: AccountId, receipt_blob_id: bytes) -> list[str]:
    """Return tables that still have something of an emptied account that should not be there."""
    left = [r["what"] for r in await database.fetch_planned(_REMNANTS, account, receipt_blob_id)]
    [keys] = await database.fetch(_KEYS_LEFT, account)
    return [*left, "key_owner"] if keys[0] else left


async def find_noted(database: Database, account: AccountId) -> set[bytes]:
    """Return blobs that are still to be deleted in an outside store."""
    return {r["blob_id"] for r in await database.fetch(_NOTED, account)}
