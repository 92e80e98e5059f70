"""Our own routes that find memories: recall, and ask.

Not here: what a query does (`memories/recall.py`), who answers (`memories/answerer.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal, NotRequired, TypedDict, cast

from litestar import post
from litestar.di import NamedDependency
from litestar.params import JSONBody
from msgspec import DecodeError, Meta, Struct, field, json

from relayer.errors import BadRequest
from relayer.http import bodies
from relayer.http.checks import WEIGH, WEIGHT
from relayer.memories.answerer import Answerer
from relayer.memories.deep_recall import DeepRecalled, DeepRecaller, Shortfall
from relayer.memories.opener import Caller
from relayer.memories.recall import Recalled, RecalledMemory, RecallService
from relayer.query import fusion
from relayer.query.heading import terms_of_speaker
from relayer.query.query import Query
from relayer.record import KINDS, Kind
from relayer.routes import shapes
from relayer.sealed.keys import Namespace, PublicKey
from relayer.settings import Limits
from relayer.tenants.accounts import Accounts
from relayer.tenants.recall_counts import RecallCounts

DEEP_WEIGHT: Final = 5
ASKED_RELEVANCE_MIN: Final = 0.3  # as the clients leave out of a recall what is less relevant
Mode = Literal["hybrid", "keyword", "vector", "keyword_first"]
Alias = Annotated[str, Meta(min_length=1, max_length=Limits.alias_characters_max)]


class Narrowed(bodies.Strict):
    """Namespaces to search, and filters on what is found there."""

    namespace: str | None = None
    namespaces: (
        Annotated[list[str], Meta(min_length=1, max_length=Limits.recall_namespaces_max)] | None
    ) = None
    kinds: Annotated[list[Kind], Meta(min_length=1, max_length=len(KINDS))] | None = None
    tags: Annotated[list[bodies.Tag], Meta(max_length=Limits.tags_max)] = field(
        default_factory=list
    )
    after: bodies.Moment | None = None
    before: bodies.Moment | None = None
    as_of: bodies.Moment | None = None


class RecallBody(Narrowed, kw_only=True):
    """POST /v1/recall."""

    query: str
    limit: bodies.RecallLimit = 10
    mode: Mode = "hybrid"
    min_primary_results: Annotated[int, Meta(ge=0, le=Limits.recall_limit_max)] | None = None
    vector_weight: bodies.Weight | None = None
    text_weight: bodies.Weight | None = None
    goal: str | None = None
    aliases: Annotated[
        dict[Alias, Annotated[list[Alias], Meta(min_length=1, max_length=Limits.alias_words_max)]],
        Meta(max_length=Limits.aliases_max),
    ] = field(default_factory=dict)
    source: bodies.Source | None = None
    speaker: bodies.Speaker | None = None
    metadata: bodies.Metadata = field(default_factory=dict)
    writers: (
        Annotated[list[bodies.HexKey], Meta(min_length=1, max_length=Limits.recall_writers_max)]
        | None
    ) = None
    min_relevance: Annotated[float, Meta(ge=0, le=1)] = 0.0
    scoring_weights: bodies.ScoringWeights | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=Limits.recall_tokens_max)] | None = None
    deep: bool = False
    explain: bool = False


class AskBody(Narrowed, kw_only=True):
    """POST /v1/ask."""

    question: str
    limit: bodies.RecallLimit = 5
    deep: bool = False


class ScoreParts(TypedDict):
    """The seven parts whose sum is the score."""

    meaning: float
    words: float
    neighbours: float
    speaker: float
    period: float
    recency: float
    importance: float


class Explanation(TypedDict):
    """The reasons why a memory was found; `look` is the number of the look, with `deep`."""

    cosine: float | None
    keyword: float
    matched: list[str]
    parts: ScoreParts
    look: NotRequired[int]


class DeepAnswer(TypedDict):
    """The further looks for a query: how many, why not more, and with `explain` their texts."""

    looks: int
    degraded: Shortfall | None
    texts: NotRequired[list[str]]


class ResultAnswer(shapes.MemoryAnswer):
    """One recalled memory; `tokens` with a budget, `explain` where it was asked for."""

    distance: float
    score: float
    tokens: NotRequired[int]
    explain: NotRequired[Explanation]


class RecallAnswer(TypedDict):
    """The memories that answer a query; `tokens` and `left_out` with a budget, `deep` if asked.

    `estimated` is true where distances of memories that are not shown were estimates.
    """

    results: list[ResultAnswer]
    total: int
    dropped_count: int
    degraded: bool
    estimated: bool
    tokens: NotRequired[int]
    left_out: NotRequired[int]
    deep: NotRequired[DeepAnswer]


class AskAnswer(TypedDict):
    """A language model's answer, the memories that it was given, and the ids of those it cites.

    `supported` is false where the memories hold no answer; `deep` is there if asked.
    """

    answer: str
    supported: bool
    cited: list[str]
    memories_used: int
    memories: list[ResultAnswer]
    deep: NotRequired[DeepAnswer]


class _Depth(Struct):
    """The member of a body that lets a request count more."""

    deep: bool = False


def weigh_depth(body: bytes) -> int:
    """Return how much a request counts: more where a model plans, and up to four looks follow."""
    try:
        return DEEP_WEIGHT if json.decode(body, type=_Depth).deep else 1
    except (DecodeError, ValueError, RecursionError):  # it is refused as what it is
        return 1


@post("/recall", status_code=200, opt={WEIGH: weigh_depth})
async def recall(
    data: JSONBody[RecallBody],
    caller: NamedDependency[Caller],
    recaller: NamedDependency[RecallService],
    deep_recaller: NamedDependency[DeepRecaller],
    accounts: NamedDependency[Accounts],
    recall_counts: NamedDependency[RecallCounts],
) -> RecallAnswer:
    """Return the memories that answer a query, best first."""
    query, deep = query_of(data, caller.access.time), None
    if data.deep:
        deep = await deep_recaller.recall(caller, query)
    recalled = await recaller.recall(caller, query) if deep is None else deep.recalled
    _count(recall_counts, caller, data, recalled.found)
    labels = await _labels(accounts, caller, recalled.found)
    return _to_recall_answer(recalled, labels, deep, explain=data.explain)


def _count(
    recall_counts: RecallCounts, caller: Caller, body: Narrowed, found: Sequence[RecalledMemory]
) -> None:
    """Note which memories were shown: a look at the past uses none of today's."""
    if body.as_of is None:
        recall_counts.note(caller.access, [one.memory.id for one in found])


