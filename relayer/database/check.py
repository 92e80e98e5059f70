"""Statements that verify what is stored, account by account.

Not here: what counts as wrong (`relayer.upkeep.check`).
"""

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from relayer.database.index_size import INDEX_BYTES
from relayer.database.pool import Database, Row
from relayer.sealed.keys import AccountId, PublicKey

_MEMORIES_AFTER: Final = """
SELECT m.memory_id, m.revision_of, m.seq, m.type, m.revision, m.epoch, m.format, m.blob_id, k.key_id
FROM memories m
LEFT JOIN namespace_keys k ON k.account_id = m.account_id AND k.namespace_id = m.namespace_id
                          AND k.epoch = m.epoch
WHERE m.account_id = $1 AND m.seq > $2 ORDER BY m.seq LIMIT $3
"""
_PRESENT: Final = """
SELECT memory_id FROM memories WHERE account_id = $1 AND memory_id = ANY ($2)
UNION ALL
SELECT episode_id FROM episodes
WHERE account_id = $1 AND episode_id = ANY ($2) AND state IN ('pending', 'kept')
"""
_EPISODES: Final = """
SELECT e.episode_id AS memory_id, NULL::uuid AS revision_of, 2 AS type, 1 AS revision, e.epoch,
       'sealed' AS format, e.blob_id, k.key_id
FROM episodes e
LEFT JOIN namespace_keys k ON k.account_id = e.account_id AND k.namespace_id = e.namespace_id
                          AND k.epoch = e.epoch
WHERE e.account_id = $1 AND e.state IN ('pending', 'kept') AND e.episode_id > $2
ORDER BY e.episode_id LIMIT $3
"""
_GRANTS: Final = """
SELECT serial, recipient, object, succession FROM grants WHERE account_id = $1 ORDER BY serial
"""
_NAMESPACE_OBJECTS: Final = """
SELECT object FROM namespace_keys WHERE account_id = $1 AND object IS NOT NULL
"""
_CLOCK: Final = "SELECT clock_timestamp() AS now"
_CONNECTIONS_MAX: Final = """
SELECT current_setting('max_connections')::int
       - current_setting('superuser_reserved_connections')::int AS there
"""
_OWNERS: Final = "SELECT public_key, whole_id FROM key_owner WHERE public_key = ANY ($1)"

_NAMESPACE_IDS: Final = """
SELECT namespace_id, name FROM namespaces WHERE account_id = $1 ORDER BY namespace_id
"""
# Whether a namespace claims to hold what it does not; earlier revisions count by their bytes only.
_COUNTS_OFF: Final = """
SELECT (n.memory_count, n.word_count, n.storage_bytes, n.index_bytes)
       IS DISTINCT FROM (h.memories, h.words, h.bytes, h.index_bytes) AS off
FROM namespaces n
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE m.revision_of IS NULL) AS memories,
           coalesce(sum(m.word_count) FILTER (WHERE m.revision_of IS NULL), 0) AS words,
           coalesce(sum(m.size_bytes), 0) AS bytes,
           coalesce(sum(m.index_bytes), 0) AS index_bytes
    FROM memories m WHERE m.account_id = $1 AND m.namespace_id = $2
) h
WHERE n.account_id = $1 AND n.namespace_id = $2
"""
# Whether an account claims another total than its namespaces and episodes.
_TOTALS_OFF: Final = """
SELECT (a.memory_count, a.storage_bytes, a.index_bytes)
       IS DISTINCT FROM (coalesce(n.memories, 0), coalesce(n.bytes, 0) + e.bytes,
                         coalesce(n.index_bytes, 0)) AS off
FROM accounts a
CROSS JOIN (SELECT sum(memory_count) AS memories, sum(storage_bytes) AS bytes,
                   sum(index_bytes) AS index_bytes
            FROM namespaces WHERE account_id = $1) n
CROSS JOIN (SELECT coalesce(sum(size_bytes), 0) AS bytes
            FROM episodes WHERE account_id = $1 AND state <> 'done') e
WHERE a.account_id = $1
"""
# Whether a namespace has other postings than its memories, each of which has all of its own, and
# if so, which memories' these are.
_POSTINGS_OFF: Final = """
SELECT (SELECT count(*) FROM postings WHERE account_id = $1 AND namespace_id = $2)
       > (SELECT coalesce(sum(cardinality(tokens)) FILTER (WHERE frequencies IS NULL), 0)
          FROM memories WHERE account_id = $1 AND namespace_id = $2) AS off
"""
_STRAY_POSTINGS: Final = """
SELECT DISTINCT p.memory_id FROM postings p
WHERE p.account_id = $1 AND p.namespace_id = $2
  AND NOT EXISTS (SELECT 1 FROM memories m WHERE m.account_id = $1 AND m.memory_id = p.memory_id
                                           AND m.namespace_id = p.namespace_id
                                           AND m.frequencies IS NULL AND p.token = ANY (m.tokens))
LIMIT 100
"""

