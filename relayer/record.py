"""What a memory says: the draft a caller sends, the sealed record, the memory a caller gets.

Not here: sealing (`sealed.envelope`), limits on input (`bodies.py`), order of steps (`memory.py`).
"""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from os import urandom
from typing import Any, Literal

from relayer.clock import from_ms, to_ms
from relayer.sealed.keys import Namespace, PublicKey
from relayer.sealed.primitives import CryptoError

Kind = Literal[
    "fact", "preference", "decision", "event", "working", "episodic", "semantic", "procedural",
    "summary",
]  # fmt: skip
Importance = Literal["vital", "standard", "trivial"]
Confidence = Literal["high", "medium", "low"]


class UnknownVersion(CryptoError):
    """An authentic record of a later release, which this one cannot read."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """One thing to remember, as a caller sent it, checked and normalised."""

    text: str = field(repr=False)
    namespace: Namespace
    kind: str = "fact"
    tags: Sequence[str] = field(default=(), repr=False)
    source: str | None = field(default=None, repr=False)
    event_time: datetime | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    importance: str = "standard"
    confidence: str = "high"
    expires_at: datetime | None = None
    idempotency_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """One memory, opened. `text` is None for foreign ciphertext."""

    id: uuid.UUID
    blob_id: str
    namespace: str
    text: str | None = field(repr=False)
    kind: str
    tags: Sequence[str] = field(repr=False)
    source: str | None = field(repr=False)
    event_time: datetime | None
    metadata: Mapping[str, str] = field(repr=False)
    importance: str
    confidence: str
    writer: PublicKey
    created_at: datetime
    expires_at: datetime | None
    revision: int
    seq: int
    status: str


def encode(draft: Draft, writer: PublicKey) -> bytes:
    """The record that is sealed. Source: SPEC §7."""
    record = {
        "v": 1,
        "ns": draft.namespace,
        "text": draft.text,
        "kind": draft.kind,
        "tags": list(draft.tags),
        "source": draft.source,
        "event_time": to_ms(draft.event_time),
        "metadata": dict(draft.metadata),
        "importance": draft.importance,
        "confidence": draft.confidence,
        "writer": writer.hex(),
        "expires_at": to_ms(draft.expires_at),
    }
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


def decode(record: bytes) -> tuple[Draft, PublicKey]:
    """The draft and the writer inside an authenticated record.

    Raises:
        UnknownVersion: of another version than 1.
        CryptoError: not a record.
    """
    try:
        r: dict[str, Any] = json.loads(record)
        if r["v"] != 1:
            raise UnknownVersion("unknown record version")
        draft = Draft(
            text=r["text"],
            namespace=Namespace(r["ns"]),
            kind=r["kind"],
            tags=r["tags"],
            source=r["source"],
            event_time=from_ms(r["event_time"]),
            metadata=r["metadata"],
            importance=r["importance"],
            confidence=r["confidence"],
            expires_at=from_ms(r["expires_at"]),
        )
        return draft, PublicKey(bytes.fromhex(r["writer"]))
    except (ValueError, KeyError, TypeError):
        raise CryptoError("not a record") from None


def new_id() -> uuid.UUID:
    """A UUID of version 7: random, and in order of time."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(urandom(10), "big")
    value = value & ~(0xF << 76) | 7 << 76
    value = value & ~(0x3 << 62) | 2 << 62
    return uuid.UUID(int=value)
