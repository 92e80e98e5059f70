"""Statements on webhooks: what they are, what they wait for, and who is telling them.

Not here: what is told (`relayer.events.event`), when and how (`relayer.events.delivery`).

- Receipts are what webhooks are told of, so nothing is written for them but their own progress. Of
  what has no receipt, a row waits for each webhook that wants it.
- Whoever tells a webhook holds its lease; progress is written only as long as it is held.
"""

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from relayer.database.pool import Connection, Database, Row
from relayer.sealed.keys import AccountId
from relayer.telemetry.instruments import POSTS_DROPPED

log = logging.getLogger("relayer.webhooks")

INDEXED: Final = "memory.indexed"
NOTED_MAX: Final = 10_000  # of one webhook that is behind; each is of many memories

_COLUMNS: Final = """
webhook_id, sealed, events, namespaces, active, created_at, delivered_seq, delivered_at, attempts,
failing_since, problem
"""
_ALL: Final = (
    f"SELECT {_COLUMNS} FROM webhooks WHERE account_id = $1 ORDER BY created_at, webhook_id"
)
_ONE: Final = f"SELECT {_COLUMNS} FROM webhooks WHERE account_id = $1 AND webhook_id = $2"
# Changed or new, it is tried at once and by whom it was not being told the moment before.
_PUT: Final = """
INSERT INTO webhooks (account_id, webhook_id, sealed, events, namespaces, active, created_at,
                      delivered_seq, due_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $7)
ON CONFLICT (account_id, webhook_id) DO UPDATE
SET sealed = excluded.sealed, events = excluded.events, namespaces = excluded.namespaces,
    active = excluded.active, due_at = excluded.due_at, attempts = 0, failing_since = NULL,
    problem = NULL, leased_until = NULL
"""
_DELETE: Final = (
    "DELETE FROM webhooks WHERE account_id = $1 AND webhook_id = $2 RETURNING webhook_id"
)

# Webhooks that are behind, those that waited longest first, so many of each account.
_DUE: Final = """
SELECT whole_id, webhook_id FROM (
    SELECT a.whole_id, w.webhook_id, w.due_at,
           row_number() OVER (PARTITION BY w.account_id ORDER BY w.due_at, w.webhook_id) AS place
    FROM webhooks w JOIN accounts a ON a.account_id = w.account_id
    WHERE w.active AND w.due_at <= $1 AND (w.leased_until IS NULL OR w.leased_until <= $1)
      AND w.account_id <> ALL ($4)
      AND (a.receipt_seq > w.delivered_seq
           OR EXISTS (SELECT 1 FROM webhook_events e
                      WHERE e.account_id = w.account_id AND e.webhook_id = w.webhook_id))) d
WHERE place <= $3 ORDER BY due_at LIMIT $2
"""
_LEASE: Final = f"""
UPDATE webhooks SET leased_until = $4
WHERE account_id = $1 AND webhook_id = $2 AND active AND due_at <= $3
  AND (leased_until IS NULL OR leased_until <= $3)
RETURNING {_COLUMNS}
"""
# What nobody wanted says nothing about whether it can be told.
_GET_ON: Final = """
UPDATE webhooks
SET delivered_seq = greatest(delivered_seq, $4), delivered_at = coalesce($5, delivered_at),
    due_at = coalesce($5, due_at), attempts = CASE WHEN $5 IS NULL THEN attempts ELSE 0 END,
    failing_since = CASE WHEN $5 IS NULL THEN failing_since END,
    problem = CASE WHEN $5 IS NULL THEN problem END
WHERE account_id = $1 AND webhook_id = $2 AND leased_until = $3
RETURNING webhook_id
"""
_PUT_OFF: Final = """
WITH later AS (
    SELECT webhook_id, $4::timestamptz
           + make_interval(secs => least($6 * power(2, least(attempts, 20)), $7)) AS due_at
    FROM webhooks WHERE account_id = $1 AND webhook_id = $2
)
UPDATE webhooks w
SET attempts = w.attempts + 1, failing_since = coalesce(w.failing_since, $4), problem = $5,
    due_at = later.due_at,
    active = NOT $8 AND coalesce(w.failing_since, $4) > $4 - $9::interval, leased_until = NULL
FROM later
WHERE w.account_id = $1 AND w.webhook_id = later.webhook_id AND w.leased_until = $3
"""
_RELEASE: Final = """
UPDATE webhooks SET leased_until = NULL
WHERE account_id = $1 AND webhook_id = $2 AND leased_until = $3
"""

