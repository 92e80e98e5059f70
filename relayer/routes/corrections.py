"""Our own routes that correct: edits, history, states, what waits for review.

Not here: what these do (`memories/revisions.py`, `history.py`, `states.py` and `reviews.py`).
"""

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal, TypedDict

import msgspec
from litestar import get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta

from relayer.clock import rfc3339, whole_ms
from relayer.errors import BadRequest
from relayer.http import bodies
from relayer.http.checks import TEXT, WEIGHT
from relayer.journal.states import Change as StateChange
from relayer.memories.history import EVERY_REVISION, Histories, History
from relayer.memories.opener import Caller
from relayer.memories.reviews import Doubtful, Reviewer
from relayer.memories.revisions import Edit, Edited, Reviser
from relayer.memories.states import StateChanger
from relayer.record import REJECTED, Confidence, Importance, Kind, State
from relayer.routes import shapes
from relayer.routes.arguments import PageLimit, parse_id, parse_sequence
from relayer.sealed.keys import Identity
from relayer.sealed.primitives import to_base64
from relayer.settings import Limits
from relayer.tenants.accounts import Access, Accounts

EDITABLE: Final = (
    "text", "kind", "tags", "source", "event_time", "metadata", "importance", "confidence",
    "expires_at",
)  # fmt: skip


class EditBody(bodies.Change):
    """PATCH /v1/memories/{id}: what is not named stays."""

    text: str | msgspec.UnsetType = msgspec.UNSET
    kind: Kind | msgspec.UnsetType = msgspec.UNSET
    tags: Annotated[list[bodies.Tag], Meta(max_length=Limits.tags_max)] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    source: bodies.Source | msgspec.UnsetType | None = msgspec.UNSET
    event_time: bodies.Moment | msgspec.UnsetType | None = msgspec.UNSET
    metadata: bodies.Metadata | msgspec.UnsetType = msgspec.UNSET
    importance: Importance | msgspec.UnsetType = msgspec.UNSET
    confidence: Confidence | msgspec.UnsetType = msgspec.UNSET
    expires_at: bodies.Moment | msgspec.UnsetType | None = msgspec.UNSET
    revision: Annotated[int, Meta(ge=1, le=Limits.revisions_max)] | None = None
    idempotency_key: bodies.IdempotencyKey | None = None


class StateBody(bodies.Change):
    """POST /v1/memories/{id}/state: what is not named stays."""

    pinned: bool | msgspec.UnsetType = msgspec.UNSET
    review: Literal["approved", "rejected"] | msgspec.UnsetType = msgspec.UNSET
    stale: bool | msgspec.UnsetType = msgspec.UNSET
    superseded_by: str | msgspec.UnsetType | None = msgspec.UNSET


class EditAnswer(TypedDict):
    """The revision that a memory has now; `unchanged` where nothing had to be changed."""

    id: shapes.Id
    revision: int
    status: str
    unchanged: bool
    redacted: dict[str, int]
    receipt: shapes.Base64 | None


class LinkAnswer(TypedDict):
    """One link from a memory to another, or to an episode."""

    relation: str
    memory_id: shapes.Id
    other_id: shapes.Id


class HistoryAnswer(TypedDict):
    """A page of a memory's revisions, newest first, and its links."""

    id: shapes.Id
    revisions: list[shapes.MemoryAnswer]
    links: list[LinkAnswer]
    next_cursor: str | None


class StateAnswer(TypedDict):
    """The state of a memory now; without a receipt, it held already."""

    id: shapes.Id
    state: str
    pinned: bool
    review: str | None
    stale: bool
    superseded_at: shapes.Time | None
    superseded_by: shapes.Id | None
    receipt: shapes.Base64 | None


class ReviewedMemory(shapes.MemoryAnswer):
    """A memory that somebody should look at: why, and those that it speaks against."""

    reason: str
    others: list[shapes.MemoryAnswer]


class ReviewAnswer(TypedDict):
    """A page of memories that somebody should look at, newest first."""

    memories: list[ReviewedMemory]
    next_cursor: str | None


@patch("/memories/{memory_id:str}", opt={WEIGHT: 5, TEXT: True})
async def edit_memory(
    memory_id: FromPath[str],
    data: JSONBody[EditBody],
    caller: NamedDependency[Caller],
    reviser: NamedDependency[Reviser],
    identity: NamedDependency[Identity],
) -> EditAnswer:
    """Give a memory a new revision; the one before stays in its history."""
    bodies.check_relayer(data.relayer, identity)
    edit = edit_of(data, caller.access.time)
    return _to_edit_answer(await reviser.edit(caller, parse_id(memory_id), edit))


def edit_of(body: EditBody, now: datetime) -> Edit:
    """Return the edit that a body asks for.

    Raises:
        BadRequest, TooLarge: out of range, or nothing is to change.
    """
    named = {name: getattr(body, name) for name in EDITABLE}
    changes = {name: value for name, value in named.items() if value is not msgspec.UNSET}
    if not changes:
        raise BadRequest("The request names nothing to change.")
    for name in changes.keys() & {"event_time", "expires_at"}:
        changes[name] = whole_ms(changes[name])
    bodies.check_moments(
        event_time=changes.get("event_time"), expires_at=(expires := changes.get("expires_at"))
    )
    if expires is not None and expires <= now:
        raise BadRequest("expires_at is in the past.")
    if "text" in changes:
        changes["text"] = bodies.check_text(changes["text"], Limits.text_bytes_max)
    if "metadata" in changes:
        changes["metadata"] = bodies.check_metadata(changes["metadata"])
    if "tags" in changes:
        changes["tags"] = list(dict.fromkeys(changes["tags"]))
    return Edit(changes=changes, revision=body.revision, idempotency_key=body.idempotency_key)


