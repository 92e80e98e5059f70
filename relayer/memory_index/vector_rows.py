"""Vectors of one namespace, model and epoch below each other, with room for more behind them.

Not here: which memories they are of, and which of them are gone (`passages.py`). Pure.

- Of few, a number takes one byte, as in a sealed index record: a cosine differs by some .0004 from
  that of a halfvec. Of many, it takes a few bits (`codes.py`), which only estimates a cosine.
- Of many vectors there are lists (`lists.py`) once they have been made.
"""

import threading
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relayer.database.index_pages import Vectors
from relayer.memory_index import codes
from relayer.memory_index.codes import Asked, Planes
from relayer.memory_index.lists import Lists
from relayer.memory_index.lists import estimate_bytes as estimate_list_bytes
from relayer.sealed.index_record import quantise

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.uint8]

CODED_MIN: Final = 8_192  # vectors of which a number takes a few bits: a product of fewer is short
SIGNS_TIMES: Final = 4  # times as many as are wanted, or one part of so many, are chosen by signs
SIGNS_SHARE: Final = 8
LANES: Final = 64  # vectors that a product adds up in one way; what is left over, in another
SPARE_SHARE: Final = 32  # room for vectors to come is one part of so many
MULTIPLIED_MAX: Final = 2**16  # numbers that are made larger at once, so that they stay in a cache

_ROW_BYTES: Final = np.dtype(np.int32).itemsize + np.dtype(np.float32).itemsize


def estimate_bytes(vectors: Ints, numbers: Ints, *, among: int = 0) -> Ints:
    """Estimate the bytes of vectors with so many numbers together, with their room to grow.

    They are `among` so many, if that is known.
    """
    if among >= CODED_MIN:  # a vector's last word may be all but empty
        numbers = (numbers + vectors * codes.WORD_BITS) * codes.BITS // 8
    return vectors * _ROW_BYTES + numbers * (SPARE_SHARE + 1) // SPARE_SHARE


def _in_lanes(count: int) -> int:
    """Return the next multiple of `LANES`."""
    return count + -count % LANES


