"""One score of what meaning, words and neighbours say of each memory.

Not here: gathering the evidence (`database.recall`), age and importance (`rank`). Pure arithmetic.

    score = meaning + w · words + g · n · w · (support + surroundings)

- meaning: cosine similarity, two parts of the nearest passage and one of the mean of all, within
  bounds, less a little for each doubling of its passages: of more passages the nearest is nearer by
  mere chance. A memory whose vector is still to come is taken for an average one. It counts less
  the fewer of the query's tokens the model knows, and nothing if that is no more than half of them.
- words: BM25 over its ideal, at most 1. `w` falls with the mean length of the namespace's texts:
  the longer they are, the more often a word stands in one by accident.
- support: the best score right beside it. Surroundings: the words again, where one that stands one
  or two memories away counts less. In a conversation the answer often stands next to the words.
- n: 1/2, or 1/4 where several memories are to answer, which stand apart from each other.
- g: whether scores of neighbours agree here at all. It is 0 unless what stands beside the best
  candidates scores above the mean by more than chance (a t-test over this query's own evidence),
  so memories that were stored in no order lose nothing.

Constants were chosen on plateaus, by the measurements that DECISIONS.md names.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database.recall import Evidence
from relayer.embedding.embedders import RELATED

Floats = npt.NDArray[np.float64]

KNOWN_NONE: Final = 0.5  # of a query's tokens known, at which its vector says nothing
SPREAD_MAX: Final = 0.2  # so that one fact in a very long text is not drowned by the rest
# Of the logarithm of the number of passages. From .01 to .02 short messages gain what details of
# long texts lose; at .03 these lose more.
PASSAGE_DISCOUNT: Final = 0.015
PLAIN_WORDS: Final = 40.0  # up to this mean length words weigh in full
NEIGHBOUR_WEIGHT: Final = 0.5
# For whom several memories answer: at .5 what stands beside one right memory fills the answer.
SEVERAL_NEIGHBOUR_WEIGHT: Final = 0.25
WORD_DECAY: Final = np.array([1.0, 0.7, 0.5])  # by steps to where the word stands
WORDS_NEAR: Final = 0.5  # of the best that words found, where meaning can tell nothing
# What is lifted is bounded, or whatever two texts share would make them near. Without a vector
# nothing else can bring a memory, and one rare word of a dozen has to. Where there is one and the
# model does not know the query's language, a character of it is in one of seventy memories by mere
# chance. 1.4 is the most at which no more than .10 of unrelated Chinese, Japanese, Korean or Hindi
# questions find something, of every other one of `bench/data`; the rest has the same or less, but
# Hindi (.22). Right answers pay for it: at 2 there are .04 to .06 more in Chinese and Japanese.
LIFT_MAX: Final = 6.0
LIFT_FOREIGN_MAX: Final = 1.4
TESTED_MAX: Final = 50  # best candidates whose neighbours are looked at
TESTED_SHARE: Final = 8  # but no more than one in so many memories
SAMPLES_MIN: Final = 8
T_NONE, T_FULL = 1.0, 2.5  # t below which neighbours count nothing, and from which in full


@dataclass(frozen=True)
class Weights:
    """`meaning · cosine + words · relevance` and nothing else, as the caller wants it."""

    meaning: float
    words: float


@dataclass(frozen=True)
class Fused:
    """Arrays over the memories of the evidence.

    Attributes:
        score: what they are ordered by.
        cosine: cosine similarity of the nearest passage; NaN without a vector.
        relevance: BM25 over its ideal, 0–1.
        meaning: what of the score came from meaning.
        words: what of the score came from the memory's own words.
        neighbours: what of the score came from beside it.
        nearness: like a cosine similarity, also of what words or neighbours found; clients take
            what has less than `RELATED` for unrelated.
    """

    score: Floats
    cosine: Floats
    relevance: Floats
    meaning: Floats
    words: Floats
    neighbours: Floats
    nearness: Floats = field(repr=False)


def fuse(
    evidence: Evidence,
    weights: Weights | None = None,
    *,
    known: float = 1.0,
    related: float = RELATED,
    spelt: Sequence[int] = (),
    several: bool = False,
) -> Fused:
    """Return the scores of everything that some evidence speaks of.

    `known` is the share of the query that the embedding model knows, `spelt` are those of its words
    that it only spells, `related` is the least cosine of what is related by it. Where `several`
    memories answer, neighbours count less. The caller's own weights are theirs to choose.
    """
    parts = _parts_by_word(evidence)
    relevance = _relevance(parts, evidence)
    cosine = 1.0 - evidence.nearest
    near = _on_clients_scale(cosine, related)
    if weights is not None:
        meaning, words = weights.meaning * np.nan_to_num(cosine), weights.words * relevance
        nothing = np.zeros_like(words)
        nearness = _nearness(evidence, near, relevance, nothing, 1.0)
        return Fused(meaning + words, cosine, relevance, meaning, words, nothing, nearness)
    weight = min(1.0, PLAIN_WORDS / max(evidence.mean_words, 1.0))
    understood = max(0.0, (known - KNOWN_NONE) / (1.0 - KNOWN_NONE))
    names = _relevance(parts[:, [n for n in spelt if n < parts.shape[1]]], evidence)
    meaning, words = understood * _score_meaning(evidence), weight * relevance
    own = meaning + words
    mean = understood * _mean_meaning(evidence) + weight * _mean_relevance(evidence)
    agreement = _agreement(own - mean, evidence)
    if agreement == 0.0:  # what stands beside counts nothing, so nobody need look at it
        nothing = np.zeros_like(own)
        nearness = _nearness(evidence, near, relevance, names, understood)
        return Fused(own, cosine, relevance, meaning, words, nothing, nearness)
    surroundings = _relevance(_with_neighbours(parts, evidence), evidence)
    support = np.zeros_like(own)
    _raise_to_neighbours(support, own, evidence.pairs)
    share = SEVERAL_NEIGHBOUR_WEIGHT if several else NEIGHBOUR_WEIGHT
    neighbours = agreement * share * weight * (support + weight * surroundings)
    reached = np.maximum(relevance, agreement * weight * surroundings)
    nearness = _nearness(evidence, near, reached, names, understood)
    return Fused(own + neighbours, cosine, relevance, meaning, words, neighbours, nearness)


def _on_clients_scale(cosine: Floats, related: float) -> Floats:
    """Return cosines with `related` at `RELATED`, the clients' floor: in the same order."""
    if related == RELATED:
        return cosine
    beyond = RELATED + (cosine - related) * (1.0 - RELATED) / (1.0 - related)
    return np.where(cosine < related, cosine * RELATED / related, beyond)


