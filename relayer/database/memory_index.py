"""Statements that read a namespace's index as arrays, whole or what changed of it.

Not here: holding it in memory (`relayer.memory_index`).

- What changed is told by the steps between two states of the account's index (`index_steps`).
- Where one of these is missing, all rows tell it: a row of `memories` has another `xmin` after
  every change, and whatever a memory is found by changes together with its row.
- All of a reading comes from one snapshot. After a database was set back under a running relayer,
  an `xmin` may come again: restart it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt

from relayer.database.index_steps import IndexMark
from relayer.database.pool import Connection, Row
from relayer.record import IMPORTANCES, Kind
from relayer.sealed.bulk_opening import bytes_at, count_up
from relayer.sealed.keys import AccountId

KINDS: Final = get_args(Kind)
RECORD_MAX: Final = 4 * 2**10  # bytes of a record that is read without asking for its size before
VECTORS_EACH: Final = 2  # on average that are read without asking how many there are before
_IMPORTANCE: Final = 1 << 8  # by which flags are shifted
_KIND: Final = 1 << 12
_WORDS: Final = 1 << 16
_BETWEEN: Final = "\x1f"  # stands between two names of models


def _code(column: str, names: Sequence[str]) -> str:
    """Return the place of a column's value among names, in SQL."""
    cases = " ".join(f"WHEN '{name}' THEN {place}" for place, name in enumerate(names))
    return f"CASE {column} {cases} ELSE {len(names)} END"


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
# A string for each column: a row for each memory takes twice as long to read. What is the same of
# almost all comes for the others alone, and small numbers share one.
_FLAGS: Final = (
    "format = 'sealed'",
    "review IS NULL OR review = 'contradiction'",
    "revision_of IS NULL",
    "revision <> 1",
    "source IS NOT NULL",
    "expires_at IS NOT NULL",
    "superseded_at IS NOT NULL",
    "frequencies IS NULL AND cardinality(tokens) > 0",
)
_HAS_WORDS: Final = "frequencies IS NOT NULL"
_ROWS: Final = f"""
       string_agg(int8send(seq), ''::bytea) AS seqs,
       string_agg(xidsend(xmin), ''::bytea) AS versions,
       string_agg(int4send(epoch), ''::bytea) AS epochs,
       string_agg(int4send({" + ".join(f"({f})::int * {1 << n}" for n, f in enumerate(_FLAGS))}
                           + {_code("importance", IMPORTANCES)} * {_IMPORTANCE}
                           + {_code("kind", KINDS)} * {_KIND}
                           + coalesce(octet_length(frequencies), 0) * {_WORDS}),
                  ''::bytea) AS flags,
       string_agg(int4send(revision), ''::bytea) FILTER (WHERE {_FLAGS[3]}) AS revisions,
       string_agg(int8send(source), ''::bytea) FILTER (WHERE {_FLAGS[4]}) AS sources,
       string_agg(timestamptz_send(expires_at), ''::bytea) FILTER (WHERE {_FLAGS[5]}) AS expires,
       string_agg(timestamptz_send(superseded_at), ''::bytea)
           FILTER (WHERE {_FLAGS[6]}) AS superseded,
       string_agg(timestamptz_send(coalesce(event_time, created_at)), ''::bytea) AS moments,
       string_agg(timestamptz_send(stored_at), ''::bytea) AS stored,
       string_agg(writer, ''::bytea) AS writers,
       string_agg(blob_id, ''::bytea) AS blobs,
       string_agg(uuid_send(coalesce(revision_of, memory_id)), ''::bytea) AS memory_ids,
       string_agg(coalesce(embedding_model, ''), E'{_BETWEEN}') AS models,
       string_agg(array_send(tokens), ''::bytea) FILTER (WHERE {_HAS_WORDS}) AS tokens,
       string_agg(frequencies, ''::bytea) AS frequencies,
       string_agg(int2send(word_count), ''::bytea) FILTER (WHERE {_HAS_WORDS}) AS lengths,
       string_agg(int4send(coalesce(octet_length(index_record), 0)), ''::bytea) AS record_sizes
"""
_MEMORIES: Final = f"""
SELECT string_agg(index_record, ''::bytea) AS records, {_ROWS}
FROM memories WHERE account_id = $1 AND namespace_id = $2 AND seq = ANY ($3)
"""
# The state and the newest memories in one, large records left out.
_NEWEST: Final = f"""
SELECT a.receipt_head, a.receipt_seq + a.index_changes AS number, n.memory_count, n.word_count,
       (SELECT max(seq) FROM memories
        WHERE account_id = $1 AND namespace_id = $2 AND seq < coalesce(r.first, $3)) AS rest, r.*
FROM accounts a
JOIN namespaces n ON n.account_id = $1 AND n.namespace_id = $2
CROSS JOIN (
    SELECT min(seq) AS first,
           string_agg(index_record, ''::bytea)
               FILTER (WHERE octet_length(index_record) <= {RECORD_MAX}) AS records, {_ROWS}
    FROM (SELECT *, xmin FROM memories WHERE account_id = $1 AND namespace_id = $2 AND seq < $3
          ORDER BY seq DESC LIMIT $4) m
) r
WHERE a.account_id = $1
"""


