"""A recall's evidence from namespaces held in memory: what `database.recall` finds by a statement.

Not here: making one score of it (`query.fusion`). Pure; the two agree on every namespace, but for
the last digits of distances.
"""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from relayer.database.memory_index import KINDS
from relayer.database.recall import (
    NEIGHBOUR_SEQ,
    NEIGHBOUR_STEPS,
    NEIGHBOUR_TIME,
    Evidence,
    Filters,
    Nearest,
    Scope,
    Search,
    Tokens,
)
from relayer.memory_index.keywords import search_words
from relayer.memory_index.namespace import LoadedNamespace, Memories, join, short
from relayer.memory_index.passages import Passages, Places
from relayer.memory_index.segments import Segment, join_arrays, sample, take_first, to_segments

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Distances = npt.NDArray[np.floating[Any]]
Scalar = TypeVar("Scalar", bound=np.generic)

# What is looked at on the loop itself, in postings, memories and words: about five milliseconds.
AT_ONCE_MAX: Final = 65_536
VECTOR_BYTES: Final = 128  # that take as long as one posting
# Memories whose distance is computed, where others are estimated: at least so many, and one of so
# many. What signs say of an angle is .08 off (of 384 numbers), and ten of thousands are looked for.
EXACT_MIN: Final = 2_000
EXACT_SHARE: Final = 200
SAMPLED: Final = 1_024  # memories by which a mean of estimates is corrected
SURE: Final = 2.5  # standard deviations of estimates within which one of 160 is missed
BOUND_SAMPLES: Final = 2**16  # distances by which a bound for the nearest is chosen
_AROUND: Final = np.arange(-NEIGHBOUR_SEQ, NEIGHBOUR_SEQ + 1)  # a memory itself in the middle
_NONE: Final = np.zeros(0, np.int64)
_ITSELF: Final = slice(NEIGHBOUR_SEQ, NEIGHBOUR_SEQ + 1)


@dataclass(frozen=True)
class _Leg:
    """The vectors of one model and epoch, and how far each is from the query's.

    Attributes:
        at: the positions of their memories among all.
        distances: changed in place where they are estimates and are computed after all.
        is_estimated: they were estimates.
    """

    passages: Passages
    at: Ints | Places
    unit: npt.NDArray[np.float32]
    distances: Distances
    is_estimated: bool


@dataclass(frozen=True)
class _Meaning:
    """Distances over all memories; infinite and NaN where there is no vector, with no passages."""

    nearest: Distances
    spread: Distances
    passages: Ints | npt.NDArray[np.int8]


def gather(namespaces: Sequence[LoadedNamespace], search: Search) -> Evidence:
    """Gather evidence like `database.recall.gather`."""
    filters, count = search.filters, search.candidates
    segments = to_segments(namespaces, search.scopes)
    memories = join([p.namespace.memories for p in segments])
    admitted = join_arrays([_filter(p, filters) for p in segments])
    words = search_words(segments, memories, admitted, search.query_words, count)
    legs = _legs(segments)
    meaning = _score_meaning(legs, len(memories))
    near = admitted & np.isfinite(meaning.nearest)
    means = _means(meaning, near)
    exact = near
    if any(leg.is_estimated for leg in legs):
        meaning, means, exact = _refine(legs, meaning, near, search.limit)
    at = np.flatnonzero(exact)
    chosen = np.union1d(take_first(at, meaning.nearest[at], memories.seq, count), words.first)
    pairs, steps = np.zeros((0, 2), np.int64), _NONE
    if search.neighbours:
        pairs, steps = _beside(segments, memories, admitted, chosen)
        chosen = np.union1d(chosen, pairs[:, 1])
    if exact is not near:
        wanted = np.zeros(len(memories), bool)
        wanted[chosen] = True
        meaning = _compute(legs, wanted)
    found, ordinals, parts = words.parts_of(chosen)
    order = np.argsort(memories.seq[chosen], kind="stable")
    place = np.empty_like(order)  # of each that is chosen among those that are shown
    place[order] = np.arange(len(order))
    shown = chosen[order]
    documents = sum(p.namespace.documents for p in segments)
    is_unfiltered = _is_unfiltered(filters, search.scopes)
    findable = documents if is_unfiltered else int(np.count_nonzero(admitted))
    has_vector = near[shown]
    return Evidence(
        seqs=memories.seq[shown],
        nearest=np.where(has_vector, meaning.nearest[shown], np.nan),
        spread=np.where(has_vector, meaning.spread[shown], np.nan),
        passages=np.where(has_vector, meaning.passages[shown], 0),
        moments=memories.moment[shown],
        importances=memories.importance[shown],
        pairs=place[chosen.searchsorted(pairs)],
        steps=steps,
        found=np.array([place[found], ordinals]).T,
        parts=parts,
        ideal=words.terms.ideal,
        attainable=words.terms.attainable,
        mean_nearest=means[0],
        mean_spread=means[1],
        mean_bm25=words.total / max(findable, 1),
        findable=findable,
        mean_words=sum(p.namespace.words for p in segments) / max(documents, 1),
        is_estimated=exact is not near or words.is_estimated,
    )


