"""Statements that count the memories in recall, by period, writer and kind.

Not here: how many a namespace holds at all (`namespaces`, `listing.count_set_aside`).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from relayer.database.conditions import unexpired
from relayer.database.pool import Database, Row
from relayer.database.states import IN_STATE
from relayer.record import ACTIVE
from relayer.sealed.keys import AccountId, Namespace

# The newest, and one more that says whether there are others; each is read once.
_COUNTS: Final = f"""
WITH found AS MATERIALIZED (
    SELECT m.seq, m.created_at, m.writer, m.kind, m.seen_count,
           $6 AND NOT EXISTS (SELECT 1 FROM memory_recalls r
                              WHERE r.account_id = $1 AND r.memory_id = m.memory_id) AS is_unused
    FROM memories m
    WHERE m.account_id = $1
      AND ($2::text[] IS NULL OR m.namespace_id = ANY (ARRAY(
          SELECT n.namespace_id FROM namespaces n WHERE n.account_id = $1 AND n.name = ANY ($2))))
      AND m.revision_of IS NULL
      AND {unexpired("$3")}
      AND {IN_STATE[ACTIVE]}
    ORDER BY m.seq DESC LIMIT $4 + 1
), counted AS MATERIALIZED (
    SELECT width_bucket(created_at, $5::timestamptz[]) AS period, seq, created_at, writer, kind,
           seen_count, is_unused
    FROM found ORDER BY seq DESC LIMIT $4
)
SELECT period, writer, kind, grouping(period, writer, kind) = 7 AS is_whole, count(*) AS memories,
       count(*) FILTER (WHERE seen_count > 1) AS repeated,
       count(*) FILTER (WHERE is_unused) AS unused,
       CASE WHEN (SELECT count(*) FROM found) > $4
            THEN (SELECT created_at FROM counted ORDER BY seq LIMIT 1) END AS since
FROM counted
GROUP BY GROUPING SETS ((period), (writer), (kind), ())
ORDER BY memories DESC, period, writer, kind
"""


async def count_memories(
    database: Database,
    *,
    account: AccountId,
    namespaces: Sequence[Namespace] | None,
    bounds: Sequence[datetime],
    limit: int,
    now: datetime,
    counts_recalls: bool,
) -> list[Row]:
    """Return the counts of the newest memories in recall, of all namespaces for None.

    A row is of a `period`, a `writer` or a `kind`, the others being null. One that `is_whole` is of
    all memories, and is always there. Period n is between the bounds n - 1 and n, 0 before the
    first one. `since` is null unless there are more than `limit`: then, when the oldest that was
    counted was stored. `unused` were never recalled; 0 for an account that does not count it.
    """
    return await database.fetch(_COUNTS, account, namespaces, now, limit, bounds, counts_recalls)
