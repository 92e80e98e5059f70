"""Lists of vectors that lie near each other: a search looks into those that are nearest to it.

Not here: the vectors (`passages.py`), when lists are made (`index.py`). Pure.

- A list's middle is found by k-means over a sample, and every vector is put into the list whose
  middle is nearest. What comes later is looked at in any case, until it is put into lists, too.
- It is done in short steps and holds on to no vectors between them: whoever lets go of a namespace
  stops it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Read = Callable[[Ints], Floats]  # rows → their vectors, of length 1

LISTED_MIN: Final = 32_768  # vectors of which lists are made: a product of fewer takes two ms
LISTS_PER_ROOT: Final = 4  # lists, for each of the square root of the number of vectors
SAMPLED: Final = 32  # vectors of a sample for each list
ROUNDS: Final = 4  # of k-means
TAIL_SHARE: Final = 8  # vectors that came later are one part of so many, before they get into lists
GROWN: Final = 2  # times as many vectors as when the middles were found, before they are found anew
AT_ONCE: Final = 2**21  # products of vectors with middles, in floats


@dataclass(frozen=True)
class Lists:
    """The first `count` rows, by lists.

    Attributes:
        means: (l, dim) of the vectors of each list.
        ends: (l,) how many rows there are up to the end of each list.
        rows: (count,) of one list after the other, ascending in each; without those that are gone.
        found_in: how many vectors there were when the middles were found.
    """

    means: Floats
    ends: Ints
    rows: Places
    count: int
    found_in: int

    @property
    def size_bytes(self) -> int:
        """Return their size in memory, in bytes."""
        return self.means.nbytes + self.ends.nbytes + self.rows.nbytes

    def near(self, unit: Floats, wanted: int) -> Iterator[Places]:
        """Yield rows of the nearest lists, at least so many, then twice as many, up to all."""
        order = np.argsort(-(self.means @ unit), kind="stable")
        begins = np.concatenate([[0], self.ends[:-1]])
        reached = np.cumsum(self.ends[order] - begins[order])
        at = 0
        while at < len(order):
            upto = min(int(reached.searchsorted(wanted)) + 1, len(order))
            its = order[at : max(upto, at + 1)]
            sizes = self.ends[its] - begins[its]
            shifts = begins[its] - (np.cumsum(sizes) - sizes)
            yield self.rows[np.arange(sizes.sum()) + shifts.repeat(sizes)]
            at += len(its)
            wanted *= 2

    def moved(self, places: Ints) -> "Lists":
        """Return the lists where only these rows are left, ascending, one behind the other."""
        at = places.searchsorted(self.rows)
        at[at == len(places)] = 0
        stays = places[at] == self.rows if len(places) else np.zeros(len(self.rows), bool)
        ends = np.concatenate([[0], np.cumsum(stays)])[self.ends]
        count = int(places.searchsorted(self.count))
        return replace(self, ends=ends, rows=at[stays].astype(np.int32), count=count)


def wants_lists(lists: Lists | None, count: int) -> bool:
    """Return true if so many rows are to be put into lists, or into others than these."""
    if lists is None:
        return count >= LISTED_MIN
    return count - lists.count > lists.count // TAIL_SHARE


def estimate_bytes(count: int, dim: int) -> int:
    """Return the bytes that lists of so many vectors take."""
    if count < LISTED_MIN:
        return 0
    lists = _count_lists(count)
    return count * np.dtype(np.int32).itemsize + lists * (dim + 2) * np.dtype(np.float32).itemsize


def make_lists(read: Read, count: int, dim: int, before: Lists | None = None) -> Lists:
    """Return lists of the first `count` rows; `before` are those of fewer, if there are any."""
    if before is None or count > GROWN * before.found_in:
        return _assign(read, _find_middles(read, count, dim), 0, count, count)
    lengths = np.linalg.norm(before.means, axis=1, keepdims=True)
    middles = before.means / np.maximum(lengths, 1e-9)
    further = _assign(read, middles, before.count, count, before.found_in)
    return _join(before, further)


def _count_lists(count: int) -> int:
    return int(LISTS_PER_ROOT * count**0.5)


def _find_middles(read: Read, count: int, dim: int) -> Floats:
    """Return (l, dim) middles of length 1."""
    numbers, wanted = np.random.default_rng(count), _count_lists(count)
    sampled = numbers.choice(count, min(wanted * SAMPLED, count), replace=False)
    middles = np.concatenate([read(its) for its in _parts(np.sort(sampled[:wanted]), dim)])
    sampled.sort()
    for _ in range(ROUNDS):
        sums, sizes = np.zeros_like(middles), np.zeros(wanted, np.int64)
        for its in _parts(sampled, wanted):
            vectors = read(its)
            _add(sums, sizes, vectors, (vectors @ middles.T).argmax(axis=1))
        lengths = np.linalg.norm(sums, axis=1)
        here = lengths > 0
        middles[here] = sums[here] / lengths[here, None]
    return middles


def _assign(read: Read, middles: Floats, begin: int, end: int, found_in: int) -> Lists:
    """Return these rows in the lists of the nearest middles."""
    sums, sizes = np.zeros_like(middles), np.zeros(len(middles), np.int64)
    nearest = np.empty(end - begin, np.int32)
    for its in _parts(np.arange(begin, end), len(middles)):
        vectors = read(its)
        found = (vectors @ middles.T).argmax(axis=1)
        nearest[its - begin] = found
        _add(sums, sizes, vectors, found)
    means = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], middles)
    rows = (begin + np.argsort(nearest, kind="stable")).astype(np.int32)
    return Lists(means.astype(np.float32), np.cumsum(sizes), rows, end, found_in)


def _join(before: Lists, further: Lists) -> Lists:
    """Return the lists of both, whose middles are the same."""
    sizes = [np.diff(its.ends, prepend=0) for its in (before, further)]
    of_each = [np.arange(len(before.ends)).repeat(its) for its in sizes]
    order = np.argsort(np.concatenate(of_each), kind="stable")
    rows = np.concatenate([before.rows, further.rows])[order]
    share = (sizes[1] / np.maximum(sizes[0] + sizes[1], 1))[:, None]
    means = before.means + (further.means - before.means) * share
    return Lists(
        means.astype(np.float32), before.ends + further.ends, rows, further.count, before.found_in
    )


def _add(sums: Floats, sizes: Ints, vectors: Floats, to: Ints) -> None:
    """Add vectors to the sums of their lists, and count them."""
    order = np.argsort(to, kind="stable")
    its, begins, counts = np.unique(to[order], return_index=True, return_counts=True)
    sums[its] += np.add.reduceat(vectors[order], begins, axis=0)
    sizes[its] += counts


def _parts(rows: Ints, each: int) -> Iterator[Ints]:
    """Yield rows in parts, for each of which so many numbers are made."""
    at_once = max(AT_ONCE // max(each, 1), 1)
    for at in range(0, len(rows), at_once):
        yield rows[at : at + at_once]
