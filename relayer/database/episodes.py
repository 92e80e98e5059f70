"""Statements on episodes: sealed conversations that wait for their facts, or stay beside them.

Not here: storing and erasing them, which go with memories (`memories.write`, `memories.erase`).
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from relayer.database.pool import Connection, Database, Row
from relayer.sealed.keys import AccountId

FingerprintKey = tuple[int, int, bytes]  # namespace, epoch, fingerprint
LATELY: Final = timedelta(days=1)  # how far back a failure of the model is of interest


def is_too_old(now: str) -> str:
    """Return the condition in SQL that an episode `e` is older than its namespace `ns` keeps it."""
    ended = "e.created_at + ns.ttl_s * interval '1 second'"
    return f"(ns.ttl_s IS NOT NULL AND {ended} <= {now}::timestamptz)"


def is_over(now: str) -> str:
    """Return the condition in SQL that an episode `e` of `ns`, of account $1, is in no answer then.

    It ends with what came from it, since it says the same. OFFSET has that asked of one episode
    after another: a planner without statistics reads all links of the account once, to know it
    of each.
    """
    return f"""({is_too_old(now)} OR EXISTS (
        SELECT 1 FROM links l
        JOIN memories m ON m.account_id = $1 AND m.memory_id = l.memory_id
        WHERE l.account_id = $1 AND l.other_id = e.episode_id AND l.relation = 'turn'
          AND m.expires_at <= {now}::timestamptz
        OFFSET 0))"""


_LOCK_EPISODES: Final = """
SELECT e.episode_id AS memory_id, e.namespace_id, ns.name AS namespace, e.epoch, 1 AS revision,
       e.blob_id, e.size_bytes
FROM episodes e
JOIN namespaces ns ON ns.account_id = e.account_id AND ns.namespace_id = e.namespace_id
WHERE e.account_id = $1 AND e.episode_id = ANY ($2) AND e.state = 'pending'
ORDER BY e.episode_id FOR UPDATE OF e
"""
_PENDING_EPISODES: Final = """
SELECT episode_id FROM episodes
WHERE account_id = $1 AND namespace_id = ANY ($2) AND state = 'pending' ORDER BY created_at LIMIT $3
"""
_EPISODE: Final = f"""
SELECT e.episode_id, e.namespace_id, ns.name AS namespace, e.epoch, e.writer, e.blob_id, e.state,
       e.created_at, e.extractor, e.failure
FROM episodes e
JOIN namespaces ns ON ns.account_id = e.account_id AND ns.namespace_id = e.namespace_id
WHERE e.account_id = $1 AND e.episode_id = $2 AND NOT {is_over("$3")}
"""
# Why the language model did not find an episode's facts. One that stays away is asked for each
# episode once a minute, and there is nothing new to write.
_NOTE_FAILURE: Final = """
UPDATE episodes SET failure = $3
WHERE account_id = $1 AND episode_id = $2 AND failure IS DISTINCT FROM $3
"""
_NOTE_EXTRACTOR: Final = """
UPDATE episodes SET extractor = $3 WHERE account_id = $1 AND episode_id = $2
"""
# What waits, and where the model failed since then, by cause; the first condition is the index's.
_FAILURES: Final = """
SELECT state = 'pending' AS waits, failure, count(*) AS number, max(created_at) AS last_at
FROM episodes
WHERE account_id = $1 AND (state = 'pending' OR failure IS NOT NULL)
  AND (state = 'pending' OR created_at > $3)
  AND ($2::int[] IS NULL OR namespace_id = ANY ($2))
GROUP BY state = 'pending', failure
"""
_FAIL_EPISODE: Final = """
UPDATE episodes SET state = 'failed', fingerprint = NULL
WHERE account_id = $1 AND episode_id = $2 AND state = 'pending'
"""
_KEEP_EPISODE: Final = """
UPDATE episodes SET state = 'kept'
WHERE account_id = $1 AND episode_id = $2 AND state = 'pending'
"""
# The episodes that wait or are kept and say one of these things, by epoch and fingerprint.
_SAID: Final = f"""
SELECT e.episode_id, e.namespace_id, e.epoch, e.fingerprint, e.state
FROM unnest($2::int[], $3::int[], $4::bytea[]) AS s (namespace_id, epoch, fingerprint)
JOIN episodes e ON e.account_id = $1 AND e.namespace_id = s.namespace_id AND e.epoch = s.epoch
               AND e.fingerprint = s.fingerprint