def find_present(namespaces: Sequence[LoadedNamespace], tokens: Tokens) -> set[int]:
    """Return the places of those terms that any memory of one of these namespaces has."""
    found = set[int]()
    for namespace in namespaces:
        for number, its in tokens:
            if number != namespace.namespace_id:
                continue
            wanted = np.array(its, np.int64)
            for part in namespace.postings:
                found.update(np.flatnonzero(part.has(wanted)).tolist())
    return found


async def gather_aside(namespaces: Sequence[LoadedNamespace], search: Search) -> Evidence:
    """Gather the same evidence, beside the loop where it takes long."""
    if _is_much(namespaces, search.scopes):
        return await asyncio.to_thread(gather, namespaces, search)
    return gather(namespaces, search)


async def nearest_memories(
    namespace: LoadedNamespace,
    embeddings: Mapping[tuple[int, str], npt.NDArray[np.float16]],
    now: datetime,
    limit: int,
) -> Nearest:
    """Search this namespace like `database.recall.search_manual`."""
    work = partial(_nearest, namespace, embeddings, now, limit)
    is_much = len(namespace.memories) + _comparison_cost(namespace, embeddings) > AT_ONCE_MAX
    return await asyncio.to_thread(work) if is_much else work()


def _is_much(namespaces: Sequence[LoadedNamespace], scopes: Sequence[Scope]) -> bool:
    """Return true if a search takes long, because others are waiting."""
    its = [
        (namespace, scope)
        for namespace in namespaces
        for scope in scopes
        if scope.namespace_id == namespace.namespace_id
    ]
    count = sum(len(namespace.memories) for namespace in namespaces)
    count += sum(len(scope.words) + len(scope.filters) for scope in scopes)
    count += sum(_comparison_cost(r, [(s.epoch, model) for model in s.embeddings]) for r, s in its)
    most = sum(len(part) for namespace, _ in its for part in namespace.postings)
    if count > AT_ONCE_MAX or count + most <= AT_ONCE_MAX:
        return count > AT_ONCE_MAX
    for namespace, scope in its:
        tokens = np.array([*(token for token, _, _ in scope.words), *scope.filters], np.int64)
        count += sum(part.count(tokens) for part in namespace.postings)
    return count > AT_ONCE_MAX


def _comparison_cost(namespace: LoadedNamespace, spaces: Iterable[tuple[int, str]]) -> int:
    """Estimate the cost of comparing vectors of these epochs and models, in postings."""
    found = (namespace.passages.get(space) for space in spaces)
    return sum(passages.size_bytes for passages in found if passages is not None) // VECTOR_BYTES


def _nearest(
    namespace: LoadedNamespace,
    embeddings: Mapping[tuple[int, str], npt.NDArray[np.float16]],
    now: datetime,
    limit: int,
) -> Nearest:
    memories = namespace.memories
    distances = np.full(len(memories), np.inf)
    for space, embedding in embeddings.items():
        if (passages := namespace.passages.get(space)) is not None:
            _lower(distances, passages, passages.at, _distances(passages, embedding))
    wanted = memories.kept & np.isinf(memories.superseded) & np.isfinite(distances)
    wanted &= memories.expires > now.timestamp()
    at = np.flatnonzero(wanted)
    best = take_first(at, distances[at], memories.seq, limit)
    return Nearest(
        memories.blob_id[best].tolist(),
        distances[best],
        memories.moment[best],
        memories.importance[best],
    )


