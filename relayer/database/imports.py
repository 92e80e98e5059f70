"""Statements that write rows which lived at another relayer before.

Not here: what is checked before they are written (`relayer.archives.validation`), grants
(`accounts`).
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database import index_size
from relayer.database.numbering import number_parameters
from relayer.database.pool import Connection, Row, halfvec
from relayer.database.postings import Words
from relayer.database.vectors import NO_VECTOR
from relayer.portable import MovedEpisode, MovedMemory
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

# What each parameter of the statement below is called, behind the account, and what it is.
_PARAMETERS: Final[Mapping[str, Callable[["Page"], object]]] = {
    "now": lambda p: p.now,
    "stored_ids": lambda p: [name for name, _ in p.here],
    "stored_bytes": lambda p: [data for _, data in p.here],
    "word_numbers": lambda p: [place + 1 for place, _, _ in p.words.rows],
    "word_tokens": lambda p: [token for _, token, _ in p.words.rows],
    "word_frequencies": lambda p: [n for _, _, n in p.words.rows],
    "tokens": lambda p: p.words.tokens,
    "first_tokens": lambda p: p.words.firsts,
    "last_tokens": lambda p: p.words.lasts,
    "frequencies": lambda p: p.words.frequencies,
    "memory_ids": lambda p: [m.id for m in p.moved],
    "namespace_ids": lambda p: [one.namespace_id for one in p.memories],
    "epochs": lambda p: [m.epoch for m in p.moved],
    "seqs": lambda p: [one.seq for one in p.memories],
    "revisions": lambda p: [m.revision for m in p.moved],
    "revisions_of": lambda p: [m.revision_of for m in p.moved],
    "types": lambda p: [m.type for m in p.moved],
    "formats": lambda p: [m.format for m in p.moved],
    "kinds": lambda p: [m.kind for m in p.moved],
    "importances": lambda p: [m.importance for m in p.moved],
    "confidences": lambda p: [m.confidence for m in p.moved],
    "writers": lambda p: [bytes.fromhex(m.writer) for m in p.moved],
    "event_times": lambda p: [m.event_time for m in p.moved],
    "created_ats": lambda p: [m.created_at for m in p.moved],
    "stored_ats": lambda p: [m.stored_at for m in p.moved],
    "expire_ats": lambda p: [m.expires_at for m in p.moved],
    "given_expire_ats": lambda p: [m.given_expires_at for m in p.moved],
    "superseded_ats": lambda p: [one.state.superseded_at for one in p.memories],
    "superseded_bys": lambda p: [one.state.superseded_by for one in p.memories],
    "pinned": lambda p: [one.state.pinned for one in p.memories],
    "reviews": lambda p: [one.state.review for one in p.memories],
    "stale": lambda p: [one.state.stale for one in p.memories],
    "seen_counts": lambda p: [m.seen_count for m in p.moved],
    "last_seen_ats": lambda p: [m.last_seen_at for m in p.moved],
    "blob_ids": lambda p: [blob_hash(m.blob_id) for m in p.moved],
    "sizes": lambda p: [len(one.blob) for one in p.memories],
    "word_counts": lambda p: [m.word_count for m in p.moved],
    "sources": lambda p: [m.source for m in p.moved],
    "fingerprints": lambda p: [m.fingerprint for m in p.moved],
    "index_versions": lambda p: [0 if m.postings is None else m.index_version for m in p.moved],
    "embedding_models": lambda p: [_model(m) for m in p.moved],
    "embedding_versions": lambda p: [_model_version(m) for m in p.moved],
    "turn_ids": lambda p: [t.id for t in p.moved_turns],
    "turn_namespace_ids": lambda p: [one.namespace_id for one in p.turns],
    "turn_epochs": lambda p: [t.epoch for t in p.moved_turns],
    "turn_writers": lambda p: [bytes.fromhex(t.writer) for t in p.moved_turns],
    "turn_blob_ids": lambda p: [blob_hash(t.blob_id) for t in p.moved_turns],
    "turn_sizes": lambda p: [len(one.blob) for one in p.turns],
    "turn_states": lambda p: [t.state for t in p.moved_turns],
    "turn_created_ats": lambda p: [t.created_at for t in p.moved_turns],
    "receipt_seqs": lambda p: [n for n, _ in p.vouched.receipts],
    "receipts": lambda p: [signed for _, signed in p.vouched.receipts],
    "receipt_seq": lambda p: p.vouched.seq,
    "receipt_head": lambda p: p.vouched.head,
    "last_seq": lambda p: max((one.seq for one in p.memories), default=0),
    "new_bytes": lambda p: sum(len(data) for _, data in p.blobs),
    "turn_fingerprints": lambda p: [t.fingerprint for t in p.moved_turns],
    "default_lives": lambda p: [m.default_life for m in p.moved],
    "records": lambda p: [m.index_record for m in p.moved],
}
# A page of rows with their words, blobs and counts, and with what vouches for it.
_ARRIVE: Final = number_parameters(
    """
