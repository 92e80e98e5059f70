"""Statements that read a namespace's index as arrays, whole or what changed of it.

Not here: holding it in memory (`relayer.memory_index`).

- What changed is told by the steps between two states of the account's index (`index_steps`).
- Where one of these is missing, all rows tell it: a row of `memories` has another `xmin` after
  every change, and whatever a memory is found by changes together with its row.
- All of a reading comes from one snapshot. After a database was set back under a running relayer,
  an `xmin` may come again: restart it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt

from relayer.database.index_steps import IndexMark
from relayer.database.pool import Connection, Row
from relayer.record import IMPORTANCES, Kind
from relayer.sealed.keys import AccountId

_COUNT: Final = """
SELECT memory_count FROM namespaces WHERE account_id = $1 AND namespace_id = $2
"""
# Big-endian, as their types are sent: arrays of so many numbers take half as long again.
_VERSIONS: Final = """
SELECT a.receipt_head, a.receipt_seq + a.index_changes AS number, n.memory_count, n.word_count,
       m.seqs, m.versions
FROM accounts a
JOIN namespaces n ON n.account_id = $1 AND n.namespace_id = $2
CROSS JOIN (
    SELECT string_agg(int8send(seq), ''::bytea) AS seqs,
           string_agg(xidsend(xmin), ''::bytea) AS versions
    FROM memories WHERE account_id = $1 AND namespace_id = $2
) m
WHERE a.account_id = $1
"""
# The steps since a state, each with the memories that it changed of one namespace.
_STEPS: Final = """
SELECT a.receipt_head, a.receipt_seq + a.index_changes AS number, n.memory_count, n.word_count,
       s.number AS later, s.earlier, s.earlier_head,
       CASE WHEN $2 = ANY (s.namespace_ids) THEN s.seqs ELSE '{}' END AS seqs
FROM accounts a
JOIN namespaces n ON n.account_id = $1 AND n.namespace_id = $2
LEFT JOIN LATERAL (
    SELECT * FROM index_steps i WHERE i.account_id = $1 AND i.number > $3 ORDER BY i.number LIMIT $4
) s ON true
WHERE a.account_id = $1 ORDER BY s.number
"""
# What is told before any of it is read: long texts have thousands of vectors. Whoever has a record
# has no vector of its own.
_EXTENT: Final = """
SELECT string_agg(int8send(m.seq), ''::bytea) AS seqs,
       string_agg(int8send(v.vectors), ''::bytea) AS vectors,
       string_agg(int8send(v.numbers), ''::bytea) AS numbers,
       string_agg(int8send(cardinality(m.tokens)), ''::bytea) AS postings,
       string_agg(int8send(coalesce(octet_length(m.index_record), 0)), ''::bytea) AS records
FROM memories m
CROSS JOIN LATERAL (
    SELECT count(*) AS vectors, coalesce(sum(vector_dims(embedding)), 0) AS numbers
    FROM vectors
    WHERE account_id = $1 AND memory_id = m.memory_id AND m.index_record IS NULL
) v
WHERE m.account_id = $1 AND m.namespace_id = $2 AND m.seq = ANY ($3)
"""
# One row with a string for each column: a row for each memory takes three times as long to read.
_MEMORIES: Final = """
SELECT string_agg(int8send(seq), ''::bytea) AS seqs,
       string_agg(xidsend(xmin), ''::bytea) AS versions,
       string_agg(int4send(epoch), ''::bytea) AS epochs,
       string_agg(int4send(revision), ''::bytea) AS revisions,
       string_agg(int4send((format = 'sealed')::int
                           + 2 * (review IS NULL OR review = 'contradiction')::int
                           + 4 * (revision_of IS NULL)::int
                           + 8 * (source IS NOT NULL)::int), ''::bytea) AS flags,
       array_agg(importance) AS importances,
       array_agg(kind) AS kinds,
       string_agg(writer, ''::bytea) AS writers,
       string_agg(int8send(coalesce(source, 0)), ''::bytea) AS sources,
       string_agg(timestamptz_send(coalesce(event_time, created_at)), ''::bytea) AS moments,
       string_agg(timestamptz_send(coalesce(expires_at, 'infinity')), ''::bytea) AS expires,
       string_agg(timestamptz_send(stored_at), ''::bytea) AS stored,
       string_agg(timestamptz_send(coalesce(superseded_at, 'infinity')), ''::bytea) AS superseded,
       string_agg(blob_id, ''::bytea) AS blobs,
       string_agg(uuid_send(coalesce(revision_of, memory_id)), ''::bytea) AS memory_ids,
       array_agg(embedding_model) AS models,
       string_agg(index_record, ''::bytea) AS records,
       string_agg(int8send(coalesce(octet_length(index_record), 0)), ''::bytea) AS record_sizes
