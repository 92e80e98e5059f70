"""Statements on accounts, keys, grants, receipts, nonces and request windows.

Not here: what a grant means (`relayer.tenants.accounts`), when a request counts
(`relayer.http.checks`).
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, TypeAlias

from relayer.database.pool import Connection, Database, Row
from relayer.errors import NotFound
from relayer.sealed.keys import AccountId, PublicKey
from relayer.settings import Limits

NIL: Final = uuid.UUID(int=0)

# Record a nonce of a registered key, once; tell whose key it is and whether nonces were lost.
_NONCE_PARTS: Final = """
owner AS (SELECT account_id FROM key_owner WHERE public_key = $1),
marker AS (SELECT 1 FROM nonces WHERE public_key = '\\x' AND nonce = $5),
fresh AS (
    INSERT INTO nonces (public_key, nonce, expires_at)
    SELECT $1, $2, $3 FROM marker
    WHERE ($6 OR EXISTS (SELECT FROM owner))
      AND NOT EXISTS (SELECT FROM nonces_ahead WHERE public_key = $1 AND nonce = $2)
    ON CONFLICT DO NOTHING
    RETURNING 1
), ahead AS (
    INSERT INTO nonces_ahead (public_key, nonce, expires_at)
    SELECT $1, $2, $3 FROM fresh WHERE $4 > extract(epoch FROM clock_timestamp())
    ON CONFLICT DO NOTHING
)
"""
_NONCE_ANSWER: Final = """
(SELECT account_id FROM owner) AS owner,
EXISTS (SELECT FROM marker) AS intact,
EXISTS (SELECT FROM fresh) AS fresh,
(SELECT floor_s FROM nonce_floor) AS floor_s
"""
_ACCOUNT_COLUMNS: Final = """
a.account_id, a.label, a.created_at, a.grant_serial, a.receipt_seq, a.receipt_head, a.memory_count,
a.storage_bytes, a.settings, a.closed_at, a.grant_serial_due, a.index_changes
"""
_RECORD_NONCE: Final = f"WITH {_NONCE_PARTS} SELECT {_NONCE_ANSWER}"
# Where all tables are on one server, what every request asks for takes one trip.
_RECORD_NONCE_AND_READ: Final = f"""
WITH {_NONCE_PARTS}
SELECT {_NONCE_ANSWER}, {_ACCOUNT_COLUMNS}
FROM (SELECT) AS one LEFT JOIN accounts a ON a.account_id = $7
"""

# After a crash emptied the nonces: refuse everything signed before now.
_RAISE_FLOOR: Final = """
UPDATE nonce_floor SET floor_s = greatest(floor_s, ceil(extract(epoch FROM now()))::bigint)
"""
_RESTORE_MARKER: Final = """
INSERT INTO nonces (public_key, nonce, expires_at) VALUES ('\\x', $1, 'infinity')
ON CONFLICT DO NOTHING
"""

# Count weighted requests in their windows and return the new sums.
_COUNT_REQUESTS: Final = """
INSERT INTO request_windows (account_id, subject, window_start, used)
SELECT $1, subject, window_start, $4
FROM unnest($2::timestamptz[], $3::bytea[]) AS w (window_start, subject)
ON CONFLICT (account_id, subject, window_start)
DO UPDATE SET used = request_windows.used + excluded.used
RETURNING used, subject, window_start
"""

_INSERT_ACCOUNT: Final = """
INSERT INTO accounts (account_id, label, created_at, grant_serial, receipt_seq, receipt_head)
VALUES ($1, $2, $3, 0, 0, $4)
"""
_INSERT_OWNER: Final = """
INSERT INTO key_owner (public_key, account_id) VALUES ($1, $2) ON CONFLICT DO NOTHING
"""
_KEY_OWNER: Final = "SELECT account_id FROM key_owner WHERE public_key = $1"
_KEYS_BEGINNING: Final = """
SELECT public_key, account_id FROM key_owner
WHERE starts_with(encode(public_key, 'hex'), $1) LIMIT 2
"""

_ACCOUNT: Final = f"SELECT {_ACCOUNT_COLUMNS} FROM accounts a WHERE a.account_id = $1"
_UPDATE_SETTINGS: Final = "UPDATE accounts SET settings = $2 WHERE account_id = $1"
_ACCOUNTS: Final = """
SELECT account_id, label, created_at, grant_serial, memory_count, storage_bytes
FROM accounts WHERE closed_at IS NULL ORDER BY created_at, account_id
"""
_NEWEST_RECEIPTS: Final = """
SELECT r.object FROM accounts a
JOIN receipts r ON r.account_id = a.account_id AND r.seq = a.receipt_seq
WHERE a.closed_at IS NULL
ORDER BY a.created_at DESC, a.account_id LIMIT $1
"""
_GRANTS: Final = """
SELECT serial, object, label, created_at, succession FROM grants WHERE account_id = $1
"""
_GRANTS_AFTER: Final = f"{_GRANTS} AND serial > $2 ORDER BY serial"
_GRANTS_OF: Final = f"{_GRANTS} AND serial = ANY ($2) ORDER BY serial"
# Whether any grant or revocation was ever for a key.
_IS_RECIPIENT: Final = "SELECT FROM grants WHERE account_id = $1 AND recipient = $2 LIMIT 1"
# Not the signed objects, which a verified chain has in memory.
_LABELS_OF: Final = "SELECT serial, label FROM grants WHERE account_id = $1 AND serial = ANY ($2)"

# Everything a writer needs to continue the account's sequences; whoever holds this row writes.
_LOCK_ACCOUNT: Final = """
SELECT grant_serial, epoch, receipt_seq, receipt_head, memory_seq, storage_bytes, changed_at,
       grant_serial_due
