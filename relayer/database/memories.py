"""Statements that write, read and erase memories and episodes.

Not here: searching (`recall`), what finds them later (`vectors`), what receipts mean
(`relayer.sealed.receipts`).
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from relayer.database.conditions import unexpired
from relayer.database.index_size import index_bytes
from relayer.database.index_steps import note_change, note_step
from relayer.database.pool import Connection, Database, Row
from relayer.record import IN_FORCE, State
from relayer.sealed.keys import AccountId, PublicKey

SEALED: Final = "sealed"
OPAQUE: Final = "opaque"
PENDING: Final = "pending"
KEPT: Final = "kept"

# Which of these facts the account already holds, by fingerprint; also those that wait for review
# or were rejected, but none that was superseded.
# To name their namespaces here would offer a planner that has no statistics yet an index by which
# it reads all that these have.
_KNOWN_FACTS: Final = """
SELECT m.fingerprint, m.namespace_id, m.memory_id, m.embedding_model IS NOT NULL AS embedded,
       m.expires_at, m.given_expires_at, m.has_default_life, m.review, m.source, m.revision,
       m.kind, m.importance, m.confidence, m.index_record IS NOT NULL AS has_record
FROM memories m
WHERE m.account_id = $1 AND m.fingerprint = ANY ($2) AND m.superseded_at IS NULL
"""

# At which revision these memories are, as far as they live and nothing superseded them.
_IN_FORCE: Final = """
SELECT memory_id, revision FROM memories
WHERE account_id = $1 AND memory_id = ANY ($2) AND superseded_at IS NULL
  AND (expires_at IS NULL OR expires_at > $3)
"""

# What an earlier request with one of these idempotency marks stored.
_MARKED: Final = """
SELECT i.mark, i.text_mark, i.memory_id, m.embedding_model IS NOT NULL AS embedded,
       m.kind, m.importance, m.confidence, m.review
FROM idempotency i
LEFT JOIN memories m ON m.account_id = i.account_id AND m.memory_id = i.memory_id
WHERE i.account_id = $1 AND i.mark = ANY ($2)
"""

MEMORY_COLUMNS: Final = """
    m.memory_id, ns.name AS namespace, m.namespace_id, m.epoch, m.seq, m.revision, m.type, m.format,
    m.kind, m.importance, m.confidence, m.writer, m.event_time, m.created_at, m.expires_at,
    m.blob_id, m.size_bytes, m.embedding_model, m.revision_of, m.stored_at, m.superseded_at,
    m.superseded_by, m.pinned, m.review, m.stale, m.seen_count, m.last_seen_at, m.given_expires_at,
    m.has_default_life
"""
_MEMORIES: Final = f"""
SELECT {MEMORY_COLUMNS}, ns.ttl_s
FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.memory_id = ANY ($2) AND {unexpired("$3")}
  AND m.revision_of IS NULL
"""

# That facts were said once more.
_SEEN: Final = """
UPDATE memories m
SET seen_count = least(m.seen_count::bigint + s.times, 2147483647), last_seen_at = $3
FROM (SELECT memory_id, count(*)::int AS times FROM unnest($2::uuid[]) AS s (memory_id)
      GROUP BY memory_id) s
WHERE m.account_id = $1 AND m.memory_id = s.memory_id
RETURNING m.namespace_id, m.seq
"""

# States for pollers: stored at once, found by vector later.
_STATES: Final = f"""
SELECT m.memory_id AS id, ns.name AS namespace, m.blob_id,
       CASE WHEN m.embedding_model = 'lost' THEN 'failed'
            WHEN $3 AND m.embedding_model IS NULL THEN 'uploaded' ELSE 'done' END AS state,
       NULL::text AS extractor
FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.memory_id = ANY ($2) AND m.revision_of IS NULL
  AND {unexpired("$4")}
