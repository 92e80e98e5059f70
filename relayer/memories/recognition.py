"""Recognition of drafts that are new or were said before, and the answer for each; pure.

Not here: looking things up (`intake.py`), storing them (`writer.py`).

- A draft is recognised by its idempotency key first, then by what it says, under each live epoch.
- What is known and said again for longer stays the same memory, and lives longer.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from relayer.database import memories as rows
from relayer.database.pool import Row
from relayer.errors import Conflict
from relayer.journal.states import Change
from relayer.record import REJECTED, Draft, Life, Memory
from relayer.sealed import index
from relayer.sealed.keys import Namespace, NamespaceKey
from relayer.tenants.accounts import Access
from relayer.tenants.namespaces import NamespaceEntry


@dataclass(frozen=True)
class Stored:
    """The outcome for one draft."""

    id: uuid.UUID
    namespace: Namespace
    text: str = field(repr=False)
    kind: str
    importance: str
    confidence: str
    duplicate: bool
    status: str
    redacted: dict[str, int]
    review: str | None = None
    contradicts: Sequence[uuid.UUID] = ()
    superseded: Sequence[uuid.UUID] = ()
    event_time: datetime | None = None


@dataclass(frozen=True)
class Same:
    """A memory that says the same as a draft; it has no kind where it was erased since."""

    id: uuid.UUID
    embedded: bool
    kind: str | None
    importance: str
    confidence: str
    review: str | None

    @classmethod
    def of_row(cls, row: Row) -> "Same":
        """Return the match that a row of `find_facts` or `find_marks` stands for."""
        said = row["kind"], row["importance"], row["confidence"], row["review"]
        return cls(row["memory_id"], row["embedded"], *said)

    @classmethod
    def of(cls, memory: Memory) -> "Same":
        """Return the match that a memory stands for, which says the same in other words."""
        said = memory.kind, memory.importance, memory.confidence, memory.state.review
        return cls(memory.id, memory.status == "done", *said)


@dataclass(frozen=True)
class Prepared:
    """A draft with everything that can be known about it before looking at what is stored.

    Attributes:
        source: the token of its source.
        fingerprints: newest epoch first; the first is the one to store.
        other_kinds: fingerprints of the text as any other kind: what was rejected stays rejected
            whatever kind it is said as.
        marks: (mark, text mark) of its idempotency key, newest epoch first.
    """

    draft: Draft
    key: NamespaceKey
    entry: NamespaceEntry
    fingerprints: Sequence[bytes]
    marks: Sequence[tuple[bytes, bytes]]
    redacted: dict[str, int]
    source: int | None = None
    other_kinds: Sequence[bytes] = ()


@dataclass(frozen=True)
class Known:
    """The drafts of a request that the account already has: draft number → memory.

    Attributes:
        marked: numbers of drafts that an earlier request with their idempotency key brought.
        expired: memories that say the same, but have expired.
        longer: memories that say the same → how long they are to be kept now.
        facts: number of a draft that was said before, in another request → the memory's row.
    """

    found: dict[int, Same]
    marked: frozenset[int]
    expired: Sequence[uuid.UUID]
    longer: Mapping[uuid.UUID, Life] = field(default_factory=dict)
    facts: Mapping[int, Row] = field(default_factory=dict)

    def revisions(self, prepared: Sequence[Prepared]) -> dict[uuid.UUID, int]:
        """Return the memories that say the same as a draft → the revision that does."""
        by_fact = {row["memory_id"]: row["revision"] for row in self.facts.values()}
        alike = [p.draft.same_as for n, p in enumerate(prepared) if self._is_alike(n)]
        return {m.id: m.revision for m in alike if m is not None} | by_fact

    def _is_alike(self, n: int) -> bool:
        """Return true if a draft was recognised in other words than its own."""
        return n in self.found and n not in self.marked and n not in self.facts


def idempotency_marks(
    access: Access,
    epochs: Sequence[NamespaceKey],
    caller_key: str | None,
    text: str,
    *,
    route: str,
    item: int,
) -> list[tuple[bytes, bytes]]:
    """Return (mark, text mark) of a caller's key under each epoch, newest first; none without."""
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
    """Return the memory that an idempotency key led to before, as `find_marks` gives it.

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


def outlives(one: datetime | None, other: datetime | None) -> bool:
    """Return true if the one expiry, as given, comes after the other; none is for ever."""
    return other is not None and (one is None or one > other)


def recognise(
    prepared: Sequence[Prepared],
    facts: Mapping[bytes, Row],
    marked: Mapping[bytes, Row],
    now: datetime,
) -> Known:
    """Recognise the drafts that came before, by the rows of their fingerprints and marks.

    Raises:
        Conflict: an idempotency key came back with another text.
    """
    own = {fingerprint for p in prepared for fingerprint in p.fingerprints}
    living = {f: r for f, r in facts.items() if outlives(r["expires_at"], now)}
    expired = {r["memory_id"] for f, r in facts.items() if f in own and f not in living}
    found: dict[int, Same] = {}
    by_mark, by_fact, alike = set(), {}, {}
    for n, p in enumerate(prepared):
        if (row := marked_memory(p.marks, marked)) is not None:
            found[n] = Same.of_row(row)
            by_mark.add(n)
        elif (row := _said_before(p, living)) is not None:
            by_fact[n] = row
            found[n] = Same.of_row(row)
        if n not in found and (same := p.draft.same_as) is not None and same.id not in expired:
            found[n] = Same.of(same)
            if same.expires_at is not None:
                # By what it was given or by its namespace: where nothing changes, nothing happens.
                alike[same.id] = p.draft.life
    longer = alike | _longer(prepared, by_fact)
    return Known(found, frozenset(by_mark), sorted(expired), longer, by_fact)


def _said_before(p: Prepared, living: Mapping[bytes, Row]) -> Row | None:
    """Return the memory that says a draft, or was rejected as another kind of the same words."""
    same = [living[f] for f in p.fingerprints if f in living]
    others = [living[f] for f in p.other_kinds if f in living]
    return next(iter([*same, *(r for r in others if r["review"] == REJECTED)]), None)


def _longer(prepared: Sequence[Prepared], by_fact: Mapping[int, Row]) -> dict[uuid.UUID, Life]:
    """Return known memories that are to be kept longer than they were given."""
    given = {
        row["memory_id"]: Life(row["given_expires_at"], row["has_default_life"])
        for row in by_fact.values()
    }
    longest = dict(given)
    for n, row in by_fact.items():
        if prepared[n].draft.life.outlives(longest[row["memory_id"]]):
            longest[row["memory_id"]] = prepared[n].draft.life
    return {memory: life for memory, life in longest.items() if life != given[memory]}


def without_same(p: Prepared, gone: Collection[uuid.UUID]) -> Prepared:
    """Return a draft taken for the same as a memory, without that if the memory is gone."""
    if p.draft.same_as is None or p.draft.same_as.id not in gone:
        return p
    return replace(p, draft=replace(p.draft, same_as=None))


def first_of_each(prepared: Sequence[Prepared], known: Known) -> dict[int, Prepared]:
    """Return number → draft to store: unknown ones, and of equal ones the first.

    It is stored as long as any of them is to be kept.
    """
    first: dict[tuple[int, bytes], int] = {}
    fresh: dict[int, Prepared] = {}
    for n, p in enumerate(prepared):
        if n in known.found:
            continue
        own = first.setdefault((p.entry.namespace_id, p.fingerprints[0]), n)
        standing = fresh.setdefault(own, p)
        if p.draft.life.outlives(standing.draft.life):
            expires_at, is_default = p.draft.life
            longer = replace(standing.draft, expires_at=expires_at, has_default_life=is_default)
            fresh[own] = replace(standing, draft=longer)
    return fresh


def find_said_elsewhere(prepared: Sequence[Prepared], known: Known) -> list[uuid.UUID]:
    """Return memories that were said once more: not merely once more in the same conversation.

    A long conversation is analyzed window by window, each with what the one before it had.
    """
    said = []
    for n, p in enumerate(prepared):
        row, same = known.facts.get(n), p.draft.same_as
        if row is not None and (p.source is None or p.source != _source_of(p, row)):
            said.append(row["memory_id"])
        if row is None and same is not None and n not in known.marked:
            source = p.draft.source
            said += [same.id] if source is None or source != same.source else []
    return said


def _source_of(p: Prepared, row: Row) -> int | None:
    """Return the token of the source of the memory that says a draft, as the draft's key has it."""
    source: int | None = row["source"]
    return index.mask_source(p.key, row["memory_id"], source) if row["has_record"] else source


