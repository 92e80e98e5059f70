"""Statements that write, read and erase memories and episodes.

Not here: searching (`recall`), what finds them later (`vectors`), what receipts mean
(`relayer.sealed.receipts`).
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Final

from relayer.database.conditions import unexpired
from relayer.database.index_size import index_bytes
from relayer.database.index_steps import note_change, note_step, step
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
       m.kind, m.importance, m.confidence
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

_STEP: Final = step(
    receipt_seq="$32",
    namespace_ids="ARRAY(SELECT DISTINCT unnest($7::int[]))",
    seqs="$9::bigint[]",
)
WORDS_AT_ONCE: Final = 20_000  # in one statement: what it is given is packed in one piece
_INSERT_WORDS: Final = """
INSERT INTO postings (account_id, namespace_id, token, memory_id, frequency, word_count)
SELECT $1, $2, token, $3, frequency, $4
FROM unnest($5::bigint[], $6::smallint[]) AS p (token, frequency)
"""

# Everything else that an accepted request stores, in one statement under the account's lock.
_WRITE: Final = f"""
WITH stored AS (
    INSERT INTO blobs (account_id, blob_id, bytes, created_at)
    SELECT $1, blob_id, bytes, $2 FROM unnest($3::bytea[], $4::bytea[]) AS b (blob_id, bytes)
    ON CONFLICT DO NOTHING
), memory AS (
    INSERT INTO memories (
        account_id, memory_id, namespace_id, epoch, seq, revision, type, format, kind, importance,
        confidence, writer, event_time, created_at, expires_at, blob_id, size_bytes, word_count,
        tokens, source, fingerprint, index_version, stored_at, revision_of, superseded_at,
        superseded_by, pinned, review, stale, given_expires_at, index_bytes,
        has_default_life)
    SELECT $1, memory_id, r.namespace_id, epoch, seq, revision, type, format, kind, importance,
           confidence, writer, event_time, created_at,
           CASE WHEN pinned THEN expires_at
                ELSE least(expires_at, created_at + n.ttl_s * interval '1 second') END,
           blob_id, size_bytes, r.word_count, ($55::bigint[])[first_token:last_token],
           source, fingerprint, $23, stored_at, revision_of, superseded_at, superseded_by, pinned,
           review, stale, expires_at, r.index_bytes,
           has_default_life
    FROM unnest($6::uuid[], $7::int[], $8::int[], $9::bigint[], $10::text[], $11::text[],
                $12::text[], $13::text[], $14::timestamptz[], $15::timestamptz[], $16::bytea[],
                $20::int[], $21::smallint[], $22::bytea[], $5::bytea[], $40::timestamptz[],
                $41::int[], $42::smallint[], $44::bigint[], $45::timestamptz[], $46::uuid[],
                $47::timestamptz[], $48::uuid[], $49::bool[], $50::text[], $51::bool[],
                $56::int[], $57::int[], $58::bigint[], $59::bool[])
        AS r (memory_id, namespace_id, epoch, seq, format, kind, importance, confidence,
              event_time, expires_at, blob_id, size_bytes, word_count, fingerprint, writer,
              created_at, revision, type, source, stored_at, revision_of, superseded_at,
              superseded_by, pinned, review, stale, first_token, last_token, index_bytes,
              has_default_life)
    JOIN namespaces n ON n.account_id = $1 AND n.namespace_id = r.namespace_id
), posting AS (
    INSERT INTO postings (account_id, namespace_id, token, memory_id, frequency, word_count)
    SELECT $1, namespace_id, token, memory_id, frequency, word_count
    FROM unnest($17::uuid[], $18::int[], $19::bigint[], $24::smallint[], $25::smallint[])
        AS p (memory_id, namespace_id, token, frequency, word_count)
    ON CONFLICT DO NOTHING  -- those of a row that was lost and is restored
), marked AS (
    INSERT INTO idempotency (account_id, mark, text_mark, memory_id, expires_at)
    SELECT $1, mark, text_mark, memory_id, $26
    FROM unnest($27::bytea[], $28::bytea[], $29::uuid[]) AS i (mark, text_mark, memory_id)
), counted AS (
    UPDATE namespaces n
    SET memory_count = n.memory_count + c.memories, word_count = n.word_count + c.words,
        storage_bytes = n.storage_bytes + c.bytes, index_bytes = n.index_bytes + c.index_bytes,
        updated_at = $2
    FROM (SELECT namespace_id, count(*) FILTER (WHERE revision_of IS NULL) AS memories,
                 coalesce(sum(word_count) FILTER (WHERE revision_of IS NULL), 0) AS words,
                 sum(size_bytes) AS bytes, sum(index_bytes) AS index_bytes
          FROM unnest($7::int[], $20::int[], $21::smallint[], $46::uuid[], $58::bigint[])
              AS r (namespace_id, size_bytes, word_count, revision_of, index_bytes)
          GROUP BY namespace_id) c
    WHERE n.account_id = $1 AND n.namespace_id = c.namespace_id
), episode AS (
    INSERT INTO episodes (account_id, episode_id, namespace_id, epoch, writer, blob_id, size_bytes,
                          state, created_at, fingerprint)
    SELECT $1, episode_id, namespace_id, epoch, writer, blob_id, size_bytes, state,
           coalesce(created_at, $2), fingerprint
    FROM unnest($34::uuid[], $35::int[], $36::int[], $37::bytea[], $38::int[], $43::bytea[],
                $52::text[], $53::timestamptz[], $54::bytea[])
        AS e (episode_id, namespace_id, epoch, blob_id, size_bytes, writer, state, created_at,
              fingerprint)
), intent AS (
    DELETE FROM blob_outbox
    WHERE account_id = $1 AND (blob_id = ANY ($16::bytea[]) OR blob_id = ANY ($37::bytea[]))
), receipt AS (
    INSERT INTO receipts (account_id, seq, object)
    SELECT $1, seq, object FROM unnest($30::bigint[], $31::bytea[]) AS r (seq, object)
), {_STEP}
UPDATE accounts
SET receipt_seq = $32, receipt_head = $33, changed_at = $2,
    memory_seq = memory_seq + cardinality($6::uuid[]),
    storage_bytes = storage_bytes + $39,
    index_bytes = index_bytes + (SELECT coalesce(sum(b), 0) FROM unnest($58::bigint[]) AS b),
    memory_count = memory_count + (SELECT count(*) FROM unnest($46::uuid[]) AS r (revision_of)
                                   WHERE revision_of IS NULL)
