"""One namespace's index as arrays: memories by their sequence number, their vectors and postings.

Not here: reading it (`database.resident`), when (`index.py`), searching it (`evidence.py`). Pure.

- It is never changed: what changes makes another one, so a search needs no lock.
- Nothing in it can be read: tokens are keyed hashes and vectors turned, as in the database.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt

from relayer.database.memories import SEALED
from relayer.database.pool import Row
from relayer.database.resident import Page, Versions
from relayer.record import Importance, Kind

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]

IMPORTANCES: Final = get_args(Importance)
KINDS: Final = get_args(Kind)
LANES: Final = 64  # vectors that a product adds up in one way; what is left over, in another
POSTING: Final = np.dtype([("at", np.int32), ("frequency", np.int16), ("length", np.int16)])
# As which postings are copied: field by field it takes ten times as long.
_WHOLE: Final = np.int64


@dataclass(frozen=True)
class Memories:
    """Memories, ascending by number; (n,) each, so that a search reads only what it looks at.

    Attributes:
        current: neither superseded nor held back.
        importance, kind: places in `IMPORTANCES` and `KINDS`.
        writer: `short` of the key.
        moment: when it happened, as `expires` in seconds since 1970.
    """

    seq: Ints
    version: Ints
    epoch: npt.NDArray[np.int32]
    sealed: Bools
    current: Bools
    importance: npt.NDArray[np.int8]
    kind: npt.NDArray[np.int8]
    writer: Ints
    source: Ints
    sourced: Bools
    moment: npt.NDArray[np.float64]
    expires: npt.NDArray[np.float64]
    blob_id: npt.NDArray[np.void]

    def __len__(self) -> int:
        """How many."""
        return len(self.seq)

    def at(self, positions: Ints | Bools) -> "Memories":
        """Those at these positions."""
        return Memories(*(column[positions] for column in self.columns))

    @property
    def columns(self) -> list[npt.NDArray[Any]]:
        """All that is known of them."""
        return [getattr(self, column.name) for column in fields(self)]


def joined(parts: Sequence[Memories]) -> Memories:
    """The memories of several, one after the other; of one, itself."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*(part.columns for part in parts), strict=True)
    return Memories(*map(np.concatenate, columns))


@dataclass(frozen=True)
class Passages:
    """Vectors of one model and epoch.

    Attributes:
        at: (v,) positions of their memories.
        units: (dim, w) float32, of length 1, and zeros from `v` on up to a multiple of `LANES`. By
            columns, the product with a query takes half as long as by rows.
        single: whether no memory has two.
    """

    at: Ints
    units: Floats = field(repr=False)
    single: bool

    def cosines(self, unit: Floats) -> Floats:
        """(v,) of each with one of length 1, (dim,); the same for equal ones, to the last digit."""
        cosines: Floats = (unit @ self.units)[: len(self.at)]
        return cosines


@dataclass(frozen=True)
class Resident:
    """A namespace of `n` memories, earlier revisions among them.

    Attributes:
        documents, words: how many memories it counts, and words in them, without revisions.
        memories: what is known of each.
        passages: (epoch, model) → vectors.
        tokens: (p,) of the postings, ascending.
        postings: (p,) of `POSTING`, in the same order.
    """

    namespace_id: int
    documents: int
    words: int
    memories: Memories
    passages: Mapping[tuple[int, str], Passages]
    tokens: Ints
    postings: npt.NDArray[np.void]

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        vectors = sum(p.units.nbytes + p.at.nbytes for p in self.passages.values())
        memories = sum(column.nbytes for column in self.memories.columns)
        return memories + self.tokens.nbytes + self.postings.nbytes + vectors

    def listed(self, seqs: Sequence[int]) -> dict[int, int]:
        """Number → version of those of these memories that are here."""
        wanted = np.array(seqs, np.int64)
        at, here = _positions(wanted, self.memories.seq)
        return dict(zip(wanted[here].tolist(), self.memories.version[at].tolist(), strict=True))

    def changed(self, now: Versions) -> Ints:
        """The numbers of memories that are new, or have changed."""
        here = self.memories
        return now.seqs[~_same(now.seqs, now.versions, here.seq, here.version)]


def empty(namespace_id: int) -> Resident:
    """A namespace of which nothing was read yet."""
    return Resident(
        namespace_id,
        documents=0,
        words=0,
        memories=_columns([]),
        passages={},
        tokens=np.zeros(0, np.int64),
        postings=np.zeros(0, POSTING),
    )


def updated(before: Resident, now: Versions, pages: list[Page]) -> Resident:
    """The namespace as `now` lists it: what has not changed, and the pages of what has."""
    old = before.memories
    if not pages and np.array_equal(old.seq, now.seqs):
        return replace(before, documents=now.memory_count, words=now.word_count)
    kept = _same(old.seq, old.version, now.seqs, now.versions)
    stay = old if kept.all() else old.at(kept)
    memories = joined([stay, *(_columns(page.memories) for page in pages)])
    if not (np.diff(memories.seq) > 0).all():  # else only newer ones have come
        memories = memories.at(np.argsort(memories.seq, kind="stable"))
    seqs = memories.seq
    moved = np.searchsorted(seqs, old.seq)  # where the kept ones are now
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