FROM accounts WHERE account_id = $1 AND closed_at IS NULL FOR UPDATE
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
SET grant_serial = $2, receipt_seq = $7, receipt_head = $9, epoch = greatest(epoch, $13)
WHERE account_id = $1
"""
_RECEIPTS_AFTER: Final = """
SELECT seq, object FROM receipts WHERE account_id = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""
_DELETE_EXPIRED_NONCES: Final = "DELETE FROM nonces WHERE expires_at < now()"
_DELETE_EXPIRED_NONCES_AHEAD: Final = "DELETE FROM nonces_ahead WHERE expires_at < now()"
_DELETE_OLD_WINDOWS: Final = """
DELETE FROM request_windows WHERE window_start < now() - interval '2 hours'
"""


@dataclass(frozen=True)
class Nonce:
    """A request's nonce, to be recorded; of unregistered keys only if `unregistered` says so.

    `account` is the one that the request names, to be read with it.
    """

    public_key: PublicKey
    nonce: uuid.UUID
    timestamp_s: int
    expires_at: datetime
    unregistered: bool
    account: AccountId | None


@dataclass(frozen=True)
class Counted:
    """A request to be counted in windows of its account, by (subject, window start).

    The longest window is the first: whoever counts in it holds back who would count in the others.
    """

    account: AccountId
    windows: tuple[tuple[bytes, datetime], ...]
    weight: int


@dataclass(frozen=True)
class NonceAnswer:
    """What recording a nonce found: the key's account (None: unknown key), and what went wrong.

    `named` is the row of the account that the request names; whose it is, `owner` tells.
    """

    owner: AccountId | None
    intact: bool
    fresh: bool
    floor_s: int
    named: Row | None


@dataclass(frozen=True)
class Heads:
    """The locked row of an account: where its sequences and its receipt chain stand."""

    grant_serial: int
    epoch: int
    receipt_seq: int
    receipt_head: bytes
    memory_seq: int
    storage_bytes: int
    changed_at: datetime
    grant_serial_due: int = 0

    def time(self, now: datetime) -> datetime:
        """When something is changed under this lock: behind all changes before, also where the
        clock of another host is ahead. One that no request could have been signed by was wrong."""
        ahead = self.changed_at - now
        within = timedelta(0) < ahead <= timedelta(seconds=Limits.clock_skew_s_max)
        return self.changed_at + timedelta(microseconds=1) if within else now


async def record_nonces(database: Database, nonces: Sequence[Nonce]) -> list[NonceAnswer]:
    """Record each of these that was not there, all of them or none; of equals one is fresh."""
    arguments: list[tuple[Any, ...]] = [
        (n.public_key, n.nonce, n.expires_at, n.timestamp_s, NIL, n.unregistered) for n in nonces
    ]
    named = [n.account or AccountId(b"") for n in nonces]
    ones = [1] * len(nonces)
    if database.is_cluster:  # what is of a key is on another node than what is of an account
        recorded, read = await asyncio.gather(
            _of_each(database, _RECORD_NONCE, arguments, ones),
            find_accounts(database, [account for account in named if account]),
        )
        found = {row["account_id"]: row for row in read if row is not None}
        return [
            _nonce_answer(row, found.get(account))
            for [row], account in zip(recorded, named, strict=True)
        ]
    arguments = [(*its, account) for its, account in zip(arguments, named, strict=True)]
    rows = await _of_each(database, _RECORD_NONCE_AND_READ, arguments, ones)
    return [_nonce_answer(row, row if row["account_id"] else None) for [row] in rows]


async def _of_each(
    database: Database,
    statement: str,
    arguments: Sequence[tuple[Any, ...]],
    counts: Sequence[int],
) -> list[list[Row]]:
    """The rows of a statement with each of these arguments; `counts` is how many each time.

    Always in the same order, so that two relayers that are sent the same never wait for each other.
    """
    order = sorted(range(len(arguments)), key=lambda n: arguments[n])
    rows = iter(await database.fetchmany(statement, [arguments[n] for n in order]))
    found = {n: list(islice(rows, counts[n])) for n in order}
    return [found[n] for n in range(len(arguments))]


def _nonce_answer(row: Row, named: Row | None) -> NonceAnswer:
    owner = row["owner"]
    return NonceAnswer(
        owner=None if owner is None else AccountId(owner),
        intact=row["intact"],
        fresh=row["fresh"],
        floor_s=row["floor_s"],
        named=named,
    )