FROM memories WHERE account_id = $1 AND namespace_id = $2 AND seq = ANY ($3)
"""
# Vectors as one string of big-endian halves after four bytes each, as their type is sent.
_VECTORS: Final = """
SELECT v.epoch, v.model, string_agg(int8send(m.seq), ''::bytea) AS seqs,
       string_agg(halfvec_send(v.embedding), ''::bytea) AS packed
FROM memories m JOIN vectors v ON v.account_id = $1 AND v.memory_id = m.memory_id
WHERE m.account_id = $1 AND m.namespace_id = $2 AND m.seq = ANY ($3)
GROUP BY v.epoch, v.model
"""
_POSTINGS: Final = """
SELECT string_agg(int8send(p.token), ''::bytea) AS tokens,
       string_agg(int8send(m.seq), ''::bytea) AS seqs,
       string_agg(int2send(p.frequency), ''::bytea) AS frequencies,
       string_agg(int2send(p.word_count), ''::bytea) AS lengths
FROM memories m
CROSS JOIN LATERAL unnest(m.tokens) AS t (token)
JOIN postings p ON p.account_id = $1 AND p.namespace_id = $2 AND p.token = t.token
               AND p.memory_id = m.memory_id
WHERE m.account_id = $1 AND m.namespace_id = $2 AND m.seq = ANY ($3)
"""
Vectors = npt.NDArray[np.number[Any]]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Seconds = npt.NDArray[np.float64]
KINDS: Final = get_args(Kind)
STEPS_MAX: Final = 500  # so many look at fewer rows than all of a namespace that is worth holding
_HALF_HEADER: Final = 4  # bytes in front of each vector that is sent
_KEY_BYTES: Final = 32  # of a writer, and of a blob's name
_COLUMNS: Final = (
    "seqs", "versions", "epochs", "revisions", "flags", "importances", "kinds", "writers",
    "sources", "moments", "expires", "stored", "superseded", "blobs", "memory_ids", "models",
    "records", "record_sizes",
)  # fmt: skip
_SECOND: Final = 1_000_000  # microseconds
_EPOCH_S: Final = 946_684_800  # from the beginning of 1970 to that of 2000, from which times count
_NEVER: Final = np.iinfo(np.int64).max
_IMPORTANCE_PLACES: Final = {name: place for place, name in enumerate(IMPORTANCES)}
_KIND_PLACES: Final = {name: place for place, name in enumerate(KINDS)}


@dataclass(frozen=True)
class Counts:
    """Numbers of a namespace's memories and of their words, without earlier revisions."""

    memory_count: int
    word_count: int


@dataclass(frozen=True)
class Differing:
    """The numbers of memories that are new, have changed or are gone by a later state."""

    mark: IndexMark
    counts: Counts
    seqs: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Versions:
    """Of a namespace's rows: ascending numbers, and the version of each."""

    mark: IndexMark
    counts: Counts
    seqs: npt.NDArray[np.int64]
    versions: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Extent:
    """The amounts of index data that memories have.

    Attributes:
        seqs: numbers of those that are there, ascending.
        vectors, numbers: how many of each, and of what numbers these consist together.
        postings: how many of each.
        records: bytes of sealed records.
    """

    seqs: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    postings: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]


