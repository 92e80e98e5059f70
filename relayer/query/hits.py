"""Hits of a search, in order: what was found, and what of its score came from where. Pure.

Not here: one score of several legs (`fusion`), age, importance and copies (`rank`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import numpy.typing as npt

from relayer.database.recall import Evidence
from relayer.query import rank
from relayer.query.fusion import Fused


@dataclass(slots=True)  # not frozen: making those would take longer than fusing them
class Hit:
    """A memory that was found, not yet opened.

    Attributes:
        relevance: keyword score over the ideal one, 0–1.
        meaning, words, neighbours: what of the score came from its vector, from its own words and
            from memories beside it.
        period, recency, importance: what being of a time that the query names, age and importance
            added; the score is the sum of these six.
        distance: like a cosine distance, also for what words found: smaller is nearer, in 0–2.
        cosine: cosine similarity of its nearest passage, None without a vector.
        matched: ordinals of the query's words that it holds.
    """

    seq: int
    score: float
    relevance: float
    meaning: float
    words: float
    neighbours: float
    period: float
    recency: float
    importance: float
    distance: float
    cosine: float | None
    matched: Sequence[str] = field(repr=False)


def hits_of(
    evidence: Evidence,
    fused: Fused,
    words: Sequence[str],
    *,
    weights: rank.Weights,
    spans: Sequence[tuple[datetime, datetime]],
    now: datetime,
    min_relevance: float,
    has_vector: bool,
    most: int,
) -> list[Hit]:
    """What meaning or words found and is relevant enough, best first; of equals the nearest.

    `words` are those behind the ordinals, `spans` the times that the query names; without
    `has_vector` meaning could tell nothing.
    """
    period = rank.preferred(evidence.moments, spans)
    scores, recency, importance = rank.weighed(
        fused.score + period, evidence.moments, evidence.importances, weights, now
    )
    order = _order(evidence, fused, scores, _enough(evidence, fused, min_relevance, has_vector))
    order = order[:most]
    share = weights.of_search
    columns = (
        evidence.seqs,
        scores,
        fused.relevance,
        share * fused.meaning,
        share * fused.words,
        share * fused.neighbours,
        share * period,
        recency,
        importance,
        1.0 - fused.nearness,
    )
    matched = _matched(evidence.found, order, words)
    cosines = [None if math.isnan(cosine) else cosine for cosine in fused.cosine[order].tolist()]
    rows = zip(*(column[order].tolist() for column in columns), cosines, matched, strict=True)
    return [Hit(*row) for row in rows]


def better_of(rankings: Sequence[Sequence[Hit]]) -> Sequence[Hit]:
    """One ranking of several of the same memories: each where it stands best; of equals the newest.

    A query's both ends are asked apart: their mean would be near to neither.
    """
    if len(rankings) == 1:
        return rankings[0]
    best: dict[int, Hit] = {}
    for hit in (hit for hits in rankings for hit in hits):
        if hit.seq not in best or hit.score > best[hit.seq].score:
            best[hit.seq] = hit
    return sorted(best.values(), key=lambda hit: (-hit.score, -hit.seq))


def _enough(
    evidence: Evidence, fused: Fused, min_relevance: float, has_vector: bool
) -> npt.NDArray[np.bool_]:
    """(n,): whether a memory was found, and is relevant enough.

    Words alone say little of that: among three memories a word that one has is worth next to
    nothing beside one that none has. As far as meaning cannot tell, what words found is held
    against the best that they found; and what has no vector yet stays.
    """
    embedded = ~np.isnan(fused.cosine)
    worded = np.zeros(len(evidence.seqs), bool)
    worded[evidence.found[:, 0]] = True
    told = fused.understood if has_vector else 0.0
    floor = min_relevance * (told + (1.0 - told) * fused.relevance.max(initial=0.0))
    enough = fused.nearness >= np.where(worded, floor, min_relevance)
    if has_vector:
        enough |= worded & ~embedded
    return (embedded | worded) & enough


def _order(
    evidence: Evidence,
    fused: Fused,
    scores: npt.NDArray[np.float64],
    enough: npt.NDArray[np.bool_],
) -> npt.NDArray[np.int64]:
    """Positions of the hits, best first."""
    at = np.flatnonzero(enough)
    cosine = np.nan_to_num(fused.cosine[at])
    # Where the score tells nothing apart, meaning still may.
    order: npt.NDArray[np.int64] = at[np.lexsort((-evidence.seqs[at], -cosine, -scores[at]))]
    return order


def _matched(
    found: npt.NDArray[np.int64], order: npt.NDArray[np.int64], words: Sequence[str]
) -> list[list[str]]:
    """Words of the query that each of these positions holds, in their order there."""
    matched: dict[int, list[str]] = {position: [] for position in order.tolist()}
    for position, ordinal in sorted(found.tolist()):
        if position in matched:
            matched[position].append(words[ordinal])
    return list(matched.values())
