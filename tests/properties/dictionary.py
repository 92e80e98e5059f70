"""What must be so of an account's memories, in a plain dictionary that knows SPEC's rules.

Not here: what is done to the memories (`walk.py`), and what the product shows (`looking.py`).
"""

import unicodedata
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from relayer.record import ACTIVE, HELD_BACK, KINDS, PENDING, PENDING_REVIEW, REJECTED, SUPERSEDED
from relayer.sealed.keys import Namespace

# Of what memories speak, and what they are tagged with.
WHO = ("otter", "heron", "badger", "Zoë")
WHAT = ("granite", "velvet", "cinnamon")
TAGS = ("river", "attic")


def canonical(text: str) -> str:
    """What makes two texts the same fact."""
    return " ".join(unicodedata.normalize("NFC", text).split())


# Where, its kind, what it says and of when: no two memories have the same.
Fact = tuple[Namespace, str, str, datetime | None]


@dataclass(frozen=True)
class Revision:
    """What a memory said from a time on."""

    text: str | None  # None of a manual upload
    tags: tuple[str, ...]
    since: datetime


@dataclass
class Kept:
    """A memory that was not erased; `over` when its time has come, whatever is changed then."""

    namespace: Namespace
    revisions: list[Revision]
    given_end: datetime | None
    kind: str = "fact"
    happened: datetime | None = None
    pinned: bool = False
    stale: bool = False
    superseded_at: datetime | None = None
    superseded_by: uuid.UUID | None = None
    review: str | None = None
    upload: str | None = None  # the name of its bytes
    seen: int = 1
    over: bool = False
    made_of: frozenset[uuid.UUID] = frozenset()  # a summary's episodes

    @property
    def now(self) -> Revision:
        return self.revisions[-1]

    @property
    def fact(self) -> Fact | None:
        """What no other memory is to say; nothing of an upload."""
        if self.now.text is None:
            return None
        return self.namespace, self.kind, canonical(self.now.text), self.happened

    @property
    def is_own(self) -> bool:
        """Whether somebody cared for it since a run made it: its sources' end is not its own."""
        return self.pinned or len(self.revisions) > 1 or self.seen > 1

    @property
    def in_force(self) -> bool:
        return not self.over and self.state == ACTIVE

    @property
    def state(self) -> str:
        if self.superseded_at is not None:
            return SUPERSEDED
        return {PENDING: PENDING_REVIEW, REJECTED: REJECTED}.get(self.review or "", ACTIVE)

    def said_again(self, until: datetime | None) -> None:
        """Count that somebody says it outright, to be kept until then: it waits no longer."""
        self.seen += 1
        if self.review == PENDING:
            self.review = None
        if self.given_end is not None and (until is None or until > self.given_end):
            self.given_end = until

    def at(self, moment: datetime) -> Revision | None:
        """What could have been recalled of it then."""
        if self.review in HELD_BACK:
            return None
        if self.superseded_at is not None and self.superseded_at <= moment:
            return None
        return next((r for r in reversed(self.revisions) if r.since <= moment), None)


@dataclass
class Turn:
    """A conversation that is kept; `facts` are what it said and lives, whoever said it first."""

    namespace: Namespace
    text: str
    since: datetime
    facts: set[uuid.UUID]
    own: set[uuid.UUID]  # those that it was the first to say
    too_old: bool = False
    over: bool = False  # too old, or anything that it said is over


@dataclass
class Run:
    """A consolidation that ended, and what it did, in order."""

    id: uuid.UUID
    at: datetime
    done: list[tuple[str, uuid.UUID, list[uuid.UUID]]]


