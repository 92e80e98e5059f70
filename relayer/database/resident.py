"""Statements that read a namespace's index as arrays, whole or what changed of it.

Not here: holding it in memory (`relayer.resident`).

- What changed is told by the steps between two states of the account's index (`index_steps`).
- Where one of these is missing, all rows tell it: a row of `memories` has another `xmin` after
  every change, and whatever a memory is found by changes together with its row.
- All of a reading comes from one snapshot. After a database was set back under a running relayer,
  an `xmin` may come again: restart it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database.index_steps import IndexMark
from relayer.database.pool import Connection, Row
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
_MEMORIES: Final = """
SELECT seq, xmin::text::bigint AS version, epoch, format, kind, importance, writer, source,
       extract(epoch FROM coalesce(event_time, created_at))::float8 AS moment,
       coalesce(extract(epoch FROM expires_at)::float8, 'infinity') AS expires,
       (review IS NULL OR review = 'contradiction') AND superseded_at IS NULL AS is_current,
       blob_id
FROM memories WHERE account_id = $1 AND namespace_id = $2 AND seq = ANY ($3) ORDER BY seq
"""
# Vectors as one string of big-endian halves after four bytes each, as their type is sent.
_VECTORS: Final = """
SELECT v.epoch, v.model, array_agg(m.seq) AS seqs,
       string_agg(halfvec_send(v.embedding), ''::bytea) AS packed
FROM memories m JOIN vectors v ON v.account_id = $1 AND v.memory_id = m.memory_id
WHERE m.account_id = $1 AND m.namespace_id = $2 AND m.seq = ANY ($3)
GROUP BY v.epoch, v.model
"""
_POSTINGS: Final = """
SELECT array_agg(p.token) AS tokens, array_agg(m.seq) AS seqs,
       array_agg(p.frequency) AS frequencies, array_agg(p.word_count) AS lengths
FROM memories m
CROSS JOIN LATERAL unnest(m.tokens) AS t (token)
JOIN postings p ON p.account_id = $1 AND p.namespace_id = $2 AND p.token = t.token
               AND p.memory_id = m.memory_id
WHERE m.account_id = $1 AND m.namespace_id = $2 AND m.seq = ANY ($3)
"""
STEPS_MAX: Final = 500  # so many look at fewer rows than all of a namespace that is worth holding
_HALF_HEADER: Final = 4  # bytes in front of each vector that is sent


@dataclass(frozen=True)
class Counts:
    """How many memories a namespace has, and words in them; earlier revisions do not count."""

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
class Page:
    """What some memories are found by.

    Attributes:
        memories: rows, ascending by number.
        vectors: (epoch, model) → numbers (v,) and vectors (v, dim) float32.
        tokens, seqs, frequencies, lengths: of each posting.
    """

    memories: Sequence[Row]
    vectors: dict[tuple[int, str], tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]
    tokens: npt.NDArray[np.int64]
    seqs: npt.NDArray[np.int64]
    frequencies: npt.NDArray[np.int16]
    lengths: npt.NDArray[np.int16]


async def count(connection: Connection, account: AccountId, namespace_id: int) -> int | None:
    """How many memories a namespace has now, or None."""
    found: int | None = await connection.fetchval(_COUNT, account, namespace_id)
    return found


async def versions(
    connection: Connection, account: AccountId, namespace_id: int
) -> Versions | None:
    """The rows that a namespace has now; None when it is not there."""
    row = await connection.fetchrow(_VERSIONS, account, namespace_id)
    if row is None:
        return None
    seqs = np.frombuffer(row["seqs"] or b"", ">i8").astype(np.int64)
    versions = np.frombuffer(row["versions"] or b"", ">u4").astype(np.int64)
    order = np.argsort(seqs)
    return Versions(*_state(row), seqs[order], versions[order])


async def differing(
    connection: Connection, account: AccountId, namespace_id: int, since: IndexMark
) -> Differing | None:
    """What of a namespace differs from an earlier state; None when not every step is known."""
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


async def page(
    connection: Connection, account: AccountId, namespace_id: int, seqs: Sequence[int]
) -> Page:
    """What these memories are found by."""
    scope = (account, namespace_id, seqs)
    memories = await connection.fetch(_MEMORIES, *scope)
    vectors = await connection.fetch(_VECTORS, *scope)
    postings = await connection.fetchrow(_POSTINGS, *scope)
    assert postings is not None
    return Page(
        memories=memories,
        vectors={(row["epoch"], row["model"]): _unpacked(row) for row in vectors},
        tokens=np.array(postings["tokens"] or (), np.int64),
        seqs=np.array(postings["seqs"] or (), np.int64),
        frequencies=np.array(postings["frequencies"] or (), np.int16),
        lengths=np.array(postings["lengths"] or (), np.int16),
    )


def _state(row: Row) -> tuple[IndexMark, Counts]:
    mark = IndexMark(row["receipt_head"], row["number"])
    return mark, Counts(row["memory_count"], row["word_count"])


def _unpacked(row: Row) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    seqs = np.array(row["seqs"], np.int64)
    sent = np.frombuffer(row["packed"], np.uint8).reshape(len(seqs), -1)
    halves = np.ascontiguousarray(sent[:, _HALF_HEADER:]).view(">f2")
    return seqs, halves.astype(np.float32)
