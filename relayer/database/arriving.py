"""Statements that write rows which lived at another relayer before.

Not here: what is checked before they are written (`relayer.archives.judging`), grants (`accounts`).
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database import index_size
from relayer.database.pool import Connection, Row, halfvec
from relayer.database.vectors import NO_VECTOR
from relayer.moved import MovedEpisode, MovedMemory
from relayer.record import State
from relayer.sealed.envelope import blob_hash
from relayer.sealed.keys import AccountId

# What of an arriving page is here already, or was erased, or has another's place.
_PRESENT: Final = """
SELECT memory_id AS id, blob_id, revision FROM memories
WHERE account_id = $1 AND memory_id = ANY ($2)
UNION ALL
SELECT episode_id, blob_id, 1 FROM episodes WHERE account_id = $1 AND episode_id = ANY ($2)
"""
_ERASED: Final = "SELECT memory_id FROM tombstones WHERE account_id = $1 AND memory_id = ANY ($2)"
_TAKEN_SEQS: Final = "SELECT seq FROM memories WHERE account_id = $1 AND seq = ANY ($2)"
_ERASED_BLOBS: Final = """
SELECT coalesce(sum(cardinality(blob_ids)), 0) FROM tombstones WHERE account_id = $1
"""
_LIVING_FACTS: Final = """
SELECT namespace_id, epoch, fingerprint, memory_id FROM memories
WHERE account_id = $1 AND fingerprint = ANY ($2) AND superseded_at IS NULL
"""

# A page of rows with their words, blobs and counts, and with what vouches for it.
_ARRIVE: Final = """
WITH stored AS (
    INSERT INTO blobs (account_id, blob_id, bytes, created_at)
    SELECT $1, blob_id, bytes, $2 FROM unnest($3::bytea[], $4::bytea[]) AS b (blob_id, bytes)
    ON CONFLICT DO NOTHING
), word AS (
    SELECT r.memory_id, r.namespace_id, w.token, w.frequency, r.word_count
    FROM unnest($5::int[], $6::bigint[], $7::smallint[]) AS w (number, token, frequency)
    JOIN unnest($8::uuid[], $9::int[], $34::smallint[])
        WITH ORDINALITY AS r (memory_id, namespace_id, word_count, number) USING (number)
), memory AS (
    INSERT INTO memories (
        account_id, memory_id, namespace_id, epoch, seq, revision, revision_of, type, format, kind,
        importance, confidence, writer, event_time, created_at, stored_at, expires_at,
        given_expires_at, superseded_at, superseded_by, pinned, review, stale, seen_count,
        last_seen_at, blob_id, size_bytes, word_count, tokens, source, fingerprint, index_version,
        embedding_model, embedding_version, has_default_life)
    SELECT $1, memory_id, r.namespace_id, epoch, seq, revision, revision_of, type, format, kind,
           importance, confidence, writer, event_time, created_at, stored_at,
           CASE WHEN pinned THEN expires_at
                ELSE least(expires_at, created_at + n.ttl_s * interval '1 second') END,
           given_expires_at, superseded_at, superseded_by, pinned, review, stale, seen_count,
           last_seen_at, blob_id, size_bytes, r.word_count, coalesce(t.tokens, '{}'), source,
           fingerprint, index_version, embedding_model, embedding_version, has_default_life
    FROM unnest($8::uuid[], $9::int[], $10::int[], $11::bigint[], $12::int[], $13::uuid[],
                $14::smallint[], $15::text[], $16::text[], $17::text[], $18::text[], $19::bytea[],
                $20::timestamptz[], $21::timestamptz[], $22::timestamptz[], $23::timestamptz[],
                $24::timestamptz[], $25::timestamptz[], $26::uuid[], $27::bool[], $28::text[],
                $29::bool[], $30::int[], $31::timestamptz[], $32::bytea[], $33::int[],
                $34::smallint[], $35::bigint[], $36::bytea[], $37::smallint[], $38::text[],
                $39::text[], $55::bool[])
        AS r (memory_id, namespace_id, epoch, seq, revision, revision_of, type, format, kind,
              importance, confidence, writer, event_time, created_at, stored_at, expires_at,
              given_expires_at, superseded_at, superseded_by, pinned, review, stale, seen_count,
              last_seen_at, blob_id, size_bytes, word_count, source, fingerprint, index_version,
              embedding_model, embedding_version, has_default_life)
    JOIN namespaces n ON n.account_id = $1 AND n.namespace_id = r.namespace_id
    LEFT JOIN (SELECT w.memory_id AS worded_id, array_agg(w.token) AS tokens
               FROM word w GROUP BY w.memory_id) t ON t.worded_id = r.memory_id
), posting AS (
    INSERT INTO postings (account_id, namespace_id, token, memory_id, frequency, word_count)
    SELECT $1, namespace_id, token, memory_id, frequency, word_count FROM word
), counted AS (
    UPDATE namespaces n
    SET memory_count = n.memory_count + c.memories, word_count = n.word_count + c.words,
        storage_bytes = n.storage_bytes + c.bytes,
        -- One that was just made has the time of that until its memories come.
        updated_at = CASE WHEN n.memory_count = 0 THEN c.stored_at
                          ELSE greatest(n.updated_at, c.stored_at) END
    FROM (SELECT namespace_id, count(*) FILTER (WHERE revision_of IS NULL) AS memories,
                 coalesce(sum(word_count) FILTER (WHERE revision_of IS NULL), 0) AS words,
                 sum(size_bytes) AS bytes, max(stored_at) AS stored_at
          FROM unnest($9::int[], $33::int[], $34::smallint[], $13::uuid[], $22::timestamptz[])
              AS r (namespace_id, size_bytes, word_count, revision_of, stored_at)
          GROUP BY namespace_id) c
    WHERE n.account_id = $1 AND n.namespace_id = c.namespace_id
), episode AS (
    INSERT INTO episodes (account_id, episode_id, namespace_id, epoch, writer, blob_id, size_bytes,
                          state, created_at, fingerprint)
    SELECT $1, episode_id, namespace_id, epoch, writer, blob_id, size_bytes, state, created_at,
           fingerprint
    FROM unnest($40::uuid[], $41::int[], $42::int[], $43::bytea[], $44::bytea[], $45::int[],
                $46::text[], $47::timestamptz[], $54::bytea[])
        AS e (episode_id, namespace_id, epoch, writer, blob_id, size_bytes, state, created_at,
              fingerprint)
), intent AS (
    DELETE FROM blob_outbox
    WHERE account_id = $1 AND (blob_id = ANY ($32::bytea[]) OR blob_id = ANY ($44::bytea[]))
), receipt AS (
    INSERT INTO receipts (account_id, seq, object)
    SELECT $1, seq, object FROM unnest($48::bigint[], $49::bytea[]) AS r (seq, object)
)
UPDATE accounts
SET receipt_seq = $50, receipt_head = $51, changed_at = $2,
    memory_seq = greatest(memory_seq, $52), storage_bytes = storage_bytes + $53,
    memory_count = memory_count + (SELECT count(*) FROM unnest($13::uuid[]) AS r (revision_of)
                                   WHERE revision_of IS NULL)
