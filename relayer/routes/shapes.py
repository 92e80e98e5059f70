"""The JSON shapes that several routes' answers share: memories, facts, namespaces, receipts.

Not here: routes, and the shapes of one route's answers, which stand beside it.

- Every answer is a plain dictionary, made once. Its type is a `TypedDict`: mypy holds the code to
  it, and the OpenAPI document is made of it.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, NotRequired, TypedDict

from msgspec import Meta

from relayer.clock import rfc3339
from relayer.database.listing import SetAside
from relayer.database.pool import Row
from relayer.memories.conversations import Analyzed
from relayer.memories.recognition import Stored
from relayer.record import Memory
from relayer.recovery.restore import Restored
from relayer.sealed.keys import Namespace
from relayer.sealed.primitives import to_base64, to_base64url

_UUID: Final = Meta(extra_json_schema={"format": "uuid"})
_TIME: Final = Meta(extra_json_schema={"format": "date-time"})
_DAY: Final = Meta(extra_json_schema={"format": "date"})
_BASE64: Final = Meta(extra_json_schema={"contentEncoding": "base64"})
Id = Annotated[str, _UUID]
Time = Annotated[str, _TIME]  # RFC 3339, UTC
Day = Annotated[str, _DAY]  # of UTC
Base64 = Annotated[str, _BASE64]
Hex = Annotated[str, Meta(pattern="^[0-9a-f]*$")]


class MemoryAnswer(TypedDict):
    """One memory. `text` is null for what a client sealed by itself."""

    id: Id
    blob_id: str
    namespace: str
    text: str | None
    kind: str
    tags: list[str]
    source: str | None
    event_time: Time | None
    metadata: dict[str, str]
    importance: str
    confidence: str
    writer: Hex
    created_at: Time
    expires_at: Time | None
    revision: int
    seq: int
    status: str
    updated_at: Time
    state: str
    pinned: bool
    review: str | None
    stale: bool
    superseded_at: Time | None
    superseded_by: Id | None
    seen_count: int
    last_seen_at: Time | None
    writer_label: NotRequired[str]


class ReadMemoryAnswer(MemoryAnswer):
    """One memory; where the account counts recalls, how often and when it was recalled, too."""

    recall_count: NotRequired[int]
    last_recalled_on: NotRequired[Day | None]


class FactAnswer(TypedDict):
    """One extracted fact, and what it did to other memories."""

    id: Id
    text: str
    kind: str
    event_time: Time | None
    importance: str
    confidence: str
    duplicate: bool
    review: str | None
    contradicts: list[Id]
    superseded: list[Id]


class AnalyzeAnswer(TypedDict):
    """The facts of a conversation, or the episode that waits for them."""

    episode_id: Id | None
    turn_id: Id | None
    facts: list[FactAnswer]
    fact_count: int
    reinforced: list[Id]
    status: str
    extractor: str | None
    failure: str | None
    redacted: dict[str, int]
    receipts: list[Base64]
    other_receipts: list[Base64]
    problem: str | None


class RestoreAnswer(TypedDict):
    """Numbers of blobs of a namespace whose rows were restored, skipped or failed."""

    restored: int
    skipped: int
    failed: int
    total: int
    truncated: bool
    namespace: str


class CountsAnswer(TypedDict):
    """The number of memories, and the numbers of those that are not recalled."""

    memory_count: int
    revision_count: int
    superseded_count: int
    pending_count: int
    rejected_count: int


class EpochAnswer(TypedDict):
    """The id of a namespace's key in one epoch."""

    epoch: int
    key_id: Hex


class NamespaceAnswer(CountsAnswer):
    """One namespace: its newest epoch, all of them, and how much is in it."""

    name: str
    epoch: int
    key_id: Hex
    epochs: list[EpochAnswer]
    storage_bytes: int
    index_bytes: int
    updated_at: Time
    ttl_s: int | None
    index: Literal["searchable", "sealed"]
    index_moves: bool


class ForgetAnswer(TypedDict):
    """The number of memories erased or matched, and the first hundred ids."""

    matched: int
    erased: int
    more: bool
    pending: bool
    ids: list[Id]
    receipts: list[Base64]


def receipts(signed: Sequence[bytes]) -> list[str]:
    """Return signed receipts, base64."""
    return [to_base64(s) for s in signed]


