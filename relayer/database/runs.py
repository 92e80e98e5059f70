"""Statements on consolidation runs: begun, going on, what they did, undone.

Not here: what a run does (`relayer.memories.consolidation`), what can be consolidated
(`consolidation`).

- One run of a namespace at a time, which a unique index holds to.
- What is due or unfinished anywhere comes in pages: whoever asks goes past what it cannot open.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from relayer.database.pool import Connection, Database, Row
from relayer.preferences import HOURS_MAX
from relayer.sealed.keys import NUMBER_MIN, AccountId, PublicKey

Position = tuple[int, int]  # numbers of an account and of a namespace
GroupCursor = tuple[datetime, int]  # of a group of episodes: moment and seq of its first
START: Final[Position] = (NUMBER_MIN, 0)

QUEUED: Final = "queued"  # for its turn, and on a sealed account for the namespace's key
RUNNING: Final = "running"
WAITING: Final = "waiting"  # for the language model, or for room
DONE: Final = "done"
REFUSED: Final = "refused"  # to a key that may no longer write there: it did nothing further
UNDONE: Final = "undone"
SKIPPED: Final = "skipped"
OUTDATED: Final = "outdated"  # what was made went, for what it was made of holds no more as it was

MERGE: Final = "merge"
STALE: Final = "stale"
SUMMARY: Final = "summary"
PROCEDURE: Final = "procedure"

_START: Final = f"""
INSERT INTO consolidations (account_id, run_id, namespace_id, actor, state, started_at)
VALUES ($1, $2, $3, $4, '{QUEUED}', $5)
ON CONFLICT DO NOTHING
"""

# Runs that did nothing, once that interests nobody any more; the last that looked at everything
# tells the next one from when on to look.
_PRUNE: Final = """
DELETE FROM consolidations c
WHERE c.account_id = $1 AND c.namespace_id = $2 AND c.finished_at < $3
  AND NOT EXISTS (SELECT 1 FROM consolidation_actions a
                  WHERE a.account_id = $1 AND a.run_id = c.run_id)
  AND (c.state <> 'done'
       OR EXISTS (SELECT 1 FROM consolidations l
                  WHERE l.account_id = $1 AND l.namespace_id = $2 AND l.state = 'done'
                    AND l.started_at > c.started_at))
"""

_RUN_COLUMNS: Final = """
    c.run_id, c.namespace_id, ns.name AS namespace, c.actor, c.state, c.position, c.group_moment,
    c.group_seq, c.started_at, c.finished_at
"""

_COUNTS: Final = """
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE a.action = 'merge') AS merged,
           count(*) FILTER (WHERE a.action = 'stale') AS stale,
           count(*) FILTER (WHERE a.action = 'summary') AS summaries,
           count(*) FILTER (WHERE a.action = 'procedure') AS procedures
    FROM consolidation_actions a WHERE a.account_id = $1 AND a.run_id = c.run_id
) counted
"""

_RUN: Final = f"""
SELECT {_RUN_COLUMNS}, counted.*
FROM consolidations c
JOIN namespaces ns ON ns.account_id = $1 AND ns.namespace_id = c.namespace_id
{_COUNTS}
WHERE c.account_id = $1 AND c.run_id = $2
"""

_UNFINISHED: Final = f"""
SELECT {_RUN_COLUMNS}, counted.*
FROM consolidations c
JOIN namespaces ns ON ns.account_id = $1 AND ns.namespace_id = c.namespace_id
{_COUNTS}
WHERE c.account_id = $1 AND c.namespace_id = $2 AND c.finished_at IS NULL
"""

_RUNS: Final = f"""
SELECT {_RUN_COLUMNS}, counted.*
FROM consolidations c
JOIN namespaces ns ON ns.account_id = $1 AND ns.namespace_id = c.namespace_id
{_COUNTS}
WHERE c.account_id = $1 AND ($2::text[] IS NULL OR ns.name = ANY ($2))
  AND ($3::uuid IS NULL OR c.run_id < $3)
