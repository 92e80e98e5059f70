"""Vectors that are held while some go and others come."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from relayer.memory_index import vector_rows
from relayer.memory_index.codes import Asked
from relayer.memory_index.passages import GONE_SHARE, NO_PASSAGES, Passages
from relayer.memory_index.vector_rows import SPARE_SHARE

DIM = 96
MANY = 320
LARGE = 128 * MANY
NUMBERS = np.random.default_rng(7)


@pytest.fixture(autouse=True, params=[True, False])
def is_coded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """As many vectors are held, and as few are."""
    monkeypatch.setattr(vector_rows, "CODED_MIN", 1 if request.param else 1_000_000)
    return bool(request.param)


def vectors(count: int) -> np.ndarray:
    return NUMBERS.standard_normal((count, DIM)).astype(np.float16)


def held(count: int = MANY) -> tuple[Passages, np.ndarray]:
    """One vector of each of so many memories."""
    its = vectors(count)
    return NO_PASSAGES.join([(np.arange(count), its)]), its


def without(passages: Passages, *gone: int) -> Passages:
    kept = np.ones(MANY * 2, bool)
    kept[list(gone)] = False
    return passages.keep(kept, None)


def check(passages: Passages, at: list[int], its: np.ndarray) -> None:
    """They are these, and as near to a query as if nothing else had ever been there."""
    anew = NO_PASSAGES.join([(np.array(at), its)])
    query = Asked(np.ones(DIM, np.float32) / np.float32(np.sqrt(DIM)))
    assert passages.at.tolist() == at
    assert np.array_equal(passages.codes, anew.codes)
    assert np.array_equal(passages.cosines(query), anew.cosines(query))


def test_one_that_changes_copies_no_other() -> None:
    before, its = held()
    new = vectors(1)
    after = without(before, 5).join([(np.array([5]), new)])
    assert after.rows is before.rows
    others = [n for n in range(MANY) if n != 5]
    check(after, [*others, 5], np.concatenate([its[others], new]))
    check(before, list(range(MANY)), its)


@pytest.mark.parametrize("at_once", [True, False])
def test_many_that_are_gone_leave_their_room(at_once: bool) -> None:
    before, its = held()
    gone = list(range(0, 3 * (MANY // GONE_SHARE), 3))
    others = [n for n in range(MANY) if n not in gone]
    after = before
    for some in [gone] if at_once else [[n] for n in gone]:
        after = without(after, *some)
    assert after.rows is before.rows
    check(after, others, its[others])
    after = without(after, others[-1])
    assert after.rows is not before.rows
    assert after.rows.nbytes < before.rows.nbytes
    check(after, others[:-1], its[others[:-1]])


def test_where_there_is_no_more_room_nothing_is_kept_of_what_is_gone() -> None:
    before, its = held()
    new = vectors(MANY)
    after = without(before, 0).join([(np.arange(MANY, 2 * MANY), new)])
    assert after.places is None
    check(after, list(range(1, 2 * MANY)), np.concatenate([its[1:], new]))


def test_of_two_that_go_on_from_the_same_each_has_its_own() -> None:
    before, its = held()
    one, other = vectors(1), vectors(1)
    first = without(before, 1).join([(np.array([1]), one)])
    second = without(before, 2).join([(np.array([2]), other)])
    check(first, [0, *range(2, MANY), 1], np.concatenate([its[:1], its[2:], one]))
    check(second, [0, 1, *range(3, MANY), 2], np.concatenate([its[:2], its[3:], other]))


def test_as_more_come_they_take_a_few_bits_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_rows, "CODED_MIN", 2 * MANY)
    before, its = held()
    assert not before.is_coded
    more = vectors(MANY)
    after = without(before, 3).join([(np.arange(MANY, 2 * MANY), more), (np.array([3]), its[3:4])])
    assert after.is_coded
    assert after.rows.nbytes < before.rows.nbytes
    others = np.concatenate([np.delete(its, 3, axis=0), more, its[3:4]]).astype(np.float32)
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    unit = others[MANY]
    cosines = after.cosines(Asked(unit))
    assert np.abs(cosines - others @ unit).max() < 0.1
    assert cosines.argmax() == MANY
    assert after.keep(np.arange(2 * MANY) < 5, None).is_coded


def test_they_are_where_their_memories_are_now() -> None:
    before, its = held()
    kept = np.ones(MANY, bool)
    kept[0] = False
    after = before.keep(kept, np.arange(MANY) - 1)
    check(after, list(range(MANY - 1)), its[1:])


class TestWhatMovesIsThereTwiceAndNotThreeTimes:
    """Those of a large namespace may be most of a process's memory."""

    def check(self, before: Passages, move: Callable[[], Passages]) -> None:
        tracemalloc.start()
        try:
            after = move()
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after.rows is not before.rows
        assert most < after.size_bytes + before.size_bytes // 2

    def test_as_too_many_are_gone(self) -> None:
        before, _ = held(LARGE)
        kept = np.arange(LARGE) % 3 > 0
        self.check(before, lambda: before.keep(kept, None))

    def test_as_more_come_than_there_is_room_for(self) -> None:
        coming = 2 * LARGE // SPARE_SHARE
        parts = [(np.arange(LARGE, LARGE + coming), vectors(coming))]
        before = held(LARGE)[0].keep(np.arange(LARGE) > 0, None)
        self.check(before, lambda: before.join(parts))

    def test_as_many_are_gone_and_others_come(self) -> None:
        before, its = held(LARGE)
        kept = np.arange(LARGE) % 3 > 0
        parts = [(np.array([at]), vectors(1)) for at in np.flatnonzero(~kept)]
        self.check(before, lambda: before.keep(kept, None, parts))
        after = before.keep(kept, None, parts)
        at = [*np.flatnonzero(kept), *np.flatnonzero(~kept)]
        check(after, at, np.concatenate([its[kept], *(own for _, own in parts)]))
