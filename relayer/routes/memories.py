"""Our own routes on memories: remember, analyze, list, get, and how far they are.

Not here: what these do (`memories/memory.py`, `memories/analysis.py`), finding (`recall.py`),
changing (`corrections.py`), erasing (`deletion.py`).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, cast

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta, field

from relayer.clock import whole_ms
from relayer.database.pool import Row
from relayer.errors import BadRequest, RelayerError, TooLarge
from relayer.http import bodies
from relayer.http.checks import TEXT, WEIGHT
from relayer.http.openapi import one_of
from relayer.memories.analysis import Analysis
from relayer.memories.conversations import Conversation
from relayer.memories.deletion import State as Standing
from relayer.memories.history import Histories
from relayer.memories.intake import Intake
from relayer.memories.memory import MemoryService
from relayer.memories.opener import Caller
from relayer.memories.recognition import Stored
from relayer.record import Confidence, Draft, Importance, Kind
from relayer.routes import shapes
from relayer.routes.arguments import (
    PageLimit,
    is_beginning,
    maybe_id,
    parse_id,
    parse_sequence,
    plain_digits,
)
from relayer.sealed.keys import Identity
from relayer.settings import Limits
from relayer.tenants.accounts import Access, Accounts
from relayer.tenants.recall_counts import RecallCounts


class MemoryFields(bodies.Strict):
    """The members of a memory that a caller may set."""

    text: str
    namespace: str = bodies.DEFAULT_NAMESPACE
    kind: Kind = "fact"
    tags: Annotated[list[bodies.Tag], Meta(max_length=Limits.tags_max)] = field(
        default_factory=list
    )
    source: bodies.Source | None = None
    event_time: bodies.Moment | None = None
    metadata: bodies.Metadata = field(default_factory=dict)
    importance: Importance = "standard"
    confidence: Confidence = "high"
    expires_at: bodies.Moment | None = None
    idempotency_key: bodies.IdempotencyKey | None = None


class RememberBody(MemoryFields, kw_only=True):
    """POST /v1/remember."""

    relayer: bodies.HexKey


class BulkBody(bodies.Change):
    """POST /v1/remember/bulk."""

    items: Annotated[list[MemoryFields], Meta(min_length=1, max_length=Limits.bulk_items_max)]


class AnalyzeBody(bodies.Change):
    """POST /v1/analyze."""

    text: str
    namespace: str = bodies.DEFAULT_NAMESPACE
    occurred_at: bodies.Moment | None = None
    source: bodies.Source | None = None
    idempotency_key: bodies.IdempotencyKey | None = None


class StatusBody(bodies.Strict):
    """POST /v1/memories/status."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=100)]


class StoredItem(TypedDict):
    """The outcome for one text that was stored."""

    id: shapes.Id
    status: str
    namespace: str
    duplicate: bool
    redacted: dict[str, int]


class RejectedItem(TypedDict):
    """The reason why one of several texts was not stored."""

    id: None
    status: Literal["rejected"]
    code: str
    message: str


class RememberAnswer(StoredItem):
    """The outcome for a text; without a receipt, it was stored already."""

    receipt: shapes.Base64 | None
    other_receipts: list[shapes.Base64]


class BulkAnswer(TypedDict):
    """The outcome for each text, in order."""

    results: list[Annotated[Any, one_of(StoredItem, RejectedItem)]]
    total: int
    receipts: list[shapes.Base64]
    other_receipts: list[shapes.Base64]


class MemoriesAnswer(TypedDict):
    """A page of memories, newest first."""

    memories: list[shapes.MemoryAnswer]
    next_cursor: str | None
    unrestored: bool


class MemoryStatus(TypedDict):
    """The progress of one id.

    `extractor` found the facts of an episode. `matches` are whole ids of memories, at most 10, that
    begin with the digits that were given as an id.
    """

    id: str
    status: str
    extractor: NotRequired[str]
    matches: NotRequired[list[shapes.Id]]


class StatusAnswer(TypedDict):
    """The progress of each id, in order."""

    results: list[MemoryStatus]


