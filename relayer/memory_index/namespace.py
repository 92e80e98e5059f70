"""One namespace's index as arrays: memories by their sequence number, their vectors and postings.

Not here: reading it (`database.memory_index`), when (`index.py`), searching it (`evidence.py`).
Pure.

- It is never changed: what changes makes another one, so a search needs no lock.
- Nothing in it can be read: tokens are keyed hashes and vectors turned, as in the database.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relayer.database.index_pages import (
    NO_PAGE,
    Differing,
    Extent,
    Page,
    Versions,
)
from relayer.memory_index.passages import NO_PASSAGES, Part, Passages
from relayer.memory_index.postings import (
    NO_POSTINGS,
    POSTING_BYTES,
    WORD_BYTES,
    Postings,
    pack,
)
from relayer.memory_index.vector_rows import estimate_bytes

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

RECENT_MAX: Final = 4_096  # postings that are kept beside those in order
WORD_SHARE: Final = 4  # entries that share a word, as is estimated
ORDERED_MAX: Final = 65_536  # postings that are put in order anew with each change
NAMED_MAX: Final = 8_192  # memories whose blobs' names are kept: a recall seldom needs any
UNNAMED: Final = np.zeros(1, "V32")  # in place of a name


@dataclass(frozen=True)
class Memories:
    """Memories, ascending by number; (n,) each, so that a search reads only what it looks at.

    What is the same of all of them is there once (`_shared`), however many they are.

    Attributes:
        kept: not held back for a review.
        words: rounded number of them, for whoever has any postings.
        length: of words that only its sealed record counts, and its namespace's row does not.
        importance, kind: places in `IMPORTANCES` and `KINDS`.
        writer: `short` of the key.
        moment: when it happened, as `expires`, `stored`, `superseded` in seconds since 1970.
        blob_id: hashes; `UNNAMED` of many memories.
    """

    seq: Ints
    version: npt.NDArray[np.uint32]
    epoch: npt.NDArray[np.int32]
    sealed: Bools
    kept: Bools
    words: npt.NDArray[np.int16]
    length: npt.NDArray[np.int16]
    importance: npt.NDArray[np.int8]
    kind: npt.NDArray[np.int8]
    writer: Ints
    source: Ints
    sourced: Bools
    moment: npt.NDArray[np.float64]
    expires: npt.NDArray[np.float64]
    stored: npt.NDArray[np.float64]
    superseded: npt.NDArray[np.float64]
    blob_id: npt.NDArray[np.void]

    def __len__(self) -> int:
        """Count the memories."""
        return len(self.seq)

    @cached_property
    def shortest(self) -> int:
        """Return how many words the shortest has; 0 of none."""
        return int(self.words.min()) if len(self) else 0

    @cached_property
    def living(self) -> tuple[Bools, float]:
        """Return which are sealed, kept and not superseded, and when the first of these expires.

        What is returned is not to be changed.
        """
        living = self.sealed & self.kept & np.isinf(self.superseded)
        return living, float(self.expires.min(where=living, initial=np.inf))

    def at(self, positions: Ints | Bools) -> "Memories":
        """Return those at these positions."""
        count = len(self.seq[positions])
        return Memories(
            *(
                column[:count] if _is_shared(column) else _shared(column[positions])
                for column in self.columns
            )
        )

    @property
    def size_bytes(self) -> int:
        """Return their size in memory, in bytes."""
        return sum(c.itemsize if _is_shared(c) else c.nbytes for c in self.columns)

    @property
    def columns(self) -> list[npt.NDArray[Any]]:
        """Return all that is known of them."""
        return [getattr(self, column.name) for column in fields(self)]


def join(parts: Sequence[Memories]) -> Memories:
    """Return the memories of several, one after the other; of one, itself."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*(part.columns for part in parts if len(part)), strict=True)
    found = [_join_column(column) for column in columns]
    return Memories(*found) if found else parts[0]


