"""Distances of memories in memory from a query, and which are nearest.

Not here: words (`keywords.py`), the vectors (`passages.py`) and their lists (`lists.py`). Pure.

- Of few vectors every distance is computed. Of many, those of the lists that are nearest to the
  query are; which memories are nearest is a good guess then, and the means of all are those of a
  sample. Where nothing is nearer than chance would have it, more lists are looked into: what has no
  relative lies near to no list. The distances of whatever is shown are computed in any case.
- Where memory holds a few bits of each number, all distances are estimates: signs choose some of
  what lists tell, and all bits the nearest of these. Whatever is shown is measured
  (`distances.py`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from relayer.memory_index.codes import Asked
from relayer.memory_index.namespace import Bools, Ints
from relayer.memory_index.passages import Passages, Places
from relayer.memory_index.segments import Segment, sample, take_first

Floats = npt.NDArray[np.float64]
Distances = npt.NDArray[np.floating[Any]]
Unit = npt.NDArray[np.float32]

NEAR_MIN: Final = 8_192  # vectors at least whose distance is computed
NEAR_SHARE: Final = 64  # and one of so many
CHOSEN_MIN: Final = 512  # of these at least, by a few bits of each
CHOSEN_SHARE: Final = 16  # and one of so many
FURTHER: Final = 4  # times as many, where those found are no nearer than by chance
BY_CHANCE: Final = 0.3  # standard deviations above what chance alone would bring
MORE: Final = 2  # times as many candidates, where their distances are estimates
MANY: Final = 2**18  # memories: of more, as many candidates again
SAMPLED: Final = 1_024  # memories by which means are estimated


class Meaning(Protocol):
    """The distances of a search.

    Attributes:
        first: positions of the nearest memories that may be found.
        means: of all that may be found, of the nearest passage and of all.
        is_estimated: the means are, and the nearest are those of a part.
        is_coded: all distances are estimates.
    """

    first: Ints
    means: tuple[float, float]
    is_estimated: bool
    is_coded: bool

    def of(self, chosen: Ints) -> tuple[Floats, Floats, Ints]:
        """Return of each of these positions, ascending, distances and how many passages it has.

        The distances are that of its nearest passage and the mean of all; NaN where it has none.
        """


@dataclass(frozen=True)
class _Leg:
    """The vectors of one model and epoch, where their memories begin, and the query's."""

    passages: Passages
    begins: int
    asked: Asked

    @property
    def at(self) -> Ints | Places:
        """Return the positions of their memories among all."""
        return self.passages.at + self.begins if self.begins else self.passages.at


def search_meaning(
    segments: Sequence[Segment], seqs: Ints, admitted: Bools, count: int, limit: int
) -> Meaning:
    """Search the memories that are nearest, of those that are admitted.

    `seqs` and `admitted` are of all memories. The best `limit` of the `count` matter.
    """
    legs = [
        _Leg(its, segment.begins, Asked(_to_unit(vector)))
        for segment in segments
        for scope in segment.scopes
        for model, vector in scope.embeddings.items()
        if (its := segment.namespace.passages.get((scope.epoch, model))) is not None
    ]
    is_whole = all(leg.passages.lists is None and not leg.passages.is_coded for leg in legs)
    search = _Whole if is_whole else _Listed
    return search(legs, seqs, admitted, count, limit)


def _to_unit(vector: npt.NDArray[np.float16]) -> Unit:
    """Return a vector with length 1."""
    whole = vector.astype(np.float32)
    unit: Unit = whole / max(math.sqrt(whole @ whole), 1e-30)
    return unit


def _to_distances(cosines: Unit) -> Floats:
    """Return the distances of these cosines."""
    distances: Floats = 1.0 - cosines.astype(np.float64).clip(-1, 1)
    return distances


def _lower(nearest: Distances, passages: Passages, at: Ints | Places, distances: Floats) -> None:
    """Let the memories at these positions be as near as these passages of theirs."""
    if passages.single:
        nearest[at] = np.minimum(nearest[at], distances)
    else:
        np.minimum.at(nearest, at, distances)


class _Whole:
    """All distances."""

    is_estimated = is_coded = False

    def __init__(
        self, legs: Sequence[_Leg], seqs: Ints, admitted: Bools, count: int, limit: int
    ) -> None:
        self._nearest, self._spread, self._passages = _score(legs, len(seqs))
        near = admitted & np.isfinite(self._nearest)
        self.means = _mean(self._nearest, near), _mean(self._spread, near)
        at = np.flatnonzero(near)
        self.first = take_first(at, self._nearest[at], seqs, count)

    def of(self, chosen: Ints) -> tuple[Floats, Floats, Ints]:
        nearest, spread = self._nearest[chosen], self._spread[chosen]
        has_vector = np.isfinite(nearest)
        return (
            np.where(has_vector, nearest, np.nan),
            np.where(has_vector, spread, np.nan),
            np.where(has_vector, self._passages[chosen], 0),
        )