@post("/remember", status_code=202, opt={WEIGHT: 5, TEXT: True})
async def remember(
    data: JSONBody[RememberBody],
    caller: NamedDependency[Caller],
    intake: NamedDependency[Intake],
    identity: NamedDependency[Identity],
) -> RememberAnswer:
    """Remember one text: durable and found by keyword when this answers."""
    bodies.check_relayer(data.relayer, identity)
    draft = draft_of(data, bytes_max=Limits.text_bytes_max, now=caller.access.time)
    stored = await intake.remember(caller, [draft], route="remember")
    receipt = shapes.receipts(stored.receipts)
    return {
        **_to_stored_item(stored.items[0]),
        "receipt": receipt[0] if receipt else None,
        "other_receipts": shapes.receipts(stored.others),
    }


@post("/remember/bulk", status_code=202, opt={WEIGHT: 10, TEXT: True})
async def remember_bulk(
    data: JSONBody[BulkBody],
    caller: NamedDependency[Caller],
    intake: NamedDependency[Intake],
    identity: NamedDependency[Identity],
) -> BulkAnswer:
    """Remember up to 20 texts in one transaction, but those that are refused."""
    bodies.check_relayer(data.relayer, identity)
    items = drafts_of(data.items, caller.access.time)
    drafts = [item for item in items if not isinstance(item, RelayerError)]
    stored = await intake.remember(caller, drafts, route="bulk")
    done = iter(stored.items)
    return {
        "results": [
            _to_rejected_item(item)
            if isinstance(item, RelayerError)
            else _to_stored_item(next(done))
            for item in items
        ],
        "total": len(items),
        "receipts": shapes.receipts(stored.receipts),
        "other_receipts": shapes.receipts(stored.others),
    }


def draft_of(body: MemoryFields, *, bytes_max: int, now: datetime) -> Draft:
    """Return the draft that a body asks to remember.

    Raises:
        BadRequest, TooLarge: out of range.
    """
    bodies.check_moments(event_time=body.event_time, expires_at=body.expires_at)
    expires_at = whole_ms(body.expires_at)
    if expires_at is not None and expires_at <= now:
        raise BadRequest("expires_at is in the past.")
    has_default_life = expires_at is None and body.kind == "working"
    if has_default_life:
        expires_at = now + timedelta(seconds=Limits.working_life_s)
    return Draft(
        text=bodies.check_text(body.text, bytes_max),
        namespace=bodies.namespace_of(body.namespace),
        kind=body.kind,
        tags=list(dict.fromkeys(body.tags)),
        source=body.source,
        event_time=whole_ms(body.event_time),
        metadata=bodies.check_metadata(body.metadata),
        importance=body.importance,
        confidence=body.confidence,
        expires_at=expires_at,
        has_default_life=has_default_life,
        idempotency_key=body.idempotency_key,
    )


def drafts_of(items: Sequence[MemoryFields], now: datetime) -> list[Draft | RelayerError]:
    """Return a draft for each item, or the error that refuses it."""
    return [_draft_or_refusal(item, now) for item in items]


def _draft_or_refusal(item: MemoryFields, now: datetime) -> Draft | RelayerError:
    try:
        return draft_of(item, bytes_max=Limits.bulk_text_bytes_max, now=now)
    except (BadRequest, TooLarge) as error:
        return error


def _to_stored_item(item: Stored) -> StoredItem:
    """Return the answer for one text that was stored."""
    return {
        "id": str(item.id),
        "status": item.status,
        "namespace": item.namespace,
        "duplicate": item.duplicate,
        "redacted": item.redacted,
    }


def _to_rejected_item(error: RelayerError) -> RejectedItem:
    """Return the answer for one text that was refused."""
    return {"id": None, "status": "rejected", "code": error.code, "message": error.message}


@post("/analyze", status_code=202, opt={WEIGHT: 5, TEXT: True})
async def analyze(
    data: JSONBody[AnalyzeBody],
    caller: NamedDependency[Caller],
    analysis: NamedDependency[Analysis],
    identity: NamedDependency[Identity],
) -> shapes.AnalyzeAnswer:
    """Remember what is worth keeping of a conversation."""
    bodies.check_relayer(data.relayer, identity)
    return shapes.to_analyze_answer(await analysis.analyze(caller, conversation_of(data)))


def conversation_of(body: AnalyzeBody) -> Conversation:
    """Return the conversation that a body asks to analyze.

    Raises:
        BadRequest, TooLarge: out of range.
    """
    bodies.check_moments(occurred_at=body.occurred_at)
    return Conversation(
        text=bodies.check_text(body.text, Limits.analyze_bytes_max),
        namespace=bodies.namespace_of(body.namespace),
        occurred_at=whole_ms(body.occurred_at),
        source=body.source,
        idempotency_key=body.idempotency_key,
    )