async def _labels(
    accounts: Accounts, caller: Caller, found: Sequence[RecalledMemory]
) -> dict[str, str]:
    """Return public key → label of the other keys that wrote what was found.

    Most find what their own key wrote: that costs no statement.
    """
    others = {one.memory.writer for one in found} - {caller.access.key}
    return await accounts.labels(caller.access.account, others) if others else {}


def _to_recall_answer(
    answer: Recalled, labels: Mapping[str, str], deep: DeepRecalled | None, *, explain: bool
) -> RecallAnswer:
    """Return the answer for a query; with a budget, its used tokens and what was left out, too."""
    results = [_result(found, labels, explain=explain) for found in answer.found]
    if explain and deep is not None:
        for found, result in zip(answer.found, results, strict=True):
            result["explain"]["look"] = found.look
    shape: RecallAnswer = {
        "results": results,
        "total": len(answer.found),
        "dropped_count": answer.dropped,
        "degraded": answer.degraded,
        "estimated": answer.estimated,
    }
    if answer.tokens is not None:
        shape["tokens"] = answer.tokens
        shape["left_out"] = answer.left_out
    if deep is not None:
        shape["deep"] = _to_deep_answer(deep, explain=explain)
    return shape


def _to_deep_answer(deep: DeepRecalled, *, explain: bool) -> DeepAnswer:
    """Return what is told of further looks."""
    shape: DeepAnswer = {"looks": len(deep.looks), "degraded": deep.shortfall}
    if explain:
        shape["texts"] = list(deep.looks)
    return shape


