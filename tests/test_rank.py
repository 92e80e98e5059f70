"""Ranking is arithmetic on what the search found."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relayer.database.recall import Hit
from relayer.rank import Weights, distance, ranked

NOW = datetime(2031, 5, 4, tzinfo=UTC)


def hit(score: float = 0.5, **row: Any) -> Hit:
    members = {"event_time": None, "created_at": NOW, "importance": "standard", **row}
    return Hit(members, uuid.uuid4(), 1 - score, 0.0, score, ())  # type: ignore[arg-type]


def test_meaning_alone_keeps_the_order_and_scores() -> None:
    hits = [hit(0.1), hit(0.9), hit(0.5)]
    assert ranked(hits, Weights(), NOW) == [(h, h.score) for h in hits]


def test_recency_halves_with_its_half_life() -> None:
    weights = Weights(semantic=0, recency=1, recency_half_life_days=10)
    ages = [0, 10, 20, -5]
    hits = [hit(created_at=NOW - timedelta(days=age)) for age in ages]
    scores = {h.row["created_at"]: s for h, s in ranked(hits, weights, NOW)}
    assert [scores[h.row["created_at"]] for h in hits] == pytest.approx([1, 0.5, 0.25, 1])


def test_an_event_counts_by_its_own_time() -> None:
    weights = Weights(semantic=0, recency=1)
    old = hit(event_time=NOW - timedelta(days=300))
    new = hit(created_at=NOW - timedelta(days=20))
    assert [h for h, _ in ranked([old, new], weights, NOW)] == [new, old]


def test_importance_and_meaning_add_up() -> None:
    weights = Weights(semantic=2, importance=3)
    hits = [hit(0.4, importance=i) for i in ("trivial", "standard", "vital")]
    scores = [score for _, score in ranked(hits, weights, NOW)]
    assert scores == pytest.approx([3.8, 2.3, 0.8])


def test_ties_keep_the_searchs_order() -> None:
    hits = [hit(), hit(), hit()]
    assert [h for h, _ in ranked(hits, Weights(importance=1), NOW)] == hits


@pytest.mark.parametrize(
    ("cosine", "relevance", "expected"),
    [(0.3, 0.0, 0.3), (0.9, 0.4, 0.6), (None, 0.25, 0.75), (None, 0.0, 1.0), (2.0, 0.0, 1.0)],
)
def test_distance_is_the_nearer_leg(
    cosine: float | None, relevance: float, expected: float
) -> None:
    found = Hit({}, uuid.uuid4(), cosine, relevance, 0, ())  # type: ignore[arg-type]
    assert distance(found) == expected
