"""Statements on accounts, keys, grants and receipts.

Not here: what a grant means (`relayer.tenants.accounts`), nonces and request windows
(`requests.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from relayer.database.pool import Connection, Database, Row
from relayer.errors import NotFound
from relayer.sealed.keys import AccountId, PublicKey
from relayer.settings import Limits

ACCOUNT_COLUMNS: Final = """
a.whole_id, a.label, a.created_at, a.grant_serial, a.receipt_seq, a.receipt_head, a.memory_count,
a.storage_bytes, a.index_bytes, a.settings, a.closed_at, a.grant_serial_due, a.index_changes,
a.turns_with_facts, a.turns_without_facts, a.index_choices, a.incomplete
"""

_INSERT_ACCOUNT: Final = """
INSERT INTO accounts (account_id, whole_id, label, created_at, grant_serial, receipt_seq,
                      receipt_head)
VALUES ($1, $5, $2, $3, 0, 0, $4)
"""
_INSERT_OWNER: Final = """
INSERT INTO key_owner (public_key, whole_id) VALUES ($1, $2) ON CONFLICT DO NOTHING
"""
_KEY_OWNER: Final = "SELECT whole_id FROM key_owner WHERE public_key = $1"
_KEYS_BEGINNING: Final = """
SELECT public_key, whole_id FROM key_owner
WHERE starts_with(encode(public_key, 'hex'), $1) LIMIT 2
"""

# Where an account is looked up, its whole id is compared: no other has its place.
_ACCOUNT: Final = f"""
SELECT {ACCOUNT_COLUMNS} FROM accounts a WHERE a.account_id = $1 AND a.whole_id = $2
"""
_UPDATE_SETTINGS: Final = "UPDATE accounts SET settings = $2 WHERE account_id = $1"
# Under the account's lock, in the transaction that stores what the episode gave.
_COUNT_TURN: Final = """
UPDATE accounts
SET turns_with_facts = turns_with_facts + $2, turns_without_facts = turns_without_facts + 1 - $2
WHERE account_id = $1
"""
_ACCOUNTS: Final = """
SELECT whole_id, label, created_at, grant_serial, memory_count, storage_bytes, index_bytes
FROM accounts WHERE closed_at IS NULL ORDER BY created_at, whole_id
"""
_NEWEST_ACCOUNTS: Final = """
SELECT whole_id FROM accounts
WHERE closed_at IS NULL ORDER BY created_at DESC, whole_id LIMIT $1
"""
_NEWEST_RECEIPTS: Final = """
SELECT r.object FROM accounts a
JOIN receipts r ON r.account_id = a.account_id AND r.seq = a.receipt_seq
WHERE a.closed_at IS NULL
ORDER BY a.created_at DESC, a.whole_id LIMIT $1
"""
_GRANTS: Final = """
SELECT serial, object, label, created_at, succession FROM grants WHERE account_id = $1
"""
_GRANTS_AFTER: Final = f"{_GRANTS} AND serial > $2 ORDER BY serial"
_GRANTS_OF: Final = f"{_GRANTS} AND serial = ANY ($2) ORDER BY serial"
# Whether any grant or revocation was ever for a key.
_IS_RECIPIENT: Final = "SELECT 1 FROM grants WHERE account_id = $1 AND recipient = $2 LIMIT 1"
# Not the signed objects, which a verified chain has in memory.
_LABELS_OF: Final = "SELECT serial, label FROM grants WHERE account_id = $1 AND serial = ANY ($2)"

# Everything a writer needs to continue the account's sequences; whoever holds this row writes.
_LOCK_ACCOUNT: Final = """
SELECT grant_serial, epoch, receipt_seq, receipt_head, memory_seq, storage_bytes, index_bytes,
       changed_at, grant_serial_due
FROM accounts WHERE account_id = $1 AND whole_id = $2 AND closed_at IS NULL FOR UPDATE
"""

# Store one grant or revocation with its receipt and move the account's heads.
_INSERT_GRANT: Final = """
WITH stored AS (
    INSERT INTO grants (account_id, serial, recipient, label, object, created_at, succession)
    VALUES ($1, $2, $3, $4, $5, $6, $11)
), receipt AS (
    INSERT INTO receipts (account_id, seq, object) VALUES ($1, $7, $8)
), journal AS (
    INSERT INTO blobs (account_id, blob_id, bytes, created_at)
    SELECT $1, blob_id, bytes, $6
    FROM (VALUES ($10::bytea, $5::bytea), ($12, $11)) AS b (blob_id, bytes)
    WHERE blob_id IS NOT NULL
    ON CONFLICT DO NOTHING
)
UPDATE accounts
SET grant_serial = $2, receipt_seq = $7, receipt_head = $9, changed_at = $6,
    epoch = greatest(epoch, $13)
WHERE account_id = $1
"""
_RECEIPTS_AFTER: Final = """
SELECT seq, object FROM receipts WHERE account_id = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""


@dataclass(frozen=True)
class Heads:
    """The locked row of an account: where its sequences and its receipt chain stand."""

    grant_serial: int
    epoch: int
    receipt_seq: int
    receipt_head: bytes
    memory_seq: int
    storage_bytes: int
    index_bytes: int
    changed_at: datetime
    grant_serial_due: int = 0

    @property
    def used_bytes(self) -> int:
        """Return the bytes that count for the quota: the sealed ones, and those of their index."""
        return self.storage_bytes + self.index_bytes

    def time(self, now: datetime) -> datetime:
        """Return the time of a change under this lock: behind all changes before.

        That holds also where the clock of another host is ahead. One that no request could have
        been signed by was wrong.
        """
        ahead = self.changed_at - now
        within = timedelta(0) < ahead <= timedelta(seconds=Limits.clock_skew_s_max)
        return self.changed_at + timedelta(microseconds=1) if within else now