# They were written by receipts that are there by now. More than so many do not wait: those webhooks
# that have them already, and how many events each is not told of.
_NOTE_INDEXED: Final = """
WITH event AS (
    SELECT w.webhook_id, m.namespace_id, array_agg(m.memory_id) AS ids, a.receipt_seq,
           $4 > (SELECT count(*) FROM webhook_events e
                 WHERE e.account_id = $1 AND e.webhook_id = w.webhook_id) AS has_room
    FROM webhooks w
    JOIN accounts a ON a.account_id = $1
    JOIN memories m ON m.account_id = $1 AND m.memory_id = ANY ($3) AND m.revision_of IS NULL
    WHERE w.account_id = $1 AND w.active AND 'memory.indexed' = ANY (w.events)
    GROUP BY w.webhook_id, m.namespace_id, a.receipt_seq
), noted AS (
    INSERT INTO webhook_events (account_id, webhook_id, event_id, namespace_id, type, ids,
                                created_at, after_seq)
    SELECT $1, webhook_id, $2, namespace_id, 'memory.indexed', ids, now(), receipt_seq
    FROM event WHERE has_room
)
SELECT webhook_id, count(*) AS dropped FROM event WHERE NOT has_room GROUP BY webhook_id
"""
_NOTED: Final = """
SELECT e.event_id, e.namespace_id, n.name AS namespace, e.type, e.ids, e.created_at
FROM webhook_events e
JOIN namespaces n ON n.account_id = $1 AND n.namespace_id = e.namespace_id
WHERE e.account_id = $1 AND e.webhook_id = $2 AND e.after_seq <= $3
ORDER BY e.created_at, e.event_id LIMIT $4
"""
_DELETE_NOTED: Final = """
DELETE FROM webhook_events
WHERE account_id = $1 AND webhook_id = $2 AND event_id = $3 AND namespace_id = $4
"""

# What is sealed under the relayer's own key, in pages, to seal it under the next one.
_EVERY: Final = """
SELECT a.whole_id, w.webhook_id, w.sealed
FROM webhooks w JOIN accounts a ON a.account_id = w.account_id
WHERE (w.account_id, w.webhook_id) > ($1, $2) ORDER BY w.account_id, w.webhook_id LIMIT $3
"""
_SEAL_ANEW: Final = "UPDATE webhooks SET sealed = $3 WHERE account_id = $1 AND webhook_id = $2"


@dataclass(frozen=True)
class Lease:
    """The right to tell one webhook, until then."""

    account: AccountId
    webhook_id: uuid.UUID
    until: datetime


@dataclass(frozen=True)
class Retry:
    """The waits between attempts, twice as long each time, and when to stop."""

    first_s: float
    longest_s: float
    give_up: timedelta


async def find_all(connection: Connection | Database, account: AccountId) -> list[Row]:
    """Return an account's webhooks, oldest first."""
    return list(await connection.fetch(_ALL, account))


async def find(database: Database, account: AccountId, webhook_id: uuid.UUID) -> Row | None:
    """Return one webhook."""
    return await database.fetchrow(_ONE, account, webhook_id)


async def put(
    connection: Connection,
    *,
    account: AccountId,
    webhook_id: uuid.UUID,
    sealed: bytes,
    events: Sequence[str],
    namespaces: Sequence[str] | None,
    active: bool,
    now: datetime,
    receipt_seq: int,
) -> None:
    """Make a webhook that is told what comes after `receipt_seq`, or change one where it stands."""
    await connection.execute(
        _PUT, account, webhook_id, sealed, events, namespaces, active, now, receipt_seq
    )


