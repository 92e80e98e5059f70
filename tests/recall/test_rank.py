"""Age, importance and copies are arithmetic on what the search found."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from relayer.query.rank import (
    ORDER_WEIGHT,
    ROLE_WEIGHT,
    SEVERAL_SPEAKER_WEIGHT,
    SPEAKER_WEIGHT,
    Copies,
    Weights,
    prefer_order,
    prefer_periods,
    prefer_speaker,
    weigh,
)
from relayer.record import IMPORTANCES, Importance

NOW = datetime(2031, 5, 4, tzinfo=UTC)


def scores_of(
    scores: list[float],
    weights: Weights,
    *,
    ages_days: list[float] | None = None,
    importances: list[Importance] | None = None,
) -> list[float]:
    ages = ages_days or [0.0] * len(scores)
    moments = np.array([(NOW - timedelta(days=age)).timestamp() for age in ages])
    places = [IMPORTANCES.index(i) for i in importances or ["standard"] * len(scores)]
    return weigh(np.array(scores), moments, np.array(places, np.int8), weights, NOW)[0].tolist()


def test_meaning_alone_keeps_the_scores() -> None:
    assert scores_of([0.1, 0.9, 0.5], Weights()) == [0.1, 0.9, 0.5]


def test_recency_halves_with_its_half_life() -> None:
    weights = Weights(semantic=0, recency=1, recency_half_life_days=10)
    ages = [0.0, 10.0, 20.0, -5.0]
    assert scores_of([0.3] * 4, weights, ages_days=ages) == pytest.approx([1, 0.5, 0.25, 1])


def test_a_half_life_of_next_to_nothing_leaves_nothing_of_what_is_old() -> None:
    weights = Weights(semantic=0, recency=1, recency_half_life_days=1e-320)
    assert scores_of([0.3] * 2, weights, ages_days=[0.0, 10.0]) == [1, 0]


def test_importance_and_meaning_add_up() -> None:
    weights = Weights(semantic=2, importance=3)
    importances: list[Importance] = ["trivial", "standard", "vital"]
    assert scores_of([0.4] * 3, weights, importances=importances) == pytest.approx([0.8, 2.3, 3.8])


def test_being_of_a_named_time_adds_a_little() -> None:
    day = timedelta(days=1)
    moments = np.array([(NOW + offset * day).timestamp() for offset in (-1, 0, 0.999, 1, 5, 6)])
    spans = [(NOW, NOW + day), (NOW + 5 * day, NOW + 6 * day)]
    nothing = np.empty((0, 2), np.int64)
    assert prefer_periods(moments, spans, nothing, []).tolist() == [0, 0.2, 0.2, 0, 0.2, 0]
    assert prefer_periods(moments, [], nothing, []).tolist() == [0] * 6
    found = np.array([[0, 4], [1, 4], [3, 7]])  # one says the day, one of the day says it, too
    assert prefer_periods(moments, spans, found, [4]).tolist() == [0.2, 0.2, 0.2, 0, 0.2, 0]


def test_a_speaker_has_all_parts_of_the_name() -> None:
    found = np.array([[0, 5], [0, 6], [1, 5], [2, 1]])
    both = prefer_speaker(4, found, [5, 6], is_role=False)
    assert both.tolist() == [SPEAKER_WEIGHT, 0, 0, 0]
    several = prefer_speaker(4, found, [5, 6], is_role=False, several=True)
    assert several.tolist() == [SEVERAL_SPEAKER_WEIGHT, 0, 0, 0]
    for lists in (False, True):
        role = prefer_speaker(4, found, [5], is_role=True, several=lists)
        assert role.tolist() == [ROLE_WEIGHT, ROLE_WEIGHT, 0, 0]
    assert prefer_speaker(4, found, [], is_role=False).tolist() == [0] * 4


TEN = "the quick brown fox jumps over a very lazy dog"


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        ([], []),
        (["a b", "c d"], [0, 1]),
        (["Anna likes green tea.", "Anna  likes\tgreen tea!", "Anna, likes green tea"], [0]),
        (["Anna likes tea", "anna likes tea"], [0, 1]),  # a name, or not
        ([TEN, f"{TEN} again and again"], [0]),  # ten words of twelve
        ([TEN, f"{TEN} again and again and always"], [0, 1]),  # ten of thirteen
        ([f"{TEN} on Monday", f"{TEN} on Tuesday"], [0, 1]),
        ([f"{TEN}, run 4", f"{TEN}, run 5"], [0, 1]),
        ([TEN, f"{TEN} not"], [0, 1]),
        ([f"{TEN} in c++", f"{TEN} in java"], [0, 1]),
        ([TEN, "a b", TEN, "a b", TEN], [0, 1]),
        (["", ""], [0]),
        (["?", "!"], [0, 1]),
        ([f"{TEN} " * 50, f"{TEN} " * 51], [0, 1]),  # too long to be compared
    ],
)
def test_copies_stand_behind(texts: list[str], kept: list[int]) -> None:
    numbered = list(enumerate(texts))
    found: Copies[tuple[int, str]] = Copies(lambda pair: pair[1])
    for pair in numbered:
        found.add([pair])
    assert [n for n, _ in found.kept] == kept
    assert sorted(found.kept + found.copies) == numbered
    assert [n for n, _ in found.copies] == sorted(n for n, _ in found.copies)


def test_the_latest_or_the_first_of_the_best_comes_first() -> None:
    scores, moments = np.array([0.9, 0.8, 1.0, 0.1]), np.array([30.0, 20.0, 20.0, 99.0]) * 86400
    latest = prefer_order(scores, moments, "latest")
    assert latest.tolist() == [ORDER_WEIGHT, 0.0, 0.0, 0.0], "the last is about something else"
    assert prefer_order(scores, moments, "first").tolist() == [0.0, ORDER_WEIGHT, ORDER_WEIGHT, 0.0]
    assert not prefer_order(scores, moments, None).any()
    assert not prefer_order(scores, moments / 86400, "first").any(), "stored within a minute"
    assert prefer_order(np.array([]), np.array([]), "first").tolist() == []
