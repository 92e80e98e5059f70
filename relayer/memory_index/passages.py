"""Vectors of one namespace, model and epoch, by dimension, where more are put behind them in place.

Not here: which memories they are of, and when (`namespace.py`). Pure.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database.memory_index import Vectors

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Part = tuple[Ints, Vectors]  # positions of memories, and their vectors, of any length

LANES: Final = 64  # vectors that a product adds up in one way; what is left over, in another
SPARE_SHARE: Final = 16  # room for vectors to come is one part of so many
GONE_SHARE: Final = 16  # what is gone takes one part of so many, before the rest moves together

_POSITION_BYTES: Final = np.dtype(np.int64).itemsize
_NUMBER_BYTES: Final = np.dtype(np.float32).itemsize


def estimate_bytes(vectors: Ints, numbers: Ints) -> Ints:
    """Estimate the bytes of vectors with so many numbers together, with their room to grow."""
    return vectors * _POSITION_BYTES + numbers * _NUMBER_BYTES * (SPARE_SHARE + 1) // SPARE_SHARE


def _in_lanes(count: int) -> int:
    """Return the next multiple of `LANES`."""
    return count + -count % LANES


def _units(vectors: Vectors) -> Floats:
    """Return these as columns of length 1, (dim, v); a zero stays one."""
    whole = vectors.astype(np.float32)
    norms = np.linalg.norm(whole, axis=1, keepdims=True)
    return np.asarray(whole / np.where(norms > 0, norms, 1), np.float32).T


class _Columns:
    """Vectors side by side, (dim, room), and room for more behind them.

    What is taken is never written again, and what comes goes behind it in place: so one reader may
    hold the first few while another holds more.
    """

    def __init__(self, first: Floats, places: Ints | None, parts: Sequence[Vectors]) -> None:
        """Hold those columns of the first, (dim, …), or all, and behind them those of all parts."""
        count = first.shape[1] if places is None else len(places)
        taken = count + sum(map(len, parts))
        room = _in_lanes(taken + taken // SPARE_SHARE)
        self.whole = np.zeros((len(first), room), np.float32)
        # Row by row: chosen in one go, there would be one copy more of them meanwhile.
        for row, its in zip(self.whole, first, strict=True):
            row[:count] = its if places is None else its[places]
        self._taken = count
        self._taking = threading.Lock()
        self.take(self._taken, parts)

    def take(self, behind: int, parts: Sequence[Vectors]) -> bool:
        """Put these behind the first `behind`; False where others are, or there is no room."""
        end = behind + sum(map(len, parts))
        with self._taking:
            if self._taken != behind or end > self.whole.shape[1]:
                return False
            # One by one: of all vectors there are never three copies.
            for part in parts:
                self.whole[:, behind : behind + len(part)] = _units(part)
                behind += len(part)
            self._taken = end
            return True


@dataclass(frozen=True)
class Passages:
    """Vectors of one model and epoch.

    Attributes:
        at: (v,) positions of their memories.
        columns: of which the first `end` are these, of length 1, and some that are gone.
        end: how many of the columns are taken by these and those.
        places: (v,) which columns are these, ascending; None where none is gone.
    """

    at: Ints
    columns: _Columns = field(repr=False)
    end: int
    places: Ints | None = None

    @cached_property
    def single(self) -> bool:
        """Return true if no memory has two."""
        return bool(np.bincount(self.at).max() == 1)

    @property
    def units(self) -> Floats:
        """Return (dim, v) float32: by columns, products with a query take half as long."""
        return self._all if self.places is None else self._all[:, self.places]

    @property
    def _all(self) -> Floats:
        """Return (dim, end) float32, with those that are gone."""
        return self.columns.whole[:, : self.end]

    @property
    def size_bytes(self) -> int:
        """Return their size in memory, in bytes."""
        places = 0 if self.places is None else self.places.nbytes
        return self.at.nbytes + places + self.columns.whole.nbytes

    def cosines(self, unit: Floats) -> Floats:
        """Return (v,) cosines with a vector of length 1, (dim,); equal ones get the very same."""
        lanes = self.columns.whole[:, : _in_lanes(self.end)]
        cosines: Floats = (unit @ lanes)[: self.end]
        return cosines if self.places is None else cosines[self.places]

    def keep(self, kept: Bools, moved: Ints | None, parts: Sequence[Part] = ()) -> "Passages":
        """Return those of kept memories, where these are now, with those of all parts behind.

        The columns of the others stay until they are too many: to leave out a few copies all.
        """
        stays = kept[self.at]
        at = self.at[stays]
        if moved is not None:
            at = moved[at]
        if stays.all():
            return replace(self, at=at).join(parts)
        places = np.flatnonzero(stays) if self.places is None else self.places[stays]
        its = replace(self, at=at, places=places)
        if (self.end - len(places)) * GONE_SHARE <= self.end:
            return its.join(parts)
        return its._apart(parts)

    def join(self, parts: Sequence[Part]) -> "Passages":
        """Return these, and behind them those of all parts."""
        count = sum(len(at) for at, _ in parts)
        if not count:
            return self
        if not self.columns.take(self.end, [its for _, its in parts]):
            return self._apart(parts)
        end = self.end + count
        places = self.places
        if places is not None:
            places = np.concatenate([places, np.arange(self.end, end)])
        return Passages(self._at_with(parts), self.columns, end, places)

    def _apart(self, parts: Sequence[Part]) -> "Passages":
        """Return the same in columns of their own, where nothing is kept of what is gone."""
        vectors = [its for _, its in parts]
        first = self._all if len(self._all) else np.zeros((vectors[0].shape[1], 0), np.float32)
        at = self._at_with(parts)
        return Passages(at, _Columns(first, self.places, vectors), len(at))

    def _at_with(self, parts: Sequence[Part]) -> Ints:
        return np.concatenate([self.at, *(at for at, _ in parts)])


NO_PASSAGES: Final = Passages(
    np.zeros(0, np.int64), _Columns(np.zeros((0, 0), np.float32), None, []), end=0
)
