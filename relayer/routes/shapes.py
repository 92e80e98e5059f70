"""The JSON shapes that several routes' answers share: memories, facts, namespaces, receipts.

Not here: routes, and the shapes of one route's answers, which stand beside it.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from relayer.clock import rfc3339
from relayer.database.listing import SetAside
from relayer.database.pool import Row
from relayer.memories.conversations import Analyzed
from relayer.memories.recognition import Stored
from relayer.record import Memory
from relayer.recovery.restore import Restored
from relayer.sealed.keys import Namespace
from relayer.sealed.primitives import to_base64, to_base64url


def receipts(signed: Sequence[bytes]) -> list[str]:
    """Signed receipts, base64."""
    return [to_base64(s) for s in signed]


def blob_name(blob_hash: bytes) -> str:
    """The id of a stored blob."""
    return to_base64url(blob_hash)


def id_or_none(value: uuid.UUID | None) -> str | None:
    """An id as text."""
    return None if value is None else str(value)


def memory(m: Memory) -> dict[str, Any]:
    """One memory."""
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


def labelled(m: Memory, labels: Mapping[str, str]) -> dict[str, Any]:
    """One memory, with its writer's label if that has one."""
    shape = memory(m)
    label = labels.get(shape["writer"])
    return shape if label is None else shape | {"writer_label": label}


def analyzed(done: Analyzed) -> dict[str, Any]:
    """What a conversation gave."""
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


def fact(item: Stored) -> dict[str, Any]:
    """One extracted fact."""
    return {
        "id": str(item.id),
        "text": item.text,
        "kind": item.kind,
        "importance": item.importance,
        "confidence": item.confidence,
        "duplicate": item.duplicate,
        "review": item.review,
        "contradicts": [str(i) for i in item.contradicts],
        "superseded": [str(i) for i in item.superseded],
    }


def restored(namespace: Namespace, done: Restored) -> dict[str, Any]:
    """What restoring a namespace did."""
    return {
        "restored": done.restored,
        "skipped": done.skipped,
        "failed": done.failed,
        "total": done.total,
        "truncated": done.truncated,
        "namespace": namespace,
    }


def counts(memories: int, aside: SetAside) -> dict[str, int]:
    """How many memories there are, and how many of these are not recalled."""
    return {
        "memory_count": memories,
        "revision_count": aside.revisions,
        "superseded_count": aside.superseded,
        "pending_count": aside.pending,
        "rejected_count": aside.rejected,
    }


def namespace(row: Row, aside: SetAside) -> dict[str, Any]:
    """One namespace: its newest epoch, all of them, and what is in it."""
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
    }
