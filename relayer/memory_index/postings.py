"""Postings of one namespace: memories by word, each word's behind those of the one before it.

Not here: which memories they are of, and when (`namespace.py`). Pure.

- An entry is one number: the memory's position, and in the last bits its form, which says how long
  the memory is and how often it has the word. So entries that ascend are memories that ascend, and
  a table of all forms tells what a word adds by BM25.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relayer.sealed.index import FREQUENCY_MAX, round_length

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Entries = npt.NDArray[np.unsignedinteger[Any]]
Places = npt.NDArray[np.int32]
Frequencies = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

POSTING_BYTES: Final = 4
WORD_BYTES: Final = 13
LEADING: Final = 1_024  # entries of a word that add most
COMMON_SHARE: Final = 32  # times as many has a word of which these are kept
_NO_ENTRIES: Final = np.zeros(0, np.uint32)
_FREQUENCY_BITS: Final = FREQUENCY_MAX.bit_length()
_LENGTH_BITS: Final = 5
_BITS: Final = _FREQUENCY_BITS + _LENGTH_BITS
_LENGTH_MAX: Final = np.iinfo(np.int16).max
_LENGTHS: Final = np.array(
    sorted(
        {min(round_length(n << power), _LENGTH_MAX) for n in (2, 3) for power in range(15)} | {1}
    )
)

FORMS: Final = np.arange(1 << _BITS)
FREQUENCIES: Final = (FORMS & FREQUENCY_MAX).astype(np.float64)  # of each form
LENGTHS: Final = _LENGTHS.take(FORMS >> _FREQUENCY_BITS, mode="clip").astype(np.float64)


def positions_of(entries: Entries) -> Ints:
    """Return the memories of some entries."""
    return (entries >> _BITS).astype(np.int64)


def forms_of(entries: Entries) -> Ints:
    """Return the places of some entries in tables of all forms."""
    return (entries & (len(FORMS) - 1)).astype(np.int64)


def frequencies_of(entries: Entries) -> Frequencies:
    """Return how often the memories of some entries have their word."""
    return (entries & FREQUENCY_MAX).astype(np.uint8)


def places_of(positions: Ints, entries: Entries) -> Ints:
    """Return where among ascending entries these memories are, or would be."""
    return entries.searchsorted(positions.astype(entries.dtype) << _BITS)


def find_best(scores: npt.NDArray[Any], count: int) -> Ints:
    """Return the places of so many that score best, ascending; of equals the last, the newest."""
    if len(scores) <= count:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    better, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    return np.sort(np.concatenate([better, equal[len(better) - count :]]))


@dataclass(frozen=True)
class Postings:
    """Memories by word.

    Attributes:
        words: (w,) tokens, ascending, each with an entry at least.
        ends: (w,) how many entries there are up to the end of each word's.
        most: (w,) how often any memory has the word, at most.
        entries: (p,) which memory has the word, and how often; those of a word ascend.
    """

    words: Ints
    ends: Places
    most: Frequencies
    entries: Entries
    _leading: dict[tuple[int, int], Entries] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __len__(self) -> int:
        """Count the entries."""
        return len(self.entries)

    @property
    def arrays(self) -> tuple[Ints, Places, Frequencies, Entries]:
        """Return all that it consists of."""
        return self.words, self.ends, self.most, self.entries

    @cached_property
    def size_bytes(self) -> int:
        """Return their size in memory, with entries that are kept twice, in bytes."""
        common = int(np.count_nonzero(self._counts > LEADING * COMMON_SHARE))
        return sum(array.nbytes for array in self.arrays) + common * LEADING * POSTING_BYTES

    @property
    def tokens(self) -> Ints:
        """Return (p,) the word of each entry."""
        return self.words.repeat(self._counts)

    @property
    def at(self) -> Ints:
        """Return (p,) the memory of each entry."""
        return positions_of(self.entries)

    @property
    def frequencies(self) -> Frequencies:
        """Return (p,) how often each entry's memory has the word."""
        return frequencies_of(self.entries)

    @property
    def _counts(self) -> Ints:
        return np.diff(self.ends, prepend=0)

    def holders(self, tokens: Ints) -> Ints:
        """Return the memories that have any of these tokens, a memory perhaps more than once."""
        places = zip(*(its.tolist() for its in self.bounds(tokens)), strict=True)
        its = [self.entries[begin:end] for begin, end in places]
        return positions_of(np.concatenate([_NO_ENTRIES, *its]))

    def leading(self, begin: int, end: int, parts: Floats) -> Entries:
        """Return those of a word's entries that add most, by what each form adds.

        Of common words they are found once.
        """
        if (found := self._leading.get((begin, end))) is not None:
            return found
        its = self.entries[begin:end]
        if len(its) > LEADING:
            its = its[find_best(parts.take(forms_of(its)), LEADING)]
        if end - begin > LEADING * COMMON_SHARE:
            self._leading[begin, end] = its
        return its

    def has(self, tokens: Ints) -> Bools:
        """Return which of these tokens have entries."""
        begins, ends = self.bounds(tokens)
        return np.asarray(begins < ends)

    def count(self, tokens: Ints) -> int:
        """Count the entries of these tokens."""
        begins, ends = self.bounds(tokens)
        return int((ends - begins).sum())

    def keep(self, kept: Bools, moved: Ints | None) -> "Postings":
        """Return those of memories that are kept, where these are now, in the same order."""
        if not len(self) or (moved is None and kept.all()):
            return self
        at = self.at
        stay, entries = kept[at], self.entries
        if moved is not None:
            entries = _pack(moved[at], forms_of(entries))
        if stay.all():
            return replace(self, entries=entries)
        ends = np.cumsum(stay, dtype=np.int32)[self.ends - 1]
        has_any = np.diff(ends, prepend=0) > 0
        return Postings(self.words[has_any], ends[has_any], self.most[has_any], entries[stay])

    def join(self, more: "Postings") -> "Postings":
        """Return these and more, of other memories."""
        if not len(self) or not len(more):
            return self if len(self) else more
        words = np.union1d(self.words, more.words)
        counts, most = np.zeros(len(words), np.int64), np.zeros(len(words), np.uint8)
        for part in (self, more):
            its = words.searchsorted(part.words)
            counts[its] += part._counts
            most[its] = np.maximum(most[its], part.most)
        ends = counts.cumsum().astype(np.int32)
        entries = self.entries.astype(np.result_type(self.entries, more.entries), copy=False)
        return Postings(words, ends, most, np.insert(entries, self._places(more), more.entries))

    def bounds(self, tokens: Ints) -> tuple[Ints, Ints]:
        """Return (t,) where the entries of these tokens begin and end; for none, the same."""
        at = self.words.searchsorted(tokens)
        begins = np.zeros(len(at), np.int64)
        begins[at > 0] = self.ends[at[at > 0] - 1]
        ends = begins.copy()
        here = at < len(self.words)
        here[here] = self.words[at[here]] == tokens[here]
        ends[here] = self.ends[at[here]]
        return begins, ends

    def most_of(self, tokens: Ints) -> Frequencies:
        """Return (t,) how often any memory has each of these tokens, at most."""
        at = self.words.searchsorted(tokens)
        at[at == len(self.words)] = 0
        most = np.where(self.words[at] == tokens, self.most[at], 0)
        return most.astype(np.uint8)

    def _places(self, more: "Postings") -> Ints:
        """Return (p,) before which of these each of more entries belongs, so that all ascend."""
        low, high = (its.repeat(more._counts) for its in self.bounds(more.words))
        if (self.entries[high - 1] < more.entries)[low < high].all():
            return high  # as of newer memories
        while (open_ := low < high).any():
            middle = (low + high) >> 1
            is_less = self.entries[np.minimum(middle, len(self) - 1)] < more.entries
            low = np.where(open_ & is_less, middle + 1, low)
            high = np.where(open_ & ~is_less, middle, high)
        return low


