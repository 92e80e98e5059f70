"""Exact distances of memories that may be shown, where memory holds a few bits of each number.

Not here: estimates (`meaning.py`), statements (`database.distances`), scores (`query.fusion`).

- What lies nearest by its estimate, and what scores best with it, is measured: by vectors in the
  database, or by sealed records that are opened here. It is ranked anew, until all of the ranking
  is measured: so nothing is shown by an estimate.
- The database is shown no query of a namespace but where its vectors lie there in the open.
- A memory that is gone meanwhile, or whose record is altered, has no distance any more. Nor has one
  that was edited or is found by the other kind of index by now: whoever asks searches again.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from relayer.database import distances as rows
from relayer.database.pool import Database, Row
from relayer.database.recall import Evidence, Scope
from relayer.sealed.index_record import open_records
from relayer.sealed.keys import AccountId, NamespaceKey

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_NOTHING: Final = (math.nan, math.nan)
OPENED_BYTES_MAX: Final = 2**18  # of records that are opened on the loop itself


class Ranked(Protocol):
    """A memory that was found."""

    seq: int


Hit = TypeVar("Hit", bound=Ranked)
Distances = Mapping[int, tuple[float, float]]  # number → of its nearest passage, mean of all
Measure = Callable[[Sequence[int]], Awaitable[Distances]]


@dataclass(frozen=True)
class Measuring:
    """Measures memories of an account for one query; `keys` open their records.

    Attributes:
        keys: (namespace number, key) of every epoch.
        has_records: whether any memory of these namespaces has one.
        scopes: the query, as each namespace and epoch knows it.
    """

    database: Database
    account: AccountId
    keys: Sequence[tuple[int, NamespaceKey]]
    has_records: bool
    scopes: Sequence[Scope]

    async def __call__(self, seqs: Sequence[int]) -> Distances:
        """Return the distances of those of these memories that are there.

        Raises:
            Unavailable: the database is away.
        """
        distances = {} if self.has_records else await self._measure(seqs, self.scopes)
        # What has no vectors may have been moved into a record by now.
        rest = [seq for seq in seqs if seq not in distances]
        return distances | await self._open_or_measure(rest) if rest else distances

    async def _open_or_measure(self, seqs: Sequence[int]) -> dict[int, tuple[float, float]]:
        found = await rows.records(self.database, self.account, seqs)
        sealed = [row for row in found if row["index_record"] is not None]
        if sum(len(row["index_record"]) for row in sealed) > OPENED_BYTES_MAX:
            distances = await asyncio.to_thread(self._open_all, sealed)
        else:
            distances = self._open_all(sealed)
        rest = [row for row in found if row["index_record"] is None]
        scopes = [s for s in self.scopes if any(_is_of(row, s) for row in rest)]
        if scopes:
            distances.update(await self._measure([row["seq"] for row in rest], scopes))
        return distances

    async def _measure(
        self, seqs: Sequence[int], scopes: Sequence[Scope]
    ) -> dict[int, tuple[float, float]]:
        found = await rows.measure(self.database, self.account, scopes, seqs)
        return {row["seq"]: (row["nearest"], row["spread"]) for row in found}

    def _open_all(self, sealed: Sequence[Row]) -> dict[int, tuple[float, float]]:
        distances: dict[int, tuple[float, float]] = {}
        keys = {(number, key.epoch): key for number, key in self.keys}
        for scope in self.scopes:
            key = keys.get((scope.namespace_id, scope.epoch))
            its = [row for row in sealed if _is_of(row, scope)]
            if key is not None and its:
                distances.update(self._open(scope, key, its))
        return distances

    def _open(self, scope: Scope, key: NamespaceKey, sealed: Sequence[Row]) -> Distances:
        """Return the distances of memories whose records a key opens."""
        units = {model: _unit(vector) for model, vector in scope.embeddings.items()}
        records = [row["index_record"] for row in sealed]
        sizes = np.array([len(record) for record in records])
        opened = open_records(
            key,
            self.account,
            b"".join(records),
            sizes.cumsum() - sizes,
            sizes,
            np.frombuffer(b"".join(row["memory_id"].bytes for row in sealed), "V16"),
            np.array([row["revision"] for row in sealed]),
        )
        found: dict[int, tuple[float, float]] = {}
        for place, which in enumerate(opened.which.tolist()):
            row, unit = sealed[which], units.get(sealed[which]["embedding_model"])
            if unit is None or opened.dims[place] != len(unit):
                continue
            vectors = opened.vectors_of(np.array([place])).astype(np.float64)
            lengths = np.linalg.norm(vectors, axis=1)
            its = 1 - (vectors @ unit / np.where(lengths > 0, lengths, 1)).clip(-1, 1)
            found[row["seq"]] = float(its.min()), float(its.mean())
        return found


async def rank_exactly(
    evidence: Evidence, rank: Callable[[Evidence], Sequence[Hit]], measure: Measure
) -> tuple[Sequence[Hit], bool]:
    """Return the ranking of evidence where all that it ranks, and what is nearest, is measured.

    With it, whether some of that is gone or has changed since the evidence was gathered.
    """
    lost = set[int]()

    async def measure_noting(seqs: Sequence[int]) -> Distances:
        found = await measure(seqs)
        lost.update(set(seqs) - found.keys())
        return found

    hits = rank(evidence)
    if evidence.estimates is None:
        return hits, False
    places = np.union1d(np.flatnonzero(evidence.estimates.near), _places(evidence, hits))
    evidence = _narrow(await _measured(evidence, places, measure_noting))
    while evidence.estimates is not None:
        hits = rank(evidence)
        places = _places(evidence, hits)
        if not evidence.estimates.are[places].any():
            break
        evidence = await _measured(evidence, places, measure_noting)
    return hits, bool(lost)


async def _measured(evidence: Evidence, places: Ints, measure: Measure) -> Evidence:
    """Return the evidence with exact distances of these memories."""
    estimates = evidence.estimates
    assert estimates is not None
    which = places[estimates.are[places]]
    if not len(which):
        return evidence
    seqs = evidence.seqs[which].tolist()
    found = await measure(seqs)
    nearest, spread = evidence.nearest.copy(), evidence.spread.copy()
    passages, are = evidence.passages.copy(), estimates.are.copy()
    nearest[which], spread[which] = np.array([found.get(seq, _NOTHING) for seq in seqs]).T
    passages[which[np.isnan(nearest[which])]] = 0
    are[which] = False
    return replace(
        evidence,
        nearest=nearest,
        spread=spread,
        passages=passages,
        estimates=replace(estimates, are=are),
    )


def _narrow(evidence: Evidence) -> Evidence:
    """Return the evidence of its candidates, fewer of them near, and of what is beside these."""
    estimates, pairs, found = evidence.estimates, evidence.pairs, evidence.found
    assert estimates is not None
    near = np.flatnonzero(estimates.near & (evidence.passages > 0))
    order = np.lexsort((-evidence.seqs[near], evidence.nearest[near]))
    kept = estimates.worded.copy()
    kept[near[order[: estimates.candidates]]] = True
    stay = kept[pairs[:, 0]]
    pairs = pairs[stay]
    kept[pairs[:, 1]] = True
    place = np.cumsum(kept) - 1
    told = kept[found[:, 0]]
    return replace(
        evidence,
        seqs=evidence.seqs[kept],
        nearest=evidence.nearest[kept],
        spread=evidence.spread[kept],
        passages=evidence.passages[kept],
        moments=evidence.moments[kept],
        importances=evidence.importances[kept],
        pairs=place[pairs],
        steps=evidence.steps[stay],
        found=np.array([place[found[told, 0]], found[told, 1]]).T,
        parts=evidence.parts[told],
        estimates=replace(
            estimates,
            are=estimates.are[kept],
            near=estimates.near[kept],
            worded=estimates.worded[kept],
        ),
    )


def _places(evidence: Evidence, hits: Sequence[Ranked]) -> Ints:
    return np.searchsorted(evidence.seqs, [hit.seq for hit in hits])


def _is_of(row: Row, scope: Scope) -> bool:
    return (row["namespace_id"], row["epoch"]) == (scope.namespace_id, scope.epoch)


def _unit(vector: npt.NDArray[np.float16]) -> Floats:
    whole = vector.astype(np.float64)
    unit: Floats = whole / max(float(np.linalg.norm(whole)), 1e-30)
    return unit