WITH stored AS (
    INSERT INTO blobs (account_id, blob_id, bytes, created_at)
    SELECT :account, blob_id, bytes, :now FROM unnest(:stored_ids::bytea[], :stored_bytes::bytea[])
        AS b (blob_id, bytes)
    ON CONFLICT DO NOTHING
), memory AS (
    INSERT INTO memories (
        account_id, memory_id, namespace_id, epoch, seq, revision, revision_of, type, format, kind,
        importance, confidence, writer, event_time, created_at, stored_at, expires_at,
        given_expires_at, superseded_at, superseded_by, pinned, review, stale, seen_count,
        last_seen_at, blob_id, size_bytes, word_count, tokens, frequencies, source, fingerprint,
        index_version, embedding_model, embedding_version, has_default_life, index_record)
    SELECT :account, memory_id, r.namespace_id, epoch, seq, revision, revision_of, type, format,
           kind, importance, confidence, writer, event_time, created_at, stored_at,
           CASE WHEN pinned THEN expires_at
                ELSE least(expires_at, created_at + n.ttl_s * interval '1 second') END,
           given_expires_at, superseded_at, superseded_by, pinned, review, stale, seen_count,
           last_seen_at, blob_id, size_bytes, r.word_count,
           (:tokens::bigint[])[first_token:last_token], frequencies, source, fingerprint,
           index_version, embedding_model, embedding_version, has_default_life, index_record
    FROM unnest(:memory_ids::uuid[], :namespace_ids::int[], :epochs::int[], :seqs::bigint[],
                :revisions::int[], :revisions_of::uuid[], :types::smallint[], :formats::text[],
                :kinds::text[], :importances::text[], :confidences::text[], :writers::bytea[],
                :event_times::timestamptz[], :created_ats::timestamptz[],
                :stored_ats::timestamptz[], :expire_ats::timestamptz[],
                :given_expire_ats::timestamptz[], :superseded_ats::timestamptz[],
                :superseded_bys::uuid[], :pinned::bool[], :reviews::text[], :stale::bool[],
                :seen_counts::int[], :last_seen_ats::timestamptz[], :blob_ids::bytea[],
                :sizes::int[], :word_counts::smallint[], :sources::bigint[], :fingerprints::bytea[],
                :index_versions::smallint[], :embedding_models::text[], :embedding_versions::text[],
                :default_lives::bool[], :records::bytea[], :first_tokens::int[],
                :last_tokens::int[], :frequencies::bytea[])
        AS r (memory_id, namespace_id, epoch, seq, revision, revision_of, type, format, kind,
              importance, confidence, writer, event_time, created_at, stored_at, expires_at,
              given_expires_at, superseded_at, superseded_by, pinned, review, stale, seen_count,
              last_seen_at, blob_id, size_bytes, word_count, source, fingerprint, index_version,
              embedding_model, embedding_version, has_default_life, index_record, first_token,
              last_token, frequencies)
    JOIN namespaces n ON n.account_id = :account AND n.namespace_id = r.namespace_id
), posting AS (
    INSERT INTO postings (account_id, namespace_id, token, memory_id, frequency, word_count)
    SELECT :account, r.namespace_id, w.token, r.memory_id, w.frequency, r.word_count
    FROM unnest(:word_numbers::int[], :word_tokens::bigint[], :word_frequencies::smallint[])
        AS w (number, token, frequency)
    JOIN unnest(:memory_ids::uuid[], :namespace_ids::int[], :word_counts::smallint[])
        WITH ORDINALITY AS r (memory_id, namespace_id, word_count, number) USING (number)
), counted AS (
    UPDATE namespaces n
    SET memory_count = n.memory_count + c.memories, word_count = n.word_count + c.words,
        storage_bytes = n.storage_bytes + c.bytes,
        index_moves = n.index_moves OR CASE WHEN n.sealed_index THEN c.records < c.rows
                                            ELSE c.records > 0 END,
        -- One that was just made has the time of that until its memories come.
        updated_at = CASE WHEN n.memory_count = 0 THEN c.stored_at
                          ELSE greatest(n.updated_at, c.stored_at) END
    FROM (SELECT namespace_id, count(*) FILTER (WHERE revision_of IS NULL) AS memories,
                 coalesce(sum(word_count) FILTER (WHERE revision_of IS NULL), 0) AS words,
                 sum(size_bytes) AS bytes, max(stored_at) AS stored_at,
                 count(*) AS rows, count(index_record) AS records
          FROM unnest(:namespace_ids::int[], :sizes::int[], :word_counts::smallint[],
                      :revisions_of::uuid[], :stored_ats::timestamptz[], :records::bytea[])
              AS r (namespace_id, size_bytes, word_count, revision_of, stored_at, index_record)
          GROUP BY namespace_id) c
    WHERE n.account_id = :account AND n.namespace_id = c.namespace_id
    RETURNING n.index_moves
), episode AS (
    INSERT INTO episodes (account_id, episode_id, namespace_id, epoch, writer, blob_id, size_bytes,
                          state, created_at, fingerprint)
    SELECT :account, episode_id, namespace_id, epoch, writer, blob_id, size_bytes, state,
           created_at, fingerprint
    FROM unnest(:turn_ids::uuid[], :turn_namespace_ids::int[], :turn_epochs::int[],
                :turn_writers::bytea[], :turn_blob_ids::bytea[], :turn_sizes::int[],
                :turn_states::text[], :turn_created_ats::timestamptz[], :turn_fingerprints::bytea[])
        AS e (episode_id, namespace_id, epoch, writer, blob_id, size_bytes, state, created_at,
              fingerprint)
), intent AS (
    DELETE FROM blob_outbox
    WHERE account_id = :account AND (blob_id = ANY (:blob_ids::bytea[])
                                     OR blob_id = ANY (:turn_blob_ids::bytea[]))
), receipt AS (
    INSERT INTO receipts (account_id, seq, object)
    SELECT :account, seq, object FROM unnest(:receipt_seqs::bigint[], :receipts::bytea[])
        AS r (seq, object)
)
UPDATE accounts
SET receipt_seq = :receipt_seq, receipt_head = :receipt_head, changed_at = :now,
    index_choices = index_choices + (SELECT count(*) FROM counted WHERE index_moves)::int,
    memory_seq = greatest(memory_seq, :last_seq), storage_bytes = storage_bytes + :new_bytes,
    memory_count = memory_count + (SELECT count(*) FROM unnest(:revisions_of::uuid[])
                                   AS r (revision_of)
                                   WHERE revision_of IS NULL)