JOIN namespaces ns ON ns.account_id = $1 AND ns.namespace_id = e.namespace_id
WHERE NOT {is_over("$5")}
ORDER BY e.epoch DESC
"""
# What is over is no longer known by what it says, though it is not erased yet; nor is what is kept
# where the same is to wait for its facts, for it was said once more.
_GIVE_UP_WORDS: Final = f"""
WITH given_up AS (
    SELECT e.episode_id
    FROM unnest($2::int[], $3::int[], $4::bytea[]) AS s (namespace_id, epoch, fingerprint)
    JOIN episodes e ON e.account_id = $1 AND e.namespace_id = s.namespace_id
                   AND e.epoch = s.epoch AND e.fingerprint = s.fingerprint
    JOIN namespaces ns ON ns.account_id = $1 AND ns.namespace_id = e.namespace_id
    WHERE {is_over("$5")} OR ($6 AND e.state = 'kept')
)
UPDATE episodes e SET fingerprint = NULL
FROM given_up g WHERE e.account_id = $1 AND e.episode_id = g.episode_id
"""
_KEPT: Final = """
SELECT episode_id FROM episodes
WHERE account_id = $1 AND episode_id = ANY ($2) AND state = 'kept'
"""
# What it said goes with the blob, and may have to wait again. The row stays: for pollers, and so
# that a blob which is copied back from a backup is not taken for an episode that lost its row.
_FINISH_EPISODE: Final = """
WITH finished AS (
    UPDATE episodes SET state = 'done', fingerprint = NULL
    WHERE account_id = $1 AND episode_id = $2 AND state = 'pending'
    RETURNING blob_id, size_bytes
), blob AS (
    DELETE FROM blobs b USING finished f WHERE b.account_id = $1 AND b.blob_id = f.blob_id
), outbox AS (
    INSERT INTO blob_outbox (account_id, blob_id, due_at)
    SELECT $1, blob_id, $3 FROM finished WHERE $4
    ON CONFLICT DO NOTHING
)
UPDATE accounts
SET storage_bytes = storage_bytes - (SELECT coalesce(sum(size_bytes), 0) FROM finished)
WHERE account_id = $1
"""
_PENDING_ANYWHERE: Final = """
SELECT whole_id, array_agg(episode_id) AS ids
FROM (SELECT a.account_id, a.whole_id, e.episode_id,
             row_number() OVER (PARTITION BY e.account_id ORDER BY e.created_at) AS n
      FROM episodes e JOIN accounts a ON a.account_id = e.account_id
      WHERE e.state = 'pending' AND e.created_at < $1
        AND NOT e.episode_id = ANY ($3)) e
WHERE n <= $2 GROUP BY account_id, whole_id
"""


async def find_pending_anywhere(
    database: Database, *, before: datetime, limit: int, but: Sequence[uuid.UUID]
) -> list[tuple[AccountId, list[uuid.UUID]]]:
    """Return accounts and their oldest episodes that wait for their extraction, without these."""
    rows = await database.fetch(_PENDING_ANYWHERE, before, limit, but)
    return [(AccountId(r["whole_id"]), r["ids"]) for r in rows]


async def lock_episodes(
    connection: Connection, *, account: AccountId, episode_ids: Sequence[uuid.UUID]
) -> list[Row]:
    """Return the locked rows of pending episodes, shaped like memories', for this transaction."""
    return list(await connection.fetch(_LOCK_EPISODES, account, episode_ids))


async def find_pending(
    database: Database, *, account: AccountId, namespace_ids: Sequence[int], limit: int
) -> list[uuid.UUID]:
    """Return episodes whose facts are still to be extracted, oldest first."""
    rows = await database.fetch(_PENDING_EPISODES, account, namespace_ids, limit)
    return [r["episode_id"] for r in rows]


