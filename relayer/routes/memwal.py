"""MemWal's routes and shapes, so that its unmodified clients work against this relayer.

Not here: what the routes do (`memories/memory.py`, `memories/analysis.py`, `recovery/restore.py`),
uploads that a client encrypted (`memwal_manual.py`), what clients ask first
(`memwal_discovery.py`). Unknown body members are tolerated, as MemWal's own relayer does.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from relayer.clock import rfc3339, whole_ms
from relayer.database import namespaces as namespace_rows
from relayer.database.pool import Database, Row
from relayer.errors import BadRequest, NotFound
from relayer.http import bodies
from relayer.http.checks import TEXT, WEIGHT
from relayer.memories.analysis import Analysis
from relayer.memories.answerer import Answerer
from relayer.memories.conversations import Conversation
from relayer.memories.intake import Intake
from relayer.memories.memory import MemoryService
from relayer.memories.opener import Caller
from relayer.memories.recall import RecalledMemory, RecallService
from relayer.query.query import Query
from relayer.record import Draft
from relayer.recovery.restore import Restore
from relayer.routes import memwal_answers as answers
from relayer.routes import shapes
from relayer.routes.arguments import check_account, maybe_id
from relayer.routes.namespaces import StatsAnswer, namespace_stats
from relayer.sealed.keys import account_text
from relayer.settings import Limits
from relayer.tenants.accounts import Access
from relayer.tenants.recall_counts import RecallCounts

NAMESPACES_PAGE_MAX: Final = 500  # larger limits mean this one, as with MemWal's own relayer
CANDIDATES_PER_RESULT: Final = 5  # among which a recall that is sorted by time chooses the newest
CANDIDATES_MAX: Final = 50
_CURSOR: Final = re.compile(r"[0-9]{1,18}\.[0-9]{1,10}")


class Tolerant(bodies.Body, kw_only=True):
    """A body of MemWal's routes."""

    namespace: str = bodies.DEFAULT_NAMESPACE


class MemwalRememberBody(Tolerant):
    """POST /api/remember."""

    text: str
    idempotency_key: bodies.IdempotencyKey | None = None


class BulkItem(Tolerant):
    """One text of a bulk request."""

    text: str


class MemwalBulkBody(bodies.Body):
    """POST /api/remember/bulk."""

    items: Annotated[list[BulkItem], Meta(min_length=1, max_length=Limits.bulk_items_max)]


class BulkStatusBody(bodies.Body):
    """POST /api/remember/bulk/status."""

    job_ids: Annotated[list[str], Meta(min_length=1, max_length=100)]


class MemwalScoringWeights(bodies.ScoringWeights, forbid_unknown_fields=False):
    """The same as in our own routes, tolerant."""


class MemwalRecallBody(Tolerant):
    """POST /api/recall."""

    query: str
    limit: bodies.RecallLimit = 10
    scoring_weights: MemwalScoringWeights | None = None
    sort: Literal["relevance", "recent"] | None = None


class MemwalAnalyzeBody(Tolerant):
    """POST /api/analyze."""

    text: str
    occurred_at: bodies.Moment | None = None


class MemwalAskBody(Tolerant):
    """POST /api/ask."""

    question: str
    limit: bodies.RecallLimit = 5
    scoring_weights: MemwalScoringWeights | None = None


class MemwalRestoreBody(Tolerant):
    """POST /api/restore."""

    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10


class MemwalStatsAnswer(StatsAnswer):
    """Number and sealed size of a namespace's memories."""

    owner: str


@post("/api/remember", status_code=202, opt={WEIGHT: 5, TEXT: True})
async def remember_as_memwal(
    data: JSONBody[MemwalRememberBody],
    caller: NamedDependency[Caller],
    intake: NamedDependency[Intake],
) -> answers.JobAnswer:
    """Remember one text."""
    draft = Draft(
        text=bodies.check_memwal_text(data.text, Limits.text_bytes_max),
        namespace=bodies.namespace_of(data.namespace),
        idempotency_key=data.idempotency_key,
    )
    stored = await intake.remember(caller, [draft], route="remember")
    return {"job_id": str(stored.items[0].id), "status": "pending"}


@get("/api/remember/{job_id:str}")
async def get_job_as_memwal(
    job_id: FromPath[str],
    access: NamedDependency[Access],
    memory: NamedDependency[MemoryService],
) -> answers.JobStatusAnswer:
    """Return the status of a job."""
    memory_id = maybe_id(job_id)
    found = (await memory.states(access, [memory_id])).get(memory_id) if memory_id else None
    if found is None:
        raise NotFound("No such job.")
    return {
        "job_id": job_id,
        "status": found["state"],
        "owner": account_text(access.account),
        "namespace": found["namespace"],
        "blob_id": shapes.blob_name(found["blob_id"]),
        "error": None,
    }


