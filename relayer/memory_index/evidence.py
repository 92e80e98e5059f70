"""A recall's evidence from namespaces held in memory: what `database.recall` finds by a statement.

Not here: making one score of it (`query.fusion`). Pure; the two agree on every namespace, but for
the last digits of distances.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from relayer.database.index_pages import KINDS
from relayer.database.recall import (
    NEIGHBOUR_SEQ,
    NEIGHBOUR_STEPS,
    NEIGHBOUR_TIME,
    Estimates,
    Evidence,
    Filters,
    Nearest,
    Scope,
    Search,
    Tokens,
)
from relayer.memory_index.distances import Measure
from relayer.memory_index.keywords import search_words
from relayer.memory_index.meaning import search_meaning
from relayer.memory_index.namespace import (
    UNNAMED,
    LoadedNamespace,
    Memories,
    join,
    short,
)
from relayer.memory_index.segments import Segment, join_arrays, take_first, to_segments

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Distances = npt.NDArray[np.floating[Any]]
Scalar = TypeVar("Scalar", bound=np.generic)

# What is looked at on the loop itself, in postings, memories and words: about five milliseconds.
AT_ONCE_MAX: Final = 65_536
UPLOADS_MIN: Final = 64  # that may be the nearest, where distances are estimates
VECTOR_BYTES: Final = 128  # that take as long as one posting
_AROUND: Final = np.arange(-NEIGHBOUR_SEQ, NEIGHBOUR_SEQ + 1)  # a memory itself in the middle
_NONE: Final = np.zeros(0, np.int64)
_ITSELF: Final = slice(NEIGHBOUR_SEQ, NEIGHBOUR_SEQ + 1)


def gather(namespaces: Sequence[LoadedNamespace], search: Search) -> Evidence:
    """Gather evidence like `database.recall.gather`."""
    filters, count = search.filters, search.candidates
    segments = to_segments(namespaces, search.scopes)
    memories = join([p.namespace.memories for p in segments])
    admitted = join_arrays([_filter(p, filters) for p in segments])
    words = search_words(segments, memories, admitted, search.query_words, count)
    meaning = search_meaning(segments, memories.seq, admitted, count, search.limit)
    chosen = np.union1d(meaning.first, words.first)
    pairs, steps = np.zeros((0, 2), np.int64), _NONE
    if search.neighbours:
        pairs, steps = _beside(segments, memories, admitted, chosen)
        chosen = np.union1d(chosen, pairs[:, 1])
    nearest, spread, passages = meaning.of(chosen)
    found, ordinals, parts = words.parts_of(chosen)
    order = np.argsort(memories.seq[chosen], kind="stable")
    place = np.empty_like(order)  # of each that is chosen among those that are shown
    place[order] = np.arange(len(order))
    shown = chosen[order]
    documents = sum(p.namespace.documents for p in segments)
    is_unfiltered = _is_unfiltered(filters, search.scopes)
    findable = documents if is_unfiltered else int(np.count_nonzero(admitted))
    return Evidence(
        seqs=memories.seq[shown],
        nearest=nearest[order],
        spread=spread[order],
        passages=passages[order],
        moments=memories.moment[shown],
        importances=memories.importance[shown],
        pairs=place[chosen.searchsorted(pairs)],
        steps=steps,
        found=np.array([place[found], ordinals]).T,
        parts=parts,
        ideal=words.terms.ideal,
        attainable=words.terms.attainable,
        mean_nearest=meaning.means[0],
        mean_spread=meaning.means[1],
        mean_bm25=words.total / max(findable, 1),
        findable=findable,
        mean_words=sum(p.namespace.words for p in segments) / max(documents, 1),
        is_estimated=meaning.is_estimated or words.is_estimated,
        estimates=_estimates(shown, passages[order], meaning.first, words.first, count)
        if meaning.is_coded
        else None,
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
    measure: Callable[[Sequence[Scope]], Measure],
    name: Callable[[Sequence[int]], Awaitable[Mapping[int, bytes]]],
) -> Nearest:
    """Search this namespace like `database.recall.search_manual`.

    `name` returns number → blob id of those memories that are there.
    """
    number, memories = namespace.namespace_id, namespace.memories
    scopes = [Scope(number, epoch, {model: v}) for (epoch, model), v in embeddings.items()]
    work = partial(_nearest, namespace, scopes, now, limit)
    is_much = len(memories) + _comparison_cost(namespace, embeddings) > AT_ONCE_MAX
    at, distances, is_coded = await asyncio.to_thread(work) if is_much else work()
    if is_coded:
        found = await measure(scopes)(memories.seq[at].tolist())
        at = at[_are_in(found, memories.seq[at])]
        distances = np.array([found[seq][0] for seq in memories.seq[at].tolist()], np.float64)
        best = take_first(np.arange(len(at)), distances, memories.seq[at], limit)
        at, distances = at[best], distances[best]
    at, distances = at[:limit], distances[:limit]
    names = memories.blob_id[at].tolist()
    if UNNAMED[0].tobytes() in names:
        named = await name(memories.seq[at].tolist())
        here = _are_in(named, memories.seq[at])
        at, distances = at[here], distances[here]
        names = [named[seq] for seq in memories.seq[at].tolist()]
    return Nearest(
        names,
        distances,
        memories.moment[at],
        memories.importance[at],
    )


def _are_in(found: Collection[int], seqs: Ints) -> Bools:
    return np.array([seq in found for seq in seqs.tolist()], bool)


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
    namespace: LoadedNamespace, scopes: Sequence[Scope], now: datetime, limit: int
) -> tuple[Ints, Floats, bool]:
    """Return positions of the nearest, their distances, and whether these are estimates."""
    memories = namespace.memories
    wanted = memories.kept & np.isinf(memories.superseded) & (memories.expires > now.timestamp())
    segments = to_segments([namespace], scopes)
    meaning = search_meaning(segments, memories.seq, wanted, max(limit, UPLOADS_MIN), limit)
    return meaning.first, meaning.of(meaning.first)[0], meaning.is_coded


def _estimates(shown: Ints, passages: Ints, near: Ints, worded: Ints, count: int) -> Estimates:
    return Estimates(passages > 0, np.isin(shown, near), np.isin(shown, worded), count)


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
                has[part.holders(np.array(scope.filters[n : n + 1], np.int64))] = True
        found &= has
    return found


def _is_unfiltered(filters: Filters, scopes: Sequence[Scope]) -> bool:
    chosen = (filters.as_of, filters.kinds, filters.writers, filters.after, filters.before)
    return all(value is None for value in chosen) and not any(s.filters for s in scopes)


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
