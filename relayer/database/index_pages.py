"""Pages of a namespace's index, and the decoding of the strings that bring them.

Not here: the statements that read it (`memory_index`), what sealed records hold
(`relayer.memory_index.records`). Pure.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt

from relayer.database.index_steps import IndexMark
from relayer.database.pool import Row
from relayer.record import IMPORTANCES, Kind
from relayer.sealed.bulk_opening import bytes_at, count_up

Vectors = npt.NDArray[np.number[Any]]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Seconds = npt.NDArray[np.float64]

KINDS: Final = get_args(Kind)
RECORD_MAX: Final = 4 * 2**10  # bytes of a record that is read without asking for its size before
# Conditions on a memory, each told by a bit of one number: the first by the lowest.
FLAGS: Final = (
    "format = 'sealed'",
    "review IS NULL OR review = 'contradiction'",
    "revision_of IS NULL",
    "revision <> 1",
    "source IS NOT NULL",
    "expires_at IS NOT NULL",
    "superseded_at IS NOT NULL",
    "frequencies IS NULL AND cardinality(tokens) > 0",
)
IMPORTANCE: Final = 1 << 8  # by which flags are shifted
KIND: Final = 1 << 12
WORDS: Final = 1 << 16
BETWEEN: Final = "\x1f"  # stands between two names of models
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


def decode_page(row: Row | Mapping[str, Any]) -> tuple[Page, Bools]:
    """Return the page of a row that has columns of memories, and whose words are rows elsewhere."""
    sent = row["flags"] or b""
    flags = decode_numbers(sent, ">i4")
    is_sealed, is_kept, is_counted, is_later, is_sourced, expires, superseded, has_rows = (
        flags & 1 << bit > 0 for bit in range(len(FLAGS))
    )
    sizes = decode_numbers(row["record_sizes"], ">i4")
    records = row["records"] or b""
    held = np.where(sizes <= RECORD_MAX, sizes, 0) if len(records) < sizes.sum() else sizes
    writers = np.frombuffer(row["writers"] or b"", np.uint8).reshape(-1, _KEY_BYTES)
    models, model = _distinct(row["models"] or "", len(flags))
    never = np.full(len(flags), np.inf)
    rows = MemoryRows(
        seq=decode_numbers(row["seqs"], ">i8"),
        version=decode_numbers(row["versions"], ">u4"),
        epoch=decode_numbers(row["epochs"], ">i4"),
        revision=_where(is_later, decode_numbers(row["revisions"], ">i4"), np.ones_like(flags)),
        is_sealed=is_sealed,
        is_kept=is_kept,
        is_counted=is_counted,
        importance=_places(flags // IMPORTANCE % (KIND // IMPORTANCE), IMPORTANCES),
        kind=_places(flags // KIND % (WORDS // KIND), KINDS),
        writer=np.ascontiguousarray(writers[:, :8]).view(">i8")[:, 0].astype(np.int64),
        source=_where(is_sourced, decode_numbers(row["sources"], ">i8"), np.zeros_like(flags)),
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
    counts = flags // WORDS
    lengths = decode_numbers(row["lengths"], ">i2").astype(np.int16)
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
    first = joined.partition(BETWEEN)[0]
    if joined == BETWEEN.join([first] * count):  # as almost always
        return [first], np.zeros(count, np.int64)
    names = joined.split(BETWEEN)
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    which = np.array([places[name] for name in names], np.int64)
    if len(which) != count:
        raise ValueError("a model's name has what stands between two")
    return [*places], which


def _seconds(sent: bytes | None) -> Seconds:
    """Return times as they are sent, microseconds since 2000, in seconds since 1970."""
    sent_us = decode_numbers(sent, ">i8")
    is_never = sent_us == _NEVER
    seconds = (sent_us + np.where(is_never, 0, _EPOCH_US)) / _SECOND
    seconds[is_never] = np.inf
    return seconds


def decode_numbers(sent: bytes | None, kind: str) -> npt.NDArray[np.int64]:
    """Return the numbers of a string, each of such a type; none where it is missing."""
    return np.frombuffer(sent or b"", kind).astype(np.int64)


def decode_vectors(sent: Sequence[Row]) -> dict[tuple[int, str], tuple[Ints, Vectors]]:
    """Return (epoch, model) → numbers of memories, and their vectors where they lie among bytes."""
    return {(row["epoch"], row["model"]): _unpack(row) for row in sent}


def _unpack(row: Row) -> tuple[Ints, Vectors]:
    seqs = decode_numbers(row["seqs"], ">i8")
    sent = np.frombuffer(row["packed"], np.uint8).reshape(len(seqs), -1)
    return seqs, sent[:, _HALF_HEADER:].view(">f2")


NO_PAGE: Final = decode_page(defaultdict(lambda: None))[0]
