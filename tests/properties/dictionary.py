"""What must be so of an account's memories, in a plain dictionary that knows SPEC's rules.

Not here: what is done to the memories, and the product (`walk.py`).
"""

import unicodedata
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from relayer.sealed.keys import Namespace


def canonical(text: str) -> str:
    """What makes two texts the same fact."""
    return " ".join(unicodedata.normalize("NFC", text).split())


@dataclass(frozen=True)
class Revision:
    """What a memory said from a time on."""

    text: str
    tags: tuple[str, ...]
    since: datetime


@dataclass
class Kept:
    """A memory that was not erased; `over` when its time has come, whatever is changed then."""

    namespace: Namespace
    revisions: list[Revision]
    given_end: datetime | None
    pinned: bool = False
    superseded_at: datetime | None = None
    superseded_by: uuid.UUID | None = None
    seen: int = 1
    over: bool = False

    @property
    def now(self) -> Revision:
        return self.revisions[-1]

    @property
    def in_force(self) -> bool:
        return not self.over and self.superseded_at is None

    @property
    def state(self) -> str:
        return "active" if self.superseded_at is None else "superseded"

    def at(self, moment: datetime) -> Revision | None:
        """What could have been recalled of it then."""
        if self.superseded_at is not None and self.superseded_at <= moment:
            return None
        return next((r for r in reversed(self.revisions) if r.since <= moment), None)


@dataclass
class Dictionary:
    """What must be so."""

    memories: dict[uuid.UUID, Kept] = field(default_factory=dict)
    erased: set[uuid.UUID] = field(default_factory=set)
    ttl_s: dict[Namespace, int] = field(default_factory=dict)

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

    def erase(self, *ids: uuid.UUID) -> None:
        """Take memories away for good."""
        for memory_id in ids:
            del self.memories[memory_id]
            self.erased.add(memory_id)

    def equals(self, text: str, namespace: Namespace) -> list[uuid.UUID]:
        """Memories that say this and were not superseded, over or not."""
        return [
            i
            for i, kept in self.memories.items()
            if (kept.namespace, kept.superseded_at) == (namespace, None)
            and canonical(kept.now.text) == canonical(text)
        ]

    def make_room(self, text: str, namespace: Namespace, *, but: uuid.UUID | None = None) -> bool:
        """Whether nobody else says this; what is over and said it is erased."""
        others = [i for i in self.equals(text, namespace) if i != but]
        self.erase(*(i for i in others if self.memories[i].over))
        return not any(i in self.memories for i in others)
