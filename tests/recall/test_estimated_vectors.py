"""Of many vectors those of near lists are looked at, and the best measured: the same is found."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from relayer.database.index_pages import KINDS, Counts, Differing, Page
from relayer.database.index_steps import IndexMark
from relayer.database.recall import Evidence, Filters, Scope, Search
from relayer.memory_index import evidence, lists, meaning, vector_rows
from relayer.memory_index.distances import Distances, rank_exactly
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


@dataclass
class Found:
    """A memory that was found."""

    seq: int


@dataclass
class Large:
    """A namespace whose memories have one passage each, or two, and the vectors of each memory."""

    loaded: LoadedNamespace
    vectors: dict[int, np.ndarray]

    def but(self, seqs: Sequence[int], vectors: np.ndarray | None = None, each: int = 1) -> "Large":
        """The same with these memories, or without them."""
        its = {seq: v for seq, v in self.vectors.items() if seq not in seqs}
        pages = [] if vectors is None else [page(seqs, vectors, each)]
        if vectors is not None:
            its |= {seq: vectors[n * each : (n + 1) * each] for n, seq in enumerate(seqs)}
        return Large(put(self.loaded, seqs, *pages), its)

    def find(self, asked: Search) -> Evidence:
        """The evidence with the distances of what is nearest measured."""
        latest: list[Evidence] = []

        def rank(found: Evidence) -> list[Found]:
            latest.append(found)
            return [Found(seq) for seq in found.seqs[np.argsort(found.nearest)[:LIMIT]].tolist()]

        async def measure(seqs: Sequence[int]) -> Distances:
            vector = asked.scopes[0].embeddings["m"]
            its = {seq: self.distances(vector, [seq]) for seq in seqs}
            return {seq: (float(d.min()), float(d.mean())) for seq, d in its.items()}

        asyncio.run(rank_exactly(evidence.gather([self.loaded], asked), rank, measure))
        return latest[-1]

    def distances(self, vector: np.ndarray, seqs: Sequence[int]) -> np.ndarray:
        """Of all passages of these memories."""
        whole = np.concatenate([self.vectors[seq] for seq in seqs]).astype(np.float32)
        unit = vector.astype(np.float32) / np.linalg.norm(vector.astype(np.float32))
        return np.asarray(1 - whole @ unit / np.linalg.norm(whole, axis=1))

    def nearest(self, asked: Search) -> tuple[set[int], np.ndarray]:
        """The nearest memories of all that may be found, and the nearest distance of each."""
        kinds = asked.filters.kinds
        seqs = [seq for seq in self.vectors if kinds is None or seq % 2 == 0]
        each = len(self.vectors[seqs[0]])
        assert all(len(self.vectors[seq]) == each for seq in seqs)
        its = self.distances(asked.scopes[0].embeddings["m"], seqs).reshape(-1, each).min(axis=1)
        return {seqs[at] for at in np.argsort(its)[:LIMIT]}, its


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
        patch.setattr(vector_rows, "CODED_MIN", LISTED_MIN)
        yield


@pytest.fixture(scope="module", params=[1, 2])
def large(request: pytest.FixtureRequest, sizes: None) -> Large:
    """A namespace whose memories have one passage each, or two; some came after the lists."""
    each = request.param
    vectors, most = heaps(COUNT), COUNT - COUNT // 20
    first, last = range(1, most // each + 1), range(most // each + 1, COUNT // each + 1)
    loaded = Large(empty(1), {}).but(first, vectors[: len(first) * each], each)
    put_into_lists(loaded.loaded)
    loaded = loaded.but(last, vectors[len(first) * each :], each)
    its = loaded.loaded.passages[1, "m"]
    assert its.is_coded
    assert its.lists is not None
    assert its.lists.count < its.end
    return loaded


@pytest.mark.parametrize("has_relatives", [True, False])
@pytest.mark.parametrize("kinds", [None, KINDS[:1]])
def test_the_nearest_are_found_and_their_distances_are_exact(
    large: Large, kinds: Sequence[str] | None, has_relatives: bool
) -> None:
    found = []
    for vectors in list(large.vectors.values())[:: len(large.vectors) // 20]:
        strange = NUMBERS.standard_normal(DIM, np.float32)
        asked = search(near_to(vectors[0]) if has_relatives else strange, kinds=kinds)
        ours, (exact, distances) = large.find(asked), large.nearest(asked)
        found.append(len(best(ours) & exact) / LIMIT)
        assert ours.estimates is not None
        measured = np.flatnonzero(~ours.estimates.are)
        assert set(np.argsort(ours.nearest)[:LIMIT]) <= set(measured)
        for n in measured.tolist():
            its = large.distances(asked.scopes[0].embeddings["m"], [int(ours.seqs[n])])
            assert ours.nearest[n] == pytest.approx(its.min(), abs=1e-6)
            assert ours.spread[n] == pytest.approx(its.mean(), abs=1e-6)
            assert ours.passages[n] == len(its)
        assert ours.mean_nearest == pytest.approx(distances.mean(), abs=0.02)
        assert ours.is_estimated
        assert len(ours.seqs) > LIMIT
        if kinds is not None:
            assert not (ours.seqs % 2).any()
    assert np.mean(found) >= 0.98


def test_what_only_words_find_has_a_distance(large: Large) -> None:
    asked = search(near_to(large.vectors[5][0]))
    ours = large.find(asked)
    worded = ours.found[:, 0]
    assert len(worded) > LIMIT
    for n in worded.tolist():
        its = large.distances(asked.scopes[0].embeddings["m"], [int(ours.seqs[n])])
        assert ours.nearest[n] == pytest.approx(its.min(), abs=0.06)


def test_what_is_gone_is_not_found_and_what_comes_is(large: Large) -> None:
    asked = large.vectors[4][0].astype(np.float32)
    assert 4 in best(large.find(search(asked)))
    without = large.but([4])
    assert without.loaded.passages[1, "m"].places is not None
    assert 4 not in without.find(search(asked)).seqs.tolist()
    new = COUNT + 1
    added = without.but([new], large.vectors[4][:1])
    assert next(iter(added.loaded.passages.values())).lists is not None
    shown = added.find(search(asked))
    assert shown.seqs[np.argmin(shown.nearest)] == new
    assert 4 in best(large.find(search(asked)))


def test_what_is_gone_by_the_time_it_is_measured_has_no_distance(large: Large) -> None:
    asked = large.vectors[4][0].astype(np.float32)

    async def measure(seqs: Sequence[int]) -> Distances:
        return {}

    latest: list[Evidence] = []

    def rank(found: Evidence) -> list[Found]:
        latest.append(found)
        return [Found(4)]

    asyncio.run(rank_exactly(evidence.gather([large.loaded], search(asked)), rank, measure))
    at = int(np.searchsorted(latest[-1].seqs, 4))
    assert np.isnan([latest[-1].nearest[at], latest[-1].spread[at]]).all()
    assert latest[-1].passages[at] == 0


def test_of_several_namespaces_each_tells_of_its_own_memories(large: Large) -> None:
    """A small one behind a large one has no vector of what lies in that."""
    first, here = len(large.vectors) + 1, large.loaded
    vectors = heaps(100)
    seqs = range(first, first + len(vectors))
    small = put(empty(2), seqs, page(seqs, vectors))
    asked = search(near_to(vectors[7]))
    both = [asked.scopes[0], replace(asked.scopes[0], namespace_id=2)]
    whole = replace(asked, scopes=both)
    for namespaces in ([here, small], [small, here]):
        ours = evidence.gather(namespaces, whole)
        assert ours.seqs[np.argmin(ours.nearest)] == seqs[7]
        each = len(large.vectors[1])
        assert ours.passages.tolist() == np.where(ours.seqs < first, each, 1).tolist()


def test_a_long_text_leaves_room_for_others(large: Large) -> None:
    """Its passages are nearer than all else, and more than are chosen by few bits."""
    asked, each = NUMBERS.standard_normal(DIM, np.float32), len(large.vectors[1])
    count = len(large.vectors)
    noise = NUMBERS.standard_normal((2 * meaning.CHOSEN_MIN, DIM), np.float32)
    one = large.but([count + 1], np.asarray(asked + 0.5 * noise, np.float16), len(noise))
    some = range(count + 2, count + 2 + 2 * LIMIT)
    near = np.asarray(asked + 1.5 * noise[: len(some) * each], np.float16)
    ours = one.but(some, near, each).find(search(asked))
    assert best(ours) <= {count + 1, *some}
    assert ours.estimates is not None
    assert set(some) <= set(ours.seqs[ours.estimates.near].tolist())


def test_lists_follow_their_vectors(large: Large) -> None:
    """Where many go, where more come than there is room for, and where memories change places."""
    each = len(large.vectors[1])
    gone = range(2, len(large.vectors), 3)
    without = large.but(gone)
    its = without.loaded.passages[1, "m"]
    assert its.places is None  # all were copied
    assert its.lists is not None
    assert len(its.lists.rows) == its.lists.count < its.end
    further = range(10**6, 10**6 + COUNT // 4)
    grown = without.but(further, heaps(len(further) * each), each)
    assert grown.loaded.passages[1, "m"].lists is its.lists
    put_into_lists(grown.loaded)
    now = grown.loaded.passages[1, "m"].lists
    assert now is not None
    assert sorted(now.rows.tolist()) == list(range(grown.loaded.passages[1, "m"].end))
    changed = grown.but([1], large.vectors[1], each)
    for vectors in list(large.vectors.values())[:: len(large.vectors) // 10]:
        asked = search(near_to(vectors[0]))
        for one in (without, grown, changed):
            ours = one.find(asked)
            assert len(best(ours) & one.nearest(asked)[0]) >= LIMIT - 1
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
    monkeypatch.setattr(vector_rows, "CODED_MIN", 2)
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
    assert any(its.lists is not None and its.is_coded for its in held[0].passages.values())
    assert 1 <= events.count("recall.estimated") <= 2  # of two namespaces
