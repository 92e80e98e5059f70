"""Statements that find what can be consolidated, and change it where no other module does.

Not here: which of it is done (`relayer.memories`: `consolidation`, `merging`), runs and what they
did (`runs`).

- Only memories in force are looked at: not superseded, held back, doubted, expired or altered.
- What was done once and then undone, by whomever, is not done again to the same words.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from relayer.database.conditions import MOMENT, unexpired
from relayer.database.index_steps import note_change
from relayer.database.pool import Connection, Database, Row
from relayer.database.postings import holders
from relayer.database.runs import OUTDATED, PROCEDURE, SUMMARY, GroupCursor, Scope
from relayer.sealed.keys import AccountId

_IN_FORCE: Final = f"""
    m.account_id = $1 AND m.namespace_id = $2 AND m.revision_of IS NULL AND m.format = 'sealed'
    AND m.superseded_at IS NULL AND m.review IS NULL AND m.embedding_model IS DISTINCT FROM 'lost'
    AND {unexpired("$3")}
"""

# A page of memories that were stored since then, in order.
_PAGE: Final = f"""
SELECT m.memory_id, m.seq FROM memories m
WHERE {_IN_FORCE} AND m.stored_at >= $4 AND m.seq > $5
ORDER BY m.seq LIMIT $6
"""

# Pairs of memories of one kind, of which one has all these words of the other. Long ones are looked
# for by the rarest of these words, among so many of the newest that have it; others by all of these
# words at once.
_ALIKE: Final = f"""
WITH word AS (
    SELECT * FROM unnest($4::uuid[], $5::int[], $6::bigint[]) AS w (memory_id, epoch, token)
), known AS MATERIALIZED (
    SELECT w.token,
           (SELECT count(*) FROM (
                SELECT 1 FROM {holders("$2", "w.token")} h LIMIT $7) t
           ) AS memories
    FROM (SELECT DISTINCT token FROM word) w
), said AS (
    SELECT memory_id, epoch, array_agg(token) AS tokens,
           (array_agg(token ORDER BY memories, token))[1] AS rarest
    FROM word JOIN known USING (token) GROUP BY memory_id, epoch HAVING min(memories) > 0
)
SELECT p.memory_id, o.memory_id AS other_id
FROM said s
JOIN memories p ON p.account_id = $1 AND p.memory_id = s.memory_id AND p.superseded_at IS NULL
CROSS JOIN LATERAL (
    SELECT m.memory_id
    FROM ((SELECT t.memory_id FROM postings t
           WHERE t.account_id = $1 AND t.namespace_id = $2 AND t.token = s.rarest
           ORDER BY t.memory_id DESC LIMIT $7)
          UNION ALL
          (SELECT h.memory_id FROM memories h
           WHERE h.account_id = $1 AND h.namespace_id = $2 AND h.frequencies IS NOT NULL
             AND h.tokens @> s.tokens AND h.tokens @> ARRAY[s.rarest]
           ORDER BY h.seq DESC LIMIT $7)) t
    JOIN memories m ON m.account_id = $1 AND m.memory_id = t.memory_id
    WHERE m.memory_id <> p.memory_id AND m.kind = p.kind AND m.epoch = s.epoch
      AND m.word_count BETWEEN p.word_count / 2 AND p.word_count * 2
      AND m.tokens @> s.tokens AND {_IN_FORCE}
    ORDER BY m.seq DESC LIMIT $8
) o
"""

# The same of pairs that sealed records tell, each a memory and the number of another.
_ALIKE_NUMBERED: Final = f"""
SELECT p.memory_id, o.memory_id AS other_id
FROM (SELECT memory_id, array_agg(seq) AS seqs
      FROM unnest($4::uuid[], $5::bigint[]) AS t (memory_id, seq) GROUP BY memory_id) s
JOIN memories p ON p.account_id = $1 AND p.memory_id = s.memory_id AND p.superseded_at IS NULL
CROSS JOIN LATERAL (
    SELECT m.memory_id FROM memories m
    WHERE m.seq = ANY (s.seqs) AND m.memory_id <> p.memory_id AND m.kind = p.kind AND {_IN_FORCE}
    ORDER BY m.seq DESC LIMIT $6
) o
"""

# Pairs that were merged before, whatever became of that.
_MERGED_BEFORE: Final = """
SELECT a.memory_id, a.other_ids FROM consolidation_actions a
WHERE a.account_id = $1 AND a.action = 'merge' AND a.memory_id = ANY ($2)
"""

_STALE: Final = f"""
SELECT m.memory_id, m.blob_id, m.last_seen_at FROM memories m
WHERE {_IN_FORCE} AND NOT m.pinned AND NOT m.stale
  AND (m.importance = 'trivial' AND greatest(m.last_seen_at, m.stored_at) < $4
       OR m.kind = 'working' AND greatest(m.last_seen_at, m.stored_at) < $5
       OR m.kind = 'event' AND m.importance = 'trivial' AND m.event_time < $6)
  AND NOT EXISTS (SELECT 1 FROM consolidation_actions a
                  WHERE a.account_id = $1 AND a.memory_id = m.memory_id AND a.action = 'stale'
                    AND a.created_at >= m.stored_at)
