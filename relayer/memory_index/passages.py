"""Vectors of one namespace, model and epoch, row by row, where more are put behind them in place.

Not here: which memories they are of, and when (`namespace.py`). Pure.

- A number takes one byte, as in a sealed index record: a cosine differs by some .0004 from that of
  a halfvec. A product makes larger numbers of a few rows at a time, which costs next to nothing.
- Of many vectors there are lists (`lists.py`) once they have been made.
"""

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database.memory_index import Vectors
from relayer.memory_index.lists import Lists, make_lists, wants_lists
from relayer.memory_index.lists import estimate_bytes as estimate_list_bytes
from relayer.sealed.index_record import Quantised, quantise

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int32]
Part = tuple[Ints, Vectors]  # positions of memories, and their vectors, of any length

LANES: Final = 64  # vectors that a product adds up in one way; what is left over, in another
SPARE_SHARE: Final = 16  # room for vectors to come is one part of so many
GONE_SHARE: Final = 16  # what is gone takes one part of so many, before the rest moves together
MULTIPLIED_MAX: Final = 2**16  # numbers that are made larger at once, so that they stay in a cache

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
        self.lists: Lists | None = None
        if first is not None:
            if isinstance(places, slice):
                self.codes[:count] = codes[places]
            else:
                np.take(codes, places, axis=0, out=self.codes[:count], mode="clip")
            self.scales[:count] = first.scales[places]
            self.lists = first.lists
            if self.lists is not None and not isinstance(places, slice):
                self.lists = self.lists.moved(places)
        self._taken = count
        self._taking = threading.Lock()
        self.take(self._taken, parts)

    @property
    def nbytes(self) -> int:
        """Return their size in memory, with their room to grow and lists, in bytes."""
        lists = estimate_list_bytes(*self.codes.shape)
        return self.codes.nbytes + self.scales.nbytes + lists

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

    def units(self, places: Ints) -> Floats:
        """Return (v, dim) these rows, of length 1."""
        return self.codes.take(places, axis=0) * self.scales[places, None]

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
            else:  # to take rows is ten times as fast as to index them
                rows = self.codes.take(places[its], axis=0, mode="clip")
                np.copyto(part[: len(rows)], rows)
            np.dot(part, unit, out=found[its])
        products: Floats = found[:count] * self.scales[places]
        return products


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
    def lists(self) -> Lists | None:
        """Return the lists of these, and perhaps of others; None where there are none."""
        return self.rows.lists

    @property
    def wants_lists(self) -> bool:
        """Return true if lists are to be made of these."""
        return wants_lists(self.lists, self.end)

    def list_maker(self, stopped: threading.Event) -> Callable[[], None]:
        """Return what makes lists of these, until it is stopped or nobody else holds the rows."""
        return partial(_make_lists, weakref.ref(self.rows), self.end, stopped)

    def find_near(self, unit: Floats, admitted: Bools, wanted: int) -> Ints:
        """Return which of these, at least so many, lie nearest to a vector, as lists tell.

        They are those of admitted memories, given for each; all of them where there are fewer.
        """
        lists = self.lists
        if lists is None:
            return np.flatnonzero(admitted[self.at])
        found, count = [self._admit(np.arange(lists.count, self.end), admitted)], 0
        for rows in lists.near(unit, wanted):
            found.append(self._admit(rows, admitted))
            count += len(found[-1])
            if count >= wanted:
                break
        return np.concatenate(found)

    def of_memories(self, positions: Ints) -> tuple[Ints, Ints]:
        """Return (f,) each: which of these memories, ascending, has which of the vectors."""
        if self.in_order:
            which = np.flatnonzero(positions < len(self.at))
            return which, positions[which]
        order = self._by_memory
        at = self.at if order is None else self.at[order]
        begins, ends = (at.searchsorted(positions.astype(at.dtype), s) for s in ("left", "right"))
        which = np.arange(len(positions)).repeat(ends - begins)
        its = np.arange(len(which)) - (np.cumsum(ends - begins) - (ends - begins))[which]
        its += begins[which]
        return which, its if order is None else order[its]

    @cached_property
    def _by_memory(self) -> Ints | None:
        """Return these by memory; None where they are so already."""
        if (self.at[1:] >= self.at[:-1]).all():
            return None
        return np.argsort(self.at, kind="stable")

    @cached_property
    def _of_row(self) -> Places:
        """Return (end,) which of these each row is; -1 of one that is gone."""
        found = np.full(self.end, -1, np.int32)
        found[self._places] = np.arange(len(self.at), dtype=np.int32)
        return found

    def _admit(self, rows: npt.NDArray[np.integer], admitted: Bools) -> Ints:
        """Return which of these the rows are, if their memories are admitted."""
        which = rows[rows < self.end].astype(np.int64)  # lists may be of more that came later
        if self.places is not None:
            which = self._of_row[which].astype(np.int64)
            which = which[which >= 0]
        return which[admitted[self.at[which]]]

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


class _StoppedError(Exception):
    """Nobody wants the lists any more."""


def _make_lists(rows: "weakref.ref[_Rows]", end: int, stopped: threading.Event) -> None:
    """Make lists of the first so many rows; they are held for short steps only."""

    def held() -> _Rows:
        its = rows()
        if its is None or stopped.is_set():
            raise _StoppedError
        return its

    with suppress(_StoppedError):
        before, dim = held().lists, held().codes.shape[1]
        made = make_lists(lambda places: held().units(places), end, dim, before)
        held().lists = made


NO_PASSAGES: Final = Passages(
    np.zeros(0, np.int32), _Rows(None, slice(0), [np.zeros((0, 0), np.int8)]), end=0
)