def _score(legs: Sequence[_Leg], count: int) -> tuple[Floats, Floats, npt.NDArray[np.integer]]:
    """Return over all memories the nearest passage, the mean of all, and how many there are."""
    distances = [_to_distances(leg.passages.cosines(leg.asked)) for leg in legs]
    if len(legs) == 1 and len(distances[0]) == count and legs[0].passages.in_order:
        return distances[0], distances[0], np.ones(count, np.int8)
    nearest, total = np.full(count, np.inf), np.zeros(count)
    passages = np.zeros(count, np.int64)
    for leg, its in zip(legs, distances, strict=True):
        _lower(nearest, leg.passages, leg.at, its)
        total += np.bincount(leg.at, its, count)
        passages += np.bincount(leg.at, minlength=count)
    with np.errstate(invalid="ignore"):
        return nearest, total / passages, passages


def _mean(values: Floats, among: Bools) -> float:
    its = values if among.all() else values[among]
    return float(its.sum(dtype=np.float64)) / len(its) if len(its) else math.nan


class _Listed:
    """The distances of what lies in the nearest lists, of a sample, and of what is asked for."""

    is_estimated = True

    def __init__(
        self, legs: Sequence[_Leg], seqs: Ints, admitted: Bools, count: int, limit: int
    ) -> None:
        self._legs, self._admitted = legs, admitted
        self.is_coded = any(leg.passages.is_coded for leg in legs)
        nearest, spread = self._sample()
        self.means = _mean_of(nearest), _mean_of(spread)
        self._searches = [
            leg.passages.search(leg.asked, admitted[leg.begins :], _near_count(leg)) for leg in legs
        ]
        at, distances = self._look(1, np.zeros(0, np.int64), np.zeros(0))
        found = int(np.count_nonzero(admitted))
        if len(at) < count or _is_by_chance(distances, nearest, found, limit):
            at, distances = self._look(FURTHER, at, distances)
        if self.is_coded:
            count *= MORE if len(seqs) <= MANY else MORE + 1
        self.first = take_first(at, distances, seqs, count)

    def of(self, chosen: Ints) -> tuple[Floats, Floats, Ints]:
        nearest, total = np.full(len(chosen), np.inf), np.zeros(len(chosen))
        passages = np.zeros(len(chosen), np.int64)
        for leg in self._legs:
            which, its = leg.passages.of_memories(chosen - leg.begins)
            distances = _to_distances(leg.passages.cosines_of(leg.asked, its))
            np.minimum.at(nearest, which, distances)
            total += np.bincount(which, distances, len(chosen))
            passages += np.bincount(which, minlength=len(chosen))
        with np.errstate(invalid="ignore"):
            spread = total / passages
        return np.where(passages > 0, nearest, np.nan), spread, passages

    def _sample(self) -> tuple[Floats, Floats]:
        """Return the distances of a sample of what may be found and has vectors."""
        count = len(self._admitted)
        at = np.random.default_rng(count).integers(
            count, size=2 * SAMPLED if count > SAMPLED else 0
        )
        at = at[self._admitted[at]]
        if len(at) < SAMPLED:  # a filter has left few, or there are few
            at = sample(np.flatnonzero(self._admitted), SAMPLED)
        nearest, spread, passages = self.of(np.sort(at[:SAMPLED]))
        return nearest[passages > 0], spread[passages > 0]

    def _look(self, times: int, at: Ints, nearest: Floats) -> tuple[Ints, Floats]:
        """Return memories of near lists with the distance of each, and those found before."""
        positions, distances = [at], [nearest]
        for leg, search in zip(self._legs, self._searches, strict=True):
            count = _near_count(leg)
            its = search.find(times * count, max(CHOSEN_MIN, count // CHOSEN_SHARE))
            positions.append(leg.passages.at[its].astype(np.int64) + leg.begins)
            distances.append(_to_distances(leg.passages.cosines_of(leg.asked, its)))
        at, nearest = np.concatenate(positions), np.concatenate(distances)
        order = np.lexsort((nearest, at))  # of several passages the nearest first
        at, nearest = at[order], nearest[order]
        is_first = np.diff(at, prepend=-1) > 0
        return at[is_first], nearest[is_first]


def _near_count(leg: _Leg) -> int:
    return max(NEAR_MIN, len(leg.passages.at) // NEAR_SHARE)


def _mean_of(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan


def _is_by_chance(found: Floats, sampled: Floats, count: int, limit: int) -> bool:
    """Return true if those found are hardly nearer than the nearest of so many are by chance."""
    if len(found) <= limit or not len(sampled) or count <= 2 * limit:
        return False
    last = float(np.partition(found, limit - 1)[limit - 1])
    beyond = (float(sampled.mean()) - last) / max(float(sampled.std()), 1e-9)
    return beyond < NormalDist().inv_cdf(1 - limit / count) + BY_CHANCE
