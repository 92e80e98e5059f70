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
from relayer.embedding.embedders import RELATED
from relayer.query import rank
from relayer.query.fusion import Fused
from relayer.query.periods import is_day
from relayer.query.terms import QueryTerms


@dataclass(slots=True)  # not frozen: making those would take longer than fusing them
class Hit:
    """A memory that was found, not yet opened.

    Attributes:
        relevance: keyword score over the ideal one, 0–1.
        meaning, words, neighbours: what of the score came from its vector, from its own words and
            from memories beside it.
        speaker: what being said by whom the query names added.
        period: what being of a time that it names, or naming it, or being the first or the latest
            where it asks for these, added.
        recency, importance: what age and importance added; the score is the sum of these seven.
        distance: like a cosine distance, also for what words found: smaller is nearer, in 0–2.
        cosine: cosine similarity of its nearest passage, None without a vector.
        moment: when it happened, or was stored, seconds since 1970.
        matched: ordinals of the query's words that it holds.
    """

    seq: int
    score: float
    relevance: float
    meaning: float
    words: float
    neighbours: float
    speaker: float
    period: float
    recency: float
    importance: float
    distance: float
    moment: float
    cosine: float | None
    matched: Sequence[str] = field(repr=False)


def hits_of(
    evidence: Evidence,
    fused: Fused,
    terms: QueryTerms,
    *,
    weights: rank.Weights,
    spans: Sequence[tuple[datetime, datetime]],
    now: datetime,
    min_relevance: float,
    most: int,
) -> list[Hit]:
    """Return the relevant hits of meaning or words, best first; of equals the nearest.

    `terms` has the words behind the ordinals, `spans` are the times that the query names.
    """
    found = evidence.found
    period = rank.prefer_periods(evidence.moments, spans, found, terms.days)
    speaker = rank.prefer_speaker(
        len(evidence.seqs), found, terms.speaker, is_role=terms.is_role, several=terms.several
    )
    period = period + rank.prefer_order(fused.score + speaker, evidence.moments, terms.order)
    scores, recency, importance = rank.weigh(
        fused.score + speaker + period, evidence.moments, evidence.importances, weights, now
    )
    nearness = _lift_mentions(fused.nearness, found, terms)
    order = _order(evidence, fused, scores, nearness >= min_relevance)[:most]
    share = weights.of_search
    columns = (
        evidence.seqs,
        scores,
        fused.relevance,
        share * fused.meaning,
        share * fused.words,
        share * fused.neighbours,
        share * speaker,
        share * period,
        recency,
        importance,
        1.0 - nearness,
        evidence.moments,
    )
    matched = _match_words(found[~np.isin(found[:, 1], terms.speaker)], order, terms.words)
    cosines = [None if math.isnan(cosine) else cosine for cosine in fused.cosine[order].tolist()]
    rows = zip(*(column[order].tolist() for column in columns), cosines, matched, strict=True)
    return [Hit(*row) for row in rows]


def better_of(rankings: Sequence[Sequence[Hit]]) -> Sequence[Hit]:
    """Return one ranking of several: each memory where it stands better, in the order of a ranking.

    A query's both ends are asked apart: their mean would be near to neither.
    """
    if len(rankings) == 1:
        return rankings[0]
    best: dict[int, Hit] = {}
    for hit in sorted((hit for hits in rankings for hit in hits), key=_place):
        best.setdefault(hit.seq, hit)
    return list(best.values())


def _place(hit: Hit) -> tuple[float, float, int]:
    return -hit.score, -(hit.cosine or 0.0), -hit.seq


def _lift_mentions(
    nearness: npt.NDArray[np.float64], found: npt.NDArray[np.int64], terms: QueryTerms
) -> npt.NDArray[np.float64]:
    """Return nearness, that of what mentions a day which the query names at least `RELATED`."""
    days = [n for n in terms.days if is_day(terms.words[n])]
    if not days:
        return nearness
    lifted = nearness.copy()
    at = found[np.isin(found[:, 1], days), 0]
    lifted[at] = np.fmax(lifted[at], RELATED)
    return lifted


def _order(
    evidence: Evidence,
    fused: Fused,
    scores: npt.NDArray[np.float64],
    is_near: npt.NDArray[np.bool_],
) -> npt.NDArray[np.int64]:
    """Return positions of the hits, best first."""
    found = ~np.isnan(fused.cosine)
    cosine = np.where(found, fused.cosine, 0.0)
    found[evidence.found[evidence.parts > 0.0, 0]] = True
    at = np.flatnonzero(found & is_near)
    # Where the score tells nothing apart, meaning still may.
    order: npt.NDArray[np.int64] = at[np.lexsort((-evidence.seqs[at], -cosine[at], -scores[at]))]
    return order


def _match_words(
    found: npt.NDArray[np.int64], order: npt.NDArray[np.int64], words: Sequence[str]
) -> list[list[str]]:
    """Return words of the query that each of these positions holds, in their order there."""
    matched: dict[int, list[str]] = {position: [] for position in order.tolist()}
    for position, ordinal in sorted(found.tolist()):
        if position in matched:
            matched[position].append(words[ordinal])
    return list(matched.values())