ORDER BY m.seq LIMIT $7
"""

# Episodes of which nothing of that kind was made yet; nor was anything that somebody did away with
# while what it was made of stayed as it was.
_EPISODES: Final = f"""
    blocked AS (
        SELECT unnest(a.other_ids) AS memory_id FROM consolidation_actions a
        WHERE a.account_id = $1 AND a.action = $4
          AND (a.undone = 'undone'
               OR a.undone IS DISTINCT FROM '{OUTDATED}'
               AND NOT EXISTS (SELECT 1 FROM unnest(a.other_ids) AS o (memory_id)
                              LEFT JOIN memories x
                                  ON x.account_id = $1 AND x.memory_id = o.memory_id
                              WHERE x.memory_id IS NULL OR x.stored_at > a.created_at
                                 OR x.review = 'rejected'
                                 OR x.superseded_at IS NOT NULL
                                    AND NOT EXISTS (
                                        SELECT 1 FROM links l
                                        WHERE l.account_id = $1 AND l.relation = 'merged'
                                          AND l.memory_id = x.superseded_by
                                          AND l.other_id = x.memory_id)))
    ), episode AS (
        -- Masked ones tell nothing: what has a record is of one source for its group.
        SELECT m.memory_id, CASE WHEN m.index_record IS NULL THEN m.source END AS source,
               m.seq, m.epoch, m.expires_at,
               {MOMENT} AS moment
        FROM memories m
        WHERE {_IN_FORCE} AND m.kind IN ('episodic', 'event') AND m.type = 1
          AND NOT EXISTS (SELECT 1 FROM blocked b WHERE b.memory_id = m.memory_id)
          AND NOT EXISTS (
              SELECT 1 FROM links l
              JOIN memories s ON s.account_id = $1 AND s.memory_id = l.memory_id
              WHERE l.account_id = $1 AND l.other_id = m.memory_id AND l.relation = 'source'
                AND s.kind = $5)
    )
"""

# A page of episodes of one old week and source that stay for a while, where they are many enough.
# A week is old as a whole: one that was cut in two would keep its end for itself.
_GROUPS: Final = f"""
WITH {_EPISODES}, grouped AS (
    SELECT array_agg(e.memory_id ORDER BY e.moment, e.seq) AS ids, min(e.moment) AS moment,
           (array_agg(e.seq ORDER BY e.moment, e.seq))[1] AS seq
    FROM episode e
    CROSS JOIN LATERAL (
        SELECT date_trunc('week', e.moment AT TIME ZONE 'UTC') AS begun
    ) week
    WHERE week.begun + interval '7 days' <= $6::timestamptz AT TIME ZONE 'UTC'
      AND (e.expires_at IS NULL OR e.expires_at >= $7) AND e.epoch = ANY ($8)
    GROUP BY week.begun, e.source HAVING count(*) >= $9
)
SELECT g.ids, g.moment, g.seq FROM grouped g
WHERE $10::timestamptz IS NULL OR (g.moment, g.seq) > ($10, $11::bigint)
ORDER BY g.moment, g.seq LIMIT $12
"""

_NEWEST_EPISODES: Final = f"""
WITH {_EPISODES}
SELECT e.memory_id FROM episode e ORDER BY e.moment DESC, e.seq DESC LIMIT $6
"""

_STORED_SINCE: Final = f"""
SELECT count(*) AS episodes FROM memories m
WHERE {_IN_FORCE} AND m.kind IN ('episodic', 'event') AND m.stored_at >= $4
"""

# Those that are still in force and say what was read, locked until the transaction ends.
_LOCK_UNCHANGED: Final = f"""
SELECT m.memory_id, m.pinned, m.stale, m.seen_count, m.created_at, m.last_seen_at FROM memories m
JOIN unnest($4::uuid[], $5::bytea[]) AS r (memory_id, blob_id)
    ON r.memory_id = m.memory_id AND r.blob_id = m.blob_id
WHERE {_IN_FORCE}
ORDER BY m.memory_id FOR UPDATE OF m
"""

# Whether another memory of a kind was made of any of these.
_USED: Final = """
SELECT count(*) FROM links l
JOIN memories s ON s.account_id = $1 AND s.memory_id = l.memory_id
WHERE l.account_id = $1 AND l.relation = 'source' AND l.other_id = ANY ($2) AND s.kind = $3
  AND l.memory_id <> $4
"""

# Count what was said of merged memories as said of those that were kept.
_COUNT_MERGED: Final = """
UPDATE memories m
SET seen_count = least(m.seen_count + s.seen_count, 2147483647),
    last_seen_at = greatest(coalesce(m.last_seen_at, m.created_at), s.last_seen_at)
FROM (SELECT memory_id, sum(seen_count) AS seen_count, max(last_seen_at) AS last_seen_at
      FROM unnest($2::uuid[], $3::int[], $4::timestamptz[])
          AS s (memory_id, seen_count, last_seen_at)
      GROUP BY memory_id) s
