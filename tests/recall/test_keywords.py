"""Of many postings most are never read: words find the same as by a look at all of them."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest

from relayer.database.index_pages import Counts, Differing, Page
from relayer.database.index_steps import IndexMark
from relayer.database.recall import Scope
from relayer.memory_index import keywords, namespace, postings, pruning
from relayer.memory_index.keywords import Words, search_words
from relayer.memory_index.namespace import LoadedNamespace, empty, join, update
from relayer.memory_index.segments import to_segments
from relayer.sealed.index import round_length
from tests.memory_rows import memory_rows

MANY = 6_000
SHARES = (2, 3, 10, 40, 300, 1_500)  # one memory of so many has the token of that place
ASKED = [(0, 0, 1.0), (1, 0, 0.8), (2, 1, 1.0), (3, 2, 1.0), (4, 2, 1.0), (5, 3, 0.1), (9, 4, 1.0)]
COUNT = 20
NOW = datetime(2026, 11, 29, tzinfo=UTC)


def page(seqs: Sequence[int], numbers: np.random.Generator) -> Page:
    """Memories of 1 to 60 words, some of which are the query's, up to three times each."""
    has = [np.flatnonzero(numbers.random(len(seqs)) < 1 / share) for share in SHARES]
    at = np.concatenate(has)
    lengths = np.array([round_length(n) for n in numbers.integers(1, 60, len(seqs)).tolist()])
    return Page(
        memories=memory_rows(seqs, moment=NOW.timestamp() + np.array(seqs)),
        vectors={},
        tokens=np.repeat(np.arange(len(has)), [len(its) for its in has]),
        seqs=np.array(seqs, np.int64)[at],
        frequencies=numbers.integers(1, 4, len(at)).astype(np.int16),
        lengths=lengths[at].astype(np.int16),
    )


def put(before: LoadedNamespace, number: int, seqs: Sequence[int], *pages: Page) -> LoadedNamespace:
    counts = Counts(len(before.memories) + len(seqs), 30 * MANY)
    now = Differing(IndexMark(b"", number), counts, np.array(seqs))
    return update(before, now, pages)


@pytest.fixture(scope="module")
def namespaces() -> list[LoadedNamespace]:
    """Two namespaces, of which one was read from the newest on and then changed."""
    numbers = np.random.default_rng(5)
    older, newer = range(1, MANY // 2), range(MANY // 2, MANY)
    first = put(empty(1), 1, newer, page(newer, numbers))
    first = put(first, 2, older, page(older, numbers))
    some = sorted({int(n) for n in numbers.integers(1, MANY, 200)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(namespace, "ORDERED_MAX", 0)
        first = put(first, 3, some, page(some, numbers))
    assert len(first.postings[1])
    there = range(MANY, 2 * MANY)
    return [first, put(empty(2), 1, there, page(there, numbers))]


def search(
    namespaces: list[LoadedNamespace],
    whole_max: int,
    monkeypatch: pytest.MonkeyPatch,
    asked: Sequence[tuple[int, int, float]] = ASKED,
    share: int = 2,
) -> Words:
    """Search among one memory of so many."""
    monkeypatch.setattr(keywords, "WHOLE_MAX", whole_max)
    scopes = [Scope(n.namespace_id, 1, {}, asked) for n in namespaces]
    segments = to_segments(namespaces, scopes)
    memories = join([n.memories for n in namespaces])
    return search_words(segments, memories, memories.seq % share == 0, 5, COUNT)


def sums(words: Words, chosen: np.ndarray) -> np.ndarray:
    which, _, parts = words.parts_of(chosen)
    return np.bincount(which, parts, len(chosen))


@pytest.mark.parametrize("places", [[0], [0, 1], [1]])
def test_the_best_are_those_of_all_postings(
    namespaces: list[LoadedNamespace], places: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = [namespaces[place] for place in places]
    ours, whole = (search(searched, most, monkeypatch) for most in (0, 10**9))
    assert (ours.is_estimated, whole.is_estimated) == (True, False)
    assert (ours.terms.ideal, ours.terms.attainable) == (whole.terms.ideal, whole.terms.attainable)
    assert len(ours.first) == len(whole.first) == COUNT
    mine, theirs = (sums(whole, np.sort(one.first)) for one in (ours, whole))
    assert np.sort(mine) == pytest.approx(np.sort(theirs))
    assert ours.total == pytest.approx(whole.total, rel=0.05)
    every = np.arange(0, sum(len(one.memories) for one in searched), 7)
    shown = [
        {(at, word): part for at, word, part in zip(*one.parts_of(every), strict=True)}
        for one in (ours, whole)
    ]
    assert shown[0] == pytest.approx(shown[1])
    assert len(shown[0]) > COUNT


@pytest.mark.parametrize("asked", [[], [(9, 0, 1.0)], [(0, 0, 0.0)], [(0, 0, 1.0), (4, 1, 0.0)]])
def test_words_that_find_little_find_the_same(
    namespaces: list[LoadedNamespace],
    asked: list[tuple[int, int, float]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, whole = (search(namespaces, most, monkeypatch, asked) for most in (-1, 10**9))
    assert sums(whole, np.sort(ours.first)) == pytest.approx(sums(whole, np.sort(whole.first)))
    assert ours.total == pytest.approx(whole.total, rel=1e-4)


@pytest.mark.parametrize(
    "asked",
    [[(0, 0, 1.0), (1, 1, 1.0), (2, 2, 1.0)], [(0, 0, 1.0), (1, 1, 1.0), (2, 1, 0.8)]],
    ids=["of one form", "of two"],
)
def test_of_common_words_the_leading_memories_stand_for_all(
    namespaces: list[LoadedNamespace],
    asked: list[tuple[int, int, float]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where even the rarest word is in more memories than are read."""
    monkeypatch.setattr(pruning, "READ_MAX", 100)
    monkeypatch.setattr(postings, "LEADING", 250)
    monkeypatch.setattr(postings, "COMMON_SHARE", 2)
    whole = search(namespaces, 10**9, monkeypatch, asked)
    # The first asks what leads, the second knows it.
    for ours in (search(namespaces, 0, monkeypatch, asked) for _ in range(2)):
        assert ours.is_estimated
        mine, theirs = (np.sort(sums(whole, np.sort(one.first))) for one in (ours, whole))
        assert len(mine) == len(theirs) == COUNT
        assert mine.sum() == pytest.approx(theirs.sum(), rel=0.02)
        assert ours.total == pytest.approx(whole.total, rel=0.05)


def test_where_what_leads_may_not_be_found_all_of_a_word_is_read(
    namespaces: list[LoadedNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "READ_MAX", 100)
    monkeypatch.setattr(postings, "LEADING", 250)
    monkeypatch.setattr(postings, "COMMON_SHARE", 2)
    few = [(0, 0, 1.0), (1, 1, 1.0)]
    ours, whole = (search(namespaces, most, monkeypatch, few, 100) for most in (0, 10**9))
    mine, theirs = (sums(whole, np.sort(one.first)) for one in (ours, whole))
    assert len(mine) == len(theirs) == COUNT
    assert np.sort(mine) == pytest.approx(np.sort(theirs))