def _to_edit_answer(done: Edited) -> EditAnswer:
    """Return the answer for an edit."""
    return {
        "id": str(done.id),
        "revision": done.revision,
        "status": done.status,
        "unchanged": done.receipt is None,
        "redacted": done.redacted,
        "receipt": None if done.receipt is None else to_base64(done.receipt),
    }


@get("/memories/{memory_id:str}/history")
async def get_memory_history(
    memory_id: FromPath[str],
    caller: NamedDependency[Caller],
    histories: NamedDependency[Histories],
    accounts: NamedDependency[Accounts],
    cursor: FromQuery[str | None] = None,
) -> HistoryAnswer:
    """Return a memory's revisions, newest first, and what it is linked to."""
    before = min(parse_sequence(cursor), EVERY_REVISION)
    found = await histories.history(caller, parse_id(memory_id), before=before)
    labels = await accounts.labels(caller.access.account, {m.writer for m in found.revisions})
    return _history(found, labels)


def _history(found: History, labels: Mapping[str, str]) -> HistoryAnswer:
    """Return a page of a memory's revisions, and its links."""
    return {
        "id": str(found.id),
        "revisions": [shapes.to_memory_answer(m, labels) for m in found.revisions],
        "links": [
            {
                "relation": link.relation,
                "memory_id": str(link.memory_id),
                "other_id": str(link.other_id),
            }
            for link in found.links
        ],
        "next_cursor": None if found.cursor is None else str(found.cursor),
    }


@post("/memories/{memory_id:str}/state", status_code=200, opt={WEIGHT: 3})
async def set_memory_state(
    memory_id: FromPath[str],
    data: JSONBody[StateBody],
    access: NamedDependency[Access],
    state_changer: NamedDependency[StateChanger],
    identity: NamedDependency[Identity],
) -> StateAnswer:
    """Pin a memory, approve or reject it, call it stale, supersede it or bring it back."""
    bodies.check_relayer(data.relayer, identity)
    wanted = parse_id(memory_id)
    state, receipt = await state_changer.set_state(access, wanted, change_of(data))
    return _state(wanted, state, receipt)


def change_of(body: StateBody) -> StateChange:
    """Return the change of state that a body asks for; `superseded_by` may still name nobody.

    Raises:
        BadRequest: nothing is to change.
        NotFound: `superseded_by` cannot be an id.
    """
    change = StateChange()
    if body.pinned is not msgspec.UNSET:
        change["pinned"] = body.pinned
    if body.review is not msgspec.UNSET:
        change["review"] = REJECTED if body.review == "rejected" else None
    if body.stale is not msgspec.UNSET:
        change["stale"] = body.stale
    if body.superseded_by is not msgspec.UNSET:
        by = body.superseded_by
        change["superseded_by"] = None if by is None else parse_id(by)
    if not change:
        raise BadRequest("The request names nothing to change.")
    return change


def _state(memory_id: uuid.UUID, now: State, receipt: bytes | None) -> StateAnswer:
    """Return the answer for a memory's state now."""
    return {
        "id": str(memory_id),
        "state": now.name,
        "pinned": now.pinned,
        "review": now.review,
        "stale": now.stale,
        "superseded_at": rfc3339(now.superseded_at),
        "superseded_by": shapes.id_or_none(now.superseded_by),
        "receipt": None if receipt is None else to_base64(receipt),
    }


@get("/review")
async def list_review(
    caller: NamedDependency[Caller],
    reviewer: NamedDependency[Reviewer],
    accounts: NamedDependency[Accounts],
    namespace: FromQuery[str | None] = None,
    namespaces: FromQuery[list[str] | None] = None,
    limit: PageLimit = 50,
    cursor: FromQuery[str | None] = None,
) -> ReviewAnswer:
    """Return a page of memories that somebody should look at, newest first."""
    page = await reviewer.list_doubtful(
        caller,
        bodies.namespaces_of(namespace, namespaces),
        before_seq=parse_sequence(cursor),
        limit=limit,
    )
    shown = [m for found in page for m in (found.memory, *found.others)]
    labels = await accounts.labels(caller.access.account, {m.writer for m in shown})
    return {
        "memories": [_doubtful(found, labels) for found in page],
        "next_cursor": None if page.cursor is None else str(page.cursor),
    }


def _doubtful(found: Doubtful, labels: Mapping[str, str]) -> ReviewedMemory:
    """Return a memory that waits to be looked at."""
    return {
        **shapes.to_memory_answer(found.memory, labels),
        "reason": found.reason,
        "others": [shapes.to_memory_answer(m, labels) for m in found.others],
    }


HANDLERS: Final = (edit_memory, get_memory_history, set_memory_state, list_review)