WHERE account_id = $1
"""
_INSERT_VECTORS: Final = """
INSERT INTO vectors (account_id, memory_id, part, namespace_id, epoch, model, embedding)
SELECT $1, memory_id, part, namespace_id, epoch, model, embedding
FROM unnest($2::uuid[], $3::smallint[], $4::int[], $5::int[], $6::text[], $7::halfvec[])
    AS v (memory_id, part, namespace_id, epoch, model, embedding)
"""
_INSERT_LINKS: Final = """
INSERT INTO links (account_id, memory_id, relation, other_id, created_at)
SELECT $1, memory_id, relation, other_id, created_at
FROM unnest($2::uuid[], $3::text[], $4::uuid[], $5::timestamptz[])
    AS l (memory_id, relation, other_id, created_at)
ON CONFLICT DO NOTHING
"""

# Links between namespaces, which only an archive can hold: what is known of one reaches no other.
_CUT_LINKS: Final = """
DELETE FROM links l USING memories m
WHERE l.account_id = $1 AND (l.memory_id = ANY ($2) OR l.other_id = ANY ($2))
  AND m.account_id = $1 AND m.memory_id = l.memory_id
  AND (EXISTS (SELECT 1 FROM memories o WHERE o.account_id = $1 AND o.memory_id = l.other_id
                                        AND o.namespace_id <> m.namespace_id)
       OR EXISTS (SELECT 1 FROM episodes e WHERE e.account_id = $1 AND e.episode_id = l.other_id
                                           AND e.namespace_id <> m.namespace_id))
