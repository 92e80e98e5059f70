"""A recall's evidence from namespaces held in memory: what `database.recall` finds by a statement.

Not here: making one score of it (`query.fusion`). Pure; the two agree on every namespace, but for
the last digits of distances and for questions about another time, which only the statement answers.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from relayer.database.recall import (
    BM25_B,
    BM25_K1,
    CANDIDATES_MIN,
    NEIGHBOUR_SEQ,
    NEIGHBOUR_STEPS,
    NEIGHBOUR_TIME,
    Evidence,
    Filters,
    Scope,
)
from relayer.resident.namespace import IMPORTANCES, KINDS, Memories, Resident, joined, short

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
T = TypeVar("T")
Scalar = TypeVar("Scalar", bound=np.generic)

AT_ONCE_MAX: Final = 10_000  # memories searched on the loop itself
_ASIDE: Final = np.array([n for n in range(-NEIGHBOUR_SEQ, NEIGHBOUR_SEQ + 1) if n])


@dataclass(frozen=True)
class _Place:
    """A namespace that is searched, where its memories begin, and the query as it knows it."""

    resident: Resident
    begins: int
    scopes: Sequence[Scope]


@dataclass(frozen=True)
class _Meaning:
    """Distances over all memories; infinite and NaN where there is no vector."""

    nearest: Floats
    spread: Floats

    @property
    def has_vector(self) -> Bools:
        return np.isfinite(self.nearest)


@dataclass(frozen=True)
class _Words:
    """BM25 over all memories, and per word of the query: its ordinal, memories and parts."""

    bm25: Floats
    matched: Sequence[tuple[int, Ints, Floats]]
    ideal: float


def gather(
    residents: Sequence[Resident],
    scopes: Sequence[Scope],
    *,
    query_words: int,
    filters: Filters,
    candidates: int,
    neighbours: bool,
) -> Evidence:
    """As `database.recall.gather`, of these namespaces; `filters.as_of` is not looked at."""
    places = _placed(residents, scopes)
    memories = joined([p.resident.memories for p in places])
    found_at_all = _joined([_found_at_all(p, filters) for p in places])
    meaning, words = _meaning(places, len(memories)), _words(places, len(memories), query_words)
    near, worded = found_at_all & meaning.has_vector, found_at_all & (words.bm25 > 0)
    count = max(candidates, CANDIDATES_MIN)
    best = np.union1d(
        _first(meaning.nearest, near, memories.seq, count),
        _first(-words.bm25, worded, memories.seq, count),
    )
    pairs, steps = np.zeros((0, 2), np.int64), np.zeros(0, np.int64)
    if neighbours:
        pairs, steps = _beside(places, memories, found_at_all, best)
    shown = np.union1d(best, pairs[:, 1])
    shown = shown[np.argsort(memories.seq[shown])]
    position = np.full(len(memories), -1)
    position[shown] = np.arange(len(shown))
    found, parts = _matched(words, found_at_all, position)
    documents = sum(p.resident.documents for p in places)
    findable = documents if _is_unfiltered(filters, scopes) else int(found_at_all.sum())
    return Evidence(
        seqs=memories.seq[shown],
        nearest=np.where(near, meaning.nearest, np.nan)[shown],
        spread=np.where(near, meaning.spread, np.nan)[shown],
        moments=memories.moment[shown],
        importances=[IMPORTANCES[n] for n in memories.importance[shown].tolist()],
        pairs=position[pairs],
        steps=steps,
        found=found,
        parts=parts,
        ideal=words.ideal,
        mean_nearest=_mean(meaning.nearest[near]),
        mean_spread=_mean(meaning.spread[near]),
        mean_bm25=float(words.bm25[worded].sum()) / max(findable, 1),
        findable=findable,
        mean_words=sum(p.resident.words for p in places) / max(documents, 1),
    )


async def gather_aside(
    residents: Sequence[Resident], *, scopes: Sequence[Scope], **options: Any
) -> Evidence:
    """The same, beside the loop where it takes long."""
    return await _aside(residents, partial(gather, residents, scopes, **options))


async def nearest_uploads(
    resident: Resident,
    embeddings: Mapping[tuple[int, str], npt.NDArray[np.float16]],
    now: datetime,
    limit: int,
) -> list[tuple[bytes, float]]:
    """(blob id, cosine distance) of the nearest manual uploads, nearest first; a vector for each
    epoch and model."""
    return await _aside([resident], partial(_uploads, resident, embeddings, now, limit))


async def _aside(residents: Sequence[Resident], work: Callable[[], T]) -> T:
    """What some work gives; in a thread where that takes long, because others are waiting."""
    if sum(len(resident.memories) for resident in residents) > AT_ONCE_MAX:
        return await asyncio.to_thread(work)
    return work()


def _uploads(
    resident: Resident,
    embeddings: Mapping[tuple[int, str], npt.NDArray[np.float16]],
    now: datetime,
    limit: int,
) -> list[tuple[bytes, float]]:
    memories = resident.memories
    wanted = ~memories.sealed & memories.current & (memories.expires > now.timestamp())
    found: list[tuple[float, int, bytes]] = []
    for place, embedding in embeddings.items():
        if (passages := resident.passages.get(place)) is not None:
            farness, seqs = -passages.cosines(_unit(embedding)), memories.seq[passages.at]
            best = _first(farness, wanted[passages.at], seqs, limit)
            names = memories.blob_id[passages.at[best]]
            its = (farness[best].clip(-1.0, 1.0), -seqs[best], names)
            found += zip(*(column.tolist() for column in its), strict=True)
    return [(name, 1.0 + farness) for farness, _, name in sorted(found)[:limit]]


def _placed(residents: Sequence[Resident], scopes: Sequence[Scope]) -> list[_Place]:
    places, begins = [], 0
    for resident in residents:
        its = [s for s in scopes if s.namespace_id == resident.namespace_id]
        places.append(_Place(resident, begins, its))
        begins += len(resident.memories)
    return places


def _joined(parts: Sequence[npt.NDArray[Scalar]]) -> npt.NDArray[Scalar]:
    """One array of several; the only one, as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _found_at_all(place: _Place, filters: Filters) -> Bools:
    """Living, sealed, and within the query's filters."""
    memories = place.resident.memories
    found = memories.sealed & memories.current
    found &= memories.expires > filters.now.timestamp()
    if filters.kinds is not None:
        found &= np.isin(memories.kind, [KINDS.index(kind) for kind in filters.kinds])
    if filters.writers is not None:
        found &= np.isin(memories.writer, [short(writer) for writer in filters.writers])
    if filters.after is not None:
        found &= memories.moment >= filters.after.timestamp()
    if filters.before is not None:
        found &= memories.moment < filters.before.timestamp()
    required = max((len(scope.filters) for scope in place.scopes), default=0)
    for n in range(required):
        has = np.zeros(len(memories), bool)
        for scope in place.scopes:
            for part in place.resident.postings:
                [entries] = part.of(np.array(scope.filters[n : n + 1], np.int64))
                has[entries["at"]] = True
        found &= has
    return found