ORDER BY c.run_id DESC LIMIT $4
"""

_ACTIONS: Final = """
SELECT a.action_id, a.action, a.memory_id, a.other_ids, a.created_at, a.undone
FROM consolidation_actions a
WHERE a.account_id = $1 AND a.run_id = $2 AND ($3::uuid IS NULL OR a.action_id > $3)
ORDER BY a.action_id LIMIT $4
"""

_PROCEED: Final = """
UPDATE consolidations SET state = $3, position = coalesce($4, position)
WHERE account_id = $1 AND run_id = $2 AND finished_at IS NULL
"""

_GROUP_DONE: Final = """
UPDATE consolidations SET group_moment = $3, group_seq = $4, failures = 0
WHERE account_id = $1 AND run_id = $2 AND finished_at IS NULL
"""

_COUNT_FAILURE: Final = """
UPDATE consolidations SET failures = failures + 1 WHERE account_id = $1 AND run_id = $2
RETURNING failures
"""

_FINISH: Final = """
UPDATE consolidations SET state = $4, finished_at = $3
WHERE account_id = $1 AND run_id = $2 AND finished_at IS NULL
"""

# Whether a run may go on; it is not ended before the transaction is.
_LOCK_UNFINISHED: Final = """
SELECT 1 FROM consolidations
WHERE account_id = $1 AND run_id = $2 AND finished_at IS NULL FOR UPDATE
"""

# When the last run that looked at all of a namespace had begun; one that was undone may not have.
_LAST_RUN: Final = """
SELECT max(started_at) AS started_at FROM consolidations
WHERE account_id = $1 AND namespace_id = $2 AND state = 'done'
"""

_RECORD: Final = """
INSERT INTO consolidation_actions (account_id, run_id, action_id, action, memory_id, other_ids,
                                   created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""

# Null for what no request could choose: one account's row must not fail the statement for all.
_HOURS: Final = f"""
CASE WHEN (a.settings ->> 'consolidate_every_h')::numeric BETWEEN 0 AND {HOURS_MAX}
     THEN (a.settings ->> 'consolidate_every_h')::numeric::int END
"""

# A page of namespaces whose account wants them consolidated by now; of all accounts, or of one.
_DUE: Final = f"""
SELECT a.whole_id, n.account_id, n.namespace_id, n.name AS namespace
FROM accounts a
JOIN namespaces n ON n.account_id = a.account_id
WHERE a.closed_at IS NULL AND ($2::bigint IS NULL OR a.account_id = $2)
  AND (n.account_id, n.namespace_id) > ($3, $4) AND n.memory_count > 0 AND {_HOURS} > 0
  AND NOT EXISTS (
      SELECT 1 FROM consolidations c
      WHERE c.account_id = a.account_id AND c.namespace_id = n.namespace_id
        AND c.state <> 'refused'
        AND (c.finished_at IS NULL
             OR c.started_at + {_HOURS} * interval '1 hour' > $1::timestamptz))
ORDER BY n.account_id, n.namespace_id LIMIT $5
"""

_ALL_UNFINISHED: Final = """
SELECT a.whole_id, c.account_id, c.run_id, c.namespace_id, ns.name AS namespace
FROM consolidations c
JOIN accounts a ON a.account_id = c.account_id
JOIN namespaces ns ON ns.account_id = c.account_id AND ns.namespace_id = c.namespace_id
WHERE c.finished_at IS NULL AND ($1::bigint IS NULL OR c.account_id = $1)
  AND (c.account_id, c.namespace_id) > ($2, $3)
ORDER BY c.account_id, c.namespace_id LIMIT $4
"""

# What undoing has to know of memories: whether they are as they were left.
_LEFT: Final = """
SELECT m.memory_id, m.revision, m.stored_at, m.stale, m.pinned, m.review, m.superseded_by,
       m.superseded_at, m.seen_count, m.kind
FROM memories m
WHERE m.account_id = $1 AND m.memory_id = ANY ($2) AND m.revision_of IS NULL
ORDER BY m.memory_id FOR UPDATE
"""

# Whether a memory holds, or what it was merged into does, and so on: as long as it says what it
# said then.
_STILL_SAID: Final = """
WITH RECURSIVE said AS (
    SELECT m.memory_id, m.review, m.superseded_at, m.superseded_by FROM memories m
    WHERE m.account_id = $1 AND m.memory_id = $2
    UNION
    SELECT k.memory_id, k.review, k.superseded_at, k.superseded_by
    FROM said s
    JOIN links l ON l.account_id = $1 AND l.memory_id = s.superseded_by
                AND l.relation = 'merged' AND l.other_id = s.memory_id
    JOIN memories k ON k.account_id = $1 AND k.memory_id = s.superseded_by
                   AND k.stored_at <= s.superseded_at
    WHERE s.review IS NULL
)
SELECT 1 FROM said WHERE superseded_at IS NULL AND review IS NULL
"""

_OPEN_ACTIONS: Final = """
SELECT a.action_id, a.action, a.memory_id, a.other_ids, a.created_at
FROM consolidation_actions a
WHERE a.account_id = $1 AND a.run_id = $2 AND a.undone IS NULL
ORDER BY a.action_id DESC LIMIT $3
"""

_SETTLE: Final = """
UPDATE consolidation_actions SET undone = $4
WHERE account_id = $1 AND run_id = $2 AND action_id = $3 AND undone IS NULL
RETURNING action_id
"""

_OUTDATE: Final = """
UPDATE consolidation_actions SET undone = $3
WHERE account_id = $1 AND memory_id = ANY ($2) AND action IN ('summary', 'procedure')
  AND undone IS NULL
"""

_UNDO: Final = """
UPDATE consolidations SET state = 'undone' WHERE account_id = $1 AND run_id = $2
"""


@dataclass(frozen=True)
class Action:
    """One thing that a run did: what it did to which memory, because of or by means of others."""

    action_id: uuid.UUID
    action: str
    memory_id: uuid.UUID
    other_ids: Sequence[uuid.UUID] = ()

    @property
    def is_new(self) -> bool:
        """Return true if the memory is one that the action makes."""
        return self.action in (SUMMARY, PROCEDURE)


@dataclass(frozen=True)
class Scope:
    """The range of a run: a namespace of an account, as it is now."""

    account: AccountId
    namespace_id: int
    now: datetime


async def start(
    connection: Connection,
    scope: Scope,
    *,
    run_id: uuid.UUID,
    actor: PublicKey,
    pruned: datetime,
) -> Row | None:
    """Return the unfinished run of the namespace: a new one unless there was one.

    None if that one was finished meanwhile.
    """
    await connection.execute(_PRUNE, scope.account, scope.namespace_id, pruned)
    await connection.execute(_START, scope.account, run_id, scope.namespace_id, actor, scope.now)
    return await connection.fetchrow(_UNFINISHED, scope.account, scope.namespace_id)


async def find_run(database: Database, *, account: AccountId, run_id: uuid.UUID) -> Row | None:
    """Return one run with its counts."""
    return await database.fetchrow(_RUN, account, run_id)


async def runs(
    database: Database,
    *,
    account: AccountId,
    namespaces: Sequence[str] | None,
    before: uuid.UUID | None,
    limit: int,
) -> list[Row]:
    """Return a page of runs with their counts, newest first."""
    return await database.fetch(_RUNS, account, namespaces, before, limit)


async def actions(
    database: Database,
    *,
    account: AccountId,
    run_id: uuid.UUID,
    after: uuid.UUID | None,
    limit: int,
) -> list[Row]:
    """Return a page of what a run did, in order."""
    return await database.fetch(_ACTIONS, account, run_id, after, limit)


async def proceed(
    database: Database,
    *,
    account: AccountId,
    run_id: uuid.UUID,
    state: str,
    position: int | None = None,
) -> None:
    """Note how an unfinished run stands; without a position, it is where it was."""
    await database.execute(_PROCEED, account, run_id, state, position)


async def note_group(
    database: Database, *, account: AccountId, run_id: uuid.UUID, place: GroupCursor
) -> None:
    """Note that an unfinished run is done with a group of episodes, and with all before."""
    await database.execute(_GROUP_DONE, account, run_id, *place)


async def count_failure(database: Database, *, account: AccountId, run_id: uuid.UUID) -> int:
    """Count one more failure of the model at a run's group or after its last; return the sum."""
    row = await database.fetchrow(_COUNT_FAILURE, account, run_id)
    return 0 if row is None else int(row["failures"])


async def finish(
    target: Database | Connection,
    *,
    account: AccountId,
    run_id: uuid.UUID,
    state: str,
    now: datetime,
) -> None:
    """End a run, unless it has ended."""
    await target.execute(_FINISH, account, run_id, now, state)


async def lock_unfinished(connection: Connection, *, account: AccountId, run_id: uuid.UUID) -> bool:
    """Lock a run; true if it has not ended, which holds until the transaction ends."""
    return await connection.fetchrow(_LOCK_UNFINISHED, account, run_id) is not None


async def last_run(database: Database, scope: Scope) -> datetime | None:
    """Return when the namespace's last run that looked at all of it had begun."""
    row = await database.fetchrow(_LAST_RUN, scope.account, scope.namespace_id)
    return None if row is None else row["started_at"]


async def record(
    connection: Connection,
    *,
    account: AccountId,
    run_id: uuid.UUID,
    done: Sequence[Action],
    now: datetime,
) -> None:
    """List what a run did, in the transaction that does it."""
    await connection.executemany(
        _RECORD,
        [
            (account, run_id, a.action_id, a.action, a.memory_id, list(a.other_ids), now)
            for a in done
        ],
    )


async def due(
    database: Database, *, now: datetime, account: AccountId | None, after: Position, limit: int
) -> list[Row]:
    """Return (whole_id, namespace_id, namespace) that are due for a run, by `Position`."""
    return await database.fetch(_DUE, now, account, *after, limit)


async def find_unfinished(
    database: Database, *, account: AccountId | None, after: Position, limit: int
) -> list[Row]:
    """Return (whole_id, run_id, namespace_id, namespace) of unfinished runs, by `Position`."""
    return await database.fetch(_ALL_UNFINISHED, account, *after, limit)


def behind(page: Sequence[Row]) -> Position:
    """Return the position where the page after this one begins."""
    return page[-1]["account_id"], page[-1]["namespace_id"]


async def lock_left(
    connection: Connection, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> dict[uuid.UUID, Row]:
    """Return memories as they are now, locked; those that live."""
    return {r["memory_id"]: r for r in await connection.fetch(_LEFT, account, memory_ids)}


async def is_still_said(
    connection: Connection, *, account: AccountId, memory_id: uuid.UUID
) -> bool:
    """Return true if a memory is in force, or what it was merged into is and says the same."""
    return await connection.fetchrow(_STILL_SAID, account, memory_id) is not None


async def open_actions(
    database: Database, *, account: AccountId, run_id: uuid.UUID, limit: int
) -> list[Row]:
    """Return the actions of a run that nobody tried to undo yet, the last first."""
    return await database.fetch(_OPEN_ACTIONS, account, run_id, limit)


async def settle(
    connection: Connection,
    *,
    account: AccountId,
    run_id: uuid.UUID,
    action_id: uuid.UUID,
    undone: str,
) -> bool:
    """Note that an action was undone or skipped; False if that was noted before."""
    row = await connection.fetchrow(_SETTLE, account, run_id, action_id, undone)
    return row is not None


async def outdate(
    connection: Connection, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> None:
    """Note that what runs made is erased, though nobody did away with it."""
    await connection.execute(_OUTDATE, account, memory_ids, OUTDATED)


async def undo(connection: Connection, *, account: AccountId, run_id: uuid.UUID) -> None:
    """Note that nothing of a run is left to be undone."""
    await connection.execute(_UNDO, account, run_id)
