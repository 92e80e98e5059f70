"""A query as vectors: one of each model by which the memories of its namespaces were embedded.

Not here: embedding (`embedding.models`), turning (`lookup.py`), searching (`database.recall`).

- A query has one vector of a model, or two, where it is longer than the model takes at once.
- A query's vector of one model only ever meets vectors of that model.
- While one model is in use, a recall pays nothing for asking: what was found is kept for seconds,
  and looked up while the query is embedded. A namespace in memory tells it by itself.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from relayer.database import vectors as vector_rows
from relayer.database.pool import Database
from relayer.embedding.embedders import FULL_COVERAGE, RELATED, Coverage, Vectors
from relayer.embedding.models import Embedders
from relayer.embedding.passages import count_bytes
from relayer.sealed.keys import AccountId
from relayer.words.foreign import is_foreign

KEPT_S: Final = 5.0
KEPT_MAX: Final = 50_000
_NOTHING: Final[tuple[float, frozenset[str]]] = (-math.inf, frozenset())


@dataclass(frozen=True)
class QueryVectors:
    """Model id → the query's vectors, (1 or 2, dim); `complete` unless a model in use has none.

    `related` is the least cosine of what is related, by the strictest of these models. `used` are
    the models in use.
    """

    by_model: Mapping[str, Vectors] = field(repr=False)
    complete: bool
    related: float = RELATED
    used: frozenset[str] = frozenset()

    @property
    def ends(self) -> int:
        """Count the vectors that the query has of a model, at most; 1 also without any."""
        return max((len(vectors) for vectors in self.by_model.values()), default=1)

    def at(self, end: int) -> dict[str, Vectors]:
        """Return model id → the query's vector at that end, or its only one, (1, dim)."""
        return {
            model: found[end:][:1] if end < len(found) else found[:1]
            for model, found in self.by_model.items()
        }


class QueryEmbedder:
    """Embeds queries by the models that the namespaces asked have vectors of."""

    def __init__(
        self,
        *,
        database: Database,
        embedders: Embedders,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._embedders = embedders
        self._seconds = seconds
        self._used: OrderedDict[tuple[AccountId, int], tuple[float, frozenset[str]]] = OrderedDict()

    def count_tokens(self, text: str) -> int:
        """Count a text's tokens for the model in use; without one, its UTF-8 bytes."""
        current = self._embedders.current
        return count_bytes(text) if current is None else current.count_tokens(text)

    async def embed(
        self,
        account: AccountId,
        namespace_ids: Sequence[int],
        text: str,
        goal: tuple[str, float] | None = None,
    ) -> QueryVectors:
        """Return the vectors of a query and its goal, which counts so much.

        Without an embedder there are none, and they are not complete.
        """
        current = self._embedders.current
        if current is None:
            return QueryVectors({}, complete=False)
        texts = [text] if goal is None else [text, goal[0]]
        ours = self._embedders.embed_queries(texts, [current.model_id], account=account)
        used = self.used(account, namespace_ids)
        if used is not None and used <= {current.model_id}:
            answered = await ours
        else:
            found, (used, older) = await asyncio.gather(
                ours, self._older(account, namespace_ids, texts, current.model_id)
            )
            answered = found | older
        complete = used | {current.model_id} == set(answered)
        if goal is not None:
            answered = {model: _with_goal(found, goal[1]) for model, found in answered.items()}
        related = self._embedders.related(answered)
        return QueryVectors(answered, complete, related, used)

    async def embed_early(
        self, account: AccountId, text: str, goal: tuple[str, float] | None = None
    ) -> None:
        """Embed a query by the current model, for whoever asks for its vectors a moment later."""
        if (current := self._embedders.current) is not None:
            texts = [text] if goal is None else [text, goal[0]]
            await self._embedders.embed_queries(texts, [current.model_id], account=account)

    def note_used(self, account: AccountId, used: Mapping[int, Set[str]]) -> None:
        """Note which models each of these namespaces has vectors of, as whoever holds them knows.

        Nothing is looked up then for a while.
        """
        until = self._seconds() + KEPT_S
        for number, models in used.items():
            its = frozenset(model for model in models if not vector_rows.is_manual(model))
            self._keep(account, number, until, its)

    def coverage(self, text: str, used: frozenset[str]) -> Coverage:
        """Return the coverage of a query by these models in use.

        It is none of one in a language whose words they only spell, of which the vector says
        nothing: unrelated texts are as near as right ones.
        """
        if (current := self._embedders.current) is None:
            return FULL_COVERAGE
        known = self._embedders.coverage(text, used or {current.model_id})
        return replace(known, share=0.0) if is_foreign(text, known.spelt) else known

    async def _older(
        self, account: AccountId, namespace_ids: Sequence[int], texts: Sequence[str], current: str
    ) -> tuple[frozenset[str], dict[str, Vectors]]:
        """Return the models in use, and the texts' vectors by those that are not current."""
        used = await self._models(account, namespace_ids)
        return used, await self._embedders.embed_queries(texts, used - {current}, account=account)

    def used(self, account: AccountId, namespace_ids: Sequence[int]) -> frozenset[str] | None:
        """Return the models in use, if all was looked up lately; an `embed` tells them surely."""
        now, models = self._seconds(), set[str]()
        for number in namespace_ids:
            until, its = self._used.get((account, number), _NOTHING)
            if until <= now:
                return None
            models |= its
        return frozenset(models)

    async def _models(self, account: AccountId, namespace_ids: Sequence[int]) -> frozenset[str]:
        now = self._seconds()
        kept = {n: self._used.get((account, n), _NOTHING) for n in namespace_ids}
        stale = [n for n, (until, _) in kept.items() if until <= now]
        if stale:
            fresh = await vector_rows.models(self._database, account=account, namespace_ids=stale)
            for number, models in fresh.items():
                kept[number] = (now + KEPT_S, models)
                self._keep(account, number, *kept[number])
        return frozenset(model for _, models in kept.values() for model in models)

    def _keep(self, account: AccountId, number: int, until: float, models: frozenset[str]) -> None:
        self._used[account, number] = (until, models)
        self._used.move_to_end((account, number))
        while len(self._used) > KEPT_MAX:
            self._used.popitem(last=False)


def _with_goal(vectors: Vectors, weight: float) -> Vectors:
    """Return the query's vectors, each mixed with its goal's, the last; only directions matter."""
    mixed: Vectors = vectors[:-1] + weight * vectors[-1:]
    return mixed