def _distances(passages: Passages, embedding: npt.NDArray[np.float16]) -> Floats:
    """Return (v,) cosine distance of each."""
    distances: Floats = 1.0 - passages.cosines(_unit(embedding)).astype(np.float64).clip(-1, 1)
    return distances


def _lower(nearest: Distances, passages: Passages, at: Ints | Places, distances: Distances) -> None:
    """Let the memories at these positions be as near as these passages of theirs."""
    if passages.single:
        nearest[at] = np.minimum(nearest[at], distances)
    else:
        np.minimum.at(nearest, at, distances)


def _filter(segment: Segment, filters: Filters) -> Bools:
    """Living, sealed, and within the query's filters."""
    memories, now = segment.namespace.memories, filters.now.timestamp()
    if filters.as_of is None:
        living, earliest = memories.living
        if earliest > now and _is_unfiltered(filters, segment.scopes):
            return living
        found = living & (memories.expires > now)
    else:
        as_of = filters.as_of.timestamp()
        found = memories.sealed & memories.kept & (memories.expires > now)
        found &= (memories.superseded > as_of) & (memories.stored <= as_of)
    if filters.kinds is not None:
        found &= np.isin(memories.kind, [KINDS.index(kind) for kind in filters.kinds])
    if filters.writers is not None:
        found &= np.isin(memories.writer, [short(writer) for writer in filters.writers])
    if filters.after is not None:
        found &= memories.moment >= filters.after.timestamp()
    if filters.before is not None:
        found &= memories.moment < filters.before.timestamp()
    required = max((len(scope.filters) for scope in segment.scopes), default=0)
    for n in range(required):
        has = np.zeros(len(memories), bool)
        for scope in segment.scopes:
            for part in segment.namespace.postings:
                _, at, _ = part.of(np.array(scope.filters[n : n + 1], np.int64))
                has[at] = True
        found &= has
    return found


def _is_unfiltered(filters: Filters, scopes: Sequence[Scope]) -> bool:
    chosen = (filters.as_of, filters.kinds, filters.writers, filters.after, filters.before)
    return all(value is None for value in chosen) and not any(s.filters for s in scopes)


def _unit(vector: npt.NDArray[np.float16]) -> npt.NDArray[np.float32]:
    whole = vector.astype(np.float32)
    unit: npt.NDArray[np.float32] = whole / max(math.sqrt(whole @ whole), 1e-30)
    return unit


def _legs(segments: Sequence[Segment]) -> list[_Leg]:
    legs = []
    for segment in segments:
        for scope in segment.scopes:
            for model, vector in scope.embeddings.items():
                its = segment.namespace.passages.get((scope.epoch, model))
                if its is not None:
                    at = its.at + segment.begins if segment.begins else its.at
                    legs.append(_leg(its, at, vector))
    return legs


def _leg(passages: Passages, at: Ints | Places, vector: npt.NDArray[np.float16]) -> _Leg:
    unit = _unit(vector)
    if passages.has_estimates:
        return _Leg(passages, at, unit, 1 - passages.estimate_cosines(unit), is_estimated=True)
    return _Leg(passages, at, unit, _distances(passages, vector), is_estimated=False)


def _score_meaning(legs: Sequence[_Leg], count: int) -> _Meaning:
    """Score meaning: a text is as near as its nearest passage, and a little as near as all."""
    if len(legs) == 1 and len(legs[0].at) == count and legs[0].passages.in_order:
        distances = legs[0].distances
        return _Meaning(distances, distances, np.ones(count, np.int8))
    nearest, total = np.full(count, np.inf), np.zeros(count)
    passages = np.zeros(count, np.int64)
    for leg in legs:
        _lower(nearest, leg.passages, leg.at, leg.distances)
        total += np.bincount(leg.at, leg.distances, count)
        passages += np.bincount(leg.at, minlength=count)
    with np.errstate(invalid="ignore"):
        return _Meaning(nearest, total / passages, passages)


