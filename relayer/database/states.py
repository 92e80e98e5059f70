"""Statements on what holds of memories beside what they say, and on their links.

Not here: what a state means and its signed object (`relayer.journal.states`).
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from relayer.database.index_steps import note_change, step
from relayer.database.pool import Connection, Database, Row
from relayer.record import (
    ACTIVE,
    CONTRADICTION,
    PENDING,
    PENDING_REVIEW,
    REJECTED,
    SUPERSEDED,
    State,
)
from relayer.sealed.keys import AccountId

CONTRADICTS: Final = "contradicts"  # a newer fact → the memory that it speaks against
TURN: Final = "turn"  # a memory → the episode it came from
SOURCE: Final = "source"  # a summary or a procedure → what it was made of
MERGED: Final = "merged"  # the memory that was kept → the one that says the same

ALL: Final = "all"
_STANDS: Final = "m.superseded_at IS NULL"
# State → which memories `m` are in it, in SQL, as `State.name` has it. Each has statements of its
# own, for no partial index fits a state that is a parameter.
IN_STATE: Final = {
    ACTIVE: f"{_STANDS} AND (m.review IS NULL OR m.review = '{CONTRADICTION}')",
    SUPERSEDED: "m.superseded_at IS NOT NULL",
    PENDING_REVIEW: f"{_STANDS} AND m.review = '{PENDING}'",
    REJECTED: f"{_STANDS} AND m.review = '{REJECTED}'",
    ALL: "true",
}

_LOCK_STATES: Final = """
SELECT m.memory_id, m.namespace_id, ns.name AS namespace, m.epoch, m.revision, m.pinned, m.review,
       m.stale, m.superseded_at, m.superseded_by, m.expires_at, m.given_expires_at,
       m.has_default_life, m.last_seen_at,
       EXISTS (SELECT 1 FROM links l
               WHERE l.account_id = $1 AND l.memory_id = m.superseded_by
                 AND l.relation = 'merged' AND l.other_id = m.memory_id) AS merged
FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.memory_id = ANY ($2) AND m.revision_of IS NULL
ORDER BY m.memory_id FOR UPDATE OF m
"""

_STEP: Final = step(
    receipt_seq="$13",
    namespace_ids="ARRAY(SELECT DISTINCT namespace_id FROM earlier)",
    seqs="ARRAY(SELECT seq FROM earlier UNION ALL SELECT seq FROM before)",
)
# Put states, the objects that prove them and their receipts in place; the object before has had its
# time. How long a memory lives that is pinned now, or is no longer, is for `revisions.set_life`.
_SET_STATES: Final = f"""
WITH changed AS (
    SELECT * FROM unnest($2::uuid[], $3::bool[], $4::text[], $5::bool[], $6::timestamptz[],
                         $7::uuid[], $8::bytea[])
        AS s (memory_id, pinned, review, stale, superseded_at, superseded_by, object_id)
), earlier AS (
    SELECT m.namespace_id, m.seq, m.state_blob FROM memories m
    WHERE m.account_id = $1 AND m.memory_id = ANY ($2)
), memory AS (
    UPDATE memories m
    SET pinned = s.pinned, review = s.review, stale = s.stale, superseded_at = s.superseded_at,
        superseded_by = s.superseded_by, state_blob = s.object_id
    FROM changed s
    WHERE m.account_id = $1 AND m.memory_id = s.memory_id
), before AS (
    -- A review is of the memory: what it said before is no more to be recalled than what it says.
    UPDATE memories m SET review = s.review
    FROM changed s
    WHERE m.account_id = $1 AND m.revision_of = s.memory_id AND m.review IS DISTINCT FROM s.review
    RETURNING m.seq
), staged AS (
    DELETE FROM blobs b USING earlier e WHERE b.account_id = $1 AND b.blob_id = e.state_blob
), outbox AS (
    INSERT INTO blob_outbox (account_id, blob_id, due_at)
    SELECT $1, state_blob, $10 FROM earlier WHERE $15 AND state_blob IS NOT NULL
    ON CONFLICT (account_id, blob_id) DO UPDATE SET due_at = excluded.due_at
), journal AS (
    INSERT INTO blobs (account_id, blob_id, bytes, created_at)
    SELECT $1, blob_id, bytes, $10 FROM unnest($8::bytea[], $9::bytea[]) AS j (blob_id, bytes)
    ON CONFLICT DO NOTHING
), receipt AS (
    INSERT INTO receipts (account_id, seq, object)
    SELECT $1, seq, object FROM unnest($11::bigint[], $12::bytea[]) AS r (seq, object)
), touched AS (
    UPDATE namespaces n SET updated_at = $10
    FROM (SELECT DISTINCT namespace_id FROM earlier) t
    WHERE n.account_id = $1 AND n.namespace_id = t.namespace_id
), {_STEP}
UPDATE accounts SET receipt_seq = $13, receipt_head = $14, changed_at = $10 WHERE account_id = $1
"""

# Links of memories that are still there to memories and episodes that are.
_LINK: Final = """
INSERT INTO links (account_id, memory_id, relation, other_id, created_at)
SELECT $1, l.memory_id, l.relation, l.other_id, $5
FROM unnest($2::uuid[], $3::text[], $4::uuid[]) AS l (memory_id, relation, other_id)
WHERE EXISTS (SELECT 1 FROM memories m WHERE m.account_id = $1 AND m.memory_id = l.memory_id)
  AND (EXISTS (SELECT 1 FROM memories o WHERE o.account_id = $1 AND o.memory_id = l.other_id)
       OR EXISTS (SELECT 1 FROM episodes e WHERE e.account_id = $1 AND e.episode_id = l.other_id))
