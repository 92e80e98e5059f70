"""Postings of one namespace: memories by word, as arrays in the order of the words' tokens.

Not here: which memories they are of, and when (`namespace.py`). Pure.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

POSTING: Final = np.dtype([("at", np.int32), ("frequency", np.int16), ("length", np.int16)])
# As which postings are copied: field by field it takes ten times as long.
_WHOLE: Final = np.int64


@dataclass(frozen=True)
class Postings:
    """Memories by word.

    Attributes:
        tokens: (p,) ascending.
        entries: (p,) of `POSTING`, in the same order.
    """

    tokens: Ints
    entries: npt.NDArray[np.void]

    def __len__(self) -> int:
        """Count the entries."""
        return len(self.tokens)

    @property
    def size_bytes(self) -> int:
        """Return their size in memory, in bytes."""
        return self.tokens.nbytes + self.entries.nbytes

    def of(self, tokens: Ints) -> tuple[Ints, npt.NDArray[np.void]]:
        """Return the entries of these tokens, one token's behind another's.

        Also (f,) which of the tokens each is of.
        """
        first = self.tokens.searchsorted(tokens, side="left")
        last = self.tokens.searchsorted(tokens, side="right")
        which = np.arange(len(tokens)).repeat(last - first)
        whole = self.entries.view(_WHOLE)
        places = zip(first.tolist(), last.tolist(), strict=True)
        found = [whole[begin:end] for begin, end in places if begin < end]
        return which, np.concatenate([whole[:0], *found]).view(POSTING)

    def has(self, tokens: Ints) -> Bools:
        """Return which of these tokens have entries."""
        if not len(self):
            return np.zeros(len(tokens), np.bool_)
        at = self.tokens.searchsorted(tokens).clip(max=len(self) - 1)
        present: Bools = self.tokens[at] == tokens
        return present

    def count(self, tokens: Ints) -> int:
        """Count the entries of these tokens."""
        ends = (self.tokens.searchsorted(tokens, side=side) for side in ("right", "left"))
        return int(np.subtract(*ends).sum())

    def keep(self, kept: Bools, moved: Ints | None) -> "Postings":
        """Return those of memories that are kept, where these are now."""
        if moved is None and kept.all():
            return self
        stay = kept[self.entries["at"]]
        if moved is None and stay.all():
            return self
        entries = self.entries.view(_WHOLE)[stay].view(POSTING)
        if moved is not None:
            entries["at"] = moved[entries["at"]]
        return Postings(self.tokens[stay], entries)

    def join(self, more: "Postings") -> "Postings":
        """Return these and more; of one word's, those behind these."""
        if not len(self):
            return more
        places = self.tokens.searchsorted(more.tokens, side="right")
        whole = np.insert(self.entries.view(_WHOLE), places, more.entries.view(_WHOLE))
        return Postings(np.insert(self.tokens, places, more.tokens), whole.view(POSTING))


NO_POSTINGS: Final = Postings(np.zeros(0, np.int64), np.zeros(0, POSTING))
