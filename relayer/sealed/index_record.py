"""The sealed index record of a memory: what it is found by, as one ciphertext. Source: SPEC §8.1.

Not here: which words a text has (`words/`), the same as rows that SQL searches (`database`), the
index in memory that opened records become (`relayer.memory_index`).

- A record belongs to one revision of one memory, and opens for nothing else.
- Its length tells the class of what it holds, and nothing more.
"""

import os
import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relayer.sealed.bulk_opening import (
    OVERHEAD_BYTES,
    Bools,
    Ints,
    bytes_at,
    count_up,
    open_all,
    unpad_all,
)
from relayer.sealed.envelope import pad, unpad
from relayer.sealed.keys import AccountId, NamespaceKey
from relayer.sealed.primitives import (
    AEAD_NONCE_BYTES,
    CryptoError,
    aead_open,
    aead_seal,
    u32,
)

Quantised = npt.NDArray[np.int8]

STEP_BYTES: Final = 128  # between two lengths of short records: 14 words
LEVEL_MAX: Final = 127  # of the largest number of a quantised vector
MARK_BYTES: Final = 1 + AEAD_NONCE_BYTES  # by which two records of one row are told apart
NO_VECTORS: Final[Quantised] = np.zeros((0, 0), np.int8)
_VERSION: Final = b"\1"
_HEAD: Final = struct.Struct(">HBqI")  # length in words, whether there is a source, it, tokens
_VECTORS: Final = struct.Struct(">IH")  # how many, of how many numbers each
_HEADS: Final = np.dtype(
    [("length", ">u2"), ("has_source", "u1"), ("source", ">i8"), ("tokens", ">u4")]
)
_SHAPES: Final = np.dtype([("vectors", ">u4"), ("dim", ">u2")])
_TOKEN_BYTES: Final = 8
_NO_RECORD: Final = "no index record"


@dataclass(frozen=True, eq=False)
class OpenedRecords:
    """The contents of records that were opened together, by the fields of `IndexRecord`.

    Attributes:
        which: (n,) which of all these are, ascending.
        token_counts: (n,) how many each has, those of one behind those of another.
        vector_counts, dims: (n,) how many each has, of how many numbers.
        vectors_at: (n,) where they begin in `plain`.
    """

    which: Ints
    length: Ints
    source: Ints
    is_sourced: Bools
    token_counts: Ints
    tokens: Ints = field(repr=False)
    frequencies: npt.NDArray[np.uint8] = field(repr=False)
    vector_counts: Ints
    dims: Ints
    vectors_at: Ints = field(repr=False)
    plain: bytearray = field(repr=False)

    def vectors_of(self, some: Ints) -> Quantised:
        """Return the vectors of some of the n, which have the same number of numbers."""
        dim, counts = int(self.dims[some[0]]), self.vector_counts[some]
        begins = self.vectors_at[some].repeat(counts) + dim * count_up(counts)
        return bytes_at(self.plain, begins, dim).view(np.int8)


@dataclass(frozen=True, eq=False)
class IndexRecord:
    """The words and vectors by which one revision of a memory is found.

    Attributes:
        length: its rounded number of words.
        source: the token of its source, which is among the tokens, too.
        tokens: (n,) ascending, of its words, tags, source and metadata.
        frequencies: (n,) uint8, clipped.
        vectors: (v, dim) int8, turned, of its passages in their order.
    """

    length: int
    source: int | None
    tokens: Ints = field(repr=False)
    frequencies: npt.NDArray[np.uint8] = field(repr=False)
    vectors: Quantised = field(repr=False)

    @classmethod
    def of(
        cls,
        length: int,
        source: int | None,
        postings: Mapping[int, int],
        vectors: Quantised = NO_VECTORS,
    ) -> "IndexRecord":
        """Return the record of these postings (token → frequency) and quantised vectors."""
        tokens = np.fromiter(postings, np.int64, len(postings))
        frequencies = np.fromiter(postings.values(), np.uint8, len(postings))
        order = np.argsort(tokens)
        return cls(length, source, tokens[order], frequencies[order], vectors)

    @property
    def postings(self) -> dict[int, int]:
        """Return token → frequency, ascending."""
        return dict(zip(self.tokens.tolist(), self.frequencies.tolist(), strict=True))


def quantise(vectors: npt.NDArray[Any]) -> Quantised:
    """Return (n, dim) vectors as whole numbers, the largest of each as 127: only directions count.

    A cosine changes by some .0004 (of 384 numbers that a turn has spread).
    """
    whole = vectors.astype(np.float32)
    largest = np.abs(whole).max(axis=1, initial=0, keepdims=True)
    levels = np.rint(whole * (LEVEL_MAX / np.where(largest > 0, largest, 1)))
    return np.asarray(levels, np.int8)


def seal_record(
    key: NamespaceKey,
    account: AccountId,
    memory: uuid.UUID,
    revision: int,
    record: IndexRecord,
    *,
    nonce: bytes | None = None,
) -> bytes:
    """Return a record, sealed for this revision. `nonce` is given by test vectors only."""
    nonce = nonce or os.urandom(AEAD_NONCE_BYTES)
    return (
        _VERSION
        + nonce
        + aead_seal(
            key.index_record,
            pad(_pack(record), STEP_BYTES),
            associated=_associated(account, memory, revision),
            nonce=nonce,
        )
    )


