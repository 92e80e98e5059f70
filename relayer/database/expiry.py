"""Statements on when memories expire, and on those whose time is over.

Not here: erasing them (`erasure`), leaving them out of a search (`recall`).

- `expires_at` is what counts: the expiry that was asked for or, unless the memory is pinned, that
  of its namespace, if it comes first.
"""

import uuid
from datetime import datetime
from typing import Final

from relayer.database.conditions import unexpired
from relayer.database.episodes import is_too_old
from relayer.database.index_steps import note_change
from relayer.database.pool import Connection, Database
from relayer.sealed.keys import AccountId

_SET_TTL: Final = """
UPDATE namespaces n SET ttl_s = $3
WHERE n.account_id = $1 AND n.namespace_id = $2
  AND (n.erased_at IS NULL OR n.memory_count > 0
       OR EXISTS (SELECT 1 FROM episodes e
                  WHERE e.account_id = $1 AND e.namespace_id = $2 AND e.state <> 'done'))
RETURNING n.namespace_id
"""

# Give some of a namespace's memories the expiry that its time to live means for them; earlier
# revisions share that of their memory. What has expired stays so.
_APPLY_TTL: Final = f"""
WITH wrong AS (
    SELECT m.memory_id, n.expires_at
    FROM memories m
    LEFT JOIN memories whole ON whole.account_id = $1 AND whole.memory_id = m.revision_of
    CROSS JOIN LATERAL (
        SELECT CASE WHEN coalesce(whole.pinned, m.pinned) THEN m.given_expires_at
                    ELSE least(m.given_expires_at, m.created_at + $3 * interval '1 second')
               END AS expires_at
    ) n
    WHERE m.account_id = $1 AND m.namespace_id = $2
      AND {unexpired("$4")}
      AND m.expires_at IS DISTINCT FROM n.expires_at
    LIMIT $5
), changed AS (
    UPDATE memories m SET expires_at = w.expires_at FROM wrong w
    WHERE m.account_id = $1 AND m.memory_id = w.memory_id
    RETURNING m.memory_id
)
SELECT count(*) FROM changed
"""

# Accounts with a memory or an episode whose time is over, and the first of these.
_ACCOUNTS_EXPIRED: Final = f"""
SELECT a.whole_id FROM accounts a
WHERE a.closed_at IS NULL
  AND (EXISTS (SELECT 1 FROM memories m WHERE m.account_id = a.account_id AND m.expires_at <= $1
                                        AND m.revision_of IS NULL)
       OR EXISTS (SELECT 1 FROM namespaces ns
                  JOIN episodes e ON e.account_id = ns.account_id
                                 AND e.namespace_id = ns.namespace_id
                  WHERE ns.account_id = a.account_id AND e.state <> 'done' AND {is_too_old("$1")}))
"""
_TOO_OLD: Final = f"""
FROM episodes e
JOIN namespaces ns ON ns.account_id = $1 AND ns.namespace_id = e.namespace_id
WHERE e.account_id = $1 AND e.state <> 'done' AND {is_too_old("$2")}
"""
_EXPIRED: Final = f"""
(SELECT memory_id FROM memories
 WHERE account_id = $1 AND expires_at <= $2 AND revision_of IS NULL ORDER BY expires_at LIMIT $3)
UNION ALL
(SELECT e.episode_id {_TOO_OLD} ORDER BY e.created_at LIMIT $3)
LIMIT $3
"""
_EXPIRED_TURNS: Final = f"""
SELECT e.episode_id {_TOO_OLD} AND e.namespace_id = $4 ORDER BY e.created_at LIMIT $3
"""

# What has expired and says the very same as this memory does.
_EXPIRED_EQUALS: Final = """
SELECT m.memory_id FROM memories w
JOIN memories m ON m.account_id = $1 AND m.namespace_id = w.namespace_id
               AND m.fingerprint = w.fingerprint
WHERE w.account_id = $1 AND w.memory_id = $2 AND m.memory_id <> $2
  AND m.superseded_at IS NULL AND m.expires_at <= $3
"""


async def find_expired_equals(
    database: Database, *, account: AccountId, memory_id: uuid.UUID, now: datetime
) -> list[uuid.UUID]:
    """Return memories that say what this one says, and have expired."""
    found = await database.fetch(_EXPIRED_EQUALS, account, memory_id, now)
    return [r["memory_id"] for r in found]


async def set_ttl(
    connection: Connection, *, account: AccountId, namespace_id: int, ttl_s: int | None
) -> bool:
    """Let what is stored in a namespace from now on expire after so many seconds.

    False when it was erased and is empty since.
    """
    return bool(await connection.fetch(_SET_TTL, account, namespace_id, ttl_s))


async def apply_ttl(
    connection: Connection,
    *,
    account: AccountId,
    namespace_id: int,
    ttl_s: int | None,
    now: datetime,
    limit: int,
) -> int:
    """Let what is there expire likewise; how many of at most `limit` that changed."""
    await note_change(connection, account)  # a pin comes before or after, not in between
    return int(await connection.fetchval(_APPLY_TTL, account, namespace_id, ttl_s, now, limit))


async def accounts_expired(database: Database, *, now: datetime) -> list[AccountId]:
    """Return accounts with memories or episodes whose time is over."""
    return [AccountId(r["whole_id"]) for r in await database.fetch_planned(_ACCOUNTS_EXPIRED, now)]


async def find_expired(
    database: Database, *, account: AccountId, now: datetime, limit: int
) -> list[uuid.UUID]:
    """Return memories whose time is over, the longest over first, and then episodes."""
    return [r["memory_id"] for r in await database.fetch(_EXPIRED, account, now, limit)]


async def find_expired_episodes(
    database: Database, *, account: AccountId, namespace_id: int, now: datetime, limit: int
) -> list[uuid.UUID]:
    """Return episodes of one namespace whose time is over, the oldest first."""
    found = await database.fetch(_EXPIRED_TURNS, account, now, limit, namespace_id)
    return [r["episode_id"] for r in found]
