"""Vectors of one namespace, model and epoch, row by row, where more are put behind them in place.

Not here: which memories they are of, and when (`namespace.py`). Pure.

- A number takes one byte, as in a sealed index record: a cosine differs by some .0004 from that of
  a halfvec. A product makes larger numbers of a few rows at a time, which costs next to nothing.
- Of many vectors their signs are kept beside them, one bit a number: how many differ from those of
  a query estimates an angle, a thirtieth of the work of a product.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database.memory_index import Vectors
from relayer.sealed.index_record import Quantised, quantise

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int32]
Signs = npt.NDArray[np.uint64]
Part = tuple[Ints, Vectors]  # positions of memories, and their vectors, of any length

LANES: Final = 64  # vectors that a product adds up in one way; what is left over, in another
SPARE_SHARE: Final = 16  # room for vectors to come is one part of so many
GONE_SHARE: Final = 16  # what is gone takes one part of so many, before the rest moves together
MULTIPLIED_MAX: Final = 2**16  # numbers that are made larger at once, so that they stay in a cache

SIGNED_MIN: Final = 16_384  # vectors from which their signs are kept, too: less takes a millisecond

_BITS: Final = 64
_COUNTED_AT_ONCE: Final = 16_384
_VECTOR_BYTES: Final = np.dtype(np.int32).itemsize + np.dtype(np.float32).itemsize


def estimate_bytes(vectors: Ints, numbers: Ints) -> Ints:
    """Estimate the bytes of vectors with so many numbers together, with their room to grow."""
    return vectors * _VECTOR_BYTES + numbers * (SPARE_SHARE + 1) // SPARE_SHARE


def _in_lanes(count: int) -> int:
    """Return the next multiple of `LANES`."""
    return count + -count % LANES


def _count_at_once(dim: int) -> int:
    """Return how many vectors of that length are made larger at once."""
    return max(MULTIPLIED_MAX // max(dim, 1) // LANES, 1) * LANES


class _Rows:
    """Vectors below each other, (room, dim), and room for more behind them.

    What is taken is never written again, and what comes goes behind it in place: so one reader may
    hold the first few while another holds more.
    """

    def __init__(
        self, first: "_Rows | None", places: Ints | slice, parts: Sequence[Vectors]
    ) -> None:
        """Hold those rows of the first, and behind them those of all parts."""
        dim = parts[0].shape[1] if first is None else first.codes.shape[1]
        codes = np.zeros((0, dim), np.int8) if first is None else first.codes
        count = len(codes[places]) if isinstance(places, slice) else len(places)
        taken = count + sum(map(len, parts))
        room = _in_lanes(taken + taken // SPARE_SHARE)
        self.codes: Quantised = np.zeros((room, dim), np.int8)
        self.scales: Floats = np.zeros(room, np.float32)  # one through their lengths
        words = -(-dim // _BITS) if taken >= SIGNED_MIN else 0
        self.signs: Signs = np.zeros((words, room), np.uint64)
        if first is not None:
            if isinstance(places, slice):
                self.codes[:count] = codes[places]
            else:
                np.take(codes, places, axis=0, out=self.codes[:count], mode="clip")
            self.scales[:count] = first.scales[places]
            self._sign(count)
        self._taken = count
        self._taking = threading.Lock()
        self.take(self._taken, parts)

    @property
    def nbytes(self) -> int:
        """Return their size in memory, with their room to grow, in bytes."""
        return self.codes.nbytes + self.scales.nbytes + self.signs.nbytes

    def take(self, behind: int, parts: Sequence[Vectors]) -> bool:
        """Put these behind the first `behind`; False where others are, or there is no room."""
        end = behind + sum(map(len, parts))
        with self._taking:
            if self._taken != behind or end > len(self.codes):
                return False
            # A few at once: larger numbers take four times as much.
            at_once = _count_at_once(self.codes.shape[1])
            for part in parts:
                for at in range(0, len(part), at_once):
                    some = part[at : at + at_once]
                    self._set(slice(behind, behind := behind + len(some)), some)
            self._taken = end
            return True

    def _set(self, its: slice, vectors: Vectors) -> None:
        codes = vectors if vectors.dtype == np.int8 else quantise(vectors)
        whole = codes.astype(np.float32)
        lengths = np.sqrt(np.einsum("vd,vd->v", whole, whole))
        self.codes[its] = codes
        self.scales[its] = 1 / np.where(lengths > 0, lengths, 1)
        if len(self.signs):
            self.signs[:, its] = _signs_of(codes).T

    def _sign(self, count: int) -> None:
        """Note the signs of the first rows."""
        if len(self.signs):
            for at in range(0, count, _COUNTED_AT_ONCE):
                its = slice(at, min(at + _COUNTED_AT_ONCE, count))
                self.signs[:, its] = _signs_of(self.codes[its]).T

    def products(self, unit: Floats, places: Ints | slice) -> Floats:
        """Return products of these rows, or the first, with a vector; of equal ones the same."""
        count = places.stop if isinstance(places, slice) else len(places)
        end, at_once = _in_lanes(count), _count_at_once(len(unit))
        found = np.empty(end, np.float32)
        whole = np.zeros((min(at_once, end), len(unit)), np.float32)
        for at in range(0, end, at_once):
            its = slice(at, min(at + at_once, end))
            part = whole[: its.stop - at]
            if isinstance(places, slice):
                np.copyto(part, self.codes[its])
            else:
                rows = self.codes[places[its]]
                np.copyto(part[: len(rows)], rows)
            np.dot(part, unit, out=found[its])
        products: Floats = found[:count] * self.scales[places]
        return products

    def count_differing(self, unit: Floats, count: int) -> npt.NDArray[np.uint16]:
        """Return (count,) how many signs of each of the first rows are not those of a vector."""
        [asked] = _signs_of(unit[None])
        found = np.zeros(count, np.uint16)
        for at in range(0, count, _COUNTED_AT_ONCE):
            part = found[at : at + _COUNTED_AT_ONCE]
            for signs, its in zip(self.signs, asked, strict=True):
                part += np.bitwise_count(signs[at : at + len(part)] ^ its)
        return found


def _signs_of(vectors: Vectors) -> Signs:
    """Return (v, words) one bit for each number, set where it is above zero."""
    packed = np.packbits(vectors > 0, axis=1)
    whole = np.zeros((len(packed), -(-vectors.shape[1] // _BITS) * _BITS // 8), np.uint8)
    whole[:, : packed.shape[1]] = packed
    return whole.view(np.uint64)


@dataclass(frozen=True)
class Passages:
    """Vectors of one model and epoch.

    Attributes:
        at: (v,) positions of their memories.
        rows: of which the first `end` are these, and some that are gone.
        end: how many of the rows are taken by these and those.
        places: (v,) which rows are these, ascending; None where none is gone.
    """

    at: Places
    rows: _Rows = field(repr=False)
    end: int
    places: Ints | None = None

    @cached_property
    def single(self) -> bool:
        """Return true if no memory has two."""
        return bool(np.bincount(self.at).max() == 1)

    @cached_property
    def in_order(self) -> bool:
        """Return true if there is one of each of the first memories, in their order."""
        return np.array_equal(self.at, np.arange(len(self.at), dtype=np.int32))

    @property
    def dim(self) -> int:
        """Return of how many numbers each consists."""
        return int(self.rows.codes.shape[1])

    @property
    def codes(self) -> Quantised:
        """Return (v, dim) whole numbers."""
        return self.rows.codes[self._places]

    @property
    def size_bytes(self) -> int:
        """Return their size in memory, in bytes."""
        places = 0 if self.places is None else self.places.nbytes
        return self.at.nbytes + places + self.rows.nbytes

    def cosines(self, unit: Floats) -> Floats:
        """Return (v,) cosines with a vector of length 1, (dim,); equal ones get the very same."""
        return self.rows.products(unit, slice(self.end))[self._places]

    def cosines_of(self, unit: Floats, which: Ints) -> Floats:
        """Return the same of these alone."""
        return self.rows.products(unit, which if self.places is None else self.places[which])

    @property
    def has_estimates(self) -> bool:
        """Return true if the signs of these are kept."""
        return len(self.rows.signs) > 0

    def estimate_cosines(self, unit: Floats) -> Floats:
        """Return (v,) what the signs tell of the cosines with a vector, (dim,)."""
        angles = np.arange(self.dim + 1) * (np.pi / max(self.dim, 1))
        differing = self.rows.count_differing(unit, self.end)
        estimates: Floats = np.cos(angles).astype(np.float32)[differing]
        return estimates if self.places is None else estimates[self.places]

    def keep(self, kept: Bools, moved: Ints | None, parts: Sequence[Part] = ()) -> "Passages":
        """Return those of kept memories, where these are now, with those of all parts behind.

        The rows of the others stay until they are too many: to leave out a few copies all.
        """
        stays = kept[self.at]
        at = self.at[stays]
        if moved is not None:
            at = moved[at].astype(np.int32)
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
        if not self.rows.take(self.end, [its for _, its in parts]):
            return self._apart(parts)
        end = self.end + count
        places = self.places
        if places is not None:
            places = np.concatenate([places, np.arange(self.end, end)])
        return Passages(self._at_with(parts), self.rows, end, places)

    @property
    def _places(self) -> Ints | slice:
        return slice(self.end) if self.places is None else self.places

    def _apart(self, parts: Sequence[Part]) -> "Passages":
        """Return the same in rows of their own, where nothing is kept of what is gone."""
        at = self._at_with(parts)
        first = self.rows if self.dim else None
        return Passages(at, _Rows(first, self._places, [its for _, its in parts]), len(at))

    def _at_with(self, parts: Sequence[Part]) -> Places:
        return np.concatenate(
            [self.at, *(at for at, _ in parts)], dtype=np.int32, casting="same_kind"
        )


NO_PASSAGES: Final = Passages(
    np.zeros(0, np.int32), _Rows(None, slice(0), [np.zeros((0, 0), np.int8)]), end=0
)