def _is_unfiltered(filters: Filters, scopes: Sequence[Scope]) -> bool:
    chosen = (filters.kinds, filters.writers, filters.after, filters.before)
    return all(value is None for value in chosen) and not any(s.filters for s in scopes)


def _unit(vector: npt.NDArray[np.float16]) -> npt.NDArray[np.float32]:
    whole = vector.astype(np.float32)
    unit: npt.NDArray[np.float32] = whole / max(math.sqrt(whole @ whole), 1e-30)
    return unit


def _meaning(places: Sequence[_Place], count: int) -> _Meaning:
    """A text of several passages is as near as its nearest, and a little as near as all of them."""
    nearest, total = np.full(count, np.inf), np.zeros(count)
    passages = np.zeros(count, np.int64)
    for place in places:
        for scope in place.scopes:
            for model, vector in scope.embeddings.items():
                its = place.resident.passages.get((scope.epoch, model))
                if its is None:
                    continue
                distances = 1.0 - np.clip(its.cosines(_unit(vector)).astype(np.float64), -1, 1)
                at = its.at + place.begins
                if its.single:
                    nearest[at] = np.minimum(nearest[at], distances)
                else:
                    np.minimum.at(nearest, at, distances)
                total += np.bincount(at, distances, count)
                passages += np.bincount(at, minlength=count)
    with np.errstate(invalid="ignore"):
        return _Meaning(nearest, total / passages)


def _words(places: Sequence[_Place], count: int, query_words: int) -> _Words:
    """A word of the query counts once, however many of its forms a memory has."""
    documents = float(sum(p.resident.documents for p in places))
    mean = max(sum(p.resident.words for p in places) / max(documents, 1.0), 1.0)
    unseen = math.log(1 + (documents + 0.5) / 0.5)
    idfs: dict[int, float] = {}
    bm25, scratch = np.zeros(count), np.zeros(count)
    matched: list[tuple[int, Ints, Floats]] = []
    for ordinal, terms in _by_ordinal(places):
        touched = []
        for weight, found in terms:
            at, tf, length = _entries(found)
            df = min(float(len(at)), documents)
            idf = math.log(1 + (documents - df + 0.5) / (df + 0.5))
            idfs[ordinal] = max(idf, idfs.get(ordinal, 0.0))
            value = weight * idf * tf * (BM25_K1 + 1)
            value /= tf + BM25_K1 * (1 - BM25_B + BM25_B * (length / mean))
            scratch[at] = np.maximum(scratch[at], value)
            touched.append(at)
        at = touched[0] if len(touched) == 1 else np.unique(np.concatenate(touched))
        matched.append((ordinal, at, scratch[at]))
        bm25[at] += scratch[at]
        scratch[at] = 0.0
    ideal = sum(idfs.get(ordinal, unseen) for ordinal in range(query_words))
    return _Words(bm25, matched, ideal * (BM25_K1 + 1) / (1 + BM25_K1 * (1 - BM25_B)))