WHERE account_id = :account
""",
    ["account", *_PARAMETERS],
)
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
        """Return the place where its content is looked up: namespace, epoch, fingerprint."""
        return self.namespace_id, self.turn.epoch, self.turn.fingerprint or b""


@dataclass(frozen=True)
class Vouched:
    """Receipts as (seq, signed bytes), and the account's heads after them."""

    receipts: Sequence[tuple[int, bytes]]
    seq: int
    head: bytes


@dataclass(frozen=True)
class Page:
    """The rows that are written at once, and what vouches for them.

    Attributes:
        blobs_here: whether the database keeps the blobs.
    """

    memories: Sequence[ArrivingMemory]
    turns: Sequence[ArrivingTurn]
    vouched: Vouched
    now: datetime
    blobs_here: bool

    @cached_property
    def moved(self) -> list[MovedMemory]:
        """Return the memories as they came."""
        return [one.memory for one in self.memories]

    @cached_property
    def moved_turns(self) -> list[MovedEpisode]:
        """Return the turns as they came."""
        return [one.turn for one in self.turns]

    @cached_property
    def blobs(self) -> list[tuple[bytes, bytes]]:
        """Return (id, bytes) of each envelope."""
        memories = [(blob_hash(one.memory.blob_id), one.blob) for one in self.memories]
        return memories + [(blob_hash(one.turn.blob_id), one.blob) for one in self.turns]

    @cached_property
    def here(self) -> list[tuple[bytes, bytes]]:
        """Return those of `blobs` that the database keeps."""
        return self.blobs if self.blobs_here else []

    @cached_property
    def words(self) -> Words:
        """Return the words of all its memories."""
        return Words.of([_words(m) for m in self.moved])


