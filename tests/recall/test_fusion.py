"""Fusing evidence is arithmetic; whether neighbours count is a test of significance."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from relayer.database.recall import Evidence
from relayer.query.fusion import LIFT_FOREIGN_MAX, Weights, fuse

NONE: Any = np.empty((0, 2), np.int64)


def evidence(nearest: Any, **members: Any) -> Evidence:
    """Memories 10, 11, … with these distances, of a hundred that lie at 0.9."""
    distances = np.array(nearest, np.float64)
    n = len(distances)
    defaults: dict[str, Any] = {
        "seqs": np.arange(10, 10 + n),
        "nearest": distances,
        "spread": distances,
        "passages": (~np.isnan(distances)).astype(np.int64),
        "moments": np.zeros(n),
        "importances": np.ones(n, np.int8),
        "pairs": NONE,
        "steps": np.empty(0, np.int64),
        "found": NONE,
        "parts": np.empty(0),
        "ideal": 0.0,
        "attainable": 0.0,
        "mean_nearest": 0.9,
        "mean_spread": 0.9,
        "mean_bm25": 0.0,
        "findable": 100,
        "mean_words": 10.0,
    }
    return Evidence(**defaults | members)


def test_a_short_text_comes_before_an_equally_near_long_one() -> None:
    """The nearest of many passages is near by chance; a clear difference still decides."""
    passages = np.array([12, 1])
    equal = fuse(evidence([0.5, 0.5], passages=passages))
    assert equal.score[1] > equal.score[0]
    assert equal.nearness[0] == equal.nearness[1]  # what is shown at all does not change
    clear = fuse(evidence([0.4, 0.5], passages=passages))
    assert clear.score[0] > clear.score[1]


def test_texts_of_equally_many_passages_lose_nothing() -> None:
    one, many = (fuse(evidence([0.5, 0.6], passages=np.full(2, n))) for n in (1, 9))
    assert one.score == pytest.approx(many.score)


def worded(
    *parts: tuple[int, int, float], ideal: float = 10.0, attainable: float | None = None
) -> dict[str, Any]:
    """(memory, word, BM25 part) as members of evidence; some memory has every word, or else."""
    return {
        "found": np.array([p[:2] for p in parts], np.int64),
        "parts": np.array([p[2] for p in parts]),
        "ideal": ideal,
        "attainable": ideal if attainable is None else attainable,
    }


def chain(n: int) -> dict[str, Any]:
    """Pairs of `n` memories that were stored one after the other, to two steps aside."""
    pairs = [(a, b) for a in range(n) for b in range(n) if 0 < abs(a - b) <= 2]
    return {
        "pairs": np.array(pairs, np.int64),
        "steps": np.array([abs(a - b) for a, b in pairs], np.int64),
    }


def test_nothing_found_is_nothing() -> None:
    nothing = fuse(evidence([]))
    assert [len(a) for a in (nothing.score, nothing.cosine, nothing.nearness)] == [0, 0, 0]


def test_meaning_and_words_add_up() -> None:
    result = fuse(evidence([0.4, 0.7], **worded((0, 0, 2.0), (0, 1, 3.0), (1, 0, 1.0))))
    assert result.relevance == pytest.approx([0.5, 0.1])
    assert result.cosine == pytest.approx([0.6, 0.3])
    assert result.score == pytest.approx([1.1, 0.4])
    assert result.nearness == pytest.approx([0.6, 0.3])


def test_relevance_is_one_at_most() -> None:
    assert fuse(evidence([0.9], **worded((0, 0, 25.0)))).relevance == pytest.approx([1.0])


def test_long_texts_make_words_weigh_less() -> None:
    words = worded((0, 0, 5.0))
    for mean, weight in ((1.0, 1.0), (40.0, 1.0), (80.0, 0.5), (160.0, 0.25)):
        result = fuse(evidence([0.8], mean_words=mean, **words))
        assert result.score == pytest.approx([0.2 + weight * 0.5]), mean
        assert result.relevance == pytest.approx([0.5]), "relevance itself does not change"


def test_the_nearest_passage_counts_most_and_all_a_little() -> None:
    result = fuse(evidence([0.3, 0.3], spread=np.array([0.42, 0.9])))
    assert result.score == pytest.approx([(2 * 0.7 + 0.58) / 3, (2 * 0.7 + 0.5) / 3])
    assert result.cosine == pytest.approx([0.7, 0.7])


def test_a_vector_to_come_is_taken_for_an_average_one() -> None:
    result = fuse(evidence([np.nan, 0.95], **worded((0, 0, 4.0))))
    assert result.score == pytest.approx([0.1 + 0.4, 0.05])
    assert np.isnan(result.cosine[0])
    assert result.nearness[0] == pytest.approx(0.5), "the best that words found"


def test_meaning_counts_as_far_as_the_model_knows_the_query() -> None:
    given = evidence([0.4], **worded((0, 0, 3.0)))
    for known, share in ((1.0, 1.0), (0.75, 0.5), (0.5, 0.0), (0.1, 0.0)):
        result = fuse(given, known=known)
        assert result.score == pytest.approx([share * 0.6 + 0.3]), known
        lifted = 0.3 * (share + (1 - share) * LIFT_FOREIGN_MAX)
        assert result.nearness == pytest.approx([max(share * 0.6, lifted)]), known
        assert result.cosine == pytest.approx([0.6]), known
    own = fuse(given, Weights(meaning=1.0, words=0.0), known=0.1)
    assert own.score == pytest.approx([0.6])


def test_without_vectors_words_alone_count() -> None:
    away = {"mean_nearest": np.nan, "mean_spread": np.nan}
    result = fuse(evidence([np.nan, np.nan], **away, **worded((0, 0, 4.0), (1, 0, 2.0))))
    assert result.score == pytest.approx([0.4, 0.2])
    assert result.nearness == pytest.approx([0.5, 0.25]), "measured by the best of them"


@pytest.mark.parametrize(
    ("parts", "nearness"),
    [((1.0, 0.5), (0.5, 0.25)), ((0.5, 0.25), (0.3, 0.15)), ((9.0, 3.0), (0.9, 0.3))],
)
def test_what_words_found_is_lifted_within_bounds(
    parts: tuple[float, ...], nearness: tuple[float, ...]
) -> None:
    """A particle that two texts share makes them no nearer; what is near by itself stays so."""
    given = evidence([np.nan] * len(parts), **worded(*((n, 0, p) for n, p in enumerate(parts))))
    assert fuse(given).nearness == pytest.approx(nearness)


def test_what_the_model_understands_too_little_of_is_lifted_less() -> None:
    """A question in another language has some character in common with any memory."""
    given = evidence([0.4, np.nan], **worded((0, 0, 1.0), (1, 0, 1.0)))
    assert fuse(given, known=0.5).nearness == pytest.approx([0.1 * LIFT_FOREIGN_MAX, 0.5])


def test_words_that_no_memory_has_do_not_make_the_others_far() -> None:
    """In a small namespace they weigh many times as much as those that are there."""
    given = evidence([np.nan], **worded((0, 0, 0.5), ideal=10.0, attainable=2.0))
    assert fuse(given).nearness == pytest.approx([0.5])
    assert fuse(given).relevance == pytest.approx([0.05])
    whole = evidence([0.4], **worded((0, 0, 2.0), ideal=10.0, attainable=2.0))
    assert fuse(whole, known=0.5).nearness == pytest.approx([1.0])


def test_a_word_that_the_model_only_spells_is_measured_by_words() -> None:
    """Its vector says nothing of a rare name, however much of a long question it understands."""
    given = evidence([0.8, 0.9], **worded((0, 1, 0.8), (1, 0, 0.9)))
    assert fuse(given).nearness == pytest.approx([0.2, 0.1])
    named = fuse(given, spelt=[1, 7])
    assert named.nearness == pytest.approx([0.08 * 0.5 / 0.09, 0.1]), "by the best of all words"
    assert fuse(given, spelt=[1], known=0.75).nearness[0] == pytest.approx(0.5 * named.nearness[0])
    assert named.score == pytest.approx(fuse(given).score), "the order is not concerned"
    assert fuse(given, Weights(0.5, 0.5), spelt=[1]).nearness == pytest.approx([0.2, 0.1])


@pytest.mark.parametrize(("related", "beyond"), [(0.3, 0.9), (0.26, 0.905405), (0.8, 0.65)])
def test_what_a_model_means_by_related_is_where_clients_have_their_floor(
    related: float, beyond: float
) -> None:
    """Half of it, it, and a cosine that is near by any model: the scores stay as they are."""
    cosines = np.array([related / 2, related, 0.9])
    found = fuse(evidence(1.0 - cosines), related=related)
    assert found.nearness == pytest.approx([0.15, 0.3, beyond])
    assert found.cosine == pytest.approx(cosines)
    assert found.score == pytest.approx(fuse(evidence(1.0 - cosines)).score)


@pytest.mark.parametrize("related", [0.01, 0.26, 0.99])
def test_whatever_a_model_means_by_related_what_is_nearer_stays_nearer(related: float) -> None:
    cosines = np.array([-1.0, *np.linspace(0.0, 1.0, 401)])
    nearness = fuse(evidence(1.0 - cosines), related=related).nearness
    assert nearness[[0, 1, -1]] == pytest.approx([0.0, 0.0, 1.0])
    assert np.all(np.diff(nearness[1:]) > 0)
    assert fuse(evidence([np.nan]), related=related).nearness == pytest.approx([0.0])


def test_the_callers_weights_are_all_that_counts() -> None:
    given = evidence([0.4, np.nan], **worded((0, 0, 5.0), (1, 0, 10.0)), mean_words=500.0)
    result = fuse(given, Weights(meaning=0.7, words=0.3))
    assert result.score == pytest.approx([0.7 * 0.6 + 0.3 * 0.5, 0.3])
    assert result.neighbours == pytest.approx([0.0, 0.0])


class TestNeighbours:
    N = 24

    def related(self) -> Evidence:
        """Scores that rise and fall along the chain, as a conversation's do."""
        distances = 0.9 - 0.5 * np.exp(-((np.arange(self.N) - 8.0) ** 2) / 8.0)
        return evidence(distances, **chain(self.N))

    def test_support_lifts_what_stands_beside_a_good_match(self) -> None:
        given = self.related()
        given.nearest[9] = given.spread[9] = 0.95  # "Luna!", after "What is your dog called?"
        result = fuse(given)
        assert result.neighbours[9] > 0.2
        assert result.neighbours[20] < 0.1
        assert result.score[9] > result.score[20]
        assert result.score == pytest.approx(result.cosine + result.neighbours)

    def test_support_is_half_the_best_score_beside_it(self) -> None:
        given = self.related()
        result = fuse(given)
        assert result.neighbours[9] == pytest.approx(0.5 * (1 - given.nearest[8]))

    def test_where_several_are_to_answer_neighbours_count_half(self) -> None:
        one, several = fuse(self.related()), fuse(self.related(), several=True)
        assert several.neighbours == pytest.approx(one.neighbours / 2)
        assert several.nearness == pytest.approx(one.nearness), "what is near stays near"

    def test_words_reach_to_their_neighbours_and_fade(self) -> None:
        words = worded((8, 0, 5.0), (12, 1, 5.0))
        near = fuse(replace(self.related(), **words))
        far = fuse(self.related())
        surroundings = near.neighbours - far.neighbours
        # Half of what is left of 0.5 after one, two and three steps; 8 itself keeps all of it.
        assert surroundings[9] >= 0.5 * 0.7 * 0.5 - 1e-9
        assert near.nearness[9] >= 0.7 * 0.5 - 1e-9
        assert surroundings[16] == pytest.approx(0.0)

    def test_no_agreement_means_no_neighbours(self) -> None:
        """Stored in no order: beside the best stands what is merely average."""
        distances = np.where(np.arange(self.N) % 3 == 0, 0.4, 0.9)
        result = fuse(evidence(distances, **chain(self.N), findable=64))
        assert result.neighbours == pytest.approx(np.zeros(self.N))

    def test_a_few_memories_prove_nothing(self) -> None:
        distances = [0.4, 0.45, 0.5, 0.5, 0.6]
        result = fuse(evidence(distances, **chain(5), findable=5))
        assert result.neighbours == pytest.approx(np.zeros(5))

    def test_in_long_texts_neighbours_count_less(self) -> None:
        short, long = fuse(self.related()), fuse(replace(self.related(), mean_words=80.0))
        assert long.neighbours == pytest.approx(short.neighbours / 2)