_Found = list[tuple[int, npt.NDArray[np.void]]]  # where memories begin, postings of a term


def _entries(found: _Found) -> tuple[Ints, Floats, npt.NDArray[np.int16]]:
    """Of a term: positions of memories, each once, how often they have it, how long they are."""
    at = [postings["at"].astype(np.int64) + begins for begins, postings in found]
    tf = [postings["frequency"].astype(np.float64) for _, postings in found]
    return _joined(at), _joined(tf), _joined([postings["length"] for _, postings in found])


def _by_ordinal(places: Sequence[_Place]) -> list[tuple[int, list[tuple[float, _Found]]]]:
    """Per word of the query that is found at all: its terms' weights and postings."""
    terms: dict[tuple[int, int, float], _Found] = {}
    for place in places:
        for scope in place.scopes:
            tokens = np.array([token for token, _, _ in scope.words], np.int64)
            for part in place.resident.postings:
                for n, entries in enumerate(part.of(tokens)):
                    if len(entries):
                        _, ordinal, weight = scope.words[n]
                        terms.setdefault((ordinal, n, weight), []).append((place.begins, entries))
    words: dict[int, list[tuple[float, _Found]]] = {}
    for (ordinal, _, weight), found in sorted(terms.items(), key=lambda item: item[0]):
        words.setdefault(ordinal, []).append((weight, found))
    return list(words.items())


def _first(values: npt.NDArray[np.floating], among: Bools, seqs: Ints, count: int) -> Ints:
    """Positions of the smallest values, of equals the newest."""
    at = np.flatnonzero(among)
    if len(at) > count:
        bound = np.partition(values[at], count - 1)[count - 1]
        at = at[values[at] <= bound]
    return at[np.lexsort((-seqs[at], values[at]))][:count]


def _beside(
    places: Sequence[_Place], memories: Memories, found_at_all: Bools, best: Ints
) -> tuple[Ints, Ints]:
    """(p, 2) positions of candidates and of what stands beside them, (p,) how far beside."""
    pairs, steps = [np.zeros((0, 2), np.int64)], [np.zeros(0, np.int64)]
    for place in places:
        ends = place.begins + len(place.resident.memories)
        its = best[(best >= place.begins) & (best < ends)]
        others = its[:, None] + _ASIDE
        inside = (others >= place.begins) & (others < ends)
        others = np.where(inside, others, its[:, None])  # itself, which is never beside itself
        related = inside & found_at_all[others]
        related &= _apart(memories.seq, its, others) <= NEIGHBOUR_SEQ
        related &= _apart(memories.moment, its, others) <= NEIGHBOUR_TIME.total_seconds()
        for column in (memories.epoch, memories.writer, memories.sourced, memories.source):
            related &= column[its][:, None] == column[others]
        step = np.zeros(related.shape, np.int64)
        step[:, :NEIGHBOUR_SEQ] = np.cumsum(related[:, NEIGHBOUR_SEQ - 1 :: -1], axis=1)[:, ::-1]
        step[:, NEIGHBOUR_SEQ:] = np.cumsum(related[:, NEIGHBOUR_SEQ:], axis=1)
        row, column_at = np.nonzero(related & (step <= NEIGHBOUR_STEPS))
        pairs.append(np.stack([its[row], others[row, column_at]], axis=1))
        steps.append(step[row, column_at])
    return np.concatenate(pairs), np.concatenate(steps)


def _apart(column: Ints | Floats, ones: Ints, others: Ints) -> Ints | Floats:
    """(o, a) how far each of these is from each of its `a` others."""
    apart: Ints | Floats = np.abs(column[ones][:, None] - column[others])
    return apart


def _matched(words: _Words, found_at_all: Bools, position: Ints) -> tuple[Ints, Floats]:
    """(w, 2) positions among what is shown and ordinals, (w,) what each adds."""
    found, parts = [np.zeros((0, 2), np.int64)], [np.zeros(0)]
    for ordinal, at, values in words.matched:
        here = (position[at] >= 0) & found_at_all[at]
        shown = position[at[here]]
        found.append(np.stack([shown, np.full(len(shown), ordinal)], axis=1))
        parts.append(values[here])
    return np.concatenate(found), np.concatenate(parts)


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan
