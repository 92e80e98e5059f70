"""Terms of a query as the searched namespaces know them, and what they add by BM25.

Not here: which memories are best (`keywords.py`, `pruning.py`), how postings lie (`postings.py`).
Pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from relayer.database.recall import BM25_B, BM25_K1
from relayer.memory_index.namespace import Ints
from relayer.memory_index.postings import (
    FREQUENCIES,
    LENGTHS,
    Entries,
    Frequencies,
    Postings,
    frequencies_of,
    places_of,
    positions_of,
)
from relayer.memory_index.segments import Segment

Floats = npt.NDArray[np.float64]
Scalar = TypeVar("Scalar", np.float32, np.float64)

_NONE: Final = np.zeros(0, np.int64)


@dataclass(frozen=True)
class QueryTerms:
    """The terms of a query, as all searched namespaces together know them.

    Attributes:
        ordinals: (t,) which word each stands for.
        scales: (t,) its weight times its inverse document frequency.
        counts: (t,) how many postings each has.
        mean: how many words a memory has on average.
        ideal, attainable: as in the evidence.
    """

    ordinals: Ints
    scales: Floats
    counts: Ints
    mean: float
    ideal: float
    attainable: float

    def score(
        self, scale: Floats | float, frequency: npt.NDArray[Scalar], length: npt.NDArray[Scalar]
    ) -> npt.NDArray[Scalar]:
        """Return what terms add to the BM25 of memories that have them so often, of that length.

        It is as precise as the length.
        """
        parts: npt.NDArray[Scalar] = length * (BM25_K1 * BM25_B / self.mean)
        parts += BM25_K1 * (1 - BM25_B)
        parts += frequency
        np.divide(frequency, parts, out=parts)
        parts *= scale
        parts *= BM25_K1 + 1
        return parts

    def parts_by_form(self, term: int) -> Floats:
        """Return what a term adds to memories with entries of each form."""
        return self.score(float(self.scales[term]), FREQUENCIES, LENGTHS)


@dataclass(frozen=True)
class Piece:
    """Postings, and where their memories begin and end among all.

    Attributes:
        begins, ends: (t,) of each term's entries.
        most: (t,) how often any memory has it, at most.
    """

    postings: Postings
    memories_begin: int
    memories_end: int
    begins: Ints
    ends: Ints
    most: Frequencies

    def entries_of(self, term: int) -> Entries:
        """Return the entries of a term."""
        return self.postings.entries[self.begins[term] : self.ends[term]]

    def look_up(self, term: int, wanted: Ints) -> tuple[Ints, Frequencies]:
        """Return which of these positions, ascending, have a term, and how often."""
        entries = self.entries_of(term)
        first, last = wanted.searchsorted([self.memories_begin, self.memories_end]).tolist()
        if not len(entries) or first == last:
            return _NONE, frequencies_of(entries[:0])
        here = wanted[first:last] - self.memories_begin
        found = entries[np.minimum(places_of(here, entries), len(entries) - 1)]
        which = np.flatnonzero(positions_of(found) == here)
        return which + first, frequencies_of(found[which])


def find_pieces(segments: Sequence[Segment]) -> list[Piece]:
    """Return the postings of all segments, and where in them the query's terms are."""
    found = []
    for segment in segments:
        ends = segment.begins + len(segment.namespace.memories)
        for scope in segment.scopes:
            tokens = np.array([token for token, _, _ in scope.words], np.int64)
            for part in segment.namespace.postings:
                if len(part):
                    its = (*part.bounds(tokens), part.most_of(tokens))
                    found.append(Piece(part, segment.begins, ends, *its))
    return found


def weigh_terms(
    segments: Sequence[Segment], pieces: Sequence[Piece], query_words: int
) -> QueryTerms:
    """Return the terms of a query, which are the same in all segments."""
    asked = next((scope.words for segment in segments for scope in segment.scopes), ())
    ordinal = np.array([ordinal for _, ordinal, _ in asked], np.int64)
    weight = np.array([weight for _, _, weight in asked], np.float64)
    counts = sum((piece.ends - piece.begins for piece in pieces), np.zeros(len(asked), np.int64))
    documents = float(sum(p.namespace.documents for p in segments))
    mean = max(sum(p.namespace.words for p in segments) / max(documents, 1.0), 1.0)
    having = np.minimum(counts, documents)
    idf = np.log(1 + (documents - having + 0.5) / (having + 0.5))
    is_found = counts > 0
    of_word = np.zeros(query_words + len(asked))
    np.maximum.at(of_word, ordinal[is_found], idf[is_found])
    of_word[of_word == 0] = math.log(1 + (documents + 0.5) / 0.5)
    of_word = of_word[:query_words] * (BM25_K1 + 1) / (1 + BM25_K1 * (1 - BM25_B))
    rarest = math.log(1 + (max(documents, 1.0) - 0.5) / 1.5)
    rarest *= (BM25_K1 + 1) / (1 + BM25_K1 * (1 - BM25_B))
    ideal, attainable = float(of_word.sum()), float(np.minimum(of_word, rarest).sum())
    return QueryTerms(ordinal, weight * idf, counts, mean, ideal, attainable)