@post("/api/remember/bulk", status_code=202, opt={WEIGHT: 10, TEXT: True})
async def remember_bulk_as_memwal(
    data: JSONBody[MemwalBulkBody],
    caller: NamedDependency[Caller],
    intake: NamedDependency[Intake],
) -> answers.JobsAnswer:
    """Remember up to 20 texts."""
    drafts = [
        Draft(
            text=bodies.check_memwal_text(item.text, Limits.bulk_text_bytes_max),
            namespace=bodies.namespace_of(item.namespace),
        )
        for item in data.items
    ]
    stored = await intake.remember(caller, drafts, route="bulk")
    ids = [str(item.id) for item in stored.items]
    return {"job_ids": ids, "total": len(ids), "status": "pending"}


@post("/api/remember/bulk/status", status_code=200)
async def get_jobs_as_memwal(
    data: JSONBody[BulkStatusBody],
    access: NamedDependency[Access],
    memory: NamedDependency[MemoryService],
) -> answers.JobStatesAnswer:
    """Return the status of each job, in order."""
    parsed = [(text, maybe_id(text)) for text in data.job_ids]
    found = await memory.states(access, [i for _, i in parsed if i is not None])
    return {"results": [_job(text, found.get(i) if i else None) for text, i in parsed]}


def _job(job_id: str, found: Row | None) -> answers.JobState:
    if found is None:
        return {"job_id": job_id, "status": "not_found"}
    return {
        "job_id": job_id,
        "status": found["state"],
        "blob_id": shapes.blob_name(found["blob_id"]),
    }


@post("/api/recall", status_code=200)
async def recall_as_memwal(
    data: JSONBody[MemwalRecallBody],
    caller: NamedDependency[Caller],
    recaller: NamedDependency[RecallService],
    recall_counts: NamedDependency[RecallCounts],
) -> answers.MemwalRecallAnswer:
    """Return the memories that answer a query, best first or newest first."""
    weights = data.scoring_weights if data.sort is None else None  # a sort is the whole order
    recent = data.sort == "recent"
    limit = _candidates(data.limit) if recent else data.limit
    query = _query(data.query, "query", data.namespace, limit, weights)
    recalled = await recaller.recall(caller, query)
    found = _newest(recalled.found)[: data.limit] if recent else recalled.found
    recall_counts.note(caller.access, [one.memory.id for one in found])
    return {
        "results": [_result(f, scored=not query.weights.semantic_only) for f in found],
        "total": len(found),
        "dropped_count": recalled.dropped,
        "degraded": recalled.degraded,
    }


def _candidates(limit: int) -> int:
    return max(limit, min(CANDIDATES_PER_RESULT * limit, CANDIDATES_MAX))


def _newest(found: Sequence[RecalledMemory]) -> list[RecalledMemory]:
    return sorted(found, key=lambda one: one.memory.created_at, reverse=True)


def _query(
    text: str, name: str, namespace: str, limit: int, weights: bodies.ScoringWeights | None
) -> Query:
    return Query(
        text=bodies.check_memwal_text(text, Limits.query_bytes_max, name),
        namespaces=[bodies.namespace_of(namespace)],
        limit=limit,
        weights=bodies.weights_of(weights),
    )


def _result(found: RecalledMemory, *, scored: bool) -> answers.MemwalResult:
    m = found.memory
    shape: answers.MemwalResult = {
        "blob_id": m.blob_id,
        "text": m.text,
        "distance": found.hit.distance,
        "created_at": rfc3339(m.created_at),
    }
    if scored:
        shape["score"] = found.hit.score
    return shape


@post("/api/analyze", status_code=202, opt={WEIGHT: 5, TEXT: True})
async def analyze_as_memwal(
    data: JSONBody[MemwalAnalyzeBody],
    caller: NamedDependency[Caller],
    analysis: NamedDependency[Analysis],
) -> answers.MemwalAnalyzeAnswer:
    """Remember what is worth keeping of a conversation."""
    bodies.check_moments(occurred_at=data.occurred_at)
    conversation = Conversation(
        text=bodies.check_memwal_text(data.text, Limits.analyze_bytes_max),
        namespace=bodies.namespace_of(data.namespace),
        occurred_at=whole_ms(data.occurred_at),
    )
    analyzed = await analysis.analyze(caller, conversation)
    ids = [str(item.id) for item in analyzed.facts]
    facts: list[answers.MemwalFact] = [
        {"text": item.text, "id": i, "job_id": i}
        for i, item in zip(ids, analyzed.facts, strict=True)
    ]
    shape: answers.MemwalAnalyzeAnswer = {
        "job_ids": ids if analyzed.pending is None else [str(analyzed.pending)],
        "facts": facts,
        "fact_count": len(facts),
        "status": "pending",
        "owner": account_text(caller.access.account),
        "extractor": analyzed.extractor,
    }
    if analyzed.problem is not None:
        shape["problem"] = analyzed.problem
    return shape


