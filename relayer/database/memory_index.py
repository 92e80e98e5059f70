"""Statements that read a namespace's index as arrays, whole or what changed of it.

Not here: holding it in memory (`relayer.memory_index`).

- What changed is told by the steps between two states of the account's index (`index_steps`).
- Where one of these is missing, all rows tell it: a row of `memories` has another `xmin` after
  every change, and whatever a memory is found by changes together with its row.
- All of a reading comes from one snapshot. After a database was set back under a running relayer,
  an `xmin` may come again: restart it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relayer.database.index_steps import IndexMark
from relayer.database.pool import Connection, Row
from relayer.sealed.index_record import IndexRecord
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
# What is told before any of it is read: long texts have thousands of vectors.
_EXTENT: Final = """
SELECT string_agg(int8send(m.seq), ''::bytea) AS seqs,
       string_agg(int8send(v.vectors), ''::bytea) AS vectors,
       string_agg(int8send(v.numbers), ''::bytea) AS numbers,
       string_agg(int8send(cardinality(m.tokens)), ''::bytea) AS postings,
       string_agg(int8send(coalesce(octet_length(m.index_record), 0)), ''::bytea) AS records
FROM memories m
CROSS JOIN LATERAL (
    SELECT count(*) AS vectors, coalesce(sum(vector_dims(embedding)), 0) AS numbers
    FROM vectors WHERE account_id = $1 AND memory_id = m.memory_id
) v
WHERE m.account_id = $1 AND m.namespace_id = $2 AND m.seq = ANY ($3)
"""
_MEMORIES: Final = """
SELECT seq, xmin::text::bigint AS version, epoch, format, kind, importance, writer, source,
       extract(epoch FROM coalesce(event_time, created_at))::float8 AS moment,
       coalesce(extract(epoch FROM expires_at)::float8, 'infinity') AS expires,
       review IS NULL OR review = 'contradiction' AS is_kept,
       extract(epoch FROM stored_at)::float8 AS stored,
       coalesce(extract(epoch FROM superseded_at)::float8, 'infinity') AS superseded,
       blob_id, coalesce(revision_of, memory_id) AS memory_id, revision,
       revision_of IS NULL AS is_counted, embedding_model, index_record
FROM memories WHERE account_id = $1 AND namespace_id = $2 AND seq = ANY ($3) ORDER BY seq
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
STEPS_MAX: Final = 500  # so many look at fewer rows than all of a namespace that is worth holding
_HALF_HEADER: Final = 4  # bytes in front of each vector that is sent


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
class Page:
    """The index data of some memories.

    Attributes:
        memories: rows, ascending by number; some may bring a sealed record in place of the rest.
        vectors: (epoch, model) → numbers (v,) and vectors (v, dim), as they were sent: whoever
            makes larger numbers of so many does it beside the loop.
        tokens, seqs, frequencies, lengths: of each posting.
        opened: number → the record that was sealed, which the rest has by then.
    """

    memories: Sequence[Row]
    vectors: Mapping[tuple[int, str], tuple[npt.NDArray[np.int64], Vectors]]
    tokens: npt.NDArray[np.int64]
    seqs: npt.NDArray[np.int64]
    frequencies: npt.NDArray[np.int16]
    lengths: npt.NDArray[np.int16]
    opened: Mapping[int, IndexRecord] = field(default_factory=dict, repr=False)

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
    scope = (account, namespace_id, seqs)
    memories = await connection.fetch(_MEMORIES, *scope)
    vectors = await connection.fetch(_VECTORS, *scope)
    postings = await connection.fetchrow(_POSTINGS, *scope)
    assert postings is not None
    return Page(
        memories=memories,
        vectors={(row["epoch"], row["model"]): _unpack(row) for row in vectors},
        tokens=_numbers(postings["tokens"], ">i8"),
        seqs=_numbers(postings["seqs"], ">i8"),
        frequencies=_numbers(postings["frequencies"], ">i2").astype(np.int16),
        lengths=_numbers(postings["lengths"], ">i2").astype(np.int16),
    )


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