ON CONFLICT DO NOTHING
"""
# Whatever says the same as a memory that comes back is known by it no more.
_GIVE_UP_WORDS: Final = """
UPDATE memories m SET fingerprint = NULL
FROM memories back
WHERE m.account_id = $1 AND back.account_id = $1 AND back.memory_id = $2
  AND m.memory_id <> back.memory_id AND m.namespace_id = back.namespace_id
  AND m.epoch = back.epoch AND m.fingerprint = back.fingerprint AND m.superseded_at IS NULL
"""
# How often memories that come back were counted for what they were merged into, for what that was
# merged into since, and so on.
_COUNTED: Final = """
WITH RECURSIVE counted AS (
    SELECT l.memory_id, l.other_id FROM links l
    WHERE l.account_id = $1 AND l.relation = 'merged' AND l.other_id = ANY ($2)
    UNION
    SELECT l.memory_id, c.other_id FROM counted c
    JOIN memories k ON k.account_id = $1 AND k.memory_id = c.memory_id
    JOIN links l ON l.account_id = $1 AND l.memory_id = k.superseded_by
                AND l.relation = 'merged' AND l.other_id = k.memory_id
)
SELECT c.memory_id, sum(o.seen_count) AS seen_count FROM counted c
JOIN memories o ON o.account_id = $1 AND o.memory_id = c.other_id
GROUP BY c.memory_id
"""
# Take memories that were merged out of the links and counts of what they were merged into.
_PART: Final = """
WITH parted AS (
    DELETE FROM links WHERE account_id = $1 AND relation = 'merged' AND other_id = ANY ($2)
)
UPDATE memories m SET seen_count = greatest(1, m.seen_count - c.seen_count)
FROM unnest($3::uuid[], $4::bigint[]) AS c (memory_id, seen_count)
WHERE m.account_id = $1 AND m.memory_id = c.memory_id
"""
# What memories are linked to, and what is linked to them.
_LINKS_OF: Final = """
SELECT memory_id, relation, other_id FROM links WHERE account_id = $1 AND memory_id = ANY ($2)
UNION
SELECT memory_id, relation, other_id FROM links WHERE account_id = $1 AND other_id = ANY ($2)
ORDER BY relation, memory_id, other_id
"""


@dataclass(frozen=True)
class Link:
    """A relation of a memory to another, or to an episode."""

    memory_id: uuid.UUID
    relation: str
    other_id: uuid.UUID


@dataclass(frozen=True)
class NewState:
    """The state of a memory and the name and bytes of the object that proves it."""

    memory_id: uuid.UUID
    state: State
    object_id: bytes
    signed: bytes


async def lock_states(
    connection: Connection, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> dict[uuid.UUID, Row]:
    """Return memory id → its state and place, locked; those that live."""
    rows = await connection.fetch(_LOCK_STATES, account, memory_ids)
    return {r["memory_id"]: r for r in rows}


async def set_states(
    connection: Connection,
    *,
    account: AccountId,
    changed: Sequence[NewState],
    now: datetime,
    receipts: Sequence[tuple[int, bytes]],
    receipt_head: bytes,
    outside_store: bool,
) -> None:
    """Change locked memories, with the receipts of it.

    Raises:
        UniqueViolation: one is brought back whose fact another memory holds now.
    """
    await connection.execute(
        _SET_STATES,
        account,
        [c.memory_id for c in changed],
        [c.state.pinned for c in changed],
        [c.state.review for c in changed],
        [c.state.stale for c in changed],
        [c.state.superseded_at for c in changed],
        [c.state.superseded_by for c in changed],
        [c.object_id for c in changed],
        [c.signed for c in changed],
        now,
        [n for n, _ in receipts],
        [signed for _, signed in receipts],
        receipts[-1][0],
        receipt_head,
        outside_store,
    )


async def give_up_words(
    connection: Connection, *, account: AccountId, memory_id: uuid.UUID
) -> None:
    """Let a memory that comes back be the one that is known by its words."""
    await connection.execute(_GIVE_UP_WORDS, account, memory_id)


async def link(
    connection: Connection, *, account: AccountId, links: Sequence[Link], now: datetime
) -> None:
    """Link memories; those that are gone are not linked, and a link that is there stays."""
    await connection.execute(
        _LINK,
        account,
        [one.memory_id for one in links],
        [one.relation for one in links],
        [one.other_id for one in links],
        now,
    )


async def part(
    connection: Connection, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> None:
    """Take back for links and counts that these were merged into others."""
    counted = await connection.fetch(_COUNTED, account, memory_ids)
    await note_change(connection, account)
    await connection.execute(
        _PART,
        account,
        memory_ids,
        [row["memory_id"] for row in counted],
        [int(row["seen_count"]) for row in counted],
    )


async def links_of(
    database: Database, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> list[Link]:
    """Return links from and to these memories."""
    rows = await database.fetch(_LINKS_OF, account, memory_ids)
    return [Link(**row) for row in rows]