@get("/memories")
async def list_memories(
    caller: NamedDependency[Caller],
    memory: NamedDependency[MemoryService],
    accounts: NamedDependency[Accounts],
    recall_counts: NamedDependency[RecallCounts],
    namespace: FromQuery[str | None] = None,
    namespaces: FromQuery[list[str] | None] = None,
    limit: PageLimit = 50,
    cursor: FromQuery[str | None] = None,
    kind: FromQuery[Kind | None] = None,
    tag: FromQuery[list[str] | None] = None,
    source: Annotated[str | None, QueryParameter(max_length=Limits.source_characters_max)] = None,
    writer: Annotated[str | None, QueryParameter(pattern=r"^[0-9a-f]{64}(?!\n)$")] = None,
    after: FromQuery[str | None] = None,
    before: FromQuery[str | None] = None,
    standing: Annotated[Standing, QueryParameter(name="state")] = "active",
    pinned: FromQuery[bool | None] = None,
    never_recalled: FromQuery[bool] = False,
) -> MemoriesAnswer:
    """Return a page of memories, newest first."""
    if never_recalled:
        await recall_counts.settle(caller.access)
    page = await memory.newest(
        caller,
        bodies.namespaces_of(namespace, namespaces),
        before_seq=parse_sequence(cursor),
        limit=limit,
        tags=bodies.tags_of(tag),
        source=source,
        kind=kind,
        writers=None if writer is None else [bytes.fromhex(writer)],
        after=bodies.moment_of(after, "after"),
        before=bodies.moment_of(before, "before"),
        pinned=pinned,
        never_recalled=never_recalled,
        state=standing,
    )
    labels = await accounts.labels(caller.access.account, {m.writer for m in page})
    return {
        "memories": [shapes.to_memory_answer(m, labels) for m in page],
        "next_cursor": None if page.cursor is None else str(page.cursor),
        "unrestored": caller.access.unrestored,
    }


@get("/memories/{memory_id:str}")
async def get_memory(
    memory_id: FromPath[str],
    caller: NamedDependency[Caller],
    memory: NamedDependency[MemoryService],
    histories: NamedDependency[Histories],
    accounts: NamedDependency[Accounts],
    recall_counts: NamedDependency[RecallCounts],
    revision: Annotated[int | None, QueryParameter(ge=1, le=Limits.revisions_max)] = None,
) -> shapes.ReadMemoryAnswer:
    """Return one memory, or an earlier revision of it."""
    wanted = parse_id(memory_id)
    if revision is None:
        found = await memory.get(caller, wanted)
    else:
        found = await histories.revision(caller, wanted, revision)
    labels = await accounts.labels(caller.access.account, [found.writer])
    shape = cast("shapes.ReadMemoryAnswer", shapes.to_memory_answer(found, labels))
    count = await recall_counts.count_of(caller.access, wanted)
    if count is not None:
        shape["recall_count"] = count.times
        shape["last_recalled_on"] = None if count.last_on is None else count.last_on.isoformat()
    return shape


@post("/memories/status", status_code=200)
async def get_memory_status(
    data: JSONBody[StatusBody],
    access: NamedDependency[Access],
    memory: NamedDependency[MemoryService],
) -> StatusAnswer:
    """Return the status of memories: stored and found by keyword, or by vector too."""
    found = await states(access, memory, data.ids)
    short = [one for one in found if is_beginning(one["id"])]
    if short:
        matches = await memory.find_beginning(access, [plain_digits(one["id"]) for one in short])
        for one, ids in zip(short, matches, strict=True):
            one["matches"] = [str(each) for each in ids]
    return {"results": found}


async def states(access: Access, memory: MemoryService, ids: list[str]) -> list[MemoryStatus]:
    """Return one state per id, in order; foreign, absent and malformed ids are all `not_found`."""
    parsed = {text: maybe_id(text) for text in ids}
    found = await memory.states(access, [i for i in parsed.values() if i is not None])
    return [_state(text, None if (i := parsed[text]) is None else found.get(i)) for text in ids]


def _state(text: str, row: Row | None) -> MemoryStatus:
    if row is None:
        return {"id": text, "status": "not_found"}
    status: MemoryStatus = {"id": text, "status": row["state"]}
    if row["extractor"] is not None:
        status["extractor"] = row["extractor"]
    return status


HANDLERS: Final = (remember, remember_bulk, analyze, list_memories, get_memory, get_memory_status)