async def delete(connection: Connection, account: AccountId, webhook_id: uuid.UUID) -> bool:
    """Delete a webhook with what waits for it; whether it was there."""
    return await connection.fetchrow(_DELETE, account, webhook_id) is not None


async def due(
    database: Database, now: datetime, *, limit: int, each: int, full: Sequence[AccountId]
) -> list[tuple[AccountId, uuid.UUID]]:
    """Return webhooks that have something to be told and that nobody is telling.

    There are at most `each` of an account, and none of those that are `full`.
    """
    rows = await database.fetch(_DUE, now, limit, each, full)
    return [(AccountId(r["whole_id"]), r["webhook_id"]) for r in rows]


async def lease(database: Database, lease: Lease, now: datetime) -> Row | None:
    """Return the webhook, if it is this process's to tell until then."""
    return await database.fetchrow(_LEASE, lease.account, lease.webhook_id, now, lease.until)


async def get_on(database: Database, lease: Lease, seq: int, delivered_at: datetime | None) -> bool:
    """Note that everything up to a receipt was told; whether the lease still holds.

    `delivered_at` is None where nothing up to there was wanted.
    """
    row = await database.fetchrow(
        _GET_ON, lease.account, lease.webhook_id, lease.until, seq, delivered_at
    )
    return row is not None


async def put_off(
    database: Database, lease: Lease, *, now: datetime, problem: str, gone: bool, retry: Retry
) -> None:
    """Note why telling failed; it is tried again later, or paused when it is `gone`."""
    await database.execute(
        _PUT_OFF,
        lease.account,
        lease.webhook_id,
        lease.until,
        now,
        problem,
        retry.first_s,
        retry.longest_s,
        gone,
        retry.give_up,
    )


async def release(database: Database, lease: Lease) -> None:
    """Let others go on."""
    await database.execute(_RELEASE, lease.account, lease.webhook_id, lease.until)


async def note_indexed(
    connection: Connection, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> Sequence[Row]:
    """Let those webhooks that want it be told that memories have vectors now.

    Returns those that are not, for `say_dropped` once this is committed.
    """
    full: Sequence[Row] = await connection.fetch(
        _NOTE_INDEXED, account, uuid.uuid4(), memory_ids, NOTED_MAX
    )
    return full


def say_dropped(full: Sequence[Row]) -> None:
    """Count and name what these webhooks are not told."""
    for row in full:
        said = {"webhook_id": str(row["webhook_id"]), "count": row["dropped"]}
        log.info("a webhook is not told", extra={"event": "webhooks.dropped"} | said)
        POSTS_DROPPED.inc(row["dropped"])


async def find_noted(
    database: Database, account: AccountId, webhook_id: uuid.UUID, seq: int, limit: int
) -> list[Row]:
    """Return events without a receipt that a webhook told up to there waits for, oldest first."""
    return await database.fetch(_NOTED, account, webhook_id, seq, limit)


async def delete_noted(
    database: Database, account: AccountId, webhook_id: uuid.UUID, row: Row
) -> None:
    """Delete a note that was told."""
    await database.execute(_DELETE_NOTED, account, webhook_id, row["event_id"], row["namespace_id"])


async def every(
    database: Database, after: tuple[AccountId | int, uuid.UUID], limit: int
) -> list[tuple[AccountId, uuid.UUID, bytes]]:
    """Return a page of (account, webhook, what is sealed) of all accounts."""
    rows = await database.fetch(_EVERY, *after, limit)
    return [(AccountId(r["whole_id"]), r["webhook_id"], bytes(r["sealed"])) for r in rows]


async def seal_anew(
    database: Database, account: AccountId, webhook_id: uuid.UUID, sealed: bytes
) -> None:
    """Replace what is sealed of a webhook."""
    await database.execute(_SEAL_ANEW, account, webhook_id, sealed)
