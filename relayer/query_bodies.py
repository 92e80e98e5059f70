"""Bodies of recall and ask: their form, their limits, and the query they become.

Not here: routes, the other bodies (`bodies.py`), what a query does (`recall.py`).
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Literal

from msgspec import Meta, field

from relayer import fusion
from relayer.bodies import (
    DEFAULT_NAMESPACE,
    HexKey,
    Moment,
    RecallLimit,
    ScoringWeights,
    Source,
    Strict,
    Tag,
    Weight,
    check_moments,
    checked_metadata,
    checked_text,
    namespace_of,
    weights_of,
)
from relayer.errors import BadRequest
from relayer.recall import Query
from relayer.record import Kind
from relayer.sealed.keys import Namespace, PublicKey
from relayer.settings import Limits

Mode = Literal["hybrid", "keyword", "vector", "keyword_first"]
Alias = Annotated[str, Meta(min_length=1, max_length=Limits.alias_characters_max)]


class Narrowed(Strict):
    """Where to look, and what may be found there."""

    namespace: str | None = None
    namespaces: (
        Annotated[list[str], Meta(min_length=1, max_length=Limits.recall_namespaces_max)] | None
    ) = None
    kinds: Annotated[list[Kind], Meta(min_length=1)] | None = None
    tags: Annotated[list[Tag], Meta(max_length=Limits.tags_max)] = field(default_factory=list)
    after: Moment | None = None
    before: Moment | None = None
    as_of: Moment | None = None


class RecallBody(Narrowed, kw_only=True):
    """POST /v1/recall."""

    query: str
    limit: RecallLimit = 10
    mode: Mode = "hybrid"
    min_primary_results: Annotated[int, Meta(ge=0, le=Limits.recall_limit_max)] | None = None
    vector_weight: Weight | None = None
    text_weight: Weight | None = None
    goal: str | None = None
    aliases: Annotated[
        dict[Alias, Annotated[list[Alias], Meta(min_length=1, max_length=Limits.alias_words_max)]],
        Meta(max_length=Limits.aliases_max),
    ] = field(default_factory=dict)
    source: Source | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    writers: (
        Annotated[list[HexKey], Meta(min_length=1, max_length=Limits.recall_writers_max)] | None
    ) = None
    min_relevance: Annotated[float, Meta(ge=0, le=1)] = 0.0
    scoring_weights: ScoringWeights | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=Limits.recall_tokens_max)] | None = None
    explain: bool = False


class AskBody(Narrowed, kw_only=True):
    """POST /v1/ask."""

    question: str
    limit: RecallLimit = 5


def query_of(body: RecallBody, now: datetime) -> Query:
    """What to recall.

    Raises:
        BadRequest, TooLarge: out of range, or members that exclude each other.
    """
    goal, writers = body.goal, body.writers
    return replace(
        _narrowed(body, checked_text(body.query, Limits.query_bytes_max, "query"), now),
        limit=body.limit,
        mode=body.mode,
        min_primary_results=_min_primary_results(body),
        goal=None if goal is None else checked_text(goal, Limits.goal_bytes_max, "goal"),
        aliases=body.aliases,
        source=body.source,
        metadata=checked_metadata(body.metadata),
        writers=None if writers is None else [PublicKey(bytes.fromhex(w)) for w in writers],
        min_relevance=body.min_relevance,
        leg_weights=_leg_weights(body),
        weights=weights_of(body.scoring_weights),
        max_tokens=body.max_tokens,
    )


def question_of(body: AskBody, now: datetime) -> Query:
    """What to recall for an answer.

    Raises:
        BadRequest, TooLarge: out of range, or members that exclude each other.
    """
    text = checked_text(body.question, Limits.query_bytes_max, "question")
    return replace(_narrowed(body, text, now), limit=body.limit)


def _narrowed(body: Narrowed, text: str, now: datetime) -> Query:
    check_moments(after=body.after, before=body.before, as_of=body.as_of)
    if body.after is not None and body.before is not None and body.after >= body.before:
        raise BadRequest("before is not later than after.")
    # A caller's clock may run ahead as far as its signatures may.
    if body.as_of is not None and body.as_of > now + timedelta(seconds=Limits.clock_skew_s_max):
        raise BadRequest("as_of is in the future.")
    return Query(
        text=text,
        namespaces=_namespaces(body),
        kinds=body.kinds,
        tags=body.tags,
        after=body.after,
        before=body.before,
        as_of=body.as_of,
    )


def _namespaces(body: Narrowed) -> list[Namespace]:
    if body.namespaces is None:
        return [namespace_of(DEFAULT_NAMESPACE if body.namespace is None else body.namespace)]
    if body.namespace is not None:
        raise BadRequest("namespace and namespaces exclude each other.")
    names = [namespace_of(name) for name in body.namespaces]
    if len(set(names)) < len(names):
        raise BadRequest("namespaces has a name twice.")
    return names


def _min_primary_results(body: RecallBody) -> int:
    if body.min_primary_results is None:
        return Query.min_primary_results
    if body.mode != "keyword_first":
        raise BadRequest("min_primary_results is for the mode keyword_first.")
    return body.min_primary_results


def _leg_weights(body: RecallBody) -> fusion.Weights | None:
    if body.vector_weight is None and body.text_weight is None:
        return None
    if body.vector_weight is None or body.text_weight is None:
        raise BadRequest("vector_weight and text_weight are given together.")
    if body.mode != "hybrid":
        raise BadRequest("vector_weight and text_weight are for the mode hybrid.")
    if body.vector_weight == body.text_weight == 0:
        raise BadRequest("vector_weight and text_weight are not both 0.")
    return fusion.Weights(body.vector_weight, body.text_weight)
