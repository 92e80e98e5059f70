"""Of many vectors only those of near lists are looked at: what is found stays the same."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from relayer.database.index_steps import IndexMark
from relayer.database.memory_index import KINDS, Counts, Differing, Page
from relayer.database.recall import Evidence, Filters, Scope, Search
from relayer.memory_index import evidence, lists, meaning
from relayer.memory_index.namespace import LoadedNamespace, empty, update
from relayer.memory_index.passages import NO_PASSAGES, Passages
from tests.memory_rows import memory_rows
from tests.services import TEAM
from tests.twins import Twins, twins

__all__ = ["twins"]  # a fixture

DIM = 384
COUNT = 16_000
HEAPS = 301
LISTED_MIN, NEAR_MIN = 4_000, 1_500  # as if there were ten times as many
LIMIT = 10
NOW = datetime(2026, 11, 29, tzinfo=UTC)
NUMBERS = np.random.default_rng(11)


def page(seqs: Sequence[int], vectors: np.ndarray, each: int = 1) -> Page:
    """Memories with so many passages each, of which every hundredth has the word 7."""
    worded = np.array([seq for seq in seqs if seq % 100 == 0], np.int64)
    numbers = np.array(seqs, np.int64)
    kinds, moments = (numbers % 2).astype(np.int8), NOW.timestamp() - numbers
    return Page(
        memories=memory_rows(seqs, kind=kinds, moment=moments),
        vectors={(1, "m"): (numbers.repeat(each), vectors)},
        tokens=np.full(len(worded), 7, np.int64),
        seqs=worded,
        frequencies=np.ones(len(worded), np.int16),
        lengths=np.full(len(worded), 5, np.int16),
    )


def heaps(count: int) -> np.ndarray:
    """Vectors in heaps, as those of texts lie."""
    centres = NUMBERS.standard_normal((HEAPS, DIM), np.float32)
    near = 0.6 * NUMBERS.standard_normal((count, DIM), np.float32)
    return np.asarray(centres[np.arange(count) % HEAPS] + near, np.float16)


def put(before: LoadedNamespace, seqs: Sequence[int], *pages: Page) -> LoadedNamespace:
    counts = Counts(len(before.memories) + len(seqs), 5)
    return update(before, Differing(IndexMark(b"", 1), counts, np.array(seqs)), pages)


def search(vector: np.ndarray, **filters: Any) -> Search:
    scope = Scope(1, 1, {"m": vector.astype(np.float16)}, [(7, 0, 1.0)])
    return Search(
        scopes=[scope],
        query_words=1,
        filters=Filters(NOW, **filters),
        limit=LIMIT,
        neighbours=True,
    )


def exactly(found: LoadedNamespace, asked: Search) -> Evidence:
    """The evidence by all distances."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(found.passages[1, "m"].rows, "lists", None)
        return evidence.gather([found], asked)


def put_into_lists(loaded: LoadedNamespace) -> None:
    its = loaded.passages[1, "m"]
    assert its.wants_lists
    its.list_maker(threading.Event())()
    assert not its.wants_lists


def best(found: Evidence) -> set[int]:
    return set(found.seqs[np.argsort(found.nearest)[:LIMIT]].tolist())


def near_to(vector: np.ndarray) -> np.ndarray:
    return vector.astype(np.float32) + NUMBERS.standard_normal(DIM, np.float32)


@pytest.fixture(autouse=True, scope="module")
def sizes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "LISTED_MIN", LISTED_MIN)
        patch.setattr(meaning, "NEAR_MIN", NEAR_MIN)
        yield