def _vectors(which: str, most: str) -> str:
    """Return SQL for the vectors of memories, as one string of big-endian halves after four bytes
    each: so their type is sent.

    They are looked up by memory: joined, all of an account's might be looked through for a page.
    """
    return f"""
SELECT epoch, model, string_agg(int8send(seq), ''::bytea) AS seqs,
       string_agg(halfvec_send(embedding), ''::bytea) AS packed
FROM (SELECT m.seq, v.epoch, v.model, v.embedding
      FROM memories m
      CROSS JOIN LATERAL (
          SELECT epoch, model, embedding FROM vectors
          WHERE account_id = $1 AND memory_id = m.memory_id OFFSET 0
      ) v
      WHERE m.account_id = $1 AND m.namespace_id = $2 AND {which} LIMIT {most}) found
GROUP BY epoch, model
"""


_VECTORS: Final = _vectors("m.seq = ANY ($3)", "ALL")
_VECTORS_BETWEEN: Final = _vectors("m.seq BETWEEN $3 AND $4 AND m.index_record IS NULL", "$5")
_POSTINGS: Final = """
SELECT string_agg(int8send(p.token), ''::bytea) AS tokens,
       string_agg(int8send(m.seq), ''::bytea) AS seqs,
       string_agg(int2send(p.frequency), ''::bytea) AS frequencies,
       string_agg(int2send(p.word_count), ''::bytea) AS lengths
FROM memories m
CROSS JOIN LATERAL unnest(m.tokens) AS t (token)
JOIN postings p ON p.account_id = $1 AND p.namespace_id = $2 AND p.token = t.token
               AND p.memory_id = m.memory_id
WHERE m.account_id = $1 AND m.namespace_id = $2 AND m.seq = ANY ($3) AND m.frequencies IS NULL
"""
Vectors = npt.NDArray[np.number[Any]]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Seconds = npt.NDArray[np.float64]
STEPS_MAX: Final = 500  # so many look at fewer rows than all of a namespace that is worth holding
_HALF_HEADER: Final = 4  # bytes in front of each vector that is sent
_ARRAY_HEADER: Final = 20  # bytes in front of each array that is sent
_ELEMENT: Final = 12  # bytes of each number in it
_KEY_BYTES: Final = 32  # of a writer, and of a blob's name
_SECOND: Final = 1_000_000  # microseconds
_EPOCH_US: Final = 946_684_800 * _SECOND  # from 1970 to 2000, from which times count
_NEVER: Final = np.iinfo(np.int64).max


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

    def join(self, other: "Extent") -> "Extent":
        """Return the extent of these and others."""
        columns = [np.concatenate([getattr(one, f.name) for one in (self, other)])
                   for f in fields(self)]  # fmt: skip
        order = np.argsort(columns[0])
        return Extent(*(column[order] for column in columns))


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
        model: place in `models` of that of its vectors, or of a mark in the place of one.
        record_begins, record_sizes: where its sealed record lies in `records`, of 0 bytes without.
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
    model: Ints
    record_begins: Ints
    record_sizes: Ints
    length: Ints
    models: Sequence[str] = ("",)
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
    def extent(self) -> Extent:
        """Return the amounts that each of its memories has."""
        seqs = self.memories.seq
        postings = np.bincount(seqs.searchsorted(self.seqs), minlength=len(seqs))
        vectors, numbers = np.zeros_like(seqs), np.zeros_like(seqs)
        for its, found in self.vectors.values():
            counts = np.bincount(seqs.searchsorted(its), minlength=len(seqs))
            vectors += counts
            numbers += counts * found.shape[1]
        return Extent(seqs, vectors, numbers, postings, self.memories.record_sizes)

    def only(self, wanted: Bools) -> "Page":
        """Return the page of these memories alone."""
        if wanted.all():
            return self
        seqs = self.memories.seq[wanted]
        words, vectors = np.isin(self.seqs, seqs), {}
        for scope, (its, found) in self.vectors.items():
            stays = np.isin(its, seqs)
            if stays.any():
                vectors[scope] = its[stays], found[stays]
        return Page(
            memories=_at(self.memories, np.flatnonzero(wanted)),
            vectors=vectors,
            tokens=self.tokens[words],
            seqs=self.seqs[words],
            frequencies=self.frequencies[words],
            lengths=self.lengths[words],
        )

    @property
    def size_bytes(self) -> int:
        """Return the size of its arrays, in bytes."""
        postings = (self.tokens, self.seqs, self.frequencies, self.lengths)
        vectors = [array for pair in self.vectors.values() for array in pair]
        return sum(array.nbytes for array in (*postings, *vectors))