"""

# What was erased elsewhere never comes; the receipts of it are its journal here.
_INSERT_TOMBSTONES: Final = """
WITH stone AS (
    INSERT INTO tombstones (account_id, memory_id, namespace_id, blob_ids, erased_at, expired)
    SELECT $1, memory_id, namespace_id, string_to_array(blob_ids, ' ')::bytea[], erased_at, expired
    FROM unnest($2::uuid[], $3::int[], $4::text[], $5::timestamptz[], $12::bool[])
        AS t (memory_id, namespace_id, blob_ids, erased_at, expired)
    ON CONFLICT DO NOTHING
), journal AS (
    INSERT INTO blobs (account_id, blob_id, bytes, created_at)
    SELECT $1, blob_id, bytes, $6 FROM unnest($7::bytea[], $8::bytea[]) AS j (blob_id, bytes)
    ON CONFLICT DO NOTHING
), receipt AS (
    INSERT INTO receipts (account_id, seq, object)
    SELECT $1, seq, object FROM unnest($9::bigint[], $8::bytea[]) AS r (seq, object)
)
UPDATE accounts SET receipt_seq = $10, receipt_head = $11, changed_at = $6 WHERE account_id = $1
"""
_SET_TTL: Final = """
UPDATE namespaces SET ttl_s = $3 WHERE account_id = $1 AND name = $2 AND ttl_s IS NULL
"""
_UNLIST: Final = """
UPDATE namespaces SET erased_at = $3 WHERE account_id = $1 AND name = $2
"""
_KEEP_SEQS: Final = """
UPDATE accounts SET memory_seq = greatest(memory_seq, $2) WHERE account_id = $1
"""

_POSTING: Final = np.dtype([("token", ">i8"), ("frequency", "u1")])


@dataclass(frozen=True)
class ArrivingMemory:
    """A row to be written: as it came, under the numbers that it has here."""

    memory: MovedMemory
    namespace_id: int
    seq: int
    blob: bytes = field(repr=False)
    state: State


@dataclass(frozen=True)
class ArrivingTurn:
    """A turn to be written, as it came, under its namespace's number here."""

    turn: MovedEpisode
    namespace_id: int
    blob: bytes = field(repr=False)

    @property
    def place(self) -> tuple[int, int, bytes]:
        """Where it is known by what it says: namespace, epoch, fingerprint."""
        return self.namespace_id, self.turn.epoch, self.turn.fingerprint or b""


@dataclass(frozen=True)
class Vouched:
    """Receipts as (seq, signed bytes), and the account's heads after them."""

    receipts: Sequence[tuple[int, bytes]]
    seq: int
    head: bytes


async def present(
    connection: Connection, account: AccountId, ids: Sequence[uuid.UUID]
) -> dict[uuid.UUID, Row]:
    """Id → (blob_id, revision) of rows and turns that are here."""
    return {r["id"]: r for r in await connection.fetch(_PRESENT, account, ids)}


async def erased(
    connection: Connection, account: AccountId, ids: Sequence[uuid.UUID]
) -> set[uuid.UUID]:
    """Which of these memories were erased."""
    return {r["memory_id"] for r in await connection.fetch(_ERASED, account, ids)}


