"""Long memories that are embedded in slices: the vectors that they have so far.

Not here: embedding (`indexer.py`), when a slice is over (`relayer.backlog`).

- In memory only, and no text: where each passage begins and ends, and turned vectors, as the
  database has them. Another process begins anew.
- What finds no room here is worked on to its end, so that it ends at all.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database.pool import Row
from relayer.sealed.keys import AccountId

BYTES_MAX: Final = 32 * 2**20  # of all vectors; the longest memory in English has 3 MB
LIFE_S: Final = 600.0  # of what nobody goes on with: it was erased, or edited, or its keys are gone
_Name = tuple[AccountId, uuid.UUID, bytes]


class Unfinished(Exception):
    """The slice is over within a memory; the next one goes on where it ended."""


@dataclass
class Partial:
    """A memory's passages, and the vectors of the first of them.

    Attributes:
        spans: where each passage begins and ends in the text.
        offered: how many passages the embedder was given.
        vectors: turned, (dim,) float16, of those that it took, in order.
        kept_at_s: when the last slice was over.
    """

    spans: Sequence[tuple[int, int]]
    offered: int = 0
    vectors: list[npt.NDArray[np.float16]] = field(default_factory=list)
    kept_at_s: float = 0.0

    @classmethod
    def of(cls, text: str, passages: Sequence[str]) -> "Partial":
        """Return the beginning; passages are exact substrings, in order."""
        spans, at = list[tuple[int, int]](), 0
        for passage in passages:
            # The same words may stand earlier as well, and are as good there.
            at = text.index(passage, at)
            spans.append((at, at + len(passage)))
            at += 1
        return cls(spans)

    @property
    def refused(self) -> int:
        """Count the passages that the embedder did not take."""
        return self.offered - len(self.vectors)

    @property
    def size_bytes(self) -> int:
        """Return the size of its vectors in bytes."""
        return sum(vector.nbytes for vector in self.vectors)


class Partials:
    """Vectors that slices have left behind, of all accounts."""

    def __init__(self, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._kept: dict[_Name, Partial] = {}

    def take(self, account: AccountId, row: Row) -> Partial | None:
        """Remove the partial of a memory and return it, or None."""
        return self._kept.pop(_name(account, row), None)

    def keep(self, account: AccountId, row: Row, partial: Partial) -> bool:
        """Keep it for the next slice; False where there is no room."""
        now = self._seconds()
        self._kept = {n: p for n, p in self._kept.items() if p.kept_at_s > now - LIFE_S}
        if partial.size_bytes + sum(p.size_bytes for p in self._kept.values()) > BYTES_MAX:
            return False
        partial.kept_at_s = now
        self._kept[_name(account, row)] = partial
        return True


def _name(account: AccountId, row: Row) -> _Name:
    """Of what is said now: an edit makes another blob."""
    return account, row["memory_id"], bytes(row["blob_id"])
