"""The JSON shapes that answers share: moments, memories, recall results, receipts.

Not here: routes and MemWal's own shapes.
"""

from collections.abc import Sequence
from typing import Any

from relayer.clock import rfc3339
from relayer.database.pool import Row
from relayer.recall import Found, Recalled
from relayer.recognition import Stored
from relayer.record import Memory
from relayer.sealed.primitives import to_base64, to_base64url


def receipts(signed: Sequence[bytes]) -> list[str]:
    """Signed receipts, base64."""
    return [to_base64(s) for s in signed]


def blob_name(blob_hash: bytes) -> str:
    """The id of a stored blob."""
    return to_base64url(blob_hash)


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
    }


def recalled(answer: Recalled, *, explain: bool) -> dict[str, Any]:
    """What a query found; with a budget, how much of it was used, too."""
    shape = {
        "results": [result(found, explain=explain) for found in answer.found],
        "total": len(answer.found),
        "dropped_count": answer.dropped,
        "degraded": answer.degraded,
    }
    if answer.tokens is not None:
        shape |= {"tokens": answer.tokens, "left_out": answer.left_out}
    return shape


def result(found: Found, *, explain: bool) -> dict[str, Any]:
    """One recalled memory."""
    hit = found.hit
    shape = memory(found.memory) | {"distance": hit.distance, "score": hit.score}
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
                "period": hit.period,
                "recency": hit.recency,
                "importance": hit.importance,
            },
        }
    return shape


def stored(item: Stored) -> dict[str, Any]:
    """What became of one thing to remember."""
    return {
        "id": str(item.id),
        "status": item.status,
        "namespace": item.namespace,
        "duplicate": item.duplicate,
        "redacted": item.redacted,
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
    }


def namespace(row: Row) -> dict[str, Any]:
    """One namespace in one epoch."""
    return {
        "name": row["name"],
        "epoch": row["epoch"],
        "key_id": row["key_id"].hex(),
        "memory_count": row["memory_count"],
        "storage_bytes": row["storage_bytes"],
        "updated_at": rfc3339(row["updated_at"]),
    }