@dataclass(frozen=True)
class MemoryRows:
    """Rows of memories, ascending by number; (n,) each.

    Attributes:
        is_kept: not held back for a review.
        is_counted: no earlier revision.
        importance, kind: places in `IMPORTANCES` and `KINDS`.
        writer: the first eight bytes of the key.
        source, is_sourced: its token, masked where a record has it, and whether there is one.
        moment: when it happened, as `expires`, `stored`, `superseded` in seconds since 1970.
        memory_id: of the memory, that of whose earlier revisions the row may be.
        models: of its vectors, or a mark in the place of one.
        record_sizes: of each sealed record in `records`, 0 without one.
        length: of words that only its opened record counts.
    """

    seq: Ints
    version: Ints
    epoch: Ints
    revision: Ints
    is_sealed: Bools
    is_kept: Bools
    is_counted: Bools
    importance: npt.NDArray[np.int8]
    kind: npt.NDArray[np.int8]
    writer: Ints
    source: Ints
    is_sourced: Bools
    moment: Seconds
    expires: Seconds
    stored: Seconds
    superseded: Seconds
    blob_id: npt.NDArray[np.void]
    memory_id: npt.NDArray[np.void]
    models: Sequence[str | None]
    record_sizes: Ints
    length: Ints
    records: bytes = field(default=b"", repr=False)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.seq)


@dataclass(frozen=True)
class Page:
    """The index data of some memories.

    Attributes:
        memories: their rows; some may bring a sealed record in place of the rest.
        vectors: (epoch, model) → numbers (v,) and vectors (v, dim), as they were sent: whoever
            makes larger numbers of so many does it beside the loop.
        tokens, seqs, frequencies, lengths: of each posting.
    """

    memories: MemoryRows
    vectors: Mapping[tuple[int, str], tuple[Ints, Vectors]]
    tokens: Ints
    seqs: Ints
    frequencies: npt.NDArray[np.int16]
    lengths: npt.NDArray[np.int16]

    @property
    def size_bytes(self) -> int:
        """Return the size of its arrays, in bytes."""
        postings = (self.tokens, self.seqs, self.frequencies, self.lengths)
        vectors = [array for pair in self.vectors.values() for array in pair]
        return sum(array.nbytes for array in (*postings, *vectors))


async def count(connection: Connection, account: AccountId, namespace_id: int) -> int | None:
    """Count the memories that a namespace has now; None for no namespace."""
    found: int | None = await connection.fetchval(_COUNT, account, namespace_id)
    return found


async def versions(
    connection: Connection, account: AccountId, namespace_id: int
) -> Versions | None:
    """Return the rows that a namespace has now; None when it is not there."""
    row = await connection.fetchrow(_VERSIONS, account, namespace_id)
    if row is None:
        return None
    seqs = _numbers(row["seqs"], ">i8")
    versions = _numbers(row["versions"], ">u4")
    order = np.argsort(seqs)
    return Versions(*_state(row), seqs[order], versions[order])


async def read_changes(
    connection: Connection, account: AccountId, namespace_id: int, since: IndexMark
) -> Differing | None:
    """Return what differs from an earlier state; None when not every step is known."""
    rows = await connection.fetch(_STEPS, account, namespace_id, since.number, STEPS_MAX)
    if not rows:
        return None
    mark, counts = _state(rows[0])
    steps = [row for row in rows if row["later"] is not None]
    begun = [*(row["earlier"] for row in steps), mark.number]
    ended = [since.number, *(row["later"] for row in steps)]
    head = steps[0]["earlier_head"] if steps else mark.head
    if begun != ended or head != since.head:
        return None
    seqs = sorted({seq for row in steps for seq in row["seqs"]})
    return Differing(mark, counts, np.array(seqs, np.int64))


async def extent(
    connection: Connection, account: AccountId, namespace_id: int, seqs: Sequence[int]
) -> Extent:
    """Return the amounts of these memories' index data; reads none of it."""
    row = await connection.fetchrow(_EXTENT, account, namespace_id, seqs)
    assert row is not None
    names = ("seqs", "vectors", "numbers", "postings", "records")
    found = [_numbers(row[name], ">i8") for name in names]
    order = np.argsort(found[0])
    return Extent(*(column[order] for column in found))