async def restore_nonces(database: Database) -> None:
    """After nonces were lost: let no request in that was signed before now, then others again."""
    async with database.transaction() as connection:
        await connection.execute(_RAISE_FLOOR)
        await connection.execute(_RESTORE_MARKER, NIL)


async def count_requests(
    database: Database, requests: Sequence[Counted]
) -> list[dict[tuple[bytes, datetime], int]]:
    """Of each, the weighted requests so far in each (subject, window start), it included."""
    arguments = [
        (r.account, [w[1] for w in r.windows], [w[0] for w in r.windows], r.weight)
        for r in requests
    ]
    counts = [len(request.windows) for request in requests]
    rows = await _of_each(database, _COUNT_REQUESTS, arguments, counts)
    return [{(r["subject"], r["window_start"]): r["used"] for r in its} for its in rows]


async def insert_account(
    connection: Connection, *, account: AccountId, label: str, now: datetime
) -> None:
    """A new account without grants; its heads are the zeros every chain begins with."""
    await connection.execute(_INSERT_ACCOUNT, account, label, now, bytes(32))


async def is_recipient(database: Database, account: AccountId, key: PublicKey) -> bool:
    """Whether the account's grants may name a key: by a column beside them, so only No counts."""
    return await database.fetchrow(_IS_RECIPIENT, account, key) is not None


async def claim_key(connection: Connection, *, key: PublicKey, account: AccountId) -> bool:
    """Whether the key belongs to this account now; a key has one account for life."""
    await connection.execute(_INSERT_OWNER, key, account)
    owner = await connection.fetchval(_KEY_OWNER, key)
    return bool(owner == account)


async def keys_beginning(database: Database, hex_digits: str) -> list[Row]:
    """At most two keys with their accounts; for the operator's command line."""
    return await database.fetch(_KEYS_BEGINNING, hex_digits)


async def find_account(database: Database, account: AccountId) -> Row | None:
    """One account's row."""
    return await database.fetchrow(_ACCOUNT, account)


async def find_accounts(database: Database, accounts: Sequence[AccountId]) -> list[Row | None]:
    """The row of each of these accounts, None where there is none."""
    if not accounts:
        return []
    rows = await database.fetchmany(_ACCOUNT, [(account,) for account in set(accounts)])
    found = {row["account_id"]: row for row in rows}
    return [found.get(account) for account in accounts]


async def update_settings(connection: Connection, *, account: AccountId, settings: str) -> None:
    """Store what an account has chosen, as JSON, under its lock."""
    await connection.execute(_UPDATE_SETTINGS, account, settings)


async def list_accounts(database: Database) -> list[Row]:
    """Every account that was not closed, oldest first."""
    return await database.fetch(_ACCOUNTS)


async def newest_receipts(database: Database, limit: int | None) -> list[bytes]:
    """The newest receipt of each account that was not closed, the newest accounts first."""
    return [row["object"] for row in await database.fetch(_NEWEST_RECEIPTS, limit)]


async def grants_after(source: Database | Connection, account: AccountId, serial: int) -> list[Row]:
    """Grants and revocations above a serial, in order."""
    return list(await source.fetch(_GRANTS_AFTER, account, serial))


async def grants_of(database: Database, account: AccountId, serials: Sequence[int]) -> list[Row]:
    """Grants and revocations of these serials, in order."""
    return await database.fetch(_GRANTS_OF, account, serials)


async def labels_of(
    database: Database, account: AccountId, serials: Sequence[int]
) -> dict[int, str]:
    """Serial → label of these grants and revocations."""
    return {r["serial"]: r["label"] for r in await database.fetch(_LABELS_OF, account, serials)}


# How a transaction that changes an account begins: its heads, locked, where who asks may go on.
Lock: TypeAlias = Callable[[Connection], Awaitable[Heads]]


async def lock_account(connection: Connection, account: AccountId) -> Heads | None:
    """The account's heads, locked until the transaction ends; None when it was closed."""
    row = await connection.fetchrow(_LOCK_ACCOUNT, account)
    return None if row is None else Heads(**row)


async def locked_heads(connection: Connection, account: AccountId) -> Heads:
    """The account's heads, locked until the transaction ends.

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
    """Signed receipts above a sequence number, in order."""
    rows = await database.fetch(_RECEIPTS_AFTER, account, seq, limit)
    return [r["object"] for r in rows]


async def numbered_receipts(
    database: Database, account: AccountId, seq: int, limit: int
) -> list[tuple[int, bytes]]:
    """The same, each with its number."""
    rows = await database.fetch(_RECEIPTS_AFTER, account, seq, limit)
    return [(r["seq"], r["object"]) for r in rows]


async def delete_expired(database: Database) -> None:
    """Forget nonces and request windows that no longer matter."""
    await database.execute(_DELETE_EXPIRED_NONCES)
    await database.execute(_DELETE_EXPIRED_NONCES_AHEAD)
    await database.execute(_DELETE_OLD_WINDOWS)