WHERE account_id = $1
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
        postings: token → clipped frequency.
        source: the token of its source, which is among the postings, too.
        word_count: rounded number of words.
        stored_at: when this revision was stored; `created_at` is when the memory was.
        revision_of: the memory whose earlier revision this is; its id is then derived from that.
        has_default_life: nobody asked for `expires_at`, which comes of the kind.
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

    @property
    def index_bytes(self) -> int:
        """Return the bytes that its index counts, before it has vectors."""
        return index_bytes(len(self.postings))


@dataclass(frozen=True)
class NewEpisode:
    """A sealed turn: `PENDING` until its facts are extracted, or `KEPT` beside them."""

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
    """That an idempotency key led to this memory."""

    mark: bytes
    text_mark: bytes
    memory_id: uuid.UUID


@dataclass(frozen=True)
class Write:
    """One accepted request, complete with the receipts that vouch for it.

    `wordy` are those of its memories that `insert_words` has stored the words of.
    """

    now: datetime
    memories: Sequence[NewMemory]
    episodes: Sequence[NewEpisode]
    marks: Sequence[Mark]
    marks_expire_at: datetime
    index_version: int
    memory_seq: int
    receipts: Sequence[tuple[int, bytes]]
    receipt_seq: int
    receipt_head: bytes
    blobs_here: bool
    wordy: Sequence[NewMemory] = ()


async def known_facts(
    database: Database,
    *,
    account: AccountId,
    namespace_ids: Collection[int],
    fingerprints: Sequence[bytes],
) -> dict[bytes, Row]:
    """Fingerprint → (memory_id, embedded, expiries, review, source, revision) of stored facts."""
    rows = await database.fetch(_KNOWN_FACTS, account, fingerprints)
    return {r["fingerprint"]: r for r in rows if r["namespace_id"] in namespace_ids}


async def in_force(
    connection: Connection, *, account: AccountId, memory_ids: Sequence[uuid.UUID], now: datetime
) -> dict[uuid.UUID, int]:
    """Memory id → its revision, of those that live and are not superseded."""
    found = await connection.fetch(_IN_FORCE, account, memory_ids, now)
    return {r["memory_id"]: r["revision"] for r in found}


async def find_marks(
    database: Database, *, account: AccountId, marks: Sequence[bytes]
) -> dict[bytes, Row]:
    """Idempotency mark → (text_mark, memory_id, embedded, and what is said of that memory)."""
    return {r["mark"]: r for r in await database.fetch(_MARKED, account, marks)}


async def insert_words(
    connection: Connection, *, account: AccountId, memories: Sequence[NewMemory]
) -> None:
    """Store the words of new memories in the transaction that will store the rest of them: nobody
    waits for the account's lock meanwhile."""
    for m in memories:
        tokens, frequencies = list(m.postings), list(m.postings.values())
        of = m.namespace_id, m.memory_id, m.word_count
        for at in range(0, len(tokens), WORDS_AT_ONCE):
            some = slice(at, at + WORDS_AT_ONCE)
            await connection.execute(_INSERT_WORDS, account, *of, tokens[some], frequencies[some])


