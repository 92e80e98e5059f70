"""Statements that list memories and episodes, page by page, and count what there is.

Not here: finding what answers a query (`recall`), reading a single one (`memories`).

- Pages go by sequence number, which an edit does not change: nothing is listed twice or skipped.
- Earlier revisions are in no list; a memory's history has them.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from relayer.database.conditions import unexpired, within
from relayer.database.episodes import is_over
from relayer.database.memories import MEMORY_COLUMNS
from relayer.database.pool import Database, Row
from relayer.database.postings import few_with, holders
from relayer.database.states import IN_STATE
from relayer.record import ACTIVE
from relayer.sealed.keys import AccountId

_FOUND: Final = f"""{MEMORY_COLUMNS}
FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.namespace_id = ANY ($2) AND m.seq < $3
  AND m.revision_of IS NULL
  AND {unexpired("$5")}
  AND ($6::text IS NULL OR m.kind = $6)
  AND ($7::bytea[] IS NULL OR m.writer = ANY ($7))
  AND {within("$8", "$9")}
  AND ($10::bool IS NULL OR m.pinned = $10)
  AND (NOT $11::bool OR NOT EXISTS (SELECT 1 FROM memory_recalls r
                                    WHERE r.account_id = $1 AND r.memory_id = m.memory_id))
"""
# Which memories have all of these tokens.
_TAGGED: Final = f"""p.memory_id
    FROM unnest($12::int[], $13::int[], $14::bigint[]) AS f (namespace_id, ordinal, token)
    CROSS JOIN LATERAL {holders("f.namespace_id", "f.token")} p
"""
_HAVE_ALL: Final = "GROUP BY p.memory_id HAVING count(DISTINCT f.ordinal) = $15"


def _of_each_state(before: str, further: str) -> dict[str, str]:
    return {
        state: f"{before} SELECT {_FOUND} AND {holds} {further} ORDER BY m.seq DESC LIMIT $4"
        for state, holds in IN_STATE.items()
    }


# A page; one of what has these tokens; and one where these are among a few that are known. IS TRUE
# keeps the second from becoming a join, which would read and sort them all for a page.
_NEWEST: Final = _of_each_state("", "")
_WITH_TAGS: Final = _of_each_state(
    f"WITH tagged AS MATERIALIZED (SELECT {_TAGGED} {_HAVE_ALL})",
    "AND (m.memory_id IN (SELECT t.memory_id FROM tagged t)) IS TRUE",
)
_AMONG_FEW: Final = _of_each_state(
    f"WITH tagged AS MATERIALIZED (SELECT {_TAGGED} WHERE p.memory_id = ANY ($16) {_HAVE_ALL})",
    "AND m.memory_id = ANY (ARRAY(SELECT t.memory_id FROM tagged t))",
)

# Some that are known by their numbers, as sealed records tell.
_NUMBERED: Final = _of_each_state("", "AND m.seq = ANY ($12::bigint[])")

# What waits for somebody to look at it.
_REVIEW: Final = f"""
SELECT {MEMORY_COLUMNS}
FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.namespace_id = ANY ($2) AND m.seq < $3
  AND m.review IS NOT NULL AND m.review <> 'rejected'
  AND m.revision_of IS NULL AND m.superseded_at IS NULL
  AND {unexpired("$5")}
ORDER BY m.seq DESC LIMIT $4
"""

# How many memories each namespace has set aside, and how many earlier revisions it keeps; in two
# parts, for a planner without statistics reads all for a condition of two indexes.
_SET_ASIDE: Final = """
SELECT namespace_id, count(*) FILTER (WHERE revision_of IS NOT NULL) AS revisions,
       count(*) FILTER (WHERE revision_of IS NULL) AS superseded, 0::bigint AS pending,
       0::bigint AS rejected
FROM memories
WHERE account_id = $1 AND superseded_at IS NOT NULL
  AND ($2::int[] IS NULL OR namespace_id = ANY ($2))
GROUP BY namespace_id
UNION ALL
SELECT namespace_id, 0, 0, count(*) FILTER (WHERE review = 'pending'),
       count(*) FILTER (WHERE review = 'rejected')
FROM memories
WHERE account_id = $1 AND review IS NOT NULL AND superseded_at IS NULL
  AND ($2::int[] IS NULL OR namespace_id = ANY ($2))