@dataclass(frozen=True)
class Newest:
    """Memories of a namespace that are older than a number, the newest of them, at one state.

    Attributes:
        page: those that take little each.
        apart: numbers of the others, ascending, whose extent is not known.
        rest: the newest number that is older than all of these; None where none is.
    """

    mark: IndexMark
    counts: Counts
    page: Page
    apart: Ints
    rest: int | None


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


async def newest(
    connection: Connection, account: AccountId, namespace_id: int, before: int, count: int
) -> Newest | None:
    """Return so many of the newest memories before a number; None for no namespace.

    What may be large is left to be read apart, so that all of it takes a few megabytes.
    """
    row = await connection.fetchrow(_NEWEST, account, namespace_id, before, count)
    if row is None:
        return None
    page, has_rows = _page(row)
    memories = page.memories
    is_apart = has_rows | (memories.record_sizes > RECORD_MAX)
    searched = memories.seq[memories.record_sizes == 0]
    if len(searched):
        most, bounds = VECTORS_EACH * count, (int(searched[0]), int(searched[-1]))
        vectors = await connection.fetch(_VECTORS_BETWEEN, account, namespace_id, *bounds, most)
        page = replace(page, vectors={(v["epoch"], v["model"]): _unpack(v) for v in vectors})
        if sum(len(its) for its, _ in page.vectors.values()) >= most:
            is_apart |= memories.record_sizes == 0
    return Newest(*_state(row), page.only(~is_apart), memories.seq[is_apart], row["rest"])


async def page(
    connection: Connection, account: AccountId, namespace_id: int, seqs: Sequence[int]
) -> Page:
    """Read the index data of these memories."""
    row = await connection.fetchrow(_MEMORIES, account, namespace_id, seqs)
    assert row is not None
    page, has_rows = _page(row)
    rest = page.memories.seq[page.memories.record_sizes == 0].tolist()
    if rest:
        vectors = await connection.fetch(_VECTORS, account, namespace_id, rest)
        page = replace(page, vectors={(v["epoch"], v["model"]): _unpack(v) for v in vectors})
    if not has_rows.any():
        return page
    rest = page.memories.seq[has_rows].tolist()
    postings = await connection.fetchrow(_POSTINGS, account, namespace_id, rest)
    assert postings is not None
    return replace(
        page,
        tokens=np.concatenate([page.tokens, _numbers(postings["tokens"], ">i8")]),
        seqs=np.concatenate([page.seqs, _numbers(postings["seqs"], ">i8")]),
        frequencies=np.concatenate(
            [page.frequencies, _numbers(postings["frequencies"], ">i2").astype(np.int16)]
        ),
        lengths=np.concatenate(
            [page.lengths, _numbers(postings["lengths"], ">i2").astype(np.int16)]
        ),
    )