def _columns(rows: Sequence[Row]) -> Memories:
    def column(of: Callable[[Row], object], kind: npt.DTypeLike) -> npt.NDArray[Any]:
        return np.array([of(row) for row in rows], kind)

    return Memories(
        seq=column(lambda row: row["seq"], np.int64),
        version=column(lambda row: row["version"], np.int64),
        epoch=column(lambda row: row["epoch"], np.int32),
        sealed=column(lambda row: row["format"] == SEALED, np.bool_),
        current=column(lambda row: row["is_current"], np.bool_),
        importance=column(lambda row: IMPORTANCES.index(row["importance"]), np.int8),
        kind=column(lambda row: KINDS.index(row["kind"]), np.int8),
        writer=column(lambda row: short(row["writer"]), np.int64),
        source=column(lambda row: row["source"] or 0, np.int64),
        sourced=column(lambda row: row["source"] is not None, np.bool_),
        moment=column(lambda row: row["moment"], np.float64),
        expires=column(lambda row: row["expires"], np.float64),
        blob_id=column(lambda row: row["blob_id"], "V32"),
    )


def _merged_postings(
    before: Resident, pages: list[Page], seqs: Ints, kept: Bools, moved: Ints
) -> tuple[Ints, npt.NDArray[np.void]]:
    tokens, postings = before.tokens, before.postings.view(_WHOLE)
    if kept.all():
        postings = postings.copy()
    else:
        stay = kept[before.postings["at"]]
        tokens, postings = tokens[stay], postings[stay]
    at = postings.view(POSTING)["at"]
    at[:] = moved[at]
    new_tokens, new = _new_postings(pages, seqs)
    places = tokens.searchsorted(new_tokens, side="right")
    whole = np.insert(postings, places, new.view(_WHOLE))
    return np.insert(tokens, places, new_tokens), whole.view(POSTING)


def _new_postings(pages: list[Page], seqs: Ints) -> tuple[Ints, npt.NDArray[np.void]]:
    tokens, postings = [np.zeros(0, np.int64)], [np.zeros(0, POSTING)]
    for page in pages:
        at, here = _positions(page.seqs, seqs)
        found = np.zeros(len(at), POSTING)
        found["at"], found["frequency"], found["length"] = (
            at,
            page.frequencies[here],
            page.lengths[here],
        )
        tokens.append(page.tokens[here])
        postings.append(found)
    whole = np.concatenate(tokens)
    order = np.argsort(whole, kind="stable")
    return whole[order], np.concatenate(postings)[order]


def _merged_passages(
    before: Resident, pages: list[Page], seqs: Ints, kept: Bools, moved: Ints
) -> dict[tuple[int, str], Passages]:
    scopes = dict.fromkeys([*before.passages, *(scope for page in pages for scope in page.vectors)])
    merged = {}
    for scope in scopes:
        at: list[Ints] = []
        units: list[Floats] = []
        if (old := before.passages.get(scope)) is not None:
            stays = kept[old.at]
            at.append(moved[old.at[stays]])
            units.append(old.units[:, : len(stays)])
            if not stays.all():
                units[0] = np.compress(stays, units[0], axis=1)
        for page in pages:
            if scope in page.vectors:
                numbers, vectors = page.vectors[scope]
                found, here = _positions(numbers, seqs)
                at.append(found)
                units.append(_units(vectors[here]).T)
        places = np.concatenate(at)
        if len(places):
            single = bool(np.bincount(places).max() == 1)
            merged[scope] = Passages(places, _side_by_side(units), single)
    return merged


def _side_by_side(parts: Sequence[Floats]) -> Floats:
    """The vectors of all parts, (dim, …) each, and zeros behind them."""
    dim, count = len(parts[0]), sum(part.shape[1] for part in parts)
    whole = np.zeros((dim, count + -count % LANES), np.float32)
    np.concatenate(parts, axis=1, out=whole[:, :count])
    return whole


def _positions(numbers: Ints, seqs: Ints) -> tuple[Ints, Bools]:
    """Where these memories are, and which of them are there at all."""
    at = np.searchsorted(seqs, numbers)
    here = at < len(seqs)
    here[here] = seqs[at[here]] == numbers[here]
    return at[here], here


def _same(numbers: Ints, versions: Ints, seqs: Ints, others: Ints) -> Bools:
    """Which of these memories are among those of `seqs`, and of the same version there."""
    at, here = _positions(numbers, seqs)
    here[here] = versions[here] == others[at]
    return here


def _units(vectors: Floats) -> Floats:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1), np.float32)