async def write(connection: Connection, account: AccountId, request: Write) -> None:
    """Store a request under the account's lock.

    Raises:
        UniqueViolation: a fact, mark or turn came in between; look them up again.
    """
    ms, es = request.memories, request.episodes
    blobs = [(m.blob_id, m.blob) for m in ms] + [(e.blob_id, e.blob) for e in es]
    here = blobs if request.blobs_here else []
    worded = {m.memory_id for m in request.wordy}
    words = [
        (m, token, n) for m in ms if m.memory_id not in worded for token, n in m.postings.items()
    ]
    ends = list(accumulate(len(m.postings) for m in ms))
    seq = request.memory_seq
    await connection.execute(
        _WRITE,
        account,
        request.now,
        [b for b, _ in here],
        [data for _, data in here],
        [m.writer for m in ms],
        [m.memory_id for m in ms],
        [m.namespace_id for m in ms],
        [m.epoch for m in ms],
        list(range(seq + 1, seq + 1 + len(ms))),
        [m.format for m in ms],
        [m.kind for m in ms],
        [m.importance for m in ms],
        [m.confidence for m in ms],
        [m.event_time for m in ms],
        [m.expires_at for m in ms],
        [m.blob_id for m in ms],
        [m.memory_id for m, _, _ in words],
        [m.namespace_id for m, _, _ in words],
        [token for _, token, _ in words],
        [len(m.blob) for m in ms],
        [m.word_count for m in ms],
        [m.fingerprint for m in ms],
        request.index_version,
        [n for _, _, n in words],
        [m.word_count for m, _, _ in words],
        request.marks_expire_at,
        [m.mark for m in request.marks],
        [m.text_mark for m in request.marks],
        [m.memory_id for m in request.marks],
        [n for n, _ in request.receipts],
        [signed for _, signed in request.receipts],
        request.receipt_seq,
        request.receipt_head,
        [e.episode_id for e in es],
        [e.namespace_id for e in es],
        [e.epoch for e in es],
        [e.blob_id for e in es],
        [len(e.blob) for e in es],
        sum(len(data) for _, data in blobs),
        [m.created_at for m in ms],
        [m.revision for m in ms],
        [m.type for m in ms],
        [e.writer for e in es],
        [m.source for m in ms],
        [m.stored_at for m in ms],
        [m.revision_of for m in ms],
        [m.state.superseded_at for m in ms],
        [m.state.superseded_by for m in ms],
        [m.state.pinned for m in ms],
        [m.state.review for m in ms],
        [m.state.stale for m in ms],
        [e.state for e in es],
        [e.created_at for e in es],
        [e.fingerprint for e in es],
        [token for m in ms for token in m.postings],
        [end - len(m.postings) + 1 for end, m in zip(ends, ms, strict=True)],
        ends,
        [m.index_bytes for m in ms],
        [m.has_default_life for m in ms],
    )


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
    """Rows of living memories of the account with `ttl_s` of their namespaces, in no order."""
    return await database.fetch(_MEMORIES, account, memory_ids, now)


async def states(
    database: Database,
    *,
    account: AccountId,
    ids: Sequence[uuid.UUID],
    embeds: bool,
    now: datetime,
) -> dict[uuid.UUID, Row]:
    """Id → (namespace, blob_id, state, extractor) of living memories and of episodes, where the
    last is theirs alone; `embeds`: vectors are awaited."""
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
    """For each range, the ids in it of living memories, the first `limit`; None: of any
    namespace."""
    lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
    found: list[list[uuid.UUID]] = [[] for _ in ranges]
    for row in await database.fetch(_BEGINNING, account, lows, highs, namespaces, now, limit):
        found[row["place"] - 1].append(row["memory_id"])
    return found


async def count_sealed(database: Database, *, account: AccountId, namespace_id: int) -> int:
    """How many sealed memories a namespace has."""
    row = await database.fetchrow(_COUNT_SEALED, account, namespace_id)
    assert row is not None
    return int(row[0])


async def known_blobs(
    database: Database, *, account: AccountId, blob_ids: Sequence[bytes]
) -> set[bytes]:
    """Which of these blobs some row refers to, or stay as part of the journal."""
    rows = await database.fetch(_KNOWN_BLOBS, account, blob_ids)
    return {r["blob_id"] for r in rows}


async def known_states(
    database: Database, *, account: AccountId, blob_ids: Sequence[bytes]
) -> list[Row]:
    """(state_blob, id, superseded_by) of the memories that have one of these `state` objects."""
    return await database.fetch(_KNOWN_STATES, account, blob_ids)


async def delete_expired_marks(database: Database) -> None:
    """Forget idempotency marks past their life."""
    await database.execute(_DELETE_EXPIRED_MARKS)