WHERE m.account_id = $1 AND m.memory_id = s.memory_id
"""


async def page(
    database: Database, scope: Scope, *, since: datetime, after: int, limit: int
) -> list[Row]:
    """Return (memory_id, seq) of memories stored since then, in order, after that number."""
    return await database.fetch(
        _PAGE, scope.account, scope.namespace_id, scope.now, since, after, limit
    )


async def alike(
    database: Database,
    scope: Scope,
    *,
    words: Sequence[tuple[uuid.UUID, int, int]],
    among: int,
    limit: int,
) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """Return pairs of a memory and one of its kind that has all its words, of about as many.

    Args:
        words: (memory, epoch, token of one of its words in that epoch).
        among: how many memories that have the rarest word are looked at.
        limit: pairs of one memory and epoch.
    """
    found = await database.fetch(
        _ALIKE,
        scope.account,
        scope.namespace_id,
        scope.now,
        [memory for memory, _, _ in words],
        [epoch for _, epoch, _ in words],
        [token for _, _, token in words],
        among,
        limit,
    )
    return [(r["memory_id"], r["other_id"]) for r in found]


async def alike_numbered(
    database: Database, scope: Scope, *, pairs: Sequence[tuple[uuid.UUID, int]], limit: int
) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """Return those of these pairs of a memory and another's number that are of one kind."""
    found = await database.fetch(
        _ALIKE_NUMBERED,
        scope.account,
        scope.namespace_id,
        scope.now,
        [memory for memory, _ in pairs],
        [seq for _, seq in pairs],
        limit,
    )
    return [(r["memory_id"], r["other_id"]) for r in found]


async def find_merged_pairs(
    database: Database, *, account: AccountId, memory_ids: Sequence[uuid.UUID]
) -> set[frozenset[uuid.UUID]]:
    """Return pairs that were merged once, of those where one of these was kept."""
    found = await database.fetch(_MERGED_BEFORE, account, memory_ids)
    return {frozenset((r["memory_id"], other)) for r in found for other in r["other_ids"]}


async def stale(
    database: Database,
    scope: Scope,
    *,
    unseen: datetime,
    worked_on: datetime,
    over: datetime,
    limit: int,
) -> list[Row]:
    """Return (memory_id, blob_id, last_seen_at) of memories that grew stale.

    They were unseen, last worked on or over before these moments.
    """
    return await database.fetch(
        _STALE, scope.account, scope.namespace_id, scope.now, unseen, worked_on, over, limit
    )


async def old_groups(
    database: Database,
    scope: Scope,
    *,
    before: datetime,
    until: datetime,
    epochs: Sequence[int],
    size_min: int,
    after: GroupCursor | None,
    limit: int,
) -> list[Row]:
    """Return a page of groups of episodes, in order of time, as `ids`.

    The episodes are of one week and source, of a week that ended before then, and of these epochs;
    they have no summary, and none expires earlier than `until`.

    Args:
        after: the (moment, seq) of the last of the page before.
    """
    return await database.fetch(
        _GROUPS,
        scope.account,
        scope.namespace_id,
        scope.now,
        SUMMARY,
        "summary",
        before,
        until,
        epochs,
        size_min,
        *(after or (None, None)),
        limit,
    )


async def newest_episodes(database: Database, scope: Scope, *, limit: int) -> list[uuid.UUID]:
    """Return episodes that no procedure was made of, newest first."""
    found = await database.fetch(
        _NEWEST_EPISODES,
        scope.account,
        scope.namespace_id,
        scope.now,
        PROCEDURE,
        "procedural",
        limit,
    )
    return [r["memory_id"] for r in found]


async def episodes_since(database: Database, scope: Scope, *, since: datetime) -> int:
    """Count the episodes that were stored since then."""
    row = await database.fetchrow(
        _STORED_SINCE, scope.account, scope.namespace_id, scope.now, since
    )
    assert row is not None
    return int(row["episodes"])


async def lock_unchanged(
    connection: Connection, scope: Scope, *, read: Sequence[tuple[uuid.UUID, bytes]]
) -> dict[uuid.UUID, Row]:
    """Return those of these (memory, blob) that are in force and say this still, locked."""
    found = await connection.fetch(
        _LOCK_UNCHANGED,
        scope.account,
        scope.namespace_id,
        scope.now,
        [memory for memory, _ in read],
        [blob for _, blob in read],
    )
    return {r["memory_id"]: r for r in found}


async def are_used(
    connection: Connection,
    *,
    account: AccountId,
    memory_ids: Sequence[uuid.UUID],
    kind: str,
    but: uuid.UUID,
) -> bool:
    """Return true if another memory of that kind was made of any of these."""
    return bool(await connection.fetchval(_USED, account, memory_ids, kind, but))


async def count_merged(
    connection: Connection, *, account: AccountId, pairs: Sequence[tuple[uuid.UUID, Row]]
) -> None:
    """Count for kept memories what was counted for (kept, merged) ones."""
    await note_change(connection, account)
    await connection.execute(
        _COUNT_MERGED,
        account,
        [kept for kept, _ in pairs],
        [row["seen_count"] for _, row in pairs],
        [row["last_seen_at"] or row["created_at"] for _, row in pairs],
    )