@post("/api/ask", status_code=200, opt={WEIGHT: 2})
async def ask_as_memwal(
    data: JSONBody[MemwalAskBody],
    caller: NamedDependency[Caller],
    answerer: NamedDependency[Answerer],
    recall_counts: NamedDependency[RecallCounts],
) -> answers.MemwalAskAnswer:
    """Return a language model's answer from what is recalled."""
    query = _query(data.question, "question", data.namespace, data.limit, data.scoring_weights)
    answer = await answerer.ask(caller, query)
    recall_counts.note(caller.access, [one.memory.id for one in answer.memories])
    return {
        "answer": answer.text,
        "memories_used": len(answer.memories),
        "memories": [_result(f, scored=False) for f in answer.memories],
    }


@post("/api/restore", status_code=200, opt={WEIGHT: 3})
async def restore_as_memwal(
    data: JSONBody[MemwalRestoreBody],
    caller: NamedDependency[Caller],
    restore: NamedDependency[Restore],
) -> answers.MemwalRestoreAnswer:
    """Rebuild index rows of a namespace from its blobs."""
    namespace = bodies.namespace_of(data.namespace)
    done = await restore.restore(caller, namespace, data.limit)
    return {
        **shapes.to_restore_answer(namespace, done),
        "owner": account_text(caller.access.account),
    }


@post("/api/forget", status_code=200, opt={WEIGHT: 10})
async def forget_as_memwal(
    data: JSONBody[Tolerant],
    access: NamedDependency[Access],
    memory: NamedDependency[MemoryService],
) -> answers.MemwalForgetAnswer:
    """Erase every memory of a namespace."""
    namespace = bodies.namespace_of(data.namespace)
    deleted = await memory.forget_namespace(access, namespace)
    return {"deleted": deleted, "namespace": namespace, "owner": account_text(access.account)}


@post("/api/stats", status_code=200)
async def get_stats_as_memwal(
    data: JSONBody[Tolerant],
    access: NamedDependency[Access],
    database: NamedDependency[Database],
) -> MemwalStatsAnswer:
    """Return number and sealed size of a namespace's memories."""
    found = await namespace_stats(access, database, bodies.namespace_of(data.namespace))
    return {**found, "owner": account_text(access.account)}


@get("/v1/owners/{owner:str}/namespaces")
async def list_owner_namespaces(
    owner: FromPath[str],
    access: NamedDependency[Access],
    database: NamedDependency[Database],
    updated_after: FromQuery[str | None] = None,
    limit: Annotated[int, QueryParameter(ge=1)] = 100,
) -> answers.OwnerNamespacesAnswer:
    """Return a page of one's own namespaces, oldest change first.

    The last cursor finds later changes.
    """
    check_account(owner, access)
    after = _parse_cursor(updated_after)
    found = await namespace_rows.summaries(database, access.account, access.namespaces)
    newest = {r["namespace_id"]: r for r in found}
    ordered = sorted((_change(r), r["namespace_id"]) for r in newest.values())
    later = [place for place in ordered if place > after]
    page = later[: min(limit, NAMESPACES_PAGE_MAX)]
    last_change, last_id = page[-1] if page else after
    return {
        "namespaces": [_namespace(newest[namespace_id]) for _, namespace_id in page],
        "next_cursor": f"{last_change}.{last_id}",
        "has_more": len(later) > len(page),
        "snapshot_version": ordered[-1][0] if ordered else 0,
    }


def _parse_cursor(cursor: str | None) -> tuple[int, int]:
    """Return the place after which a page begins: (time of the last change in µs, namespace id)."""
    if cursor is None:
        return 0, 0
    if not _CURSOR.fullmatch(cursor):
        raise BadRequest("updated_after is not the next_cursor of an earlier page.")
    change, _, namespace_id = cursor.partition(".")
    return int(change), int(namespace_id)


def _change(row: Row) -> int:
    since: timedelta = row["updated_at"] - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1)


def _namespace(row: Row) -> answers.MemwalNamespace:
    return {
        "id": str(row["namespace_id"]),
        "name": row["name"],
        "memory_count": row["memory_count"],
        "storage_used": row["storage_bytes"],
        "updated_at": rfc3339(row["updated_at"]),
    }


HANDLERS: Final = (
    remember_as_memwal,
    get_job_as_memwal,
    remember_bulk_as_memwal,
    get_jobs_as_memwal,
    recall_as_memwal,
    analyze_as_memwal,
    ask_as_memwal,
    restore_as_memwal,
    forget_as_memwal,
    get_stats_as_memwal,
    list_owner_namespaces,
)
