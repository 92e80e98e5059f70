"""Memories in memory that have words of a query.

Not here: BM25 (`bm25.py`), the way of many postings (`pruning.py`), distances (`meaning.py`). Pure.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from relayer.memory_index.bm25 import Floats, Piece, QueryTerms, find_pieces, weigh_terms
from relayer.memory_index.namespace import Bools, Ints, Memories
from relayer.memory_index.postings import Frequencies, frequencies_of, positions_of
from relayer.memory_index.pruning import Pruned
from relayer.memory_index.segments import Segment, take_first

WHOLE_MAX: Final = 131_072  # postings and memories of which all are scored in one go


class Words(Protocol):
    """The memories that have words of a query.

    Attributes:
        terms: what was looked for.
        first: positions of the best that may be found.
        total: BM25 of all that may be found, together.
        is_estimated: the total is an estimate.
    """

    terms: QueryTerms
    first: Ints
    total: float
    is_estimated: bool

    def parts_of(self, chosen: Ints) -> tuple[Ints, Ints, Floats]:
        """Return (f,) each: which of these positions, which word it has, and what that adds.

        `chosen` ascend.
        """


def search_words(
    segments: Sequence[Segment], memories: Memories, admitted: Bools, query_words: int, count: int
) -> Words:
    """Search words: each of the query counts once, however many of its forms a memory has.

    `memories` are those of all segments, `admitted` those of them that may be found.
    """
    pieces = find_pieces(segments)
    terms = weigh_terms(segments, pieces, query_words)
    is_little = terms.counts.sum() + len(memories) <= WHOLE_MAX
    return (_Whole if is_little else Pruned)(terms, pieces, memories, admitted, count)


class _Whole:
    """All postings in one go, and BM25 over all memories."""

    is_estimated = False

    def __init__(
        self,
        terms: QueryTerms,
        pieces: Sequence[Piece],
        memories: Memories,
        admitted: Bools,
        count: int,
    ) -> None:
        self.terms = terms
        term, at, frequency = _read_all(pieces)
        lengths = memories.words[at].astype(np.float64)
        parts = terms.score(terms.scales[term], frequency.astype(np.float64), lengths)
        ordinals = terms.ordinals[term]
        found = terms.ordinals[terms.counts > 0]
        if np.bincount(found).max(initial=0) > 1:
            ordinals, at, parts = _best_of_each(ordinals, at, parts, len(memories))
        self._ordinals, self._at, self._parts = ordinals, at, parts
        bm25 = np.bincount(at, parts, len(memories)).astype(np.float64)
        worded = np.flatnonzero(admitted & (bm25 > 0))
        its = bm25[worded]
        self.total = float(its.sum())
        self.first = take_first(worded, -its, memories.seq, count)
        self._count = len(memories)

    def parts_of(self, chosen: Ints) -> tuple[Ints, Ints, Floats]:
        is_chosen = np.zeros(self._count, bool)
        is_chosen[chosen] = True
        its = is_chosen[self._at]
        return chosen.searchsorted(self._at[its]), self._ordinals[its], self._parts[its]


def _read_all(pieces: Sequence[Piece]) -> tuple[Ints, Ints, Frequencies]:
    """Return (f,) each, wherever a memory has a term: which term, which memory, and how often."""
    terms, at, frequencies = (
        [np.zeros(0, np.int64)],
        [np.zeros(0, np.int64)],
        [np.zeros(0, np.uint8)],
    )
    for piece in pieces:
        which = np.flatnonzero(piece.ends > piece.begins)
        for term in which.tolist():
            entries = piece.entries_of(term)
            at.append(positions_of(entries) + piece.memories_begin)
            frequencies.append(frequencies_of(entries))
        terms.append(which.repeat((piece.ends - piece.begins)[which]))
    return np.concatenate(terms), np.concatenate(at), np.concatenate(frequencies)


def _best_of_each(ordinals: Ints, at: Ints, parts: Floats, count: int) -> tuple[Ints, Ints, Floats]:
    """Of several terms for one word that a memory has, what adds most."""
    segments, which = np.unique(ordinals * count + at, return_inverse=True)
    best = np.zeros(len(segments))
    np.maximum.at(best, which, parts)
    return segments // count, segments % count, best
