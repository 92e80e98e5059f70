"""Vectors of one namespace, model and epoch, row by row, where more are put behind them in place.

Not here: which memories they are of, and when (`namespace.py`), how rows of them are held
(`vector_rows.py`). Pure.
"""

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database.index_pages import Vectors
from relayer.memory_index.codes import Asked
from relayer.memory_index.lists import Lists, make_lists, wants_lists
from relayer.memory_index.vector_rows import VectorRows

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int32]
Part = tuple[Ints, Vectors]  # positions of memories, and their vectors, of any length

GONE_SHARE: Final = 16  # what is gone takes one part of so many, before the rest moves together


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
    rows: VectorRows = field(repr=False)
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
        return self.rows.dim

    @property
    def is_coded(self) -> bool:
        """Return true if their cosines are estimates."""
        return self.rows.is_coded

    @property
    def codes(self) -> npt.NDArray[np.uint8]:
        """Return (v, …) these, bit by bit as they are held."""
        return self.rows.codes(self._places)

    @property
    def size_bytes(self) -> int:
        """Return their size in memory, in bytes."""
        places = 0 if self.places is None else self.places.nbytes
        return self.at.nbytes + places + self.rows.nbytes

    def cosines(self, asked: Asked) -> Floats:
        """Return (v,) cosines with a vector of length 1, (dim,); equal ones get the very same."""
        return self.rows.products(asked, slice(self.end))[self._places]

    def cosines_of(self, asked: Asked, which: Ints) -> Floats:
        """Return the same of these alone."""
        return self.rows.products(asked, self._rows_of(which))

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

    def search(self, asked: Asked, admitted: Bools, wanted: int) -> "Nearest":
        """Return a search for what lies nearest to a vector, of admitted memories, given for each.

        At least so many are looked at first.
        """
        return Nearest(self, asked, admitted, wanted)

    def of_memories(self, positions: Ints) -> tuple[Ints, Ints]:
        """Return (f,) each: which of these memories, ascending, has which of the vectors."""
        if self.in_order:
            # Those in front of the first belong to another namespace of the search.
            which = np.flatnonzero((positions >= 0) & (positions < len(self.at)))
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

    def admit(self, rows: npt.NDArray[np.integer], admitted: Bools) -> Ints:
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

    def choose(self, asked: Asked, which: Ints, most: int) -> Ints:
        """Return some `most` of these that lie nearest, as a bit of each number tells.

        They are of as many memories, if these have so many.
        """
        of = None if self.single else self.at[which].astype(np.int64)
        return which[self.rows.choose(asked, self._rows_of(which), most, of)]

    def _rows_of(self, which: Ints) -> Ints:
        return which if self.places is None else self.places[which]

    @property
    def _places(self) -> Ints | slice:
        return slice(self.end) if self.places is None else self.places

    def _apart(self, parts: Sequence[Part]) -> "Passages":
        """Return the same in rows of their own, where nothing is kept of what is gone."""
        at = self._at_with(parts)
        first = self.rows if self.dim else None
        return Passages(at, VectorRows(first, self._places, [its for _, its in parts]), len(at))

    def _at_with(self, parts: Sequence[Part]) -> Places:
        return np.concatenate(
            [self.at, *(at for at, _ in parts)], dtype=np.int32, casting="same_kind"
        )


class Nearest:
    """A search step by step: lists tell which vectors are looked at, and these which are near."""

    def __init__(self, passages: Passages, asked: Asked, admitted: Bools, wanted: int) -> None:
        self._passages, self._asked, self._admitted = passages, asked, admitted
        self._count = 0  # looked at so far
        self._rows = self._nearest_rows(wanted)

    def find(self, wanted: int, most: int) -> Ints:
        """Return some `most` of those that are looked at until they are `wanted` altogether."""
        found = [np.zeros(0, np.int64)]
        while self._count < wanted and (rows := next(self._rows, None)) is not None:
            found.append(self._passages.admit(rows, self._admitted))
            self._count += len(found[-1])
        return self._passages.choose(self._asked, np.concatenate(found), most)

    def _nearest_rows(self, wanted: int) -> Iterator[npt.NDArray[np.integer]]:
        """Yield rows of what is in no list, and then those of the nearest lists."""
        lists, end = self._passages.lists, self._passages.end
        yield np.arange(lists.count if lists is not None else 0, end)
        if lists is not None:
            yield from lists.near(self._asked.unit, wanted)


class _StoppedError(Exception):
    """Nobody wants the lists any more."""


def _make_lists(rows: "weakref.ref[VectorRows]", end: int, stopped: threading.Event) -> None:
    """Make lists of the first so many rows; they are held for short steps only."""

    def held() -> VectorRows:
        its = rows()
        if its is None or stopped.is_set():
            raise _StoppedError
        return its

    with suppress(_StoppedError):
        before, dim = held().lists, held().dim
        made = make_lists(lambda places: held().units(places), end, dim, before)
        held().lists = made


NO_PASSAGES: Final = Passages(
    np.zeros(0, np.int32), VectorRows(None, slice(0), [np.zeros((0, 0), np.int8)]), end=0
)