async def erased_blobs(connection: Connection, account: AccountId) -> int:
    """How many blobs the account's tombstones name."""
    return int(await connection.fetchval(_ERASED_BLOBS, account))


async def taken_seqs(connection: Connection, account: AccountId, seqs: Sequence[int]) -> set[int]:
    """Which of these sequence numbers are in use."""
    return {r["seq"] for r in await connection.fetch(_TAKEN_SEQS, account, seqs)}


async def living_facts(
    connection: Connection, account: AccountId, fingerprints: Sequence[bytes]
) -> dict[tuple[int, int, bytes], uuid.UUID]:
    """(namespace, epoch, fingerprint) → the living memory that says it."""
    rows = await connection.fetch(_LIVING_FACTS, account, fingerprints)
    return {(r["namespace_id"], r["epoch"], r["fingerprint"]): r["memory_id"] for r in rows}


async def arrive(
    connection: Connection,
    account: AccountId,
    *,
    memories: Sequence[ArrivingMemory],
    episodes: Sequence[ArrivingTurn],
    vouched: Vouched,
    now: datetime,
    blobs_here: bool,
) -> None:
    """Write rows and turns under the account's lock."""
    blobs = [(blob_hash(a.memory.blob_id), a.blob) for a in memories]
    blobs += [(blob_hash(e.turn.blob_id), e.blob) for e in episodes]
    here = blobs if blobs_here else []
    ms, turns = [a.memory for a in memories], [e.turn for e in episodes]
    numbers, tokens, frequencies = _words(ms)
    await connection.execute(
        _ARRIVE,
        account,
        now,
        [name for name, _ in here],
        [data for _, data in here],
        numbers,
        tokens,
        frequencies,
        [m.id for m in ms],
        [a.namespace_id for a in memories],
        [m.epoch for m in ms],
        [a.seq for a in memories],
        [m.revision for m in ms],
        [m.revision_of for m in ms],
        [m.type for m in ms],
        [m.format for m in ms],
        [m.kind for m in ms],
        [m.importance for m in ms],
        [m.confidence for m in ms],
        [bytes.fromhex(m.writer) for m in ms],
        [m.event_time for m in ms],
        [m.created_at for m in ms],
        [m.stored_at for m in ms],
        [m.expires_at for m in ms],
        [m.given_expires_at for m in ms],
        [a.state.superseded_at for a in memories],
        [a.state.superseded_by for a in memories],
        [a.state.pinned for a in memories],
        [a.state.review for a in memories],
        [a.state.stale for a in memories],
        [m.seen_count for m in ms],
        [m.last_seen_at for m in ms],
        [blob_hash(m.blob_id) for m in ms],
        [len(a.blob) for a in memories],
        [m.word_count for m in ms],
        [m.source for m in ms],
        [m.fingerprint for m in ms],
        [0 if m.postings is None else m.index_version for m in ms],
        [m.embedding_model if _has_vectors(m) else None for m in ms],
        [m.embedding_version if _has_vectors(m) else "" for m in ms],
        [t.id for t in turns],
        [e.namespace_id for e in episodes],
        [t.epoch for t in turns],
        [bytes.fromhex(t.writer) for t in turns],
        [blob_hash(t.blob_id) for t in turns],
        [len(e.blob) for e in episodes],
        [t.state for t in turns],
        [t.created_at for t in turns],
        [n for n, _ in vouched.receipts],
        [signed for _, signed in vouched.receipts],
        vouched.seq,
        vouched.head,
        max((a.seq for a in memories), default=0),
        sum(len(data) for _, data in blobs),
        [t.fingerprint for t in turns],
        [m.default_life for m in ms],
    )
    await _insert_vectors(connection, account, memories)
    await index_size.count(connection, account, [m.id for m in ms])
    links = [(m.id, link) for m in ms for link in m.links]
    await connection.execute(
        _INSERT_LINKS,
        account,
        [memory_id for memory_id, _ in links],
        [link.relation for _, link in links],
        [link.other_id for _, link in links],
        [link.created_at for _, link in links],
    )
    await connection.execute(_CUT_LINKS, account, [*(m.id for m in ms), *(t.id for t in turns)])