@dataclass(frozen=True)
class LoadedNamespace:
    """A namespace of `n` memories, earlier revisions among them.

    Attributes:
        documents, words: how many memories it counts, and words in them, without revisions.
        memories: what is known of each.
        passages: (epoch, model) → vectors.
        postings: most of them, and those that came since these were put in order.
        is_partial: some memories are there without what finds them, or not at all yet.
        is_loading: some are not there at all yet.
    """

    namespace_id: int
    documents: int
    words: int
    memories: Memories
    passages: Mapping[tuple[int, str], Passages]
    postings: tuple[Postings, Postings]
    is_partial: bool = False
    is_loading: bool = False

    @property
    def size_bytes(self) -> int:
        """Return its size in memory, in bytes."""
        vectors = sum(its.size_bytes for its in self.passages.values())
        words = sum(part.size_bytes for part in self.postings)
        return self.memories.size_bytes + vectors + words

    @property
    def models(self) -> set[str]:
        """Return the models that its vectors are of."""
        return {model for _, model in self.passages}

    def versions_of(self, seqs: Sequence[int]) -> dict[int, int]:
        """Return number → version of those of these memories that are here."""
        wanted = np.array(seqs, np.int64)
        at, here = _positions(wanted, self.memories.seq)
        return dict(zip(wanted[here].tolist(), self.memories.version[at].tolist(), strict=True))

    def compare(self, now: Versions) -> Differing:
        """Return the memories that differ by now."""
        here = self.memories
        at, known = _positions(now.seqs, here.seq)
        known[known] = now.versions[known] == here.version[at]
        gone = here.seq[~np.isin(here.seq, now.seqs, assume_unique=True)]
        return Differing(now.mark, now.counts, np.concatenate([now.seqs[~known], gone]))


def empty(namespace_id: int) -> LoadedNamespace:
    """Return a namespace of which nothing was read yet."""
    return LoadedNamespace(
        namespace_id,
        documents=0,
        words=0,
        memories=_columns(NO_PAGE),
        passages={},
        postings=(NO_POSTINGS, NO_POSTINGS),
    )


@cache
def row_bytes() -> int:
    """Return the bytes that a memory takes without words and vectors."""
    return sum(column.itemsize for column in empty(0).memories.columns)