def _nearness(
    evidence: Evidence, cosine: Floats, relevance: Floats, names: Floats, understood: float
) -> Floats:
    """Return cosine as far as the query was understood, or by words, whichever is nearer.

    A share of the ideal says little by itself: among three memories a word that one has is worth
    next to nothing beside one that none has. As far as meaning cannot tell, what words found is
    measured by the best that they found, and by what a memory that is there could have. `names` is
    the relevance of words that the model only spells: of these meaning tells nothing, however much
    of the query it understands.
    """
    share = np.minimum(relevance * _attainable(evidence), 1.0)
    best = float(share.max(initial=0.0))
    lift = max(WORDS_NEAR / best, 1.0) if best > 0.0 else 1.0
    told = np.where(np.isnan(cosine), 0.0, understood)
    lift_max = np.where(np.isnan(cosine), LIFT_MAX, LIFT_FOREIGN_MAX)
    by_words = told * relevance + (1.0 - told) * share * np.minimum(lift, lift_max)
    by_names = understood * names * _attainable(evidence) * min(lift, LIFT_MAX)
    nearness: Floats = np.fmax(understood * cosine, np.fmax(by_words, np.minimum(by_names, 1.0)))
    return nearness


def _attainable(evidence: Evidence) -> float:
    """By what a share of the ideal BM25 is to be multiplied, to be one of the attainable BM25."""
    return evidence.ideal / evidence.attainable if evidence.attainable > 0.0 else 1.0


def _parts_by_word(evidence: Evidence) -> Floats:
    """Return (n, words): what each word of the query adds to each memory's BM25."""
    words = 1 + int(evidence.found[:, 1].max(initial=-1))
    parts = np.zeros((len(evidence.seqs), words))
    parts[evidence.found[:, 0], evidence.found[:, 1]] = evidence.parts
    return parts


def _relevance(parts: Floats, evidence: Evidence) -> Floats:
    if evidence.ideal <= 0:
        return np.zeros(len(parts))
    relevance: Floats = np.minimum(parts.sum(axis=1) / evidence.ideal, 1.0)
    return relevance


def _score_meaning(evidence: Evidence) -> Floats:
    spread = np.fmin(evidence.spread, evidence.nearest + SPREAD_MAX)
    mean = 1.0 - (2.0 * evidence.nearest + spread) / 3.0 - _discount(evidence.passages)
    return np.where(np.isnan(mean), _mean_meaning(evidence), mean)


def _discount(passages: npt.NDArray[np.int64]) -> Floats:
    """Return what each memory loses for its number of passages, beside an average one of these."""
    logarithms = np.log(np.maximum(passages, 1))
    found = logarithms[passages > 0]
    discount: Floats = PASSAGE_DISCOUNT * (logarithms - (found.mean() if len(found) else 0.0))
    return discount


def _mean_meaning(evidence: Evidence) -> float:
    mean = 1.0 - (2.0 * evidence.mean_nearest + evidence.mean_spread) / 3.0
    return 0.0 if np.isnan(mean) else float(mean)


def _mean_relevance(evidence: Evidence) -> float:
    """Return the mean relevance of all memories, most of which are no candidates."""
    return min(evidence.mean_bm25 / evidence.ideal, 1.0) if evidence.ideal > 0 else 0.0


def _agreement(above_mean: Floats, evidence: Evidence) -> float:
    """Return, from 0 to 1, how surely the best candidates' neighbours score above the mean."""
    tested = min(TESTED_MAX, evidence.findable // TESTED_SHARE)
    best = np.zeros(len(above_mean), bool)
    best[np.argsort(-above_mean, kind="stable")[:tested]] = True
    samples = above_mean[evidence.pairs[best[evidence.pairs[:, 0]], 1]]
    if len(samples) < SAMPLES_MIN:
        return 0.0
    error = float(samples.std()) / math.sqrt(len(samples))
    t = float(samples.mean()) / max(error, 1e-9)
    return min(max((t - T_NONE) / (T_FULL - T_NONE), 0.0), 1.0)


def _with_neighbours(parts: Floats, evidence: Evidence) -> Floats:
    """Return each word where it stands, or from beside with less weight."""
    reached = parts.copy()
    decay = WORD_DECAY[evidence.steps][:, None]
    left, right = evidence.pairs.T
    np.maximum.at(reached, left, decay * parts[right])
    np.maximum.at(reached, right, decay * parts[left])
    return reached


def _raise_to_neighbours(support: Floats, own: Floats, pairs: npt.NDArray[np.int64]) -> None:
    np.maximum.at(support, pairs[:, 0], own[pairs[:, 1]])
    np.maximum.at(support, pairs[:, 1], own[pairs[:, 0]])
