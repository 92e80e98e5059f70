"""The forms of a memory: the draft a caller sends, the sealed record, the memory a caller gets.

Not here: sealing (`sealed.envelope`), limits on input (`http/bodies.py`), order of steps
(`memories/memory.py`).
"""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from os import urandom
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec

from relayer.clock import from_ms, to_ms
from relayer.sealed.keys import Namespace, PublicKey
from relayer.sealed.primitives import CryptoError, blake2b_128

Kind = Literal[
    "fact", "preference", "decision", "event", "working", "episodic", "semantic", "procedural",
    "summary",
]  # fmt: skip
Importance = Literal["vital", "standard", "trivial"]
Confidence = Literal["high", "medium", "low"]
KINDS: Final = get_args(Kind)
IMPORTANCES: Final = get_args(Importance)  # the greatest first
CONFIDENCES: Final = get_args(Confidence)

ACTIVE: Final = "active"
SUPERSEDED: Final = "superseded"
PENDING_REVIEW: Final = "pending_review"
PENDING: Final = "pending"
REJECTED: Final = "rejected"
CONTRADICTION: Final = "contradiction"
AGAINST: Final = "contradicts"  # metadata: the id of the memory that a fact speaks against
SOURCES: Final = "sources"  # metadata: the ids of what a memory was made of
HELD_BACK: Final = frozenset([PENDING, REJECTED])  # reviews that keep a memory out of recall


class _Said(msgspec.Struct):
    """Members of a record that are passed on as they are: of these types, or it is none."""

    ns: str
    text: str
    kind: str
    tags: list[str]
    source: str | None
    metadata: dict[str, str]
    importance: str
    confidence: str


class UnknownVersion(CryptoError):
    """An authentic record of a later release, which this one cannot read."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """One thing to remember, as a caller sent it, checked and normalised.

    `has_default_life`: nobody asked for `expires_at`, which comes of the kind.
    `turn` is the kept conversation that it was first said in, `said_at` when that was, if not now.
    How it is to be kept is not sealed with it: `same_as` is a memory that says it in other words,
    `contradicts` one that it speaks against, `review` what it is held back for.
    """

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
    has_default_life: bool = False
    turn: uuid.UUID | None = None
    said_at: datetime | None = None
    idempotency_key: str | None = field(default=None, repr=False)
    same_as: "Memory | None" = field(default=None, repr=False)
    contradicts: "Memory | None" = field(default=None, repr=False)
    review: str | None = None

    @property
    def life(self) -> "Life":
        """Return its expiry, and whether that is the default one."""
        return Life(self.expires_at, self.has_default_life)


class Life(NamedTuple):
    """The time for which a memory is kept: for good (None) or until then.

    The end comes of its kind or was asked for.
    """

    expires_at: datetime | None
    is_default: bool

    def outlives(self, other: "Life") -> bool:
        """Return true if it ends later than the other or, at the same moment, was asked for."""
        if self.expires_at is None or other.expires_at is None:
            return self.expires_at is None and other.expires_at is not None
        return (self.expires_at, other.is_default) > (other.expires_at, self.is_default)


@dataclass(frozen=True)
class State:
    """The state of a memory beside its contents.

    Attributes:
        pinned: no rule supersedes, merges or expires it, but an expiry that was asked for does.
        review: `PENDING` and `REJECTED` memories are not recalled, a `CONTRADICTION` is, flagged.
        stale: of this revision; it may no longer hold.
        superseded_at: out of recall since then.
    """

    pinned: bool = False
    review: str | None = None
    stale: bool = False
    superseded_at: datetime | None = None
    superseded_by: uuid.UUID | None = None

    @property
    def name(self) -> str:
        """Return in one word what the memory is listed under."""
        if self.superseded_at is not None:
            return SUPERSEDED
        return {PENDING: PENDING_REVIEW, REJECTED: REJECTED}.get(self.review or "", ACTIVE)


IN_FORCE: Final = State()  # of what was just stored


@dataclass(frozen=True, kw_only=True)
class Memory:
    """One memory, opened. `text` is None for foreign ciphertext.

    `created_at` is when the memory was first stored, `stored_at` when this revision was, `said_at`
    when that was said, if it was not then.
    """

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
    stored_at: datetime
    said_at: datetime | None
    state: State
    seen_count: int
    last_seen_at: datetime | None

    @property
    def last_said_at(self) -> datetime:
        """Return when somebody said so last."""
        said_at = min(self.said_at or self.stored_at, self.stored_at)
        return max(said_at, self.last_seen_at or said_at)


def state_of(row: Mapping[str, Any]) -> State:
    """Return the state that a row of a memory says."""
    return State(
        pinned=row["pinned"],
        review=row["review"],
        stale=row["stale"],
        superseded_at=row["superseded_at"],
        superseded_by=row["superseded_by"],
    )


def encode(
    draft: Draft,
    writer: PublicKey,
    created_at: datetime | None = None,
    *,
    episode: bool = False,
    kept: bool = False,
) -> bytes:
    """Return the record to seal; a later revision also says when the memory was first stored.

    That of an episode says in which zone its time was told, for its days count there, and of one
    that is kept beside its facts that it is.

    Source: SPEC §7.
    """
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
    if draft.has_default_life:
        record["default_life"] = True
    if created_at is not None:
        record["created"] = to_ms(created_at)
    if draft.turn is not None:
        record["turn"] = str(draft.turn)
    if draft.said_at is not None:
        record["said"] = to_ms(draft.said_at)
    if episode and (offset_min := _offset_min(draft.event_time)):
        record["offset"] = offset_min
    if kept:
        record["kept"] = True
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


def _offset_min(moment: datetime | None) -> int:
    """Return minutes east of UTC, of a moment's own zone."""
    offset = None if moment is None else moment.utcoffset()
    return 0 if offset is None else round(offset / timedelta(minutes=1))


