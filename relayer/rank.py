"""The order of recalled memories when age or importance shall count.

Not here: finding candidates (`database.recall`). Pure: takes numbers and a `now`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from relayer.database.recall import Hit

IMPORTANCE: Final = {"vital": 1.0, "standard": 0.5, "trivial": 0.0}


@dataclass(frozen=True)
class Weights:
    """How much meaning, age and importance count, each in 0–100."""

    semantic: float = 1.0
    recency: float = 0.0
    recency_half_life_days: float = 30.0
    importance: float = 0.0

    @property
    def semantic_only(self) -> bool:
        """Whether the order is the search's own."""
        return self.recency == 0 and self.importance == 0


def ranked(hits: Sequence[Hit], weights: Weights, now: datetime) -> list[tuple[Hit, float]]:
    """(hit, score), best first; ties keep the search's order."""
    if weights.semantic_only:
        return [(hit, hit.score) for hit in hits]
    scored = [(hit, _score(hit, weights, now)) for hit in hits]
    return sorted(scored, key=lambda pair: -pair[1])


def _score(hit: Hit, weights: Weights, now: datetime) -> float:
    moment = hit.row["event_time"] or hit.row["created_at"]
    age_days = max((now - moment).total_seconds(), 0) / 86400
    recency = 0.5 ** (age_days / weights.recency_half_life_days)
    return float(
        weights.semantic * hit.score
        + weights.recency * recency
        + weights.importance * IMPORTANCE[hit.row["importance"]]
    )


def distance(hit: Hit) -> float:
    """Like a cosine distance, also for hits found by keyword alone: smaller is nearer, in 0–2."""
    keyword = 1.0 - hit.relevance
    return keyword if hit.cosine_distance is None else min(hit.cosine_distance, keyword)
