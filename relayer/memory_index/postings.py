"""Postings of one namespace: memories by word, each word's behind those of the one before it.

Not here: which memories they are of, and when (`namespace.py`). Pure.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int32]
Frequencies = npt.NDArray[np.int16]

POSTING_BYTES: Final = 6
WORD_BYTES: Final = 12


@dataclass(frozen=True)
class Postings:
    """Memories by word.

    Attributes:
        words: (w,) tokens, ascending, each with an entry at least.
        ends: (w,) how many entries there are up to the end of each word's.
        at, frequencies: (p,) of each entry: which memory has the word, and how often.
    """

    words: Ints
    ends: Places
    at: Places
    frequencies: Frequencies

    def __len__(self) -> int:
        """Count the entries."""
        return len(self.at)

    @property
    def arrays(self) -> tuple[Ints, Places, Places, Frequencies]:
        """Return all that it consists of."""
        return self.words, self.ends, self.at, self.frequencies

    @property
    def size_bytes(self) -> int:
        """Return their size in memory, in bytes."""
        return sum(array.nbytes for array in self.arrays)

    @property
    def tokens(self) -> Ints:
        """Return (p,) the word of each entry."""
        return self.words.repeat(self._counts)

    @property
    def _counts(self) -> Ints:
        return np.diff(self.ends, prepend=0)

    def of(self, tokens: Ints) -> tuple[Ints, Ints, Frequencies]:
        """Return (f,) each: which of these tokens, which memory has it, and how often.

        One token's entries stand behind another's.
        """
        return self.entries(*self.bounds(tokens))

    def entries(self, begins: Ints, ends: Ints) -> tuple[Ints, Ints, Frequencies]:
        """Return the same of tokens whose entries begin and end there."""
        which = np.arange(len(begins)).repeat(ends - begins)
        places = zip(begins.tolist(), ends.tolist(), strict=True)
        slices = [slice(begin, end) for begin, end in places if begin < end]
        at = np.concatenate([self.at[:0], *(self.at[part] for part in slices)])
        frequencies = [self.frequencies[:0], *(self.frequencies[part] for part in slices)]
        return which, at.astype(np.int64), np.concatenate(frequencies)

    def has(self, tokens: Ints) -> Bools:
        """Return which of these tokens have entries."""
        begins, ends = self.bounds(tokens)
        return np.asarray(begins < ends)

    def count(self, tokens: Ints) -> int:
        """Count the entries of these tokens."""
        begins, ends = self.bounds(tokens)
        return int((ends - begins).sum())

    def keep(self, kept: Bools, moved: Ints | None) -> "Postings":
        """Return those of memories that are kept, where these are now."""
        if not len(self) or (moved is None and kept.all()):
            return self
        stay = kept[self.at]
        at = self.at if moved is None else moved.astype(np.int32)[self.at]
        if stay.all():
            return Postings(self.words, self.ends, at, self.frequencies)
        ends = np.cumsum(stay, dtype=np.int32)[self.ends - 1]
        has_any = np.diff(ends, prepend=0) > 0
        return Postings(self.words[has_any], ends[has_any], at[stay], self.frequencies[stay])

    def join(self, more: "Postings") -> "Postings":
        """Return these and more; of one word's, those behind these."""
        if not len(self) or not len(more):
            return self if len(self) else more
        words = np.union1d(self.words, more.words)
        counts = np.zeros(len(words), np.int64)
        for part in (self, more):
            counts[words.searchsorted(part.words)] += part._counts
        places = self.bounds(more.words)[1].repeat(more._counts)
        return Postings(
            words,
            counts.cumsum().astype(np.int32),
            np.insert(self.at, places, more.at),
            np.insert(self.frequencies, places, more.frequencies),
        )

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


def pack(tokens: Ints, at: Ints, frequencies: npt.NDArray[np.integer]) -> Postings:
    """Return the postings of these (p,) tokens, memories and frequencies, in any order."""
    order = np.argsort(tokens, kind="stable")
    ordered = tokens[order]
    is_last = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_last[:-1])
    ends = np.flatnonzero(is_last)
    return Postings(
        ordered[ends],
        (ends + 1).astype(np.int32),
        at[order].astype(np.int32),
        frequencies[order].astype(np.int16),
    )


NO_POSTINGS: Final = pack(*(np.zeros(0, np.int64) for _ in range(3)))