async def present(
    connection: Connection, account: AccountId, ids: Sequence[uuid.UUID]
) -> dict[uuid.UUID, Row]:
    """Return id → (blob_id, revision) of rows and turns that are here."""
    return {r["id"]: r for r in await connection.fetch(_PRESENT, account, ids)}


async def find_erased(
    connection: Connection, account: AccountId, ids: Sequence[uuid.UUID]
) -> set[uuid.UUID]:
    """Return those of these memories that were erased."""
    return {r["memory_id"] for r in await connection.fetch(_ERASED, account, ids)}


async def count_erased_blobs(connection: Connection, account: AccountId) -> int:
    """Count the blobs that the account's tombstones name."""
    return int(await connection.fetchval(_ERASED_BLOBS, account))


async def find_taken_seqs(
    connection: Connection, account: AccountId, seqs: Sequence[int]
) -> set[int]:
    """Return those of these sequence numbers that are in use."""
    return {r["seq"] for r in await connection.fetch(_TAKEN_SEQS, account, seqs)}


async def find_facts(
    connection: Connection, account: AccountId, fingerprints: Sequence[bytes]
) -> dict[tuple[int, int, bytes], uuid.UUID]:
    """Return (namespace, epoch, fingerprint) → the living memory that says it."""
    rows = await connection.fetch(_LIVING_FACTS, account, fingerprints)
    return {(r["namespace_id"], r["epoch"], r["fingerprint"]): r["memory_id"] for r in rows}


async def arrive(connection: Connection, account: AccountId, page: Page) -> None:
    """Write rows and turns under the account's lock."""
    await connection.execute(_ARRIVE, account, *(value(page) for value in _PARAMETERS.values()))
    await _insert_vectors(connection, account, page.memories)
    await index_size.count(connection, account, [m.id for m in page.moved])
    links = [(m.id, link) for m in page.moved for link in m.links]
    await connection.execute(
        _INSERT_LINKS,
        account,
        [memory_id for memory_id, _ in links],
        [link.relation for _, link in links],
        [link.other_id for _, link in links],
        [link.created_at for _, link in links],
    )
    ids = [*(m.id for m in page.moved), *(t.id for t in page.moved_turns)]
    await connection.execute(_CUT_LINKS, account, ids)


def new_bytes(row: MovedMemory | MovedEpisode) -> int:
    """Return what a row adds to what counts for the account's quota."""
    sealed = len(row.blob or b"")
    if isinstance(row, MovedEpisode):
        return sealed
    words = len(row.postings or b"") // _POSTING.itemsize
    vectors = sum(index_size.vector_bytes(len(part) // 2) for part in row.vectors)
    return sealed + index_size.index_bytes(words) + vectors + len(row.index_record or b"")


def _has_vectors(memory: MovedMemory) -> bool:
    """Return true if a row's model holds here, too: its vectors came along, or it has none."""
    came_along = bool(memory.vectors) or memory.index_record is not None
    return came_along or memory.embedding_model == NO_VECTOR


def _model(memory: MovedMemory) -> str | None:
    return memory.embedding_model if _has_vectors(memory) else None


def _model_version(memory: MovedMemory) -> str:
    return memory.embedding_version if _has_vectors(memory) else ""


def _words(memory: MovedMemory) -> dict[int, int]:
    """Return token → frequency of a memory's words."""
    words = np.frombuffer(memory.postings or b"", _POSTING)
    return dict(zip(words["token"].tolist(), words["frequency"].tolist(), strict=True))


def vector_of(part: bytes) -> npt.NDArray[np.float16]:
    """Return a vector as it travels, as it is stored."""
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
    tombstones: Sequence[tuple[uuid.UUID, int | None, Sequence[bytes], datetime, bool]],
    vouched: Vouched,
    journal_ids: Sequence[bytes],
    now: datetime,
) -> None:
    """Remember (id, namespace, blob ids, time, whether it had expired) of what was erased
    elsewhere, with its receipts."""
    await connection.execute(
        _INSERT_TOMBSTONES,
        account,
        [memory_id for memory_id, _, _, _, _ in tombstones],
        [number for _, number, _, _, _ in tombstones],
        # An array of arrays of different lengths is none of PostgreSQL's types.
        [" ".join(f"\\x{name.hex()}" for name in names) for _, _, names, _, _ in tombstones],
        [erased_at for _, _, _, erased_at, _ in tombstones],
        now,
        journal_ids,
        [signed for _, signed in vouched.receipts],
        [n for n, _ in vouched.receipts],
        vouched.seq,
        vouched.head,
        [expired for _, _, _, _, expired in tombstones],
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