def open_record(
    key: NamespaceKey, account: AccountId, memory: uuid.UUID, revision: int, sealed: bytes
) -> IndexRecord:
    """Return the record that was sealed for this revision.

    Raises:
        CryptoError: of another version, memory, revision, key or account; altered.
    """
    if not sealed.startswith(_VERSION):
        raise CryptoError("unknown version")
    padded = aead_open(
        key.index_record,
        sealed[MARK_BYTES:],
        associated=_associated(account, memory, revision),
        nonce=sealed[1:MARK_BYTES],
    )
    return _unpack(unpad(padded, STEP_BYTES))


def open_records(
    key: NamespaceKey,
    account: AccountId,
    sealed: bytes,
    begins: Ints,
    sizes: Ints,
    memories: npt.NDArray[np.void],
    revisions: Ints,
) -> OpenedRecords:
    """Return the records that lie at these places, (n,) of these memories and revisions.

    What `open_record` raises for is left out. All are read together: one at a time, a record takes
    ten times as long.
    """
    padded = sizes - 1 - OVERHEAD_BYTES
    which = np.flatnonzero((padded > 0) & (padded % STEP_BYTES == 0))
    which = which[bytes_at(sealed, begins[which], 1)[:, 0] == _VERSION[0]]
    associated = np.empty((len(which), 1 + len(account) + 20), np.uint8)
    associated[:, :-20] = np.frombuffer(_VERSION + account, np.uint8)
    associated[:, -20:-4] = memories[which].view(np.uint8).reshape(-1, 16)
    associated[:, -4:] = revisions[which].astype(">u4").view(np.uint8).reshape(-1, 4)
    plain, at, opened = open_all(
        key.index_record, sealed, begins[which] + 1, sizes[which] - 1, associated
    )
    at, size, fits = unpad_all(plain, at[:-1], padded[which], STEP_BYTES)
    some = np.flatnonzero(opened & fits)
    return _unpack_all(plain, which[some], at[some], size[some])


def mark_of(sealed: bytes | None) -> bytes | None:
    """Return by what a sealed record is told from any other of its row; None without one."""
    return None if sealed is None else bytes(sealed[:MARK_BYTES])


def _associated(account: AccountId, memory: uuid.UUID, revision: int) -> bytes:
    return _VERSION + account + memory.bytes + u32(revision)


def _pack(record: IndexRecord) -> bytes:
    vectors, dim = record.vectors.shape
    head = _HEAD.pack(
        record.length, record.source is not None, record.source or 0, len(record.tokens)
    )
    parts = (
        record.tokens.astype(">i8").tobytes(),
        record.frequencies.tobytes(),
        _VECTORS.pack(vectors, dim if vectors else 0),
        record.vectors.tobytes(),
    )
    return head + b"".join(parts)


def _unpack(plain: bytes) -> IndexRecord:
    """Return the record that these bytes are, all of them.

    Raises:
        CryptoError: they are none.
    """
    if len(plain) < _HEAD.size:
        raise CryptoError(_NO_RECORD)
    length, has_source, source, count = _HEAD.unpack_from(plain)
    words_end = _HEAD.size + count * (_TOKEN_BYTES + 1)
    vectors_at = words_end + _VECTORS.size
    if len(plain) < vectors_at or has_source > 1:
        raise CryptoError(_NO_RECORD)
    vectors, dim = _VECTORS.unpack_from(plain, words_end)
    if len(plain) != vectors_at + vectors * dim or bool(vectors) != bool(dim):
        raise CryptoError(_NO_RECORD)
    tokens = np.frombuffer(plain, ">i8", count, _HEAD.size).astype(np.int64)
    at = _HEAD.size + count * _TOKEN_BYTES
    return IndexRecord(
        length,
        source if has_source else None,
        tokens,
        np.frombuffer(plain, np.uint8, count, at),
        np.frombuffer(plain, np.int8, vectors * dim, vectors_at).reshape(vectors, dim),
    )


def _unpack_all(plain: bytearray, which: Ints, at: Ints, sizes: Ints) -> OpenedRecords:
    """Return what `_unpack` does of each, those left out for which it raises."""
    some = np.flatnonzero(sizes >= _HEAD.size)
    heads = bytes_at(plain, at[some], _HEAD.size).view(_HEADS)[:, 0]
    words_end = _HEAD.size + heads["tokens"] * (_TOKEN_BYTES + 1)
    vectors_at = words_end + _VECTORS.size
    fits = (vectors_at <= sizes[some]) & (heads["has_source"] <= 1)
    some, heads, vectors_at = some[fits], heads[fits], vectors_at[fits]
    shapes = bytes_at(plain, at[some] + words_end[fits], _VECTORS.size).view(_SHAPES)[:, 0]
    vectors, dims = shapes["vectors"].astype(np.int64), shapes["dim"].astype(np.int64)
    fits = (sizes[some] == vectors_at + vectors * dims) & ((vectors > 0) == (dims > 0))
    some, heads, vectors_at = some[fits], heads[fits], vectors_at[fits]
    counts = heads["tokens"].astype(np.int64)
    begins = (at[some] + _HEAD.size).repeat(counts)
    places = count_up(counts)
    tokens = bytes_at(plain, begins + _TOKEN_BYTES * places, _TOKEN_BYTES)
    frequencies = bytes_at(plain, begins + _TOKEN_BYTES * counts.repeat(counts) + places, 1)
    is_sourced = heads["has_source"] == 1
    return OpenedRecords(
        which=which[some],
        length=heads["length"].astype(np.int64),
        source=np.where(is_sourced, heads["source"], 0).astype(np.int64),
        is_sourced=is_sourced,
        token_counts=counts,
        tokens=tokens.view(">i8")[:, 0].astype(np.int64),
        frequencies=frequencies[:, 0],
        vector_counts=vectors[fits],
        dims=dims[fits],
        vectors_at=at[some] + vectors_at,
        plain=plain,
    )