def _page(row: Row | Mapping[str, Any]) -> tuple[Page, Bools]:
    """Return the page of a row that has columns of memories, and whose words are rows elsewhere."""
    sent = row["flags"] or b""
    flags = _numbers(sent, ">i4")
    is_sealed, is_kept, is_counted, is_later, is_sourced, expires, superseded, has_rows = (
        flags & 1 << bit > 0 for bit in range(len(_FLAGS))
    )
    sizes = _numbers(row["record_sizes"], ">i4")
    records = row["records"] or b""
    held = np.where(sizes <= RECORD_MAX, sizes, 0) if len(records) < sizes.sum() else sizes
    writers = np.frombuffer(row["writers"] or b"", np.uint8).reshape(-1, _KEY_BYTES)
    models, model = _distinct(row["models"] or "", len(flags))
    never = np.full(len(flags), np.inf)
    rows = MemoryRows(
        seq=_numbers(row["seqs"], ">i8"),
        version=_numbers(row["versions"], ">u4"),
        epoch=_numbers(row["epochs"], ">i4"),
        revision=_where(is_later, _numbers(row["revisions"], ">i4"), np.ones_like(flags)),
        is_sealed=is_sealed,
        is_kept=is_kept,
        is_counted=is_counted,
        importance=_places(flags // _IMPORTANCE % (_KIND // _IMPORTANCE), IMPORTANCES),
        kind=_places(flags // _KIND % (_WORDS // _KIND), KINDS),
        writer=np.ascontiguousarray(writers[:, :8]).view(">i8")[:, 0].astype(np.int64),
        source=_where(is_sourced, _numbers(row["sources"], ">i8"), np.zeros_like(flags)),
        is_sourced=is_sourced,
        moment=_seconds(row["moments"]),
        expires=_where(expires, _seconds(row["expires"]), never),
        stored=_seconds(row["stored"]),
        superseded=_where(superseded, _seconds(row["superseded"]), never),
        blob_id=np.frombuffer(row["blobs"] or b"", f"V{_KEY_BYTES}"),
        memory_id=np.frombuffer(row["memory_ids"] or b"", "V16"),
        model=model,
        record_begins=held.cumsum() - held,
        record_sizes=sizes,
        length=np.zeros_like(flags),
        models=models,
        records=records,
    )
    counts = flags // _WORDS
    lengths = _numbers(row["lengths"], ">i2").astype(np.int16)
    page = Page(
        memories=rows,
        vectors={},
        tokens=_tokens(row["tokens"] or b"", counts),
        seqs=rows.seq.repeat(counts),
        frequencies=np.frombuffer(row["frequencies"] or b"", np.uint8).astype(np.int16),
        lengths=lengths.repeat(counts[counts > 0]),
    )
    steps = np.diff(rows.seq)
    if (steps > 0).all():
        return page, has_rows
    # They come as an index gives them, newest first.
    order = np.argsort(rows.seq)
    return replace(page, memories=_at(rows, order)), has_rows[order]


def _tokens(sent: bytes, counts: Ints) -> Ints:
    """Return the tokens of arrays that have so many each, where any.

    An array is sent as five numbers of four bytes, the fourth of which counts it, and each token
    as its size and itself.
    """
    counts = counts[counts > 0]
    sizes = _ARRAY_HEADER + _ELEMENT * counts
    begins = sizes.cumsum() - sizes
    if len(sent) != sizes.sum():
        raise ValueError("words without frequencies")
    places = (begins + _ARRAY_HEADER).repeat(counts) + _ELEMENT * count_up(counts)
    elements = bytes_at(sent, places, _ELEMENT)[:, _ELEMENT - 8 :]
    return np.ascontiguousarray(elements).view(">i8")[:, 0].astype(np.int64)


def _at(rows: MemoryRows, places: Ints) -> MemoryRows:
    columns = {f.name: getattr(rows, f.name) for f in fields(rows)}
    moved: dict[str, Any] = {k: v[places] for k, v in columns.items() if isinstance(v, np.ndarray)}
    return replace(rows, **moved)


def _places(codes: Ints, names: Sequence[str]) -> npt.NDArray[np.int8]:
    if (codes >= len(names)).any():
        raise ValueError("a name that this release does not know")
    return codes.astype(np.int8)


def _where(given: Bools, values: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return others with values in the place of those that are given, in their order."""
    if len(values):
        others = others.copy()
        others[given] = values
    return others


def _distinct(joined: str, count: int) -> tuple[list[str], Ints]:
    """Return the different names of `count` that are joined, and the place of each of all."""
    if not count:
        return [], np.zeros(0, np.int64)
    first = joined.partition(_BETWEEN)[0]
    if joined == _BETWEEN.join([first] * count):  # as almost always
        return [first], np.zeros(count, np.int64)
    names = joined.split(_BETWEEN)
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    which = np.array([places[name] for name in names], np.int64)
    if len(which) != count:
        raise ValueError("a model's name has what stands between two")
    return [*places], which


def _seconds(sent: bytes | None) -> Seconds:
    """Return times as they are sent, microseconds since 2000, in seconds since 1970."""
    sent_us = _numbers(sent, ">i8")
    is_never = sent_us == _NEVER
    seconds = (sent_us + np.where(is_never, 0, _EPOCH_US)) / _SECOND
    seconds[is_never] = np.inf
    return seconds


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


NO_PAGE: Final = _page(defaultdict(lambda: None))[0]