def _result(found: RecalledMemory, labels: Mapping[str, str], *, explain: bool) -> ResultAnswer:
    """Return one recalled memory."""
    hit = found.hit
    shape = cast("ResultAnswer", shapes.to_memory_answer(found.memory, labels))
    shape["distance"] = hit.distance
    shape["score"] = hit.score
    if found.tokens is not None:
        shape["tokens"] = found.tokens
    if explain:
        shape["explain"] = {
            "cosine": hit.cosine,
            "keyword": hit.relevance,
            "matched": list(hit.matched),
            "parts": {
                "meaning": hit.meaning,
                "words": hit.words,
                "neighbours": hit.neighbours,
                "speaker": hit.speaker,
                "period": hit.period,
                "recency": hit.recency,
                "importance": hit.importance,
            },
        }
    return shape


@post("/ask", status_code=200, opt={WEIGHT: 2, WEIGH: weigh_depth})
async def ask(
    data: JSONBody[AskBody],
    caller: NamedDependency[Caller],
    answerer: NamedDependency[Answerer],
    accounts: NamedDependency[Accounts],
    recall_counts: NamedDependency[RecallCounts],
) -> AskAnswer:
    """Return a language model's answer from what is recalled, and what it rests on."""
    question = question_of(data, caller.access.time)
    answer = await answerer.ask(caller, question, is_deep=data.deep)
    _count(recall_counts, caller, data, answer.memories)
    labels = await _labels(accounts, caller, answer.memories)
    shape: AskAnswer = {
        "answer": answer.text,
        "supported": bool(answer.cited),
        "cited": [str(found.memory.id) for found in answer.cited],
        "memories_used": len(answer.memories),
        "memories": [_result(f, labels, explain=False) for f in answer.memories],
    }
    if answer.deep is not None:
        shape["deep"] = _to_deep_answer(answer.deep, explain=False)
    return shape


def query_of(body: RecallBody, now: datetime) -> Query:
    """Return the query that a body asks for.

    Raises:
        BadRequest, TooLarge: out of range, or members that exclude each other.
    """
    goal, writers = body.goal, body.writers
    return replace(
        _narrow(body, bodies.check_text(body.query, Limits.query_bytes_max, "query"), now),
        limit=body.limit,
        mode=body.mode,
        min_primary_results=_min_primary_results(body),
        goal=None if goal is None else bodies.check_text(goal, Limits.goal_bytes_max, "goal"),
        aliases=body.aliases,
        source=body.source,
        speaker=_speaker(body.speaker),
        metadata=bodies.check_metadata(body.metadata),
        writers=None if writers is None else [PublicKey(bytes.fromhex(w)) for w in writers],
        min_relevance=body.min_relevance,
        leg_weights=_leg_weights(body),
        weights=bodies.weights_of(body.scoring_weights),
        max_tokens=body.max_tokens,
    )


def question_of(body: AskBody, now: datetime) -> Query:
    """Return the query that finds the memories for an answer.

    Raises:
        BadRequest, TooLarge: out of range, or members that exclude each other.
    """
    text = bodies.check_text(body.question, Limits.query_bytes_max, "question")
    return replace(_narrow(body, text, now), limit=body.limit, min_relevance=ASKED_RELEVANCE_MIN)


def _narrow(body: Narrowed, text: str, now: datetime) -> Query:
    bodies.check_moments(after=body.after, before=body.before, as_of=body.as_of)
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
        return bodies.namespaces_of(body.namespace, None)
    if body.namespace is not None:
        raise BadRequest("namespace and namespaces exclude each other.")
    names = [bodies.namespace_of(name) for name in body.namespaces]
    if len(set(names)) < len(names):
        raise BadRequest("namespaces has a name twice.")
    return names


def _min_primary_results(body: RecallBody) -> int:
    if body.min_primary_results is None:
        return Query.min_primary_results
    if body.mode != "keyword_first":
        raise BadRequest("min_primary_results is for the mode keyword_first.")
    return body.min_primary_results


def _speaker(name: str | None) -> str | None:
    if name is not None and not terms_of_speaker(name):
        raise BadRequest("speaker is neither a name nor user or assistant.")
    return name


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


HANDLERS: Final = (recall, ask)