UNION ALL
SELECT e.episode_id, ns.name, e.blob_id, e.state, e.extractor
FROM episodes e
JOIN namespaces ns ON ns.account_id = e.account_id AND ns.namespace_id = e.namespace_id
WHERE e.account_id = $1 AND e.episode_id = ANY ($2)
"""

# The first few whose ids lie between two, for each pair.
_BEGINNING: Final = f"""
SELECT b.place, m.memory_id
FROM unnest($2::uuid[], $3::uuid[]) WITH ORDINALITY AS b (low, high, place)
CROSS JOIN LATERAL (
    SELECT m.memory_id FROM memories m
    JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
    WHERE m.account_id = $1 AND m.memory_id BETWEEN b.low AND b.high AND m.revision_of IS NULL
      AND {unexpired("$5")} AND ($4::text[] IS NULL OR ns.name = ANY ($4))
    ORDER BY m.memory_id LIMIT $6) m
"""

_COUNT_SEALED: Final = """
SELECT count(*) FROM memories WHERE account_id = $1 AND namespace_id = $2 AND format = 'sealed'
"""
# One by one in the last table: its rows are so small that it would be read whole for some hundreds.
_KNOWN_BLOBS: Final = """
SELECT blob_id FROM memories WHERE account_id = $1 AND blob_id = ANY ($2)
UNION ALL SELECT blob_id FROM episodes WHERE account_id = $1 AND blob_id = ANY ($2)
UNION ALL SELECT blob_id FROM blob_outbox
WHERE account_id = $1 AND blob_id = ANY ($2) AND NOT stray
UNION ALL SELECT l.blob_id FROM unnest($2::bytea[]) AS n (blob_id) CROSS JOIN LATERAL (
    SELECT blob_id FROM lasting_objects WHERE account_id = $1 AND blob_id = n.blob_id LIMIT 1) l
