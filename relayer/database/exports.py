"""Statements that read an account's rows whole, as they leave for another relayer.

Not here: what becomes of them there (`database.imports`), grants (`accounts`).
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from relayer.database.pool import Database, Row
from relayer.sealed.keys import AccountId

PAGE_BYTES: Final = 2**20  # of sealed bytes and postings; a larger row is a page of its own

_COLUMNS: Final = """
    m.memory_id AS id, m.namespace_id, m.epoch, m.seq, m.revision, m.revision_of, m.type, m.format,
    m.kind, m.importance, m.confidence, m.writer, m.event_time, m.created_at, m.stored_at,
    m.expires_at, m.given_expires_at, m.superseded_at, m.superseded_by, m.pinned, m.review, m.stale,
    m.seen_count, m.last_seen_at, m.word_count, m.source, m.fingerprint, m.index_version,
    m.embedding_model, m.embedding_version, m.blob_id, m.size_bytes,
    m.has_default_life AS default_life, m.index_record
"""
_WORDS_BYTES: Final = "(9 * cardinality(m.tokens) + coalesce(octet_length(m.index_record), 0))"
_MERGED: Final = """
EXISTS (SELECT 1 FROM links l
        WHERE l.account_id = $1 AND l.memory_id = m.superseded_by AND l.relation = 'merged'
          AND l.other_id = m.id)
"""

_ACCOUNT: Final = """
SELECT label, settings, created_at, grant_serial, receipt_seq, memory_seq
FROM accounts WHERE account_id = $1
"""
_RECEIPTS_AFTER: Final = """
SELECT seq, object FROM receipts WHERE account_id = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""


def _page_of(narrowed: str = "") -> str:
    """Return rows in order of acceptance, as many as make a page, of what `narrowed` leaves."""
    return f"""
SELECT m.*, ns.name AS namespace, {_MERGED} AS merged
FROM (SELECT m.account_id, {_COLUMNS},
             sum(m.size_bytes + {_WORDS_BYTES}) OVER (ORDER BY m.seq)
             - m.size_bytes - {_WORDS_BYTES} AS before
      FROM (SELECT * FROM memories
            WHERE account_id = $1 AND seq > $2 {narrowed} ORDER BY seq LIMIT $3) m) m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.before < $4 ORDER BY m.seq
"""


_MEMORIES_AFTER: Final = _page_of()
# Likewise of some memories and their earlier revisions, for what changed meanwhile.
_MEMORIES_NAMED: Final = _page_of("AND (memory_id = ANY ($5) OR revision_of = ANY ($5))")
_POSTINGS: Final = """
SELECT m.memory_id, t.token, get_byte(m.frequencies, t.place::int - 1) AS frequency
FROM memories m CROSS JOIN LATERAL unnest(m.tokens) WITH ORDINALITY AS t (token, place)
WHERE m.account_id = $1 AND m.memory_id = ANY ($2) AND m.frequencies IS NOT NULL
UNION ALL
SELECT p.memory_id, p.token, p.frequency
FROM (SELECT memory_id, namespace_id, unnest(tokens) AS token FROM memories
      WHERE account_id = $1 AND memory_id = ANY ($2) AND frequencies IS NULL) t
JOIN postings p ON p.account_id = $1 AND p.namespace_id = t.namespace_id AND p.token = t.token
               AND p.memory_id = t.memory_id
ORDER BY memory_id, token
"""
_VECTORS: Final = """
SELECT v.memory_id, v.embedding FROM vectors v
JOIN memories m ON m.account_id = v.account_id AND m.memory_id = v.memory_id
               AND m.embedding_model = v.model
WHERE v.account_id = $1 AND v.memory_id = ANY ($2) ORDER BY v.memory_id, v.part
"""
_LINKS: Final = """
SELECT memory_id, relation, other_id, created_at FROM links
WHERE account_id = $1 AND memory_id = ANY ($2) ORDER BY memory_id, relation, other_id
"""
_EPISODES: Final = """
SELECT e.episode_id AS id, ns.name AS namespace, e.epoch, e.writer, e.state, e.created_at,
       e.fingerprint, e.blob_id
FROM episodes e
JOIN namespaces ns ON ns.account_id = e.account_id AND ns.namespace_id = e.namespace_id
WHERE e.account_id = $1 AND e.state IN ('pending', 'kept')
"""
_EPISODES_AFTER: Final = f"{_EPISODES} AND e.episode_id > $2 ORDER BY e.episode_id LIMIT $3"
# For what changed meanwhile.
_EPISODES_NAMED: Final = f"{_EPISODES} AND e.episode_id = ANY ($2) ORDER BY e.episode_id"
_NAMESPACES_AFTER: Final = """
SELECT n.namespace_id, n.name, n.ttl_s, n.sealed_index, k.epoch, k.key_id
FROM (SELECT namespace_id, name, ttl_s, sealed_index FROM namespaces
      WHERE account_id = $1 AND namespace_id > $2 ORDER BY namespace_id LIMIT $3) n
LEFT JOIN namespace_keys k ON k.account_id = $1 AND k.namespace_id = n.namespace_id
ORDER BY n.namespace_id, k.epoch
"""
# Turns whose facts were taken are gone as well, as far as their names do not tell what was said.
# When that was is not known, only when they came.
_TOMBSTONES_AFTER: Final = """
SELECT t.id, ns.name AS namespace, t.blob_ids, t.erased_at, t.expired, t.taken
FROM (
    (SELECT memory_id AS id, namespace_id, blob_ids, erased_at, expired, false AS taken
     FROM tombstones WHERE account_id = $1 AND memory_id > $2 ORDER BY memory_id LIMIT $3)
    UNION ALL
    (SELECT e.episode_id, e.namespace_id, ARRAY[e.blob_id], e.created_at, false, true
     FROM episodes e
     WHERE e.account_id = $1 AND e.episode_id > $2 AND e.state = 'done'
       AND substr(e.episode_id::text, 15, 1) <> '8'
       AND NOT EXISTS (SELECT 1 FROM tombstones s
                       WHERE s.account_id = $1 AND s.memory_id = e.episode_id)
     ORDER BY e.episode_id LIMIT $3)
) t
LEFT JOIN namespaces ns ON ns.account_id = $1 AND ns.namespace_id = t.namespace_id
ORDER BY t.id LIMIT $3
"""