async def page(
    connection: Connection, account: AccountId, namespace_id: int, seqs: Sequence[int]
) -> Page:
    """Read the index data of these memories."""
    row = await connection.fetchrow(_MEMORIES, account, namespace_id, seqs)
    assert row is not None
    memories = _memories(row)
    rest = memories.seq[memories.record_sizes == 0].tolist()
    if not rest:
        nothing = np.zeros(0, np.int16)
        return Page(memories, {}, memories.seq[:0], memories.seq[:0], nothing, nothing)
    vectors = await connection.fetch(_VECTORS, account, namespace_id, rest)
    postings = await connection.fetchrow(_POSTINGS, account, namespace_id, rest)
    assert postings is not None
    return Page(
        memories=memories,
        vectors={(row["epoch"], row["model"]): _unpack(row) for row in vectors},
        tokens=_numbers(postings["tokens"], ">i8"),
        seqs=_numbers(postings["seqs"], ">i8"),
        frequencies=_numbers(postings["frequencies"], ">i2").astype(np.int16),
        lengths=_numbers(postings["lengths"], ">i2").astype(np.int16),
    )


def _memories(row: Row | Mapping[str, Any]) -> MemoryRows:
    flags = _numbers(row["flags"], ">i4")
    sizes = _numbers(row["record_sizes"], ">i8")
    writers = np.frombuffer(row["writers"] or b"", np.uint8).reshape(-1, _KEY_BYTES)
    found = MemoryRows(
        seq=_numbers(row["seqs"], ">i8"),
        version=_numbers(row["versions"], ">u4"),
        epoch=_numbers(row["epochs"], ">i4"),
        revision=_numbers(row["revisions"], ">i4"),
        is_sealed=flags & 1 > 0,
        is_kept=flags & 2 > 0,
        is_counted=flags & 4 > 0,
        importance=_places(_IMPORTANCE_PLACES, row["importances"]),
        kind=_places(_KIND_PLACES, row["kinds"]),
        writer=np.ascontiguousarray(writers[:, :8]).view(">i8")[:, 0].astype(np.int64),
        source=_numbers(row["sources"], ">i8"),
        is_sourced=flags & 8 > 0,
        moment=_seconds(row["moments"]),
        expires=_seconds(row["expires"]),
        stored=_seconds(row["stored"]),
        superseded=_seconds(row["superseded"]),
        blob_id=np.frombuffer(row["blobs"] or b"", f"V{_KEY_BYTES}"),
        memory_id=np.frombuffer(row["memory_ids"] or b"", "V16"),
        models=row["models"] or (),
        record_sizes=sizes,
        length=np.zeros(len(sizes), np.int64),
        records=row["records"] or b"",
    )
    return found if (np.diff(found.seq) > 0).all() else _in_order(found)


def _in_order(rows: MemoryRows) -> MemoryRows:
    """Return the same rows, ascending by number: an index gives them so, nothing else has to."""
    order = np.argsort(rows.seq)
    ends = rows.record_sizes.cumsum()
    records = [rows.records[ends[at] - rows.record_sizes[at] : ends[at]] for at in order.tolist()]
    columns = {f.name: getattr(rows, f.name) for f in fields(rows)}
    arrays = {k: v[order] for k, v in columns.items() if isinstance(v, np.ndarray)}
    models = [rows.models[at] for at in order.tolist()]
    return MemoryRows(**arrays, models=models, records=b"".join(records))


def _places(places: Mapping[str, int], names: Sequence[str] | None) -> npt.NDArray[np.int8]:
    return np.array([places[name] for name in names or ()], np.int8)


def _seconds(sent: bytes | None) -> Seconds:
    """Return times as they are sent, microseconds since 2000, in seconds since 1970."""
    sent_us = _numbers(sent, ">i8")
    seconds = (sent_us // _SECOND + _EPOCH_S) + sent_us % _SECOND / _SECOND
    return np.where(sent_us == _NEVER, np.inf, seconds)


def _state(row: Row) -> tuple[IndexMark, Counts]:
    mark = IndexMark(row["receipt_head"], row["number"])
    return mark, Counts(row["memory_count"], row["word_count"])


def _numbers(sent: bytes | None, kind: str) -> npt.NDArray[np.int64]:
    return np.frombuffer(sent or b"", kind).astype(np.int64)


def _unpack(row: Row) -> tuple[npt.NDArray[np.int64], Vectors]:
    """Return numbers of memories, and their vectors where they lie among the bytes."""
    seqs = _numbers(row["seqs"], ">i8")
    sent = np.frombuffer(row["packed"], np.uint8).reshape(len(seqs), -1)
    return seqs, sent[:, _HALF_HEADER:].view(">f2")


NO_MEMORIES: Final = _memories(dict.fromkeys(_COLUMNS))
