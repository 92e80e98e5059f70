"""The order of steps of a recall: embed, search, open, rank; nothing else.

Not here: the statement (`database.recall`), age and importance (`rank`), opening (`opening`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import numpy.typing as npt

from relayer import rank
from relayer.clock import Clock
from relayer.database import recall as search
from relayer.database.pool import Database
from relayer.embedding.embedders import Embedder
from relayer.errors import Unavailable
from relayer.namespaces import Namespaces
from relayer.opening import Caller, Opener
from relayer.record import Memory
from relayer.sealed import index
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey
from relayer.sealed.turn import derive_turn
from relayer.settings import Limits
from relayer.words import words


@dataclass(frozen=True, kw_only=True)
class Query:
    """What to recall."""

    text: str = field(repr=False)
    namespaces: Sequence[Namespace]
    limit: int = 10
    mode: str = "hybrid"
    kinds: Sequence[str] | None = None
    tags: Sequence[str] = field(default=(), repr=False)
    source: str | None = field(default=None, repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    after: datetime | None = None
    before: datetime | None = None
    min_relevance: float = 0.0
    weights: rank.Weights = rank.Weights()


@dataclass(frozen=True)
class Found:
    """One recalled memory and why.

    Attributes:
        cosine: cosine similarity, None without a vector.
        relevance: keyword score over the ideal one, 0–1.
        matched: query words that it holds.
    """

    memory: Memory
    distance: float
    score: float
    cosine: float | None
    relevance: float
    matched: Sequence[str] = field(repr=False)


@dataclass(frozen=True)
class Recalled:
    """The answer to a query; `dropped` memories were found and could not be opened."""

    found: Sequence[Found]
    dropped: int
    degraded: bool


class RecallService:
    """Finds the memories that answer a query, of one account at a time."""

    def __init__(
        self,
        *,
        database: Database,
        opener: Opener,
        namespaces: Namespaces,
        embedder: Embedder | None,
        clock: Clock,
    ) -> None:
        self._database = database
        self._opener = opener
        self._namespaces = namespaces
        self._embedder = embedder
        self._clock = clock

    async def recall(self, caller: Caller, query: Query) -> Recalled:
        """The memories that answer a query, best first.

        Raises:
            NotAllowed: not a reader of a namespace, or its key is missing.
        """
        for namespace in query.namespaces:
            caller.access.require(namespace, "reader")
        embedding = await self._embed_query(caller.access.account, query)
        terms = [] if query.mode == "vector" else _distinct(words(query.text))
        scopes = await self._scopes(caller, query, embedding, terms)
        now = self._clock()
        hits = await search.search(
            self._database,
            account=caller.access.account,
            scopes=scopes,
            model="" if self._embedder is None else self._embedder.model_id,
            filters=search.Filters(now, query.kinds, query.after, query.before),
            limit=query.limit if _settled_by_search(query) else search.CANDIDATES,
        )
        ordered = [
            pair
            for pair in rank.ranked(hits, query.weights, now)
            if 1.0 - rank.distance(pair[0]) >= query.min_relevance
        ][: query.limit]
        opened = await self._opener.open_rows(caller, [hit.row for hit, _ in ordered])
        found = [
            _found(hit, score, memory, terms)
            for (hit, score), memory in zip(ordered, opened, strict=True)
            if memory is not None
        ]
        degraded = embedding is None and query.mode != "keyword"
        return Recalled(found, dropped=len(ordered) - len(found), degraded=degraded)

    async def _embed_query(
        self, account: AccountId, query: Query
    ) -> npt.NDArray[np.float32] | None:
        """The query's vector, (1, dim); None when keywords have to do."""
        if query.mode == "keyword" or self._embedder is None:
            return None
        try:
            return await self._embedder.embed([query.text], account=account)
        except Unavailable:
            return None  # an embedder that is away degrades recall, it does not break it

    async def _scopes(
        self,
        caller: Caller,
        query: Query,
        embedding: npt.NDArray[np.float32] | None,
        terms: Sequence[str],
    ) -> list[search.Scope]:
        """The query as each namespace and epoch knows it; namespaces without memories have none."""
        scopes = []
        for namespace in dict.fromkeys(query.namespaces):  # named twice, words would count twice
            keys = caller.keys.of(namespace)
            entry = await self._namespaces.find(caller.access.account, namespace)
            for key in keys if entry is not None else ():
                assert entry is not None
                if entry.key_ids.get(key.epoch) == key.key_id:
                    scopes.append(
                        search.Scope(
                            namespace_id=entry.namespace_id,
                            epoch=key.epoch,
                            embedding=self._turned(key, embedding),
                            words=[index.token(key, "w", term) for term in terms],
                            filters=_filter_tokens(key, query),
                        )
                    )
        return scopes

    def _turned(
        self, key: NamespaceKey, embedding: npt.NDArray[np.float32] | None
    ) -> npt.NDArray[np.float16] | None:
        if embedding is None or self._embedder is None:
            return None
        turn = derive_turn(key, self._embedder.model_id, self._embedder.dim)
        turned: npt.NDArray[np.float16] = turn.apply(embedding)[0].astype(np.float16)
        return turned


def _found(hit: search.Hit, score: float, memory: Memory, terms: Sequence[str]) -> Found:
    return Found(
        memory=memory,
        distance=rank.distance(hit),
        score=score,
        cosine=None if hit.cosine_distance is None else 1.0 - hit.cosine_distance,
        relevance=hit.relevance,
        matched=[terms[n] for n in sorted(hit.matched)],
    )


def _settled_by_search(query: Query) -> bool:
    """Whether the search's own first hits are the answer: nothing is weighed or dropped later."""
    return query.weights.semantic_only and query.min_relevance == 0


def _distinct(terms: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(terms))[: Limits.query_words_max]


def _filter_tokens(key: NamespaceKey, query: Query) -> list[int]:
    """One token per required tag, source and metadata pair."""
    tokens = [index.token(key, "t", tag) for tag in query.tags]
    if query.source is not None:
        tokens.append(index.token(key, "s", query.source))
    return tokens + [index.metadata_token(key, k, v) for k, v in query.metadata.items()]