def outcomes(
    prepared: Sequence[Prepared],
    memories: dict[int, rows.NewMemory],
    known: Known,
    changes: Mapping[uuid.UUID, Change] | None = None,
) -> list[Stored]:
    """Return the outcome for each draft, in their order; for a recognised one, its memory."""
    changes = changes or {}
    by_fact = {
        (prepared[n].entry.namespace_id, prepared[n].fingerprints[0]): Same(
            m.memory_id, False, m.kind, m.importance, m.confidence, None
        )
        for n, m in memories.items()
    }
    stored = []
    for n, p in enumerate(prepared):
        fact = (p.entry.namespace_id, p.fingerprints[0])
        same = known.found.get(n) or by_fact[fact]
        said = p.draft if same.kind is None else same
        stored.append(
            Stored(
                id=same.id,
                namespace=p.draft.namespace,
                text=p.draft.text,
                kind=said.kind or p.draft.kind,
                importance=said.importance,
                confidence=said.confidence,
                duplicate=n not in memories,
                status="done" if same.embedded else "uploaded",
                redacted=p.redacted,
                review=changes.get(same.id, {}).get("review", same.review),
                contradicts=[p.draft.contradicts.id] if p.draft.contradicts else [],
                superseded=[i for i, c in changes.items() if c.get("superseded_by") == same.id],
                event_time=p.draft.event_time,
            )
        )
    return stored


def new_marks(
    prepared: Sequence[Prepared], memories: dict[int, rows.NewMemory], known: Known
) -> list[rows.Mark]:
    """Return marks for every draft with an idempotency key that was not seen before."""
    ids = [s.id for s in outcomes(prepared, memories, known)]
    return [
        rows.Mark(*p.marks[0], ids[n])
        for n, p in enumerate(prepared)
        if p.marks and n not in known.marked
    ]