@dataclass(frozen=True)
class Pages:
    """Rows and what belongs to them: postings, vectors and links by row id."""

    rows: list[Row]
    postings: Mapping[uuid.UUID, bytes]
    vectors: Mapping[uuid.UUID, list[bytes]]
    links: Mapping[uuid.UUID, list[Row]]


async def account(database: Database, account: AccountId) -> Row | None:
    """Return an account's row, with the positions of its sequences; None without one."""
    return await database.fetchrow(_ACCOUNT, account)


async def receipts_after(database: Database, account: AccountId, seq: int, limit: int) -> list[Row]:
    """Return a page of receipts as (seq, object)."""
    return await database.fetch(_RECEIPTS_AFTER, account, seq, limit)


async def memories_after(database: Database, account: AccountId, seq: int, limit: int) -> Pages:
    """Return a page of rows above a sequence number, with all that belongs to them."""
    return await _pages(database, account, _MEMORIES_AFTER, seq, limit, PAGE_BYTES)


async def memories_named(
    database: Database, account: AccountId, memory_ids: Sequence[uuid.UUID], seq: int, limit: int
) -> Pages:
    """Return a page of the rows of these memories, earlier revisions too."""
    return await _pages(
        database, account, _MEMORIES_NAMED, seq, limit, PAGE_BYTES, list(memory_ids)
    )


async def _pages(database: Database, account: AccountId, statement: str, *arguments: Any) -> Pages:
    # One snapshot: an edit or an embedding in between would mix two states of a row.
    async with database.snapshot() as connection:
        rows = list(await connection.fetch(statement, account, *arguments))
        ids = [row["id"] for row in rows]
        postings = await connection.fetch(_POSTINGS, account, ids)
        vectors = await connection.fetch(_VECTORS, account, ids)
        links = await connection.fetch(_LINKS, account, ids)
    words: dict[uuid.UUID, bytearray] = {}
    for row in postings:
        words.setdefault(row["memory_id"], bytearray()).extend(
            row["token"].to_bytes(8, "big", signed=True) + row["frequency"].to_bytes(1, "big")
        )
    parts: dict[uuid.UUID, list[bytes]] = {}
    for row in vectors:
        part = row["embedding"].to_numpy().astype(">f2").tobytes()
        parts.setdefault(row["memory_id"], []).append(part)
    linked: dict[uuid.UUID, list[Row]] = {}
    for row in links:
        linked.setdefault(row["memory_id"], []).append(row)
    return Pages(rows, {i: bytes(w) for i, w in words.items()}, parts, linked)


async def episodes_after(
    database: Database, account: AccountId, episode_id: uuid.UUID, limit: int
) -> list[Row]:
    """Return a page of turns that wait or are kept, by id."""
    return await database.fetch(_EPISODES_AFTER, account, episode_id, limit)


async def episodes_named(
    database: Database, account: AccountId, episode_ids: Sequence[uuid.UUID]
) -> list[Row]:
    """Return those of these turns that wait or are kept."""
    return await database.fetch(_EPISODES_NAMED, account, list(episode_ids))


async def namespaces_after(
    database: Database, account: AccountId, namespace_id: int, limit: int
) -> list[Row]:
    """Return a page of namespaces, a row for each epoch of each."""
    return await database.fetch(_NAMESPACES_AFTER, account, namespace_id, limit)


async def tombstones_after(
    database: Database, account: AccountId, memory_id: uuid.UUID, limit: int
) -> list[Row]:
    """Return a page of what was erased, or is gone since its facts were taken, by id."""
    return await database.fetch(_TOMBSTONES_AFTER, account, memory_id, limit)