def _count_at_once(dim: int) -> int:
    """Return how many vectors of that length are made larger at once."""
    return max(MULTIPLIED_MAX // max(dim, 1) // LANES, 1) * LANES


class _Bytes:
    """A number takes one byte."""

    def __init__(self, dim: int, room: int) -> None:
        self.dim, self.room = dim, room
        self.numbers = np.zeros((room, dim), np.int8)
        self.scales = np.zeros(room, np.float32)  # one through their lengths

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        return [self.numbers, self.scales]

    def codes(self, places: Ints | slice) -> Numbers:
        return self.numbers[places].view(np.uint8)

    def put(self, its: slice, vectors: Vectors) -> None:
        numbers = vectors if vectors.dtype == np.int8 else quantise(vectors)
        whole = numbers.astype(np.float32)
        lengths = np.sqrt(np.einsum("vd,vd->v", whole, whole))
        self.numbers[its] = numbers
        self.scales[its] = 1 / np.where(lengths > 0, lengths, 1)

    def units(self, places: Ints) -> Floats:
        # To take rows is ten times as fast as to index them.
        return self.numbers.take(places, axis=0) * self.scales[places, None]

    def products(self, asked: Asked, places: Ints | slice) -> Floats:
        count = _count(places)
        end, at_once = _in_lanes(count), _count_at_once(self.dim)
        found = np.empty(end, np.float32)
        whole = np.zeros((min(at_once, end), self.dim), np.float32)
        for at in range(0, end, at_once):
            its = slice(at, min(at + at_once, end))
            part = whole[: its.stop - at]
            if isinstance(places, slice):
                np.copyto(part, self.numbers[its])
            else:
                rows = self.numbers.take(places[its], axis=0, mode="clip")
                np.copyto(part[: len(rows)], rows)
            np.dot(part, asked.unit, out=found[its])
        products: Floats = found[:count] * self.scales[places]
        return products


class _Coded:
    """A number takes a few bits."""

    def __init__(self, dim: int, room: int) -> None:
        self.dim, self.room = dim, room
        self.planes = np.zeros((codes.BITS, room, codes.count_words(dim)), np.uint64)
        self.factors = np.zeros(room, np.float32)

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        return [*self.planes, self.factors]

    def codes(self, places: Ints | slice) -> Numbers:
        its = self._planes(places).view(np.uint8)
        return np.ascontiguousarray(its.transpose(1, 0, 2)).reshape(its.shape[1], -1)

    def put(self, its: slice, vectors: Vectors) -> None:
        self.planes[:, its], self.factors[its] = codes.encode(vectors)

    def units(self, places: Ints) -> Floats:
        return codes.decode(self._planes(places), self.dim)

    def products(self, asked: Asked, places: Ints | slice) -> Floats:
        return asked.products(self._planes(places), self.factors[places])

    def estimate(self, asked: Asked, places: Ints, bits: int) -> npt.NDArray[np.unsignedinteger]:
        """Return estimates of these rows by so many bits of each number: the less, the nearer."""
        return asked.estimate([plane.take(places, axis=0) for plane in self.planes[:bits]])

    def _planes(self, places: Ints | slice) -> Planes:
        if isinstance(places, slice):
            return self.planes[:, places]
        return np.stack([plane.take(places, axis=0) for plane in self.planes])


class VectorRows:
    """Vectors below each other, and room for more behind them.

    What is taken is never written again, and what comes goes behind it in place: so one reader may
    hold the first few while another holds more.

    Attributes:
        lists: of the first of them; None until there are any.
    """

    def __init__(
        self, first: "VectorRows | None", places: Ints | slice, parts: Sequence[Vectors]
    ) -> None:
        """Hold those rows of the first, and behind them those of all parts."""
        kept = 0 if first is None else _count(places)
        taken = kept + sum(map(len, parts))
        dim = parts[0].shape[1] if first is None else first.dim
        is_coded = taken >= CODED_MIN or (first is not None and first.is_coded)
        form = _Coded if is_coded else _Bytes
        self._form: _Bytes | _Coded = form(dim, _in_lanes(taken + taken // SPARE_SHARE))
        self.lists: Lists | None = None
        self._taken = kept
        self._taking = threading.Lock()
        if first is not None:
            self._copy(first, places, kept)
        self.take(kept, parts)

    def _copy(self, first: "VectorRows", places: Ints | slice, kept: int) -> None:
        mine, its = self._form, first._form
        if type(mine) is type(its):
            for own, other in zip(mine.arrays, its.arrays, strict=True):
                _copy(other, places, own[:kept])
        else:
            at_once = _count_at_once(self.dim)
            places = np.arange(kept) if isinstance(places, slice) else places
            for at in range(0, kept, at_once):
                self._put(at, its.units(places[at : at + at_once]))
        self.lists = first.lists
        if self.lists is not None and not isinstance(places, slice):
            self.lists = self.lists.moved(places)

    @property
    def dim(self) -> int:
        """Return of how many numbers each consists."""
        return self._form.dim

    @property
    def room(self) -> int:
        """Return how many there may be."""
        return self._form.room

    @property
    def is_coded(self) -> bool:
        """Return true if products are estimates."""
        return isinstance(self._form, _Coded)

    @property
    def nbytes(self) -> int:
        """Return their size in memory, with their room to grow and lists, in bytes."""
        return sum(a.nbytes for a in self.arrays) + estimate_list_bytes(self.room, self.dim)

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        """Return what they consist of, without lists."""
        return self._form.arrays

    def take(self, behind: int, parts: Sequence[Vectors]) -> bool:
        """Put these behind the first `behind`; False where others are, or there is no room."""
        end = behind + sum(map(len, parts))
        with self._taking:
            if self._taken != behind or end > self.room:
                return False
            for part in parts:
                self._put(behind, part)
                behind += len(part)
            self._taken = end
            return True

    def _put(self, begin: int, vectors: Vectors) -> None:
        # A few at once: larger numbers take four times as much.
        at_once = _count_at_once(self.dim)
        for at in range(0, len(vectors), at_once):
            some = vectors[at : at + at_once]
            self._form.put(slice(begin + at, begin + at + len(some)), some)

    def codes(self, places: Ints | slice) -> Numbers:
        """Return (v, …) these rows, bit by bit as they are held."""
        return self._form.codes(places)

    def units(self, places: Ints) -> Floats:
        """Return (v, dim) these rows, of length 1."""
        return self._form.units(places)

    def products(self, asked: Asked, places: Ints | slice) -> Floats:
        """Return products of these rows, or the first, with a vector; of equal ones the same."""
        return self._form.products(asked, places)

    def choose(self, asked: Asked, places: Ints, count: int, of: Ints | None = None) -> Ints:
        """Return which of these places, in order, at least so many, seem to have the best products.

        Where products are exact, all are returned. `of` tells the memory of each, if any has
        several: then the best of as many memories is among them, lest all be of one long text.
        """
        chosen = np.arange(len(places))
        if isinstance(self._form, _Coded):
            for bits, most in (
                (1, max(SIGNS_TIMES * count, len(places) // SIGNS_SHARE)),
                (2, count),
            ):
                if len(chosen) > most:
                    estimates = self._form.estimate(asked, places[chosen], bits)
                    best = estimates <= np.partition(estimates, most - 1)[most - 1]
                    if of is not None:
                        best[_best_of_each(estimates, of[chosen], most)] = True
                    chosen = chosen[best]
        return chosen


def _best_of_each(estimates: npt.NDArray[np.unsignedinteger], of: Ints, most: int) -> Ints:
    """Return which have the least estimate of their memory, of some `most` of these."""
    order = np.lexsort((estimates, of))
    first = order[np.diff(of[order], prepend=-1) > 0]
    if len(first) > most:
        its = estimates[first]
        first = first[its <= np.partition(its, most - 1)[most - 1]]
    return first


def _count(places: Ints | slice) -> int:
    return places.stop if isinstance(places, slice) else len(places)


def _copy(rows: npt.NDArray[Any], places: Ints | slice, out: npt.NDArray[Any]) -> None:
    if isinstance(places, slice):
        out[:] = rows[places]
    else:
        rows.take(places, axis=0, out=out, mode="clip")