def new_bytes(row: MovedMemory | MovedEpisode) -> int:
    """Return what a row adds to what counts for the account's quota."""
    sealed = len(row.blob or b"")
    if isinstance(row, MovedEpisode):
        return sealed
    words = len(row.postings or b"") // _POSTING.itemsize
    vectors = sum(index_size.vector_bytes(len(part) // 2) for part in row.vectors)
    return sealed + index_size.index_bytes(words) + vectors


def _has_vectors(memory: MovedMemory) -> bool:
    """Whether what a row says of its vectors holds here, too: they came along, or are none."""
    return bool(memory.vectors) or memory.embedding_model == NO_VECTOR


def _words(memories: Sequence[MovedMemory]) -> tuple[list[int], list[int], list[int]]:
    """Of each word: the number of its memory, from 1, its token and its frequency."""
    words = [np.frombuffer(m.postings or b"", _POSTING) for m in memories]
    whole = np.concatenate([np.empty(0, _POSTING), *words])
    numbers = np.repeat(np.arange(1, len(words) + 1), [len(found) for found in words])
    return numbers.tolist(), whole["token"].tolist(), whole["frequency"].tolist()


def vector_of(part: bytes) -> npt.NDArray[np.float16]:
    """A vector as it travels, as it is stored."""
    return np.frombuffer(part, ">f2").astype(np.float16)


async def _insert_vectors(
    connection: Connection, account: AccountId, memories: Sequence[ArrivingMemory]
) -> None:
    parts = [(a, number, part) for a in memories for number, part in enumerate(a.memory.vectors)]
    await connection.execute(
        _INSERT_VECTORS,
        account,
        [a.memory.id for a, _, _ in parts],
        [number for _, number, _ in parts],
        [a.namespace_id for a, _, _ in parts],
        [a.memory.epoch for a, _, _ in parts],
        [a.memory.embedding_model for a, _, _ in parts],
        [halfvec(vector_of(part)) for _, _, part in parts],
    )


async def insert_tombstones(
    connection: Connection,
    account: AccountId,
    *,
    stones: Sequence[tuple[uuid.UUID, int | None, Sequence[bytes], datetime, bool]],
    vouched: Vouched,
    journal_ids: Sequence[bytes],
    now: datetime,
) -> None:
    """Remember (id, namespace, blob ids, time, whether it had expired) of what was erased
    elsewhere, with its receipts."""
    await connection.execute(
        _INSERT_TOMBSTONES,
        account,
        [memory_id for memory_id, _, _, _, _ in stones],
        [number for _, number, _, _, _ in stones],
        # An array of arrays of different lengths is none of PostgreSQL's types.
        [" ".join(f"\\x{name.hex()}" for name in names) for _, _, names, _, _ in stones],
        [erased_at for _, _, _, erased_at, _ in stones],
        now,
        journal_ids,
        [signed for _, signed in vouched.receipts],
        [n for n, _ in vouched.receipts],
        vouched.seq,
        vouched.head,
        [expired for _, _, _, _, expired in stones],
    )


async def set_ttl(connection: Connection, account: AccountId, namespace: str, ttl_s: int) -> None:
    """Give a namespace its life span unless it has one."""
    await connection.execute(_SET_TTL, account, namespace, ttl_s)


async def unlist(connection: Connection, account: AccountId, namespace: str, now: datetime) -> None:
    """List a namespace only once something is in it."""
    await connection.execute(_UNLIST, account, namespace, now)


async def keep_seqs(connection: Connection, account: AccountId, through: int) -> None:
    """Leave the sequence numbers up to that to what is on its way."""
    await connection.execute(_KEEP_SEQS, account, through)