async def find_episode(
    database: Database, *, account: AccountId, episode_id: uuid.UUID, now: datetime
) -> Row | None:
    """Return one episode's row, unless its time is over."""
    return await database.fetchrow(_EPISODE, account, episode_id, now)


async def finish_episode(
    connection: Connection,
    *,
    account: AccountId,
    episode_id: uuid.UUID,
    now: datetime,
    keep: bool,
    outside_store: bool,
) -> None:
    """Mark an episode extracted, in the transaction that stores its facts; its blob goes unless it
    is to be kept."""
    if keep:
        await connection.execute(_KEEP_EPISODE, account, episode_id)
        return
    await connection.execute(_FINISH_EPISODE, account, episode_id, now, outside_store)


async def note_failure(
    source: Database | Connection,
    *,
    account: AccountId,
    episode_id: uuid.UUID,
    cause: str,
) -> None:
    """Note why the model did not find an episode's facts."""
    await source.execute(_NOTE_FAILURE, account, episode_id, cause)


async def note_extractor(
    connection: Connection, *, account: AccountId, episode_id: uuid.UUID, extractor: str
) -> None:
    """Note which extractor found an episode's facts, in the transaction that stores them."""
    await connection.execute(_NOTE_EXTRACTOR, account, episode_id, extractor)


@dataclass(frozen=True)
class Failures:
    """Numbers of episodes that wait for their facts, and of those the model failed at of late.

    `cause` is why it failed at the newest of these; None where it did not.
    """

    waiting: int = 0
    failed: int = 0
    cause: str | None = None

    @classmethod
    def of(cls, rows: Iterable[Row]) -> "Failures":
        """Sum up rows of (waits, failure, number, last_at)."""
        found = list(rows)
        failed = [row for row in found if row["failure"] is not None]
        newest = max(failed, key=lambda row: row["last_at"], default=None)
        return cls(
            waiting=sum(row["number"] for row in found if row["waits"]),
            failed=sum(row["number"] for row in failed),
            cause=None if newest is None else newest["failure"],
        )


async def failures(
    database: Database, *, account: AccountId, namespace_ids: Sequence[int] | None, now: datetime
) -> Failures:
    """Count the waiting episodes of these namespaces, and the model's failures in the last day.

    None stands for all namespaces of the account.
    """
    rows = await database.fetch(_FAILURES, account, namespace_ids, now - LATELY)
    return Failures.of(rows)


async def fail_episode(database: Database, *, account: AccountId, episode_id: uuid.UUID) -> None:
    """Give up an episode that cannot be opened."""
    await database.execute(_FAIL_EPISODE, account, episode_id)


async def find_said(
    database: Database, *, account: AccountId, places: Sequence[FingerprintKey], now: datetime
) -> list[Row]:
    """Return (episode_id, namespace_id, epoch, fingerprint, state) of episodes that say this.

    They wait or are kept; those of the newest epoch come first.
    """
    return await database.fetch(_SAID, account, *_columns(places), now)


async def claim(
    connection: Connection,
    *,
    account: AccountId,
    places: Sequence[FingerprintKey],
    now: datetime,
    to_wait: bool = False,
) -> list[Row]:
    """Return the same episodes as `find_said`, under the account's lock.

    Episodes whose time is over stand in nobody's way then, nor do kept ones in that of an episode
    which is to wait.
    """
    if not places:
        return []
    wanted = (account, *_columns(places), now)
    await connection.execute(_GIVE_UP_WORDS, *wanted, to_wait)
    return list(await connection.fetch(_SAID, *wanted))


async def find_kept(
    connection: Connection, *, account: AccountId, episode_ids: Sequence[uuid.UUID]
) -> set[uuid.UUID]:
    """Return those of these episodes that are there and kept."""
    return {r["episode_id"] for r in await connection.fetch(_KEPT, account, episode_ids)}


def _columns(places: Sequence[FingerprintKey]) -> list[list[Any]]:
    return [list(column) for column in zip(*places, strict=True)] or [[], [], []]
