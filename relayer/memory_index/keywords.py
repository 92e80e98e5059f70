"""BM25 of memories in memory: how well they hold the words of a query.

Not here: distances (`evidence.py`), how postings lie (`postings.py`). Pure.

- Few postings are scored in one go. Of many, common words are looked up only in memories that rarer
  ones have found, as soon as the common ones alone cannot reach the best. What those add to the sum
  over all memories is then estimated by a sample.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from relayer.database.recall import BM25_B, BM25_K1
from relayer.memory_index.namespace import Bools, Ints, Memories
from relayer.memory_index.postings import Frequencies, Postings
from relayer.memory_index.segments import Segment, sample, take_first

Floats = npt.NDArray[np.float64]

WHOLE_MAX: Final = 65_536  # postings that are scored in one go
SAMPLED: Final = 2_048  # postings by which the sum of more is estimated
_ABSENT: Final = -1.0  # in the place of what a word adds, where a memory does not have it
_NONE: Final = np.zeros(0, np.int64)


@dataclass(frozen=True)
class QueryTerms:
    """The terms of a query, as all searched namespaces together know them.

    Attributes:
        ordinals: (t,) which word each stands for.
        scales: (t,) its weight times its inverse document frequency.
        mean: how many words a memory has on average.
        ideal, attainable: as in the evidence.
    """

    ordinals: Ints
    scales: Floats
    mean: float
    ideal: float
    attainable: float

    def score(self, term: Ints | int, frequency: Any, length: Any) -> Any:
        """Return what a term adds to the BM25 of memories that have it so often, of that length."""
        often = np.asarray(frequency, np.float64)
        parts = self.scales[term] * often * (BM25_K1 + 1)
        parts /= often + BM25_K1 * (1 - BM25_B + BM25_B * (length / self.mean))
        return parts


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
    asked = next((scope.words for segment in segments for scope in segment.scopes), ())
    pieces = _find_pieces(segments)
    counts = _count(pieces, len(asked))
    terms = _weigh(segments, asked, counts, query_words)
    search = _Pruned if counts.sum() > WHOLE_MAX else _Whole
    return search(terms, pieces, memories, admitted, count)


def _weigh(
    segments: Sequence[Segment],
    asked: Sequence[tuple[int, int, float]],
    counts: Ints,
    query_words: int,
) -> QueryTerms:
    documents = float(sum(p.namespace.documents for p in segments))
    mean = max(sum(p.namespace.words for p in segments) / max(documents, 1.0), 1.0)
    ordinal = np.array([ordinal for _, ordinal, _ in asked], np.int64)
    weight = np.array([weight for _, _, weight in asked], np.float64)
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
    return QueryTerms(ordinal, weight * idf, mean, ideal, attainable)


@dataclass(frozen=True)
class _Piece:
    """Postings, where those of each term begin and end, and where their memories begin."""

    postings: Postings
    memories_begin: int
    begins: Ints
    ends: Ints

    def read(self, term: int) -> tuple[Ints, Frequencies]:
        """Return positions of the memories that have a term, and how often."""
        its = slice(self.begins[term], self.ends[term])
        at = self.postings.at[its].astype(np.int64)
        at += self.memories_begin
        return at, self.postings.frequencies[its]

    def look_up(self, term: int, wanted: Ints) -> tuple[Ints, Frequencies]:
        """Return which of these positions, ascending, have a term, and how often."""
        its = slice(self.begins[term], self.ends[term])
        at, frequencies = self.postings.at[its], self.postings.frequencies[its]
        if not len(at):
            return _NONE, frequencies
        if (at[1:] < at[:-1]).any():  # as after a change, or where the newest was read first
            order = np.argsort(at, kind="stable")
            at, frequencies = at[order], frequencies[order]
        here = (wanted - self.memories_begin).astype(at.dtype)
        places = np.minimum(at.searchsorted(here), len(at) - 1)
        which = np.flatnonzero(at[places] == here)
        return which, frequencies[places[which]]


def _find_pieces(segments: Sequence[Segment]) -> list[_Piece]:
    found = []
    for segment in segments:
        for scope in segment.scopes:
            tokens = np.array([token for token, _, _ in scope.words], np.int64)
            for part in segment.namespace.postings:
                if len(part):
                    found.append(_Piece(part, segment.begins, *part.bounds(tokens)))
    return found


def _count(pieces: Sequence[_Piece], terms: int) -> Ints:
    """Return (t,) how many postings each term has."""
    return sum((piece.ends - piece.begins for piece in pieces), np.zeros(terms, np.int64))


class _Whole:
    """All postings in one go, and BM25 over all memories."""

    is_estimated = False

    def __init__(
        self,
        terms: QueryTerms,
        pieces: Sequence[_Piece],
        memories: Memories,
        admitted: Bools,
        count: int,
    ) -> None:
        self.terms = terms
        term, at, frequency = _read_all(pieces)
        parts = terms.score(term, frequency, memories.words[at].astype(np.float64))
        ordinals = terms.ordinals[term]
        found = terms.ordinals[np.bincount(term, minlength=len(terms.ordinals)) > 0]
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


def _read_all(pieces: Sequence[_Piece]) -> tuple[Ints, Ints, Frequencies]:
    """Return (f,) each, wherever a memory has a term: which term, which memory, and how often."""
    terms, at, frequencies = [_NONE], [_NONE], [np.zeros(0, np.int16)]
    for piece in pieces:
        which, its, often = piece.postings.entries(piece.begins, piece.ends)
        terms.append(which)
        at.append(its + piece.memories_begin)
        frequencies.append(often)
    return np.concatenate(terms), np.concatenate(at), np.concatenate(frequencies)


def _best_of_each(ordinals: Ints, at: Ints, parts: Floats, count: int) -> tuple[Ints, Ints, Floats]:
    """Of several terms for one word that a memory has, what adds most."""
    segments, which = np.unique(ordinals * count + at, return_inverse=True)
    best = np.zeros(len(segments))
    np.maximum.at(best, which, parts)
    return segments // count, segments % count, best


@dataclass(frozen=True)
class _Word:
    """A word of the query: its terms, how many postings they have, and the most that it adds."""

    ordinal: int
    terms: Sequence[int]
    count: int
    most: float


class _Pruned:
    """The rarest words' postings, and of others only those of memories that may be the best."""

    def __init__(
        self,
        terms: QueryTerms,
        pieces: Sequence[_Piece],
        memories: Memories,
        admitted: Bools,
        count: int,
    ) -> None:
        self.terms, self._pieces, self._lengths = terms, pieces, memories.words
        self._admitted = admitted
        self._best = np.zeros(len(memories))  # of one word, and zero again behind it
        words = self._words = self._rarest_first(memories.shortest)
        scores, found, self.total = np.zeros(len(memories)), [_NONE], 0.0
        taken, least, reached, rest = 0, -math.inf, 0.0, sum(word.most for word in words)
        while taken < len(words) and rest >= least:
            at, parts = self._read(words[taken])
            counted = admitted[at] & (parts > 0)
            at, parts = at[counted], parts[counted]
            found.append(at[scores[at] == 0])
            scores[at] += parts
            self.total += float(parts.sum())
            reached, rest = reached + words[taken].most, rest - words[taken].most
            taken += 1
            if rest < reached:
                least = _find_least(scores[np.concatenate(found)], count)
        at = np.concatenate(found)
        at = np.sort(at[scores[at] + rest >= least])
        its = scores[at]
        for word in words[taken:]:
            its += self._look_up(word.terms, at).clip(0)
            self.total += self._estimate(word)
        self.is_estimated = taken < len(words)
        self.first = take_first(at, -its, memories.seq, count)

    def parts_of(self, chosen: Ints) -> tuple[Ints, Ints, Floats]:
        at, ordinals, found = [_NONE], [_NONE], [np.zeros(0)]
        for word in self._words:
            parts = self._look_up(word.terms, chosen)
            its = np.flatnonzero(parts != _ABSENT)
            at.append(its)
            ordinals.append(np.full(len(its), word.ordinal))
            found.append(parts[its])
        return np.concatenate(at), np.concatenate(ordinals), np.concatenate(found)

    def _rarest_first(self, shortest: int) -> list[_Word]:
        terms: dict[int, list[int]] = {}
        counts = _count(self._pieces, len(self.terms.ordinals))
        for term in np.flatnonzero(counts).tolist():
            terms.setdefault(int(self.terms.ordinals[term]), []).append(term)
        words = [
            _Word(
                ordinal,
                its,
                int(counts[its].sum()),
                max(float(self.terms.score(t, self._most_often(t), shortest)) for t in its),
            )
            for ordinal, its in terms.items()
        ]
        return sorted(words, key=lambda word: word.count)

    def _most_often(self, term: int) -> int:
        return max(int(often.max(initial=0)) for _, often in self._pieces_of(term))

    def _pieces_of(self, term: int) -> list[tuple[Ints, Frequencies]]:
        return [piece.read(term) for piece in self._pieces]

    def _read_term(self, term: int, count: int | None = None) -> tuple[Ints, Floats]:
        """Return the memories that have a term, or so many of them, and what it adds to each."""
        found = self._pieces_of(term)
        at = np.concatenate([at for at, _ in found])
        often = np.concatenate([often for _, often in found])
        if count is not None:
            its = np.sort(sample(np.arange(len(at)), count))
            at, often = at[its], often[its]
        return at, self.terms.score(term, often, self._lengths[at])

    def _read(self, word: _Word) -> tuple[Ints, Floats]:
        """Return the memories that have a word in any form, each once, and what it adds."""
        if len(word.terms) == 1:
            return self._read_term(word.terms[0])
        found, best = [], self._best
        for term in word.terms:
            at, parts = self._read_term(term)
            before = best[at]
            found.append(at[before == 0])
            best[at] = np.maximum(before, parts)
        at = np.concatenate(found)
        parts = best[at]
        best[at] = 0
        return at, parts

    def _look_up(self, terms: Sequence[int], wanted: Ints) -> Floats:
        """Return the most that a term adds to each of these memories, ascending, or `_ABSENT`."""
        best = np.full(len(wanted), _ABSENT)
        for term in terms:
            for piece in self._pieces:
                which, often = piece.look_up(term, wanted)
                parts = self.terms.score(term, often, self._lengths[wanted[which]])
                best[which] = np.maximum(best[which], parts)
        return best

    def _estimate(self, word: _Word) -> float:
        """Estimate what a word adds to all memories that may be found, together."""
        total = 0.0
        for n, term in enumerate(word.terms):
            at, parts = self._read_term(term, SAMPLED)
            order = np.argsort(at, kind="stable")
            at, parts = at[order], parts[order]
            before = self._look_up(word.terms[:n], at)
            behind = self._look_up(word.terms[n + 1 :], at)
            counted = self._admitted[at] & (parts > before) & (parts >= behind)
            count = sum(int(piece.ends[term] - piece.begins[term]) for piece in self._pieces)
            total += float(parts[counted].sum()) / max(len(at), 1) * count
        return total


def _find_least(scores: Floats, count: int) -> float:
    """Return the least of the best `count`; none where there are fewer."""
    if len(scores) < count:
        return -math.inf
    return float(np.partition(scores, len(scores) - count)[len(scores) - count])
