"""Statements that find what is to be forgotten, and that close an emptied namespace.

Not here: erasing (`erasure`), who may (`relayer.memories.forgetting`).
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from relayer.database.accounts import lock_account
from relayer.database.pool import Database
from relayer.sealed.keys import AccountId, PublicKey

# In which namespaces these memories and turns are.
_PLACES: Final = """
SELECT m.memory_id AS id, ns.name AS namespace FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.memory_id = ANY ($2) AND m.revision_of IS NULL
UNION ALL
SELECT e.episode_id, ns.name FROM episodes e
JOIN namespaces ns ON ns.account_id = e.account_id AND ns.namespace_id = e.namespace_id
WHERE e.account_id = $1 AND e.episode_id = ANY ($2) AND e.state <> 'done'
"""

_FILTER: Final = """
    m.account_id = $1 AND m.namespace_id = $2 AND m.revision_of IS NULL
  AND ($3::int IS NULL OR m.epoch = $3) AND m.tokens @> $4::bigint[]
  AND ($5::text IS NULL OR m.kind = $5) AND ($6::bytea IS NULL OR m.writer = $6)
  AND ($7::timestamptz IS NULL OR coalesce(m.event_time, m.created_at) >= $7)
  AND ($8::timestamptz IS NULL OR coalesce(m.event_time, m.created_at) < $8)
  AND ($9::boolean IS NULL OR m.pinned = $9)
  AND CASE $10::text
      WHEN 'superseded' THEN m.superseded_at IS NOT NULL
      WHEN 'pending_review' THEN m.superseded_at IS NULL AND m.review = 'pending'
      WHEN 'rejected' THEN m.superseded_at IS NULL AND m.review = 'rejected'
      WHEN 'active' THEN m.superseded_at IS NULL
                     AND coalesce(m.review, '') NOT IN ('pending', 'rejected')
      ELSE true END
"""
# The oldest memories of a namespace that fit, and how many there are.
_MATCHING: Final = f"SELECT m.memory_id FROM memories m WHERE {_FILTER} ORDER BY m.seq LIMIT $11"
_COUNT_MATCHING: Final = f"SELECT count(*) FROM memories m WHERE {_FILTER}"

# Whether a namespace has memories of other epochs than these.
_OTHER_EPOCHS: Final = """
SELECT EXISTS (SELECT FROM memories
               WHERE account_id = $1 AND namespace_id = $2 AND NOT epoch = ANY ($3))
"""

# Everything in a namespace, and how much that is.
_CONTENTS: Final = """
SELECT memory_id FROM memories WHERE account_id = $1 AND namespace_id = $2 AND revision_of IS NULL
UNION ALL
SELECT episode_id FROM episodes WHERE account_id = $1 AND namespace_id = $2 AND state <> 'done'
LIMIT $3
"""
_COUNT_CONTENTS: Final = """
SELECT (SELECT count(*) FROM memories
        WHERE account_id = $1 AND namespace_id = $2 AND revision_of IS NULL)
     + (SELECT count(*) FROM episodes
        WHERE account_id = $1 AND namespace_id = $2 AND state <> 'done')
"""
# Take an empty namespace off the lists, with its expiry and the marks of turns that were done:
# tombstones are left of those, as far as their names do not tell what was said.
_CLOSE_NAMESPACE: Final = """
WITH done AS (
    DELETE FROM episodes WHERE account_id = $1 AND namespace_id = $2 AND state = 'done'
    RETURNING episode_id, blob_id
), stone AS (
    INSERT INTO tombstones (account_id, memory_id, namespace_id, blob_ids, erased_at)
    SELECT $1, episode_id, $2, ARRAY[blob_id], $3 FROM done
    WHERE substr(episode_id::text, 15, 1) <> '8'
    ON CONFLICT DO NOTHING
)
UPDATE namespaces SET erased_at = $3, ttl_s = NULL
WHERE account_id = $1 AND namespace_id = $2 AND memory_count = 0
  AND NOT EXISTS (SELECT FROM episodes
                  WHERE account_id = $1 AND namespace_id = $2 AND state <> 'done')
"""


@dataclass(frozen=True, kw_only=True)
class Match:
    """What memories have to be like; None is whatever they are.

    Attributes:
        epoch: the epoch that `tokens` were made in.
        tokens: keyed hashes of tags and a source, all of which they have.
        after, before: of their event time, else of when they were stored.
        state: `active`, `superseded`, `pending_review`, `rejected` or `all`.
    """

    epoch: int | None = None
    tokens: Sequence[int] = ()
    kind: str | None = None
    writer: PublicKey | None = None
    after: datetime | None = None
    before: datetime | None = None
    pinned: bool | None = None
    state: str = "all"

    def parameters(self) -> tuple[object, ...]:
        """In the order of the statements."""
        return (
            self.epoch, self.tokens, self.kind, self.writer, self.after, self.before, self.pinned,
            self.state,
        )  # fmt: skip


async def places(
    database: Database, *, account: AccountId, ids: Sequence[uuid.UUID]
) -> dict[uuid.UUID, str]:
    """Living memory or turn → the name of its namespace."""
    return {r["id"]: r["namespace"] for r in await database.fetch(_PLACES, account, ids)}


async def matching(
    database: Database, *, account: AccountId, namespace_id: int, match: Match, limit: int
) -> list[uuid.UUID]:
    """The oldest memories that fit."""
    rows = await database.fetch(_MATCHING, account, namespace_id, *match.parameters(), limit)
    return [r["memory_id"] for r in rows]


async def count_matching(
    database: Database, *, account: AccountId, namespace_id: int, match: Match
) -> int:
    """How many memories fit."""
    row = await database.fetchrow(_COUNT_MATCHING, account, namespace_id, *match.parameters())
    assert row is not None
    return int(row[0])


async def has_other_epochs(
    database: Database, *, account: AccountId, namespace_id: int, epochs: Sequence[int]
) -> bool:
    """Whether a namespace has memories of other epochs than these."""
    row = await database.fetchrow(_OTHER_EPOCHS, account, namespace_id, epochs)
    assert row is not None
    return bool(row[0])


async def contents(
    database: Database, *, account: AccountId, namespace_id: int, limit: int
) -> list[uuid.UUID]:
    """Memories and turns of a namespace, in no order."""
    rows = await database.fetch(_CONTENTS, account, namespace_id, limit)
    return [r["memory_id"] for r in rows]


async def count_contents(database: Database, *, account: AccountId, namespace_id: int) -> int:
    """How many memories and turns a namespace has."""
    row = await database.fetchrow(_COUNT_CONTENTS, account, namespace_id)
    assert row is not None
    return int(row[0])


async def close_namespace(
    database: Database, *, account: AccountId, namespace_id: int, now: datetime
) -> None:
    """Take a namespace off the lists, unless something was stored there meanwhile."""
    async with database.transaction() as connection:
        await lock_account(connection, account)
        await connection.execute(_CLOSE_NAMESPACE, account, namespace_id, now)
