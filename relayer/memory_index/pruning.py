"""BM25 of many postings, most of which are never read.

Not here: what a term adds (`bm25.py`), few postings (`keywords.py`). Pure.

- Words are read from the rarest on, until those that are left cannot bring a memory among the best.
  They are then looked up only in memories that may still be among these. What they add to the sum
  over all memories is estimated by a sample.
- Of words that are in more memories than are read, those to which they add most stand for all.
- Scores are added up in whole numbers of two bytes, rounded up: a search is as fast as the
  cache that these lie in.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.memory_index.bm25 import Floats, Piece, QueryTerms
from relayer.memory_index.namespace import Bools, Ints, Memories
from relayer.memory_index.postings import Entries, find_best, forms_of, positions_of
from relayer.memory_index.segments import take_first

Units = npt.NDArray[np.uint16]

READ_MAX: Final = 98_304  # postings that are read, but for those of a sample
LOOKED_UP_MAX: Final = 4_096  # memories in which the other words are looked up
LED: Final = 4  # of the words that were not read whose leading memories are looked at
TRIED: Final = 4  # times as many as are wanted tell how good the last of these is
REST_SHARE: Final = 0.5  # of what was read, at which it may be enough
UNITS: Final = 60_000  # of all words together, so that rounding up does not reach two bytes' end
_ABSENT: Final = -1.0  # in the place of what a word adds, where a memory does not have it
_NONE: Final = np.zeros(0, np.int64)
_SAMPLED: Final = np.sort(np.random.default_rng(0).random(1_024))  # as parts of all postings


@dataclass(frozen=True)
class _Word:
    """A word of the query: its terms, how many postings they have, and the most that it adds."""

    ordinal: int
    terms: Sequence[int]
    count: int
    most: float


class Pruned:
    """The rarest words' postings, and of others only those of memories that may be the best."""

    def __init__(
        self,
        terms: QueryTerms,
        pieces: Sequence[Piece],
        memories: Memories,
        admitted: Bools,
        count: int,
    ) -> None:
        """Search words like `search_words`."""
        self.terms, self._pieces, self._lengths = terms, pieces, memories.words
        self._admitted, self._is_all, self._count = admitted, bool(admitted.all()), count
        self._words = self._rarest_first(memories.shortest)
        self.total, self.is_estimated = 0.0, False
        at, scores = self._find_best([word for word in self._words if word.most > 0])
        self.first = take_first(at[scores > 0], -scores[scores > 0], memories.seq, count)

    def parts_of(self, chosen: Ints) -> tuple[Ints, Ints, Floats]:
        """Return the same as the `Words` of a search."""
        at, ordinals, found = [_NONE], [_NONE], [np.zeros(0)]
        for word in self._words:
            parts = self._look_up(word.terms, chosen)
            its = np.flatnonzero(parts != _ABSENT)
            at.append(its)
            ordinals.append(np.full(len(its), word.ordinal))
            found.append(parts[its])
        return np.concatenate(at), np.concatenate(ordinals), np.concatenate(found)

    def _rarest_first(self, shortest: int) -> list[_Word]:
        counts, terms = self.terms.counts, dict[int, list[int]]()
        for term in np.flatnonzero(counts).tolist():
            terms.setdefault(int(self.terms.ordinals[term]), []).append(term)
        if not terms:
            return []
        often = np.max([piece.most for piece in self._pieces], axis=0).astype(np.float64)
        most = self.terms.score(self.terms.scales, often, np.full(len(often), float(shortest)))
        words = [
            _Word(ordinal, its, int(counts[its].sum()), float(most[its].max()))
            for ordinal, its in terms.items()
        ]
        return sorted(words, key=lambda word: word.count)

    def _find_best(self, words: Sequence[_Word]) -> tuple[Ints, Floats]:
        """Return memories, ascending, the best among them, and the score of each."""
        unit = max(_most(words), 1e-9) / UNITS
        sums: Units = np.zeros(len(self._lengths), np.uint16)
        at, taken, least = _NONE, 0, -math.inf
        if not words or words[0].count <= READ_MAX or len(self._lead(words[:1])) < self._count:
            at, taken, least = self._read_rarest(words, sums, unit)
        read, rest = words[:taken], words[taken:]
        self.is_estimated = bool(rest)
        self.total += sum(self._estimate(word) for word in rest)
        if _most(rest) > least:
            at = np.union1d(at, self._lead(rest[:LED]))
        scores = sums.take(at).astype(np.float64) * unit
        for n, word in enumerate(rest):
            scores += self._look_up(word.terms, at).clip(0)
            may = np.flatnonzero(scores >= least - _most(rest[n + 1 :]))
            at, scores = at[may], scores[may]
        return self._make_exact(at, scores, sums, unit, read)

    def _make_exact(
        self, at: Ints, scores: Floats, sums: Units, unit: float, read: Sequence[_Word]
    ) -> tuple[Ints, Floats]:
        """Return what may be among the best in spite of what sums were rounded up, exactly."""
        if len(at) > self._count:
            last = np.partition(scores, len(at) - self._count)[len(at) - self._count]
            may = np.flatnonzero(scores >= last - len(read) * unit)
            at, scores = at[may], scores[may]
        scores = scores - sums.take(at).astype(np.float64) * unit
        for word in read:
            scores += self._look_up(word.terms, at).clip(0)
        return at, scores

    def _read_rarest(
        self, words: Sequence[_Word], sums: Units, unit: float
    ) -> tuple[Ints, int, float]:
        """Return memories, ascending, the best among them, for how many words their sums stand,
        and what the last of the best has at least."""
        found, read, taken, told = [_NONE], 0, 0, 0
        at, least = _NONE, -math.inf
        while taken < len(words) and (not taken or read + words[taken].count <= READ_MAX):
            read += words[taken].count
            found.append(self._add(words[taken], sums, unit))
            taken += 1
            rest = _most(words[taken:])
            if rest <= _most(words[:taken]) * REST_SHARE:
                told = taken
                at, least = self._narrow(np.concatenate(found), sums, unit, words, taken)
                if rest <= least and len(at) <= LOOKED_UP_MAX:
                    break
        if told < taken:
            at, least = self._narrow(np.concatenate(found), sums, unit, words, taken)
        return at[find_best(sums.take(at), LOOKED_UP_MAX)], taken, least

    def _narrow(
        self, at: Ints, sums: Units, unit: float, words: Sequence[_Word], taken: int
    ) -> tuple[Ints, float]:
        """Return those of these memories, ascending, that may be among the best, and what the last
        of the best has at least, by the words whose sums were taken and some look at the others."""
        its, rest = sums.take(at), words[taken:]
        most = max((word.most for word in words[:taken]), default=0.0)
        least = self._find_least(at, its, unit, int(most / unit) + 1, rest) - taken * unit
        may = np.flatnonzero(its >= max(int(max(least - _most(rest), 0.0) / unit), 1))
        return np.sort(at.take(may)), least

    def _find_least(
        self, at: Ints, its: Units, unit: float, most: int, rest: Sequence[_Word]
    ) -> float:
        """Return what the last of the best has at least, but for what their sums were rounded up.

        `most` is more than any word has added to a sum.
        """
        wanted = TRIED * self._count if rest else self._count
        several = np.flatnonzero(its > most)
        if len(several) >= wanted:
            at, its = at.take(several), its.take(several)
        if len(at) < self._count:
            return -math.inf
        if len(at) > wanted:
            best = np.argpartition(its.astype(np.float32), len(at) - wanted)[len(at) - wanted :]
            at, its = at.take(best), its.take(best)
        order = np.argsort(at)
        at, scores = at[order], its[order].astype(np.float64) * unit
        for word in rest:
            scores += self._look_up(word.terms, at).clip(0)
        return float(np.partition(scores, len(at) - self._count)[len(at) - self._count])

    def _add(self, word: _Word, sums: Units, unit: float) -> Ints:
        """Add a word to the sums of all memories that have it and may be found; return these."""
        found, added = [_NONE], 0
        best = np.zeros_like(sums) if len(word.terms) > 1 else None
        for term in word.terms:
            parts = np.minimum(self.terms.parts_by_form(term), word.most)
            units = np.ceil(parts / unit).astype(np.uint16)
            for piece in self._pieces:
                at, forms = self._read(piece, piece.entries_of(term))
                its = units.take(forms)
                if best is not None:  # of several forms of a word the one that adds most
                    before = best.take(at)
                    np.maximum(its, before, out=its)
                    best[at] = its
                    its -= before
                added += int(its.sum(dtype=np.int64))
                before = sums.take(at)
                found.append(at[before == 0])
                before += its
                sums[at] = before
        self.total += added * unit
        return np.concatenate(found)

    def _lead(self, words: Sequence[_Word]) -> Ints:
        """Return memories that may be found and to which one of these words adds most."""
        found = [_NONE]
        for term in (term for word in words for term in word.terms):
            parts = self.terms.parts_by_form(term)
            for piece in self._pieces:
                bounds = int(piece.begins[term]), int(piece.ends[term])
                found.append(self._read(piece, piece.postings.leading(*bounds, parts))[0])
        return np.unique(np.concatenate(found))

    def _read(self, piece: Piece, entries: Entries) -> tuple[Ints, Ints]:
        """Return the memories and forms of some entries, of what may be found."""
        at = positions_of(entries)
        at += piece.memories_begin
        if self._is_all:
            return at, forms_of(entries)
        may = self._admitted.take(at)
        return at[may], forms_of(entries[may])

    def _look_up(self, terms: Sequence[int], wanted: Ints) -> Floats:
        """Return the most that a term adds to each of these memories, ascending, or `_ABSENT`."""
        best = np.full(len(wanted), _ABSENT)
        for term in terms:
            scale = float(self.terms.scales[term])
            for piece in self._pieces:
                which, often = piece.look_up(term, wanted)
                lengths = self._lengths[wanted[which]].astype(np.float64)
                parts = self.terms.score(scale, often.astype(np.float64), lengths)
                best[which] = np.maximum(best[which], parts)
        return best

    def _estimate(self, word: _Word) -> float:
        """Estimate what a word adds to all memories that may be found, together."""
        total = 0.0
        for n, term in enumerate(word.terms):
            by_form = self.terms.parts_by_form(term)
            for piece in self._pieces:
                entries = piece.entries_of(term)
                if (count := len(entries)) > len(_SAMPLED):
                    entries = entries[(_SAMPLED * count).astype(np.int64)]
                at, forms = self._read(piece, entries)
                parts = by_form[forms]
                if len(word.terms) > 1:
                    before = self._look_up(word.terms[:n], at)
                    behind = self._look_up(word.terms[n + 1 :], at)
                    parts = parts[(parts > before) & (parts >= behind)]
                total += float(parts.sum()) * count / max(len(entries), 1)
        return total


def _most(words: Sequence[_Word]) -> float:
    """Return the most that words add together."""
    return sum(word.most for word in words)