async def insert_account(
    connection: Connection, *, account: AccountId, label: str, now: datetime
) -> None:
    """Insert a new account without grants; its heads are the zeros every chain begins with."""
    await connection.execute(_INSERT_ACCOUNT, account, label, now, bytes(32), account)


async def is_recipient(database: Database, account: AccountId, key: PublicKey) -> bool:
    """Return true if the account's grants may name a key: by a column, so only false is certain."""
    return await database.fetchrow(_IS_RECIPIENT, account, key) is not None


async def claim_key(connection: Connection, *, key: PublicKey, account: AccountId) -> bool:
    """Claim a key for an account; true if it is this account's now. A key has one for life."""
    await connection.execute(_INSERT_OWNER, key, account)
    owner = await connection.fetchval(_KEY_OWNER, key)
    return bool(owner == account)


async def keys_beginning(database: Database, hex_digits: str) -> list[Row]:
    """Return at most two keys with their accounts; for the operator's command line."""
    return await database.fetch(_KEYS_BEGINNING, hex_digits)


async def find_account(database: Database, account: AccountId) -> Row | None:
    """Return one account's row."""
    return await database.fetchrow(_ACCOUNT, account, account)


async def find_accounts(database: Database, accounts: Sequence[AccountId]) -> list[Row | None]:
    """Return the row of each of these accounts, None where there is none."""
    if not accounts:
        return []
    rows = await database.fetchmany(_ACCOUNT, [(account, account) for account in set(accounts)])
    found = {row["whole_id"]: row for row in rows}
    return [found.get(account) for account in accounts]


async def update_settings(connection: Connection, *, account: AccountId, settings: str) -> None:
    """Store what an account has chosen, as JSON, under its lock."""
    await connection.execute(_UPDATE_SETTINGS, account, settings)


async def count_episode(connection: Connection, *, account: AccountId, has_facts: bool) -> None:
    """Count an episode that was analyzed, under the account's lock."""
    await connection.execute(_COUNT_TURN, account, int(has_facts))


async def list_accounts(database: Database) -> list[Row]:
    """Return every account that was not closed, oldest first."""
    return await database.fetch(_ACCOUNTS)


async def newest_accounts(database: Database, limit: int) -> list[AccountId]:
    """Return the newest accounts that were not closed, the newest first."""
    return [AccountId(r["whole_id"]) for r in await database.fetch(_NEWEST_ACCOUNTS, limit)]


async def newest_receipts(database: Database, limit: int | None) -> list[bytes]:
    """Return the newest receipt of each account that was not closed, the newest accounts first."""
    return [row["object"] for row in await database.fetch(_NEWEST_RECEIPTS, limit)]


async def grants_after(source: Database | Connection, account: AccountId, serial: int) -> list[Row]:
    """Return grants and revocations above a serial, in order."""
    return list(await source.fetch(_GRANTS_AFTER, account, serial))


async def grants_of(database: Database, account: AccountId, serials: Sequence[int]) -> list[Row]:
    """Return grants and revocations of these serials, in order."""
    return await database.fetch(_GRANTS_OF, account, serials)


async def labels_of(
    database: Database, account: AccountId, serials: Sequence[int]
) -> dict[int, str]:
    """Return serial → label of these grants and revocations."""
    return {r["serial"]: r["label"] for r in await database.fetch(_LABELS_OF, account, serials)}


async def lock_account(connection: Connection, account: AccountId) -> Heads | None:
    """Return the account's heads, locked until the transaction ends; None when it was closed."""
    row = await connection.fetchrow(_LOCK_ACCOUNT, account, account)
    return None if row is None else Heads(**row)


async def lock_heads(connection: Connection, account: AccountId) -> Heads:
    """Return the account's heads, locked until the transaction ends.

    Raises:
        NotFound: it is gone.
    """
    heads = await lock_account(connection, account)
    if heads is None:
        raise NotFound("No such account.")
    return heads


async def insert_grant(
    connection: Connection,
    *,
    account: AccountId,
    serial: int,
    recipient: PublicKey,
    label: str,
    signed: bytes,
    now: datetime,
    receipt_seq: int,
    receipt: bytes,
    receipt_head: bytes,
    blob_id: bytes,
    succession: bytes | None,
    succession_blob_id: bytes | None,
    epoch: int,
) -> None:
    """Store a verified grant or revocation under the lock of `lock_account`.

    `succession` is the `relayer-next` object that a custodian's grant to its successor rests on.
    """
    await connection.execute(
        _INSERT_GRANT,
        account,
        serial,
        recipient,
        label,
        signed,
        now,
        receipt_seq,
        receipt,
        receipt_head,
        blob_id,
        succession,
        succession_blob_id,
        epoch,
    )


async def receipts_after(
    database: Database, account: AccountId, seq: int, limit: int
) -> list[bytes]:
    """Return signed receipts above a sequence number, in order."""
    rows = await database.fetch(_RECEIPTS_AFTER, account, seq, limit)
    return [r["object"] for r in rows]


async def find_receipts(
    database: Database, account: AccountId, seq: int, limit: int
) -> list[tuple[int, bytes]]:
    """Return the same, each with its number."""
    rows = await database.fetch(_RECEIPTS_AFTER, account, seq, limit)
    return [(r["seq"], r["object"]) for r in rows]