@dataclass
class Dictionary:
    """What must be so; `merged` are pairs of a memory that was kept and one that said the same,
    `against` those of a newer one and one that it speaks against."""

    memories: dict[uuid.UUID, Kept] = field(default_factory=dict)
    turns: dict[uuid.UUID, Turn] = field(default_factory=dict)
    erased: set[uuid.UUID] = field(default_factory=set)
    strays: set[str] = field(default_factory=set)  # names of bytes that nothing refers to
    ttl_s: dict[Namespace, int] = field(default_factory=dict)
    merged: set[tuple[uuid.UUID, uuid.UUID]] = field(default_factory=set)
    against: set[tuple[uuid.UUID, uuid.UUID]] = field(default_factory=set)
    runs: list[Run] = field(default_factory=list)

    def end(self, kept: Kept) -> datetime | None:
        """When a memory's time is over."""
        ttl_s = self.ttl_s.get(kept.namespace)
        if kept.pinned or ttl_s is None:
            return kept.given_end
        aged = kept.revisions[0].since + timedelta(seconds=ttl_s)
        return aged if kept.given_end is None else min(aged, kept.given_end)

    def tick(self, now: datetime) -> None:
        """Let time pass."""
        for kept in self.memories.values():
            end = self.end(kept)
            kept.over = kept.over or (end is not None and end <= now)
        for turn in self.turns.values():
            ttl_s = self.ttl_s.get(turn.namespace)
            aged = ttl_s is not None and turn.since + timedelta(seconds=ttl_s) <= now
            turn.too_old = turn.too_old or aged
            turn.over = turn.too_old or any(self.memories[i].over for i in turn.facts)

    def everything(self) -> dict[uuid.UUID, Kept | Turn]:
        """Memories and turns."""
        return {**self.memories, **self.turns}

    def entailed(
        self, ids: set[uuid.UUID], *, expired: bool = False, upward: bool = False
    ) -> set[uuid.UUID]:
        """These, and whatever still says what they said: turns, summaries, what was merged, and
        `upward` what that was merged into."""
        turns = {i for i, turn in self.turns.items() if turn.facts & ids}
        made = {
            i
            for i, kept in self.memories.items()
            if kept.made_of & ids and not (expired and kept.is_own)
        }
        merged = {o for k, o in self.merged if k in ids and self.memories[o].superseded_by == k}
        above = {k for k, o in self.merged if o in ids and self.memories[o].superseded_by == k}
        more = turns | made | merged | (above if upward else set())
        if more <= ids:
            return ids
        return self.entailed(ids | more, expired=expired, upward=upward)

    def linked(self) -> set[tuple[uuid.UUID, uuid.UUID]]:
        """Memories and what they were made of, say beside themselves, or speak against."""
        made = {(i, source) for i, kept in self.memories.items() for source in kept.made_of}
        return self.merged | self.against | made

    def expire(self, *ids: uuid.UUID) -> None:
        """Take memories and turns away whose time is over."""
        self._erase(self.entailed({*ids}, expired=True))

    def outdate(self, memory_id: uuid.UUID) -> None:
        """Take away what was made of a memory that holds no more as it did."""
        self.expire(
            *(
                i
                for i, kept in self.memories.items()
                if memory_id in kept.made_of and not kept.is_own and kept.review != REJECTED
            )
        )

    def erase(self, *ids: uuid.UUID, upward: bool = False) -> None:
        """Take memories and turns away for good."""
        self._erase(self.entailed({*ids}, upward=upward))

    def _erase(self, gone: set[uuid.UUID]) -> None:
        self.merged = {pair for pair in self.merged if not gone & {*pair}}
        self.against = {pair for pair in self.against if not gone & {*pair}}
        for each in gone:
            self.memories.pop(each, None)
            self.turns.pop(each, None)
            self.erased.add(each)
        for kept in self.memories.values():
            kept.made_of -= gone

    def come_back(self, memory_id: uuid.UUID) -> None:
        """Let a memory be in force again, whatever it was superseded for."""
        kept = self.memories[memory_id]
        kept.superseded_at = kept.superseded_by = None
        for pair in [pair for pair in self.merged if pair[1] == memory_id]:
            self.merged.remove(pair)
            for one in self.merged_into(pair[0]):
                self.memories[one].seen = max(1, self.memories[one].seen - kept.seen)

    def merged_into(self, memory_id: uuid.UUID) -> list[uuid.UUID]:
        """A memory, what it is merged into, and so on."""
        above = self.memories[memory_id].superseded_by
        if above is None or (above, memory_id) not in self.merged:
            return [memory_id]
        return [memory_id, *self.merged_into(above)]

    def is_still_said(self, memory_id: uuid.UUID) -> bool:
        """Whether it holds, or what it was merged into and was not edited since."""
        said = [self.memories[i] for i in self.merged_into(memory_id)]
        ends = [(one.superseded_at, above.now.since) for one, above in pairwise(said)]
        edited = any(end is not None and since > end for end, since in ends)
        unreviewed = all(one.review is None for one in said)
        return unreviewed and not edited and said[-1].superseded_at is None

    def equals(self, fact: Fact) -> list[uuid.UUID]:
        """Memories that say this and were not superseded, over or not."""
        return [
            i for i, kept in self.memories.items()
            if kept.superseded_at is None and kept.fact == fact
        ]  # fmt: skip

    def known(self, fact: Fact) -> list[uuid.UUID]:
        """The one that lives and says this already, if there is one: else as another kind, if it
        was rejected."""
        namespace, _, text, when = fact
        others = [i for kind in KINDS for i in self.equals((namespace, kind, text, when))]
        rejected = [i for i in others if self.memories[i].review == REJECTED]
        known = [i for i in (*self.equals(fact), *rejected) if not self.memories[i].over]
        return known[:1]

    def make_room(self, fact: Fact | None, *, but: uuid.UUID | None = None) -> bool:
        """Whether nobody else says this; what is over and said it is erased."""
        others = [] if fact is None else [i for i in self.equals(fact) if i != but]
        self.expire(*(i for i in others if self.memories[i].over))
        return not any(i in self.memories for i in others)