def blob_name(blob_hash: bytes) -> str:
    """Return the id of a stored blob."""
    return to_base64url(blob_hash)


def id_or_none(value: uuid.UUID | None) -> str | None:
    """Return an id as text."""
    return None if value is None else str(value)


def memory(m: Memory) -> MemoryAnswer:
    """Return one memory."""
    return {
        "id": str(m.id),
        "blob_id": m.blob_id,
        "namespace": m.namespace,
        "text": m.text,
        "kind": m.kind,
        "tags": list(m.tags),
        "source": m.source,
        "event_time": rfc3339(m.event_time),
        "metadata": dict(m.metadata),
        "importance": m.importance,
        "confidence": m.confidence,
        "writer": m.writer.hex(),
        "created_at": rfc3339(m.created_at),
        "expires_at": rfc3339(m.expires_at),
        "revision": m.revision,
        "seq": m.seq,
        "status": m.status,
        "updated_at": rfc3339(m.stored_at),
        "state": m.state.name,
        "pinned": m.state.pinned,
        "review": m.state.review,
        "stale": m.state.stale,
        "superseded_at": rfc3339(m.state.superseded_at),
        "superseded_by": id_or_none(m.state.superseded_by),
        "seen_count": m.seen_count,
        "last_seen_at": rfc3339(m.last_seen_at),
    }


def to_memory_answer(m: Memory, labels: Mapping[str, str]) -> MemoryAnswer:
    """Return one memory, with its writer's label if that has one."""
    shape = memory(m)
    label = labels.get(shape["writer"])
    if label is not None:
        shape["writer_label"] = label
    return shape


def to_analyze_answer(done: Analyzed) -> AnalyzeAnswer:
    """Return the answer for an analyzed conversation."""
    return {
        "episode_id": id_or_none(done.pending),
        "turn_id": id_or_none(done.kept),
        "facts": [fact(item) for item in done.facts],
        "fact_count": len(done.facts),
        "reinforced": [str(i) for i in done.reinforced],
        "status": "done" if done.pending is None else "pending",
        "extractor": done.extractor,
        "failure": done.failure,
        "redacted": done.redacted,
        "receipts": receipts(done.receipts),
        "other_receipts": receipts(done.others),
        "problem": done.problem,
    }


def fact(item: Stored) -> FactAnswer:
    """Return one extracted fact."""
    return {
        "id": str(item.id),
        "text": item.text,
        "kind": item.kind,
        "event_time": rfc3339(item.event_time),
        "importance": item.importance,
        "confidence": item.confidence,
        "duplicate": item.duplicate,
        "review": item.review,
        "contradicts": [str(i) for i in item.contradicts],
        "superseded": [str(i) for i in item.superseded],
    }


def to_restore_answer(namespace: Namespace, done: Restored) -> RestoreAnswer:
    """Return the answer for a restored namespace."""
    return {
        "restored": done.restored,
        "skipped": done.skipped,
        "failed": done.failed,
        "total": done.total,
        "truncated": done.truncated,
        "namespace": namespace,
    }


def counts(memories: int, aside: SetAside) -> CountsAnswer:
    """Return the number of memories, and the numbers of those that are not recalled."""
    return {
        "memory_count": memories,
        "revision_count": aside.revisions,
        "superseded_count": aside.superseded,
        "pending_count": aside.pending,
        "rejected_count": aside.rejected,
    }


def namespace(row: Row, aside: SetAside) -> NamespaceAnswer:
    """Return one namespace: its newest epoch, all of them, and what is in it."""
    epochs = zip(row["epochs"], row["key_ids"], strict=True)
    return {
        "name": row["name"],
        "epoch": row["epochs"][0],
        "key_id": row["key_ids"][0].hex(),
        "epochs": [{"epoch": epoch, "key_id": key_id.hex()} for epoch, key_id in epochs],
        **counts(row["memory_count"], aside),
        "storage_bytes": row["storage_bytes"],
        "index_bytes": row["index_bytes"],
        "updated_at": rfc3339(row["updated_at"]),
        "ttl_s": row["ttl_s"],
        "index": "sealed" if row["sealed_index"] else "searchable",
        "index_moves": row["index_moves"],
    }