# Postings, vectors, links, tombstones and counts that contradict the memories of a page. What an
# earlier release wrote beside this one has no count of what it is found by.
_CONTRADICTIONS: Final = f"""
WITH page AS MATERIALIZED (
    SELECT memory_id, revision_of, namespace_id, epoch, tokens, frequencies, embedding_model,
           index_bytes, index_record
    FROM memories WHERE account_id = $1 AND seq > $2 AND seq <= $3
)
SELECT m.memory_id, 'a posting is missing' AS what FROM page m
WHERE cardinality(m.tokens) <> CASE WHEN m.frequencies IS NOT NULL
    THEN octet_length(m.frequencies)
    ELSE (SELECT count(*) FROM postings p
          WHERE p.account_id = $1 AND p.namespace_id = m.namespace_id
            AND p.token = ANY (m.tokens) AND p.memory_id = m.memory_id) END
UNION ALL
SELECT m.memory_id, 'its vectors are missing' FROM page m
WHERE m.embedding_model NOT IN ('none', 'lost') AND m.index_record IS NULL
  AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.account_id = $1 AND v.memory_id = m.memory_id
                                          AND v.model = m.embedding_model)
UNION ALL
SELECT DISTINCT v.memory_id, 'it has vectors of another model too' FROM vectors v
JOIN page m ON m.memory_id = v.memory_id
WHERE v.account_id = $1 AND v.model IS DISTINCT FROM m.embedding_model
UNION ALL
SELECT DISTINCT v.memory_id, 'a vector is of another namespace or epoch' FROM vectors v
JOIN page m ON m.memory_id = v.memory_id
WHERE v.account_id = $1 AND (v.namespace_id, v.epoch) IS DISTINCT FROM (m.namespace_id, m.epoch)
UNION ALL
SELECT v.memory_id, 'the vectors of some of its parts are missing' FROM vectors v
JOIN page m ON m.memory_id = v.memory_id
WHERE v.account_id = $1 GROUP BY v.memory_id, v.model HAVING count(*) <= max(v.part)
UNION ALL
SELECT m.memory_id, 'it has a sealed record, and words or vectors beside' FROM page m
WHERE m.index_record IS NOT NULL
  AND (cardinality(m.tokens) > 0
       OR EXISTS (SELECT 1 FROM vectors v WHERE v.account_id = $1 AND v.memory_id = m.memory_id))
UNION ALL
SELECT m.memory_id, 'its size is not that of its words and vectors' FROM page m
WHERE m.index_bytes NOT IN (0, {INDEX_BYTES})
UNION ALL
SELECT m.memory_id, 'it was erased and has a row' FROM page m
JOIN tombstones t ON t.account_id = $1 AND t.memory_id = coalesce(m.revision_of, m.memory_id)
UNION ALL
SELECT m.memory_id, 'it is a revision of nothing' FROM page m
WHERE m.revision_of IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM memories w WHERE w.account_id = $1 AND w.memory_id = m.revision_of
                                           AND w.revision_of IS NULL)
UNION ALL
SELECT DISTINCT l.memory_id, 'a link leads nowhere' FROM links l
JOIN page m ON m.memory_id = l.memory_id
WHERE l.account_id = $1
  AND NOT EXISTS (SELECT 1 FROM memories o WHERE o.account_id = $1 AND o.memory_id = l.other_id)
  AND NOT EXISTS (SELECT 1 FROM episodes o WHERE o.account_id = $1 AND o.episode_id = l.other_id)
LIMIT 100
"""
# Deletions that should have been done by then.
_OVERDUE: Final = """
SELECT blob_id FROM blob_outbox WHERE account_id = $1 AND due_at < $2 ORDER BY due_at LIMIT 100
"""