def _shortlist(nearest: Distances, near: Bools) -> Bools:
    """Return those whose distance is computed, about as many as are wanted, the nearest.

    The bound is that of a sample, which is found much sooner.
    """
    wanted, there = max(EXACT_MIN, len(near) // EXACT_SHARE), int(near.sum())
    if there <= 2 * wanted:
        return near.copy()
    step = len(near) // BOUND_SAMPLES + 1
    sample = nearest[::step][near[::step]]
    place = min(wanted * len(sample) // there, len(sample) - 1)
    bound = np.partition(sample, place)[place]
    found: Bools = near & (nearest <= bound)
    return found


def _refine(
    legs: Sequence[_Leg], before: _Meaning, near: Bools, limit: int
) -> tuple[_Meaning, tuple[float, float], Bools]:
    """Compute the distances of those that may be nearest, and return which; `near` if of all.

    A sample's distances are computed, too. They tell how far estimates are off: by that the means
    of all are corrected. By their spread, what an estimate may have hidden is computed as well:
    where a query has no relative, thousands are about as near as the nearest.
    """
    exact = _shortlist(before.nearest, near)
    if np.array_equal(exact, near):
        meaning = _compute(legs, exact)
        return meaning, _means(meaning, near), near
    sampled = sample(np.flatnonzero(near), SAMPLED)
    estimates, means = (before.nearest[sampled], before.spread[sampled]), _means(before, near)
    exact[sampled] = True
    meaning = _compute(legs, exact)
    first, second = meaning.nearest[sampled] - estimates[0], meaning.spread[sampled] - estimates[1]
    computed = meaning.nearest[exact]
    place = min(limit, len(computed)) - 1
    last = np.partition(computed, place)[place]
    further = near & ~exact & (meaning.nearest <= last - first.mean() + SURE * first.std())
    if further.any():
        meaning = _compute(legs, further)
    means = means[0] + float(first.mean()), means[1] + float(second.mean())
    return meaning, means, exact | further


def _compute(legs: Sequence[_Leg], wanted: Bools) -> _Meaning:
    """Compute the distances of wanted memories, where they were estimates."""
    for leg in legs:
        if leg.is_estimated:
            which = np.flatnonzero(wanted[leg.at])
            cosines = leg.passages.cosines_of(leg.unit, which)
            leg.distances[which] = 1 - cosines.clip(-1, 1)
    return _score_meaning(legs, len(wanted))


def _beside(
    segments: Sequence[Segment], memories: Memories, admitted: Bools, chosen: Ints
) -> tuple[Ints, Ints]:
    """Return (p, 2) positions of candidates and of what stands beside them, (p,) how far beside."""
    pairs, steps = [], []
    for segment in segments:
        ends = segment.begins + len(segment.namespace.memories)
        its = chosen[(chosen >= segment.begins) & (chosen < ends)]
        around = its[:, None] + _AROUND
        inside = (around >= segment.begins) & (around < ends)
        around = np.where(inside, around, its[:, None])
        related = inside & admitted[around]
        related[:, _ITSELF] = False
        related &= _apart(memories.seq[around]) <= NEIGHBOUR_SEQ
        related &= _apart(memories.moment[around]) <= NEIGHBOUR_TIME.total_seconds()
        for column in (memories.epoch, memories.writer, memories.sourced, memories.source):
            values = column[around]
            related &= values == values[:, _ITSELF]
        step = np.zeros(related.shape, np.int64)
        step[:, :NEIGHBOUR_SEQ] = related[:, NEIGHBOUR_SEQ - 1 :: -1].cumsum(axis=1)[:, ::-1]
        step[:, NEIGHBOUR_SEQ:] = related[:, NEIGHBOUR_SEQ:].cumsum(axis=1)
        row, column_at = np.nonzero(related & (step <= NEIGHBOUR_STEPS))
        pairs.append(np.array([its[row], around[row, column_at]]).T)
        steps.append(step[row, column_at])
    return join_arrays(pairs), join_arrays(steps)


def _apart(values: Ints | Floats) -> Ints | Floats:
    """Return the distance of each value of a row from the one in its middle."""
    apart: Ints | Floats = np.abs(values - values[:, _ITSELF])
    return apart


def _means(meaning: _Meaning, among: Bools) -> tuple[float, float]:
    return _mean(meaning.nearest, among), _mean(meaning.spread, among)


def _mean(values: Distances, among: Bools) -> float:
    its = values if among.all() else values[among]
    return float(its.sum(dtype=np.float64)) / len(its) if len(its) else math.nan