"""
_KNOWN_STATES: Final = """
SELECT state_blob, coalesce(revision_of, memory_id) AS id, superseded_by
FROM memories WHERE account_id = $1 AND state_blob = ANY ($2)
"""
# Account by account, as their index is: a server before PostgreSQL 18 would read all of them.
_DELETE_EXPIRED_MARKS: Final = """
DELETE FROM idempotency i USING accounts a
WHERE i.account_id = a.account_id AND i.expires_at < now()
"""


@dataclass(frozen=True)
class NewMemory:
    """One memory as it is stored: identifiers, clear columns, hashes; no readable word.

    Attributes:
        postings: token → clipped frequency; empty where a record holds them.
        source: the token of its source, which is among the postings, too; masked with a record.
        word_count: rounded number of words; 0 with a record.
        stored_at: when this revision was stored; `created_at` is when the memory was.
        revision_of: the memory whose earlier revision this is; its id is then derived from that.
        has_default_life: nobody asked for `expires_at`, which comes of the kind.
        record: what it is found by, sealed, in a namespace that has such an index.
        recorded_terms: how many tokens the record holds.
    """

    memory_id: uuid.UUID
    namespace_id: int
    epoch: int
    revision: int
    type: int
    format: str
    writer: PublicKey
    created_at: datetime
    kind: str
    importance: str
    confidence: str
    event_time: datetime | None
    expires_at: datetime | None
    blob_id: bytes
    blob: bytes = field(repr=False)
    word_count: int
    postings: dict[int, int] = field(repr=False)
    source: int | None
    fingerprint: bytes | None
    stored_at: datetime
    revision_of: uuid.UUID | None = None
    state: State = IN_FORCE
    has_default_life: bool = False
    record: bytes | None = field(default=None, repr=False)
    recorded_terms: int = 0

    @property
    def terms(self) -> int:
        """Count the tokens by which it is found, wherever they are."""
        return len(self.postings) + self.recorded_terms

    @property
    def index_bytes(self) -> int:
        """Return the bytes that its index counts, before it has vectors."""
        return index_bytes(len(self.postings)) + len(self.record or b"")


@dataclass(frozen=True)
class NewEpisode:
    """A sealed episode: `PENDING` until its facts are extracted, or `KEPT` beside them."""

    episode_id: uuid.UUID
    namespace_id: int
    epoch: int
    writer: PublicKey
    blob_id: bytes
    blob: bytes = field(repr=False)
    fingerprint: bytes | None
    state: str = PENDING
    created_at: datetime | None = None  # now, unless it is restored


@dataclass(frozen=True)
class Mark:
    """The link from an idempotency key to the memory that it led to."""

    mark: bytes
    text_mark: bytes
    memory_id: uuid.UUID


async def find_facts(
    database: Database,
    *,
    account: AccountId,
    namespace_ids: Collection[int],
    fingerprints: Sequence[bytes],
) -> dict[bytes, Row]:
    """Return fingerprint → (memory_id, embedded, expiries, review, source, revision) of facts."""
    rows = await database.fetch(_KNOWN_FACTS, account, fingerprints)
    return {r["fingerprint"]: r for r in rows if r["namespace_id"] in namespace_ids}


async def in_force(
    connection: Connection, *, account: AccountId, memory_ids: Sequence[uuid.UUID], now: datetime
) -> dict[uuid.UUID, int]:
    """Return memory id → its revision, of those that live and are not superseded."""
    found = await connection.fetch(_IN_FORCE, account, memory_ids, now)
    return {r["memory_id"]: r["revision"] for r in found}


async def find_marks(
    database: Database, *, account: AccountId, marks: Sequence[bytes]
) -> dict[bytes, Row]:
    """Return idempotency mark → (text_mark, memory_id, embedded, that memory's values)."""
    return {r["mark"]: r for r in await database.fetch(_MARKED, account, marks)}


async def count_seen(
    connection: Connection, *, account: AccountId, ids: Sequence[uuid.UUID], now: datetime
) -> None:
    """Count each of these memories as said once more, as often as it stands there.

    Under the account's lock, which every writer takes first.
    """
    await note_change(connection, account)  # a recall shows how often
    await note_step(connection, account, await connection.fetch(_SEEN, account, ids, now))


async def find_memories(
    database: Database, *, account: AccountId, memory_ids: Sequence[uuid.UUID], now: datetime
) -> list[Row]:
    """Return rows of living memories with `ttl_s` of their namespaces, in no order."""
    return await database.fetch(_MEMORIES, account, memory_ids, now)


async def states(
    database: Database,
    *,
    account: AccountId,
    ids: Sequence[uuid.UUID],
    embeds: bool,
    now: datetime,
) -> dict[uuid.UUID, Row]:
    """Return id → (namespace, blob_id, state, extractor) of living memories and of episodes.

    The last is the episodes' alone; `embeds`: vectors are awaited.
    """
    return {r["id"]: r for r in await database.fetch(_STATES, account, ids, embeds, now)}


async def find_between(
    database: Database,
    *,
    account: AccountId,
    ranges: Sequence[tuple[uuid.UUID, uuid.UUID]],
    namespaces: Sequence[str] | None,
    now: datetime,
    limit: int,
) -> list[list[uuid.UUID]]:
    """Return the ids of living memories in each range, the first `limit`; None: of all."""
    lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
    found: list[list[uuid.UUID]] = [[] for _ in ranges]
    for row in await database.fetch(_BEGINNING, account, lows, highs, namespaces, now, limit):
        found[row["place"] - 1].append(row["memory_id"])
    return found


async def count_sealed(database: Database, *, account: AccountId, namespace_id: int) -> int:
    """Count the sealed memories of a namespace."""
    row = await database.fetchrow(_COUNT_SEALED, account, namespace_id)
    assert row is not None
    return int(row[0])


async def find_blobs(
    database: Database, *, account: AccountId, blob_ids: Sequence[bytes]
) -> set[bytes]:
    """Return those of these blobs that some row refers to, or that the journal keeps."""
    rows = await database.fetch(_KNOWN_BLOBS, account, blob_ids)
    return {r["blob_id"] for r in rows}


async def find_by_state_blobs(
    database: Database, *, account: AccountId, blob_ids: Sequence[bytes]
) -> list[Row]:
    """Return (state_blob, id, superseded_by) of memories that have one of these `state` objects."""
    return await database.fetch(_KNOWN_STATES, account, blob_ids)


async def delete_expired_marks(database: Database) -> None:
    """Forget idempotency marks past their life."""
    await database.execute(_DELETE_EXPIRED_MARKS)