async def database_clock(database: Database) -> datetime:
    """Return the time of the database's machine."""
    row = await database.fetchrow(_CLOCK)
    assert row is not None
    now: datetime = row["now"]
    return now


async def connections_max(database: Database) -> int:
    """Return the number of connections that the database's server gives to all its users."""
    row = await database.fetchrow(_CONNECTIONS_MAX)
    assert row is not None
    return int(row["there"])


async def memories_after(database: Database, account: AccountId, seq: int, limit: int) -> list[Row]:
    """Return a page of memories with the key id of their epoch, in order of acceptance."""
    return await database.fetch(_MEMORIES_AFTER, account, seq, limit)


async def episodes_after(
    database: Database, account: AccountId, episode_id: uuid.UUID, limit: int
) -> list[Row]:
    """Return a page of waiting and kept episodes, shaped like memories."""
    return await database.fetch(_EPISODES, account, episode_id, limit)


async def present(
    database: Database, account: AccountId, ids: Sequence[uuid.UUID]
) -> set[uuid.UUID]:
    """Return those of these memories and waiting episodes that are still there."""
    return {r["memory_id"] for r in await database.fetch(_PRESENT, account, ids)}


async def grants(database: Database, account: AccountId) -> list[Row]:
    """Return every grant and revocation with the columns beside it, in order."""
    return await database.fetch(_GRANTS, account)


async def namespace_objects(database: Database, account: AccountId) -> list[bytes]:
    """Return the signed names of an account's namespaces."""
    return [r["object"] for r in await database.fetch(_NAMESPACE_OBJECTS, account)]


async def owners(database: Database, keys: Sequence[PublicKey]) -> dict[PublicKey, AccountId]:
    """Return key → the account it belongs to."""
    rows = await database.fetch(_OWNERS, keys)
    return {PublicKey(r["public_key"]): AccountId(r["whole_id"]) for r in rows}


async def namespace_ids(database: Database, account: AccountId) -> dict[int, str]:
    """Return number → name of an account's namespaces."""
    rows = await database.fetch(_NAMESPACE_IDS, account)
    return {r["namespace_id"]: r["name"] for r in rows}


async def counts_off(database: Database, account: AccountId, namespace_id: int) -> bool:
    """Return true if a namespace's counts are wrong."""
    return await _off(database, _COUNTS_OFF, account, namespace_id)


async def totals_off(database: Database, account: AccountId) -> bool:
    """Return true if an account's counts are not the sums of its namespaces' and episodes'."""
    return await _off(database, _TOTALS_OFF, account)


async def postings_off(database: Database, account: AccountId, namespace_id: int) -> bool:
    """Return true if a namespace has more postings than its memories have words."""
    return await _off(database, _POSTINGS_OFF, account, namespace_id)


async def _off(database: Database, statement: str, *arguments: object) -> bool:
    row = await database.fetchrow(statement, *arguments)
    return row is not None and bool(row["off"])


async def stray_postings(
    database: Database, account: AccountId, namespace_id: int
) -> list[uuid.UUID]:
    """Return memories that are gone, or lack the word, and have a posting; the first hundred."""
    rows = await database.fetch(_STRAY_POSTINGS, account, namespace_id)
    return [r["memory_id"] for r in rows]


async def contradictions(
    database: Database, account: AccountId, after: int, through: int
) -> list[Row]:
    """Return rows that contradict these memories as (memory_id, what), the first hundred."""
    return await database.fetch(_CONTRADICTIONS, account, after, through)


async def overdue(database: Database, account: AccountId, before: datetime) -> list[bytes]:
    """Return blobs that should have been deleted before that, the first hundred."""
    return [r["blob_id"] for r in await database.fetch(_OVERDUE, account, before)]
