"""Which drafts of a write are new, which were said before, and what is answered for each; pure.

Not here: looking things up and storing them (`writer.py`).

- A draft is recognised by its idempotency key first, then by what it says, under each live epoch.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from relayer.accounts import Access
from relayer.database import memories as rows
from relayer.database.pool import Row
from relayer.errors import Conflict
from relayer.namespaces import NamespaceEntry
from relayer.record import Draft
from relayer.sealed import index
from relayer.sealed.keys import Namespace, NamespaceKey


@dataclass(frozen=True)
class Stored:
    """What became of one draft."""

    id: uuid.UUID
    namespace: Namespace
    text: str = field(repr=False)
    kind: str
    importance: str
    confidence: str
    duplicate: bool
    status: str
    redacted: dict[str, int]


@dataclass(frozen=True)
class Prepared:
    """A draft with everything that can be known about it before looking at what is stored.

    Attributes:
        fingerprints: newest epoch first; the first is the one to store.
        marks: (mark, text mark) of its idempotency key, newest epoch first.
    """

    draft: Draft
    key: NamespaceKey
    entry: NamespaceEntry
    fingerprints: Sequence[bytes]
    marks: Sequence[tuple[bytes, bytes]]
    redacted: dict[str, int]


@dataclass(frozen=True)
class Known:
    """What the account already has of a request: draft number → memory, and whether embedded."""

    found: dict[int, tuple[uuid.UUID, bool]]
    marked: frozenset[int]
    outlived: Sequence[uuid.UUID]


def idempotency_marks(
    access: Access,
    epochs: Sequence[NamespaceKey],
    caller_key: str | None,
    text: str,
    *,
    route: str,
    item: int,
) -> list[tuple[bytes, bytes]]:
    """(mark, text mark) of a caller's key under each epoch, newest first; none without a key."""
    if caller_key is None:
        return []
    return [
        (
            index.idempotency_mark(
                key, writer=access.key, route=route, item=item, caller_key=caller_key
            ),
            index.text_mark(key, text),
        )
        for key in epochs
    ]


def marked_memory(marks: Sequence[tuple[bytes, bytes]], stored: Mapping[bytes, Row]) -> Row | None:
    """The memory that an idempotency key led to before, as `find_marks` gives it.

    Raises:
        Conflict: it came with another text then.
    """
    for mark, text_mark in marks:
        if mark in stored:
            if stored[mark]["text_mark"] != text_mark:
                raise Conflict(
                    "That idempotency key was used with another text.",
                    code="idempotency.conflict",
                )
            return stored[mark]
    return None


def outlives(draft: Draft, expires_at: datetime | None) -> bool:
    """Whether a draft is to be kept longer than the equal memory that expires then."""
    if expires_at is None:
        return False
    return draft.expires_at is None or draft.expires_at > expires_at


def first_of_each(prepared: Sequence[Prepared], known: Known) -> list[int]:
    """Numbers of the drafts to store: unknown ones, and of equal ones the first."""
    first: dict[tuple[int, bytes], int] = {}
    for n, p in enumerate(prepared):
        if n not in known.found:
            first.setdefault((p.entry.namespace_id, p.fingerprints[0]), n)
    return sorted(first.values())


def outcomes(
    prepared: Sequence[Prepared], memories: dict[int, rows.NewMemory], known: Known
) -> list[Stored]:
    """What became of each draft, in their order."""
    by_fact = {
        (prepared[n].entry.namespace_id, prepared[n].fingerprints[0]): m.memory_id
        for n, m in memories.items()
    }
    stored = []
    for n, p in enumerate(prepared):
        fact = (p.entry.namespace_id, p.fingerprints[0])
        memory_id, embedded = known.found.get(n) or (by_fact[fact], False)
        stored.append(
            Stored(
                id=memory_id,
                namespace=p.draft.namespace,
                text=p.draft.text,
                kind=p.draft.kind,
                importance=p.draft.importance,
                confidence=p.draft.confidence,
                duplicate=n not in memories,
                status="done" if embedded else "uploaded",
                redacted=p.redacted,
            )
        )
    return stored


def new_marks(
    prepared: Sequence[Prepared], memories: dict[int, rows.NewMemory], known: Known
) -> list[rows.Mark]:
    """Marks for every draft with an idempotency key that was not seen before."""
    ids = [s.id for s in outcomes(prepared, memories, known)]
    return [
        rows.Mark(*p.marks[0], ids[n])
        for n, p in enumerate(prepared)
        if p.marks and n not in known.marked
    ]