GROUP BY namespace_id
"""
# A page of episodes: the newest of each namespace, and of these the newest.
_TURNS: Final = f"""
SELECT ns.name AS namespace, e.* FROM namespaces ns
CROSS JOIN LATERAL (
    SELECT e.episode_id, e.namespace_id, e.epoch, e.writer, e.blob_id, e.state, e.created_at,
           e.extractor, e.failure
    FROM episodes e
    WHERE e.account_id = $1 AND e.namespace_id = ns.namespace_id AND e.state IN ('kept', 'pending')
      AND (e.created_at, e.episode_id) < ($3, $4) AND NOT {is_over("$6")}
    ORDER BY e.created_at DESC, e.episode_id DESC LIMIT $5) e
WHERE ns.account_id = $1 AND ns.namespace_id = ANY ($2)
ORDER BY e.created_at DESC, e.episode_id DESC LIMIT $5
"""


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Filters of a list; `after` and `before` go by event time, else by when it was stored.

    Attributes:
        wanted: how many tags and sources a memory must have.
        tokens: (namespace id, which of these, its token in one epoch).
        seqs: the only memories to look at, in place of tokens.
    """

    kind: str | None = None
    writers: Sequence[bytes] | None = None
    after: datetime | None = None
    before: datetime | None = None
    pinned: bool | None = None
    never_recalled: bool = False
    state: str = ACTIVE
    wanted: int = 0
    tokens: Sequence[tuple[int, int, int]] = field(default=(), repr=False)
    seqs: Sequence[int] | None = None


@dataclass(frozen=True)
class SetAside:
    """Numbers of the memories that are not recalled, and of earlier revisions beside them."""

    revisions: int = 0
    superseded: int = 0
    pending: int = 0
    rejected: int = 0

    def __add__(self, other: "SetAside") -> "SetAside":
        return SetAside(
            self.revisions + other.revisions,
            self.superseded + other.superseded,
            self.pending + other.pending,
            self.rejected + other.rejected,
        )


async def newest(
    database: Database,
    *,
    account: AccountId,
    namespace_ids: Sequence[int],
    before_seq: int,
    limit: int,
    now: datetime,
    filters: Filters,
) -> list[Row]:
    """Return a page of memories, newest first."""
    asked: tuple[object, ...] = (
        account,
        namespace_ids,
        before_seq,
        limit,
        now,
        filters.kind,
        filters.writers,
        filters.after,
        filters.before,
        filters.pinned,
        filters.never_recalled,
    )
    if filters.seqs is not None:
        return await database.fetch(_NUMBERED[filters.state], *asked, filters.seqs)
    if not filters.wanted:
        return await database.fetch(_NEWEST[filters.state], *asked)
    asked = (
        *asked,
        [namespace_id for namespace_id, _, _ in filters.tokens],
        [ordinal for _, ordinal, _ in filters.tokens],
        [token for _, _, token in filters.tokens],
        filters.wanted,
    )
    if (few := await few_with(database, account, filters.tokens)) is None:
        return await database.fetch(_WITH_TAGS[filters.state], *asked)
    return await database.fetch(_AMONG_FEW[filters.state], *asked, few)


async def find_waiting(
    database: Database,
    *,
    account: AccountId,
    namespace_ids: Sequence[int],
    before_seq: int,
    limit: int,
    now: datetime,
) -> list[Row]:
    """Return a page of memories that wait for review or contradict others, newest first."""
    return await database.fetch(_REVIEW, account, namespace_ids, before_seq, limit, now)


async def count_set_aside(
    database: Database, account: AccountId, namespace_ids: Sequence[int] | None
) -> dict[int, SetAside]:
    """Return namespace → numbers of memories that are not recalled, of these or for None of all.

    A namespace where all are recalled is left out.
    """
    found: dict[int, SetAside] = {}
    for row in await database.fetch(_SET_ASIDE, account, namespace_ids):
        number, *counts = row
        found[number] = found.get(number, SetAside()) + SetAside(*counts)
    return found


async def episodes(
    database: Database,
    *,
    account: AccountId,
    namespace_ids: Sequence[int],
    before: tuple[datetime, uuid.UUID],
    limit: int,
    now: datetime,
) -> list[Row]:
    """Return a page of kept and waiting episodes, newest first, after that place."""
    return await database.fetch(_TURNS, account, namespace_ids, *before, limit, now)