def _there(moment: datetime | None, offset_min: int) -> datetime | None:
    """Return a moment in the zone that is so far east of UTC."""
    if moment is None or not offset_min:
        return moment
    return moment.astimezone(timezone(timedelta(minutes=offset_min)))


def decode(record: bytes) -> tuple[Draft, PublicKey]:
    """Return the draft and the writer inside an authenticated record.

    Raises:
        UnknownVersion: of another version than 1.
        CryptoError: not a record.
    """
    try:
        r = _members(record)
        if r["v"] != 1:
            raise UnknownVersion("unknown record version")
        said = msgspec.convert(r, _Said)
        draft = Draft(
            text=said.text,
            namespace=Namespace(said.ns),
            kind=said.kind,
            tags=said.tags,
            source=said.source,
            event_time=_there(from_ms(r["event_time"]), r.get("offset", 0)),
            metadata=said.metadata,
            importance=said.importance,
            confidence=said.confidence,
            expires_at=from_ms(r["expires_at"]),
            has_default_life=r.get("default_life") is True,
            turn=uuid.UUID(r["turn"]) if r.get("turn") else None,
            said_at=from_ms(r.get("said")),
        )
        return draft, PublicKey(bytes.fromhex(r["writer"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise CryptoError("not a record") from None


def first_stored_at(record: bytes) -> datetime | None:
    """Return when a memory was first stored, as a later revision's record says; else None.

    Raises:
        CryptoError: not a record.
    """
    try:
        return from_ms(_members(record).get("created"))
    except (ValueError, TypeError, OverflowError):
        raise CryptoError("not a record") from None


def is_kept(record: bytes) -> bool:
    """Return true if the record of an episode says that it is kept beside its facts.

    Raises:
        CryptoError: not a record.
    """
    return _members(record).get("kept") is True


def _members(record: bytes) -> dict[str, Any]:
    """Return the members of a record.

    Raises:
        CryptoError: not JSON with members, or nested deeper than it can be read.
    """
    try:
        members = msgspec.json.decode(record)
    except (ValueError, RecursionError):
        raise CryptoError("not a record") from None
    if not isinstance(members, dict):
        raise CryptoError("not a record")
    return members


def revision_row_id(memory: uuid.UUID, revision: int) -> uuid.UUID:
    """Return the id of the row that keeps an earlier revision of a memory. Source: SPEC §13."""
    digest = blake2b_128(memory.bytes + revision.to_bytes(4, "big"))
    return _with_version(int.from_bytes(digest, "big"), 8)


def name_when_gone(episode: uuid.UUID) -> uuid.UUID:
    """Return the id under which receipts and tombstones tell that an episode is gone.

    It is its own, or a new one where that is of version 8, from before episodes had random names: a
    fingerprint of what was said. The blob beside it tells which episode it was.
    """
    return new_id() if is_former_name(episode) else episode


def is_former_name(episode: uuid.UUID) -> bool:
    """Return true if an episode's name is no random one; its tombstone has another."""
    return episode.version == 8


def new_id() -> uuid.UUID:
    """Return a UUID of version 7: random, and in order of time."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(urandom(10), "big")
    return _with_version(value, 7)


def _with_version(value: int, version: int) -> uuid.UUID:
    value = value & ~(0xF << 76) | version << 76
    value = value & ~(0x3 << 62) | 2 << 62
    return uuid.UUID(int=value)