@pytest.fixture(scope="module", params=[1, 2])
def large(request: pytest.FixtureRequest, sizes: None) -> tuple[LoadedNamespace, np.ndarray]:
    """A namespace whose memories have one passage each, or two; some came after the lists."""
    each = request.param
    vectors, most = heaps(COUNT), COUNT - COUNT // 20
    first, last = range(1, most // each + 1), range(most // each + 1, COUNT // each + 1)
    loaded = put(empty(1), first, page(first, vectors[: len(first) * each], each))
    put_into_lists(loaded)
    loaded = put(loaded, last, page(last, vectors[len(first) * each :], each))
    its = loaded.passages[1, "m"]
    assert its.lists is not None
    assert its.lists.count < its.end
    return loaded, vectors


@pytest.mark.parametrize("has_relatives", [True, False])
@pytest.mark.parametrize("kinds", [None, KINDS[:1]])
def test_the_nearest_are_found_and_their_distances_are_exact(
    large: tuple[LoadedNamespace, np.ndarray],
    kinds: Sequence[str] | None,
    has_relatives: bool,
) -> None:
    loaded, vectors = large
    found = []
    for at in range(0, COUNT, COUNT // 20):
        strange = NUMBERS.standard_normal(DIM, np.float32)
        asked = search(near_to(vectors[at]) if has_relatives else strange, kinds=kinds)
        ours, exact = evidence.gather([loaded], asked), exactly(loaded, asked)
        found.append(len(best(ours) & best(exact)) / LIMIT)
        there = {seq: n for n, seq in enumerate(exact.seqs.tolist())}
        both = [(n, there[seq]) for n, seq in enumerate(ours.seqs.tolist()) if seq in there]
        mine, theirs = np.array(both).T
        assert np.allclose(ours.nearest[mine], exact.nearest[theirs], atol=1e-6)
        assert np.allclose(ours.spread[mine], exact.spread[theirs], atol=1e-6)
        assert ours.mean_nearest == pytest.approx(exact.mean_nearest, abs=0.02)
        assert ours.mean_spread == pytest.approx(exact.mean_spread, abs=0.02)
        assert (ours.findable, ours.mean_bm25) == (exact.findable, exact.mean_bm25)
        assert len(ours.seqs) > LIMIT
        assert ours.is_estimated
        assert not exact.is_estimated
        if kinds is not None:
            assert not (ours.seqs % 2).any()
    assert np.mean(found) >= 0.98


def test_what_only_words_find_has_its_exact_distance(
    large: tuple[LoadedNamespace, np.ndarray],
) -> None:
    loaded, vectors = large
    asked = search(near_to(vectors[5]))
    ours = evidence.gather([loaded], asked)
    its = loaded.passages[1, "m"]
    unit = near = asked.scopes[0].embeddings["m"].astype(np.float32)
    unit = near / np.linalg.norm(near)
    distances = np.full(len(loaded.memories), np.inf)
    np.minimum.at(distances, its.at, 1 - its.cosines(unit))
    worded = ours.found[:, 0]
    assert len(worded) > LIMIT
    at = np.searchsorted(loaded.memories.seq, ours.seqs[worded])
    assert np.allclose(ours.nearest[worded], distances[at], atol=1e-6)


def test_what_is_gone_is_not_found_and_what_comes_is(
    large: tuple[LoadedNamespace, np.ndarray],
) -> None:
    loaded, vectors = large
    each = len(vectors) // len(loaded.memories)
    asked = vectors[3 * each].astype(np.float32)
    assert 4 in best(evidence.gather([loaded], search(asked)))
    without = put(loaded, [4])
    assert without.passages[1, "m"].places is not None
    assert 4 not in evidence.gather([without], search(asked)).seqs.tolist()
    new = COUNT + 1
    added = put(without, [new], page([new], asked[None]))
    assert next(iter(added.passages.values())).lists is not None
    shown = evidence.gather([added], search(asked))
    assert shown.seqs[np.argmin(shown.nearest)] == new
    assert 4 in best(evidence.gather([loaded], search(asked)))


def test_lists_follow_their_vectors(large: tuple[LoadedNamespace, np.ndarray]) -> None:
    """Where many go, where more come than there is room for, and where memories change places."""
    loaded, vectors = large
    each = len(vectors) // len(loaded.memories)
    gone = range(2, len(loaded.memories), 3)
    without = put(loaded, gone)
    its = without.passages[1, "m"]
    assert its.places is None  # all were copied
    assert its.lists is not None
    assert len(its.lists.rows) == its.lists.count < its.end
    further = range(10**6, 10**6 + COUNT // 4)
    grown = put(without, further, page(further, heaps(len(further))))
    assert grown.passages[1, "m"].lists is its.lists
    put_into_lists(grown)
    now = grown.passages[1, "m"].lists
    assert now is not None
    assert sorted(now.rows.tolist()) == list(range(grown.passages[1, "m"].end))
    changed = put(grown, [1], page([1], vectors[:each], each))
    for at in range(0, COUNT, COUNT // 10):
        asked = search(near_to(vectors[at]))
        for one in (without, grown, changed):
            ours, exact = evidence.gather([one], asked), exactly(one, asked)
            assert len(best(ours) & best(exact)) >= LIMIT - 1
            assert ours.is_estimated
            assert set(ours.seqs.tolist()).isdisjoint(gone)


def test_nobody_makes_lists_of_what_was_let_go_of() -> None:
    def passages() -> Passages:
        return NO_PASSAGES.join([(np.arange(LISTED_MIN), heaps(LISTED_MIN))])

    one = passages()
    make, rows = one.list_maker(threading.Event()), weakref.ref(one.rows)
    del one
    gc.collect()
    make()
    assert rows() is None
    stopped, other = threading.Event(), passages()
    stopped.set()
    other.list_maker(stopped)()
    assert other.lists is None


async def test_answers_are_those_of_the_database_and_say_so_once(
    twins: Twins, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A recall begins to make lists; from then on the answer and, once, the log tell of them."""
    monkeypatch.setattr(lists, "LISTED_MIN", 2)
    caplog.set_level("INFO", "relayer.memory_index")
    await twins.hold(TEAM)
    async with asyncio.timeout(60):
        while not (await twins.recall(twins.held, text="tea")).estimated:
            await asyncio.sleep(0.01)
    assert not (await twins.recall(twins.plain, text="tea")).estimated
    await twins.check_alike()
    events = [getattr(record, "event", "") for record in caplog.records]
    held = await twins.residents(TEAM)
    assert held is not None
    assert any(its.lists is not None for its in held[0].passages.values())
    assert 1 <= events.count("recall.estimated") <= 2  # of two namespaces
