"""Statements on requests: the nonces that they bring, and how many there were in a window.

Not here: what they are checked for (`relayer.http.checks`), how many there may be
(`relayer.http.rate_limits`).
"""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final

from relayer.database.accounts import ACCOUNT_COLUMNS, find_accounts
from relayer.database.pool import Database, Row
from relayer.sealed.keys import AccountId, PublicKey

MARKER: Final = uuid.UUID(int=0)  # the nonce of no key; where it is gone, others are, too

# Record a nonce of a registered key, once; tell whose key it is and whether nonces were lost.
_NONCE_PARTS: Final = """
owner AS (SELECT whole_id FROM key_owner WHERE public_key = $1),
marker AS (SELECT 1 FROM nonces WHERE public_key = '\\x' AND nonce = $5),
fresh AS (
    INSERT INTO nonces (public_key, nonce, expires_at)
    SELECT $1, $2, $3 FROM marker
    WHERE ($6 OR EXISTS (SELECT 1 FROM owner))
      AND NOT EXISTS (SELECT 1 FROM nonces_ahead WHERE public_key = $1 AND nonce = $2)
    ON CONFLICT DO NOTHING
    RETURNING 1
), ahead AS (
    INSERT INTO nonces_ahead (public_key, nonce, expires_at)
    SELECT $1, $2, $3 FROM fresh WHERE $4 > extract(epoch FROM clock_timestamp())
    ON CONFLICT DO NOTHING
)
"""
_NONCE_ANSWER: Final = """
(SELECT whole_id FROM owner) AS owner,
EXISTS (SELECT 1 FROM marker) AS intact,
EXISTS (SELECT 1 FROM fresh) AS fresh,
(SELECT floor_s FROM nonce_floor) AS floor_s
"""
_RECORD_NONCE: Final = f"WITH {_NONCE_PARTS} SELECT {_NONCE_ANSWER}"
# Where all tables are on one server, what every request asks for takes one trip.
_RECORD_NONCE_AND_READ: Final = f"""
WITH {_NONCE_PARTS}
SELECT {_NONCE_ANSWER}, {ACCOUNT_COLUMNS}
FROM (SELECT 1) AS one LEFT JOIN accounts a ON a.account_id = $7 AND a.whole_id = $8
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
    """The outcome of recording a nonce: the key's account (None: unknown key), and any fault.

    `named` is the row of the account that the request names; whose it is, `owner` tells.
    """

    owner: AccountId | None
    intact: bool
    fresh: bool
    floor_s: int
    named: Row | None


async def record_nonces(database: Database, nonces: Sequence[Nonce]) -> list[NonceAnswer]:
    """Record each of these that was not there, all of them or none; of equals one is fresh."""
    arguments: list[tuple[Any, ...]] = [
        (n.public_key, n.nonce, n.expires_at, n.timestamp_s, MARKER, n.unregistered) for n in nonces
    ]
    named = [n.account or AccountId(b"") for n in nonces]
    ones = [1] * len(nonces)
    if database.is_cluster:  # what is of a key is on another node than what is of an account
        recorded, read = await asyncio.gather(
            _of_each(database, _RECORD_NONCE, arguments, ones),
            find_accounts(database, [account for account in named if account]),
        )
        found = {row["whole_id"]: row for row in read if row is not None}
        return [
            _nonce_answer(row, found.get(account))
            for [row], account in zip(recorded, named, strict=True)
        ]
    arguments = [(*its, account, account) for its, account in zip(arguments, named, strict=True)]
    rows = await _of_each(database, _RECORD_NONCE_AND_READ, arguments, ones)
    return [_nonce_answer(row, row if row["whole_id"] else None) for [row] in rows]


async def restore_nonces(database: Database) -> None:
    """Refuse all that was signed before now, after nonces were lost; then admit others again."""
    async with database.transaction() as connection:
        await connection.execute(_RAISE_FLOOR)
        await connection.execute(_RESTORE_MARKER, MARKER)


async def count_requests(
    database: Database, requests: Sequence[Counted]
) -> list[dict[tuple[bytes, datetime], int]]:
    """Return, for each, the weighted requests in each (subject, window start), it included."""
    arguments = [
        (r.account, [w[1] for w in r.windows], [w[0] for w in r.windows], r.weight)
        for r in requests
    ]
    counts = [len(request.windows) for request in requests]
    rows = await _of_each(database, _COUNT_REQUESTS, arguments, counts)
    return [{(r["subject"], r["window_start"]): r["used"] for r in its} for its in rows]


async def delete_expired(database: Database) -> None:
    """Forget nonces and request windows that no longer matter."""
    await database.execute(_DELETE_EXPIRED_NONCES)
    await database.execute(_DELETE_EXPIRED_NONCES_AHEAD)
    await database.execute(_DELETE_OLD_WINDOWS)


async def _of_each(
    database: Database,
    statement: str,
    arguments: Sequence[tuple[Any, ...]],
    counts: Sequence[int],
) -> list[list[Row]]:
    """Return the rows of a statement with each of these arguments; `counts` is how many each time.

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
