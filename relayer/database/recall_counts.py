"""Statements on how often memories were recalled.

Not here: noting it while requests are answered (`relayer.tenants.recall_counts`), or how many were
never recalled (`counts`).

- A count goes with its memory: it is deleted by the statement that deletes the memory.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from relayer.database.conditions import unexpired
from relayer.database.pool import Connection, Database, Row
from relayer.database.states import IN_STATE
from relayer.record import ACTIVE
from relayer.sealed.keys import AccountId, Namespace

# Who erases a memory, closes the account or ends the counting holds its row.
_LOCK_COUNTING: Final = """
SELECT true FROM accounts
WHERE account_id = $1 AND closed_at IS NULL AND recalls_since IS NOT NULL FOR KEY SHARE
"""
_OF_BLOBS: Final = """
SELECT blob_id, memory_id FROM memories
WHERE account_id = $1 AND blob_id = ANY ($2) AND revision_of IS NULL
"""
# Of those that are still there. In one order, so that two relayers never wait for each other.
_ADD: Final = """
INSERT INTO memory_recalls (account_id, memory_id, recall_count, last_on)
SELECT $1, m.memory_id, r.recall_count, r.last_on
FROM unnest($2::uuid[], $3::bigint[], $4::date[]) AS r (memory_id, recall_count, last_on)
JOIN memories m ON m.account_id = $1 AND m.memory_id = r.memory_id
ORDER BY m.memory_id
ON CONFLICT (account_id, memory_id) DO UPDATE
SET recall_count = memory_recalls.recall_count + excluded.recall_count,
    last_on = greatest(memory_recalls.last_on, excluded.last_on)
"""
_SET_SINCE: Final = """
UPDATE accounts SET recalls_since = coalesce(recalls_since, $2) WHERE account_id = $1
"""
_END: Final = "UPDATE accounts SET recalls_since = NULL WHERE account_id = $1"
_DELETE_SOME: Final = """
WITH gone AS (
    DELETE FROM memory_recalls WHERE account_id = $1 AND memory_id IN (
        SELECT memory_id FROM memory_recalls WHERE account_id = $1 LIMIT $2)
    RETURNING account_id
)
SELECT count(*) FROM gone
"""
_DELETE_ALL: Final = "DELETE FROM memory_recalls WHERE account_id = $1"
_SINCE: Final = "SELECT recalls_since FROM accounts WHERE account_id = $1"
_OF_MEMORY: Final = """
SELECT recall_count, last_on FROM memory_recalls WHERE account_id = $1 AND memory_id = $2
"""
_MOST: Final = f"""
SELECT r.memory_id, ns.name AS namespace, r.recall_count, r.last_on
FROM memory_recalls r
JOIN memories m ON m.account_id = $1 AND m.memory_id = r.memory_id
JOIN namespaces ns ON ns.account_id = $1 AND ns.namespace_id = m.namespace_id
WHERE r.account_id = $1
  AND ($2::text[] IS NULL OR ns.name = ANY ($2))
  AND m.revision_of IS NULL
  AND {unexpired("$3")}
  AND {IN_STATE[ACTIVE]}
ORDER BY r.recall_count DESC, r.last_on DESC, r.memory_id LIMIT $4
"""


@dataclass(frozen=True)
class RecallCount:
    """The number of times that a memory was recalled, and the day (UTC) of the last one."""

    times: int
    last_on: date | None

    def __add__(self, other: "RecallCount") -> "RecallCount":
        days = [day for day in (self.last_on, other.last_on) if day is not None]
        return RecallCount(self.times + other.times, max(days, default=None))


NEVER: Final = RecallCount(0, None)


async def add_recalls(
    database: Database, account: AccountId, recalls: Mapping[uuid.UUID, RecallCount]
) -> None:
    """Add recalls to the counts of memories, unless the account is closed or counts none."""
    async with database.transaction() as connection:
        if await connection.fetchval(_LOCK_COUNTING, account):
            counts = recalls.values()
            times, days = [one.times for one in counts], [one.last_on for one in counts]
            await connection.execute(_ADD, account, list(recalls), times, days)


async def find_ids(
    database: Database, account: AccountId, blob_ids: Sequence[bytes]
) -> dict[bytes, list[uuid.UUID]]:
    """Return blob → the memories whose current revision it is."""
    found: dict[bytes, list[uuid.UUID]] = {}
    for row in await database.fetch(_OF_BLOBS, account, blob_ids):
        found.setdefault(row["blob_id"], []).append(row["memory_id"])
    return found


async def begin_counting(connection: Connection, account: AccountId, today: date) -> None:
    """Let an account's recalls be counted from today, or as before; under the account's lock."""
    await connection.execute(_SET_SINCE, account, today)


async def end_counting(connection: Connection, account: AccountId) -> None:
    """Let no recall of an account be counted, and delete its counts; under the account's lock."""
    await connection.execute(_END, account)
    await connection.execute(_DELETE_ALL, account)


async def delete_some(database: Database, account: AccountId, limit: int) -> int:
    """Delete at most `limit` counts of an account; how many."""
    row = await database.fetchrow(_DELETE_SOME, account, limit)
    assert row is not None
    return int(row[0])


async def find_since(database: Database, account: AccountId) -> date | None:
    """Return since which day an account counts recalls; None if it counts none."""
    row = await database.fetchrow(_SINCE, account)
    return None if row is None else row["recalls_since"]


async def count_of(
    database: Database, account: AccountId, memory_id: uuid.UUID
) -> RecallCount | None:
    """Return the count of a memory; None if none was stored."""
    row = await database.fetchrow(_OF_MEMORY, account, memory_id)
    return None if row is None else RecallCount(row["recall_count"], row["last_on"])


async def most_recalled(
    database: Database,
    *,
    account: AccountId,
    namespaces: Sequence[Namespace] | None,
    limit: int,
    now: datetime,
) -> list[Row]:
    """Return the memories in recall that were recalled most, of all namespaces for None."""
    return await database.fetch(_MOST, account, namespaces, now, limit)
