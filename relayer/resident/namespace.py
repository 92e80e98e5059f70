"""One namespace's index as arrays: memories by their sequence number, their vectors and postings.

Not here: reading it (`database.resident`), when (`index.py`), searching it (`evidence.py`). Pure.

- It is never changed: what changes makes another one, so a search needs no lock.
- Nothing in it can be read: tokens are keyed hashes and vectors turned, as in the database.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, get_args

import numpy as np
import numpy.typing as npt

from relayer.database.memories import SEALED
from relayer.database.resident import Page, Versions
from relayer.record import Importance, Kind

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

IMPORTANCES: Final = get_args(Importance)
KINDS: Final = get_args(Kind)
MEMORY: Final = np.dtype(
    [
        ("seq", np.int64),
        ("version", np.int64),
        ("epoch", np.int32),
        ("sealed", np.bool_),
        ("current", np.bool_),  # neither superseded nor held back
        ("importance", np.int8),  # its place in `IMPORTANCES`
        ("kind", np.int8),  # its place in `KINDS`
        ("writer", np.int64),  # `short` of the key
        ("source", np.int64),
        ("sourced", np.bool_),
        ("moment", np.float64),  # when it happened, seconds since 1970
        ("expires", np.float64),
        ("blob_id", "V32"),
    ]
)
POSTING: Final = np.dtype([("at", np.int32), ("frequency", np.int16), ("length", np.int16)])


@dataclass(frozen=True)
class Passages:
    """Vectors of one model and epoch.

    Attributes:
        at: (v,) positions of their memories.
        units: (v, dim) float32, of length 1.
        single: whether no memory has two.
    """

    at: Ints
    units: Floats = field(repr=False)
    single: bool


@dataclass(frozen=True)
class Resident:
    """A namespace of `n` memories, earlier revisions among them.

    Attributes:
        documents, words: how many memories it counts, and words in them, without revisions.
        memories: (n,) of `MEMORY`, ascending by seq.
        passages: (epoch, model) → vectors.
        tokens: (p,) of the postings, ascending.
        postings: (p,) of `POSTING`, in the same order.
    """

    namespace_id: int
    documents: int
    words: int
    memories: npt.NDArray[np.void]
    passages: Mapping[tuple[int, str], Passages]
    tokens: Ints
    postings: npt.NDArray[np.void]

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        vectors = sum(p.units.nbytes + p.at.nbytes for p in self.passages.values())
        return self.memories.nbytes + self.tokens.nbytes + self.postings.nbytes + vectors

    def listed(self, seqs: Sequence[int]) -> dict[int, int]:
        """Number → version of those of these memories that are here."""
        wanted = np.array(seqs, np.int64)
        at, here = _positions(wanted, self.memories["seq"])
        return dict(zip(wanted[here].tolist(), self.memories["version"][at].tolist(), strict=True))

    def changed(self, now: Versions) -> Ints:
        """The numbers of memories that are new, or have changed."""
        at = np.searchsorted(now.seqs, self.memories["seq"])
        same = np.zeros(len(now.seqs), bool)
        at, mine = at[at < len(now.seqs)], self.memories[at < len(now.seqs)]
        same[at] = (now.seqs[at] == mine["seq"]) & (now.versions[at] == mine["version"])
        return now.seqs[~same]


def empty(namespace_id: int) -> Resident:
    """A namespace of which nothing was read yet."""
    return Resident(
        namespace_id,
        documents=0,
        words=0,
        memories=np.zeros(0, MEMORY),
        passages={},
        tokens=np.zeros(0, np.int64),
        postings=np.zeros(0, POSTING),
    )


def updated(before: Resident, now: Versions, pages: list[Page]) -> Resident:
    """The namespace as `now` lists it: what has not changed, and the pages of what has."""
    if not pages and np.array_equal(before.memories["seq"], now.seqs):
        return replace(before, documents=now.memory_count, words=now.word_count)
    stale = before.changed(now)
    kept = np.isin(before.memories["seq"], now.seqs) & ~np.isin(before.memories["seq"], stale)
    memories = np.concatenate([before.memories[kept], *map(_columns, pages)])
    memories = memories[np.argsort(memories["seq"], kind="stable")]
    seqs = np.ascontiguousarray(memories["seq"])
    moved = np.searchsorted(seqs, before.memories["seq"])  # where the kept ones are now
    tokens, postings = _merged_postings(before, pages, seqs, kept, moved)
    return Resident(
        before.namespace_id,
        documents=now.memory_count,
        words=now.word_count,
        memories=memories,
        passages=_merged_passages(before, pages, seqs, kept, moved),
        tokens=tokens,
        postings=postings,
    )


def short(key: bytes) -> int:
    """What tells the keys of an account apart: their first eight bytes."""
    return int.from_bytes(key[:8], "big", signed=True)


def _columns(page: Page) -> npt.NDArray[np.void]:
    rows = [
        (
            row["seq"],
            row["version"],
            row["epoch"],
            row["format"] == SEALED,
            row["is_current"],
            IMPORTANCES.index(row["importance"]),
            KINDS.index(row["kind"]),
            short(row["writer"]),
            row["source"] or 0,
            row["source"] is not None,
            row["moment"],
            row["expires"],
            row["blob_id"],
        )
        for row in page.memories
    ]
    return np.array(rows, MEMORY)


def _merged_postings(
    before: Resident, pages: list[Page], seqs: Ints, kept: npt.NDArray[np.bool_], moved: Ints
) -> tuple[Ints, npt.NDArray[np.void]]:
    stays = kept[before.postings["at"]]
    old = before.postings[stays]
    old["at"] = moved[old["at"]]
    tokens, postings = [before.tokens[stays]], [old]
    for page in pages:
        at, here = _positions(page.seqs, seqs)
        fresh = np.zeros(len(at), POSTING)
        fresh["at"], fresh["frequency"], fresh["length"] = (
            at,
            page.frequencies[here],
            page.lengths[here],
        )
        tokens.append(page.tokens[here])
        postings.append(fresh)
    joined = np.concatenate(tokens)
    order = np.argsort(joined, kind="stable")
    return joined[order], np.concatenate(postings)[order]


def _merged_passages(
    before: Resident, pages: list[Page], seqs: Ints, kept: npt.NDArray[np.bool_], moved: Ints
) -> dict[tuple[int, str], Passages]:
    scopes = dict.fromkeys([*before.passages, *(scope for page in pages for scope in page.vectors)])
    merged = {}
    for scope in scopes:
        at: list[Ints] = []
        units: list[Floats] = []
        if (old := before.passages.get(scope)) is not None:
            stays = kept[old.at]
            at.append(moved[old.at[stays]])
            units.append(old.units if stays.all() else old.units[stays])
        for page in pages:
            if scope in page.vectors:
                numbers, vectors = page.vectors[scope]
                places, here = _positions(numbers, seqs)
                at.append(places)
                units.append(_units(vectors[here]))
        joined = np.concatenate(at)
        if len(joined):
            single = len(np.unique(joined)) == len(joined)
            whole = units[0] if len(units) == 1 else np.concatenate(units)
            merged[scope] = Passages(joined, whole, single)
    return merged


def _positions(numbers: Ints, seqs: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Where these memories are, and which of them are there at all."""
    at = np.searchsorted(seqs, numbers)
    here = at < len(seqs)
    here[here] = seqs[at[here]] == numbers[here]
    return at[here], here


def _units(vectors: Floats) -> Floats:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1), np.float32)