def estimate_sizes(extent: Extent, *, among: int = 0) -> Ints:
    """Estimate the bytes that each of these memories will take in memory, `among` so many."""
    posting = extent.postings * (POSTING_BYTES + WORD_BYTES // WORD_SHARE)
    vectors = estimate_bytes(extent.vectors, extent.numbers, among=among)
    row = row_bytes() - (UNNAMED.itemsize if among > NAMED_MAX else 0)
    return row + posting + vectors + extent.records


def update(before: LoadedNamespace, now: Differing, pages: Sequence[Page]) -> LoadedNamespace:
    """Return the namespace with the pages' differences; memories that no page has are gone."""
    counts = now.counts
    if not len(now.seqs):
        hidden = int(before.memories.length.sum(dtype=np.int64))
        return replace(before, documents=counts.memory_count, words=counts.word_count + hidden)
    old = before.memories
    kept = np.ones(len(old), bool)
    kept[_positions(now.seqs, old.seq)[0]] = False
    stay = old if kept.all() else old.at(kept)
    parts = [part for part in (stay, *map(_columns, pages)) if len(part)]
    if sum(map(len, parts)) > NAMED_MAX:
        parts = [replace(part, blob_id=np.broadcast_to(UNNAMED, len(part))) for part in parts]
    memories = join(sorted(parts, key=lambda part: int(part.seq[0])) or [stay])
    if not (np.diff(memories.seq) > 0).all():  # else only newer or older ones have come
        memories = memories.at(np.argsort(memories.seq, kind="stable"))
    seqs = memories.seq
    moved = None  # where the kept ones are now, if not where they were
    if not np.array_equal(seqs[: len(old)], old.seq):
        moved = np.searchsorted(seqs, old.seq)
    return LoadedNamespace(
        before.namespace_id,
        documents=counts.memory_count,
        words=counts.word_count + int(memories.length.sum(dtype=np.int64)),
        memories=memories,
        passages=_merge_passages(before, pages, seqs, kept, moved),
        postings=_merge_postings(before, pages, seqs, kept, moved),
    )


def short(key: bytes) -> int:
    """Return the first eight bytes of a key, which tell the keys of an account apart."""
    return int.from_bytes(key[:8], "big", signed=True)


def _columns(page: Page) -> Memories:
    rows = page.memories
    words = np.zeros(len(rows), np.int16)
    at, here = _positions(page.seqs, rows.seq)
    words[at] = page.lengths[here]
    return Memories(
        seq=rows.seq,
        version=_shared(rows.version.astype(np.uint32)),
        epoch=_shared(rows.epoch.astype(np.int32)),
        sealed=_shared(rows.is_sealed),
        kept=_shared(rows.is_kept),
        words=_shared(words),
        length=_shared(rows.length.astype(np.int16)),
        importance=_shared(rows.importance),
        kind=_shared(rows.kind),
        writer=_shared(rows.writer),
        source=_shared(rows.source),
        sourced=_shared(rows.is_sourced),
        moment=_shared(rows.moment),
        expires=_shared(rows.expires),
        stored=_shared(rows.stored),
        superseded=_shared(rows.superseded),
        blob_id=_shared(rows.blob_id),
    )


def _merge_postings(
    before: LoadedNamespace, pages: Sequence[Page], seqs: Ints, kept: Bools, moved: Ints | None
) -> tuple[Postings, Postings]:
    most, recent = (part.keep(kept, moved) for part in before.postings)
    recent = recent.join(_new_postings(pages, seqs))
    if len(recent) > RECENT_MAX or len(most) <= ORDERED_MAX:
        return most.join(recent), NO_POSTINGS
    return most, recent


def _new_postings(pages: Sequence[Page], seqs: Ints) -> Postings:
    if not pages:
        return NO_POSTINGS
    found = [(page, *_positions(page.seqs, seqs)) for page in pages]
    tokens = np.concatenate([page.tokens[here] for page, _, here in found])
    frequencies = np.concatenate([page.frequencies[here] for page, _, here in found])
    lengths = np.concatenate([page.lengths[here] for page, _, here in found])
    return pack(tokens, np.concatenate([at for _, at, _ in found]), frequencies, lengths)


def _merge_passages(
    before: LoadedNamespace, pages: Sequence[Page], seqs: Ints, kept: Bools, moved: Ints | None
) -> dict[tuple[int, str], Passages]:
    merged: dict[tuple[int, str], Passages] = {}
    for scope in dict.fromkeys(
        [*before.passages, *(one for page in pages for one in page.vectors)]
    ):
        parts: list[Part] = []
        its = before.passages.get(scope, NO_PASSAGES)
        dim = its.dim
        for page in pages:
            if scope in page.vectors:
                numbers, vectors = page.vectors[scope]
                dim = dim or vectors.shape[1]
                if vectors.shape[1] != dim:  # as whoever forges a record may have it
                    continue
                at, here = _positions(numbers, seqs)
                parts.append((at, vectors if here.all() else vectors[here]))
        # In one go: what is copied to leave some out would be copied again for what comes.
        merged[scope] = its.keep(kept, moved, parts)
    return {scope: its for scope, its in merged.items() if len(its.at)}


def _is_shared(column: npt.NDArray[Any]) -> bool:
    """Return true if there is one value that stands for all."""
    return len(column) > 1 and not any(column.strides)


def _shared(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the column, with one value in the place of many that are the same."""
    if len(column) < 2 or not (column == column[0]).all():
        return column
    return np.broadcast_to(column[:1].copy(), len(column))


def _join_column(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return one column of several, none of them empty."""
    first = parts[0][0]
    if all(part[0] == first and (_is_shared(part) or len(part) == 1) for part in parts):
        return np.broadcast_to(parts[0][:1].copy(), sum(map(len, parts)))
    return np.concatenate(parts)


def _positions(numbers: Ints, seqs: Ints) -> tuple[Ints, Bools]:
    """Return the positions of these memories, and which of them are there at all."""
    at = np.searchsorted(seqs, numbers)
    here = at < len(seqs)
    here[here] = seqs[at[here]] == numbers[here]
    return at[here], here