def pack(
    tokens: Ints,
    at: Ints,
    frequencies: npt.NDArray[np.integer],
    lengths: npt.NDArray[np.integer],
) -> Postings:
    """Return the postings of these (p,) tokens, memories, frequencies and lengths, in any order."""
    forms = (_LENGTHS.searchsorted(lengths, side="right") - 1).clip(0) << _FREQUENCY_BITS
    forms |= np.minimum(frequencies, FREQUENCY_MAX)
    entries = _pack(at, forms)
    is_in_order = (entries[1:] >= entries[:-1]).all()
    order = np.argsort(tokens, kind="stable") if is_in_order else np.lexsort((entries, tokens))
    ordered, entries = tokens[order], entries[order]
    is_first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    begins = np.flatnonzero(is_first)
    ends = np.append(begins[1:], len(ordered)).astype(np.int32) if len(begins) else begins
    most = np.maximum.reduceat(frequencies_of(entries), begins) if len(begins) else begins
    return Postings(ordered[begins], ends.astype(np.int32), most.astype(np.uint8), entries)


def _pack(at: Ints, forms: Ints) -> Entries:
    """Return entries of four bytes each, as long as these have bits for all memories."""
    is_narrow = int(at.max(initial=0)) >> (np.iinfo(np.uint32).bits - _BITS) == 0
    entries: Entries = ((at << _BITS) | forms).astype(np.uint32 if is_narrow else np.uint64)
    return entries


NO_POSTINGS: Final = pack(*(np.zeros(0, np.int64) for _ in range(4)))
