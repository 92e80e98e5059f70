"""The parts of a write: its rows, its side effects, and the reasons to look again.

Not here: storing it (`writer.py`).
"""

import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from relayer.database import memories as rows
from relayer.database import states as state_rows
from relayer.database import vectors as vector_rows
from relayer.database.index_size import vector_bytes
from relayer.database.pool import Connection
from relayer.errors import NotFound
from relayer.journal.states import Change
from relayer.record import Draft, Life
from relayer.sealed.keys import Namespace
from relayer.tenants.ledger import Stale

Beside = Callable[[Connection], Awaitable[object]]  # what else a write's transaction does
WORDS_FEW: Final = 2_000  # different ones; to store more takes longer than one more statement
CONTENDED: Final = "Too many writers say the same thing at once."


class Overtaken(NotFound):
    """The episode that was to be stored, or that facts come from, was stored, extracted or erased
    meanwhile by somebody else."""


class Gone(Stale):
    """Memories that a write found to say the same have changed or gone in between: look again.

    `at` is the account's time then, which may be ahead of this machine's clock.
    """

    def __init__(self, memories: Collection[uuid.UUID], at: datetime) -> None:
        super().__init__()
        self.memories = memories
        self.at = at


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Changes that a write makes beside storing what is new.

    Attributes:
        same: memories that say the same already → the revision that does, which has to be there
            and in force still.
        replaced: memories that are erased if they are still expired, for they are said anew.
        longer: memories that were said again → how long they are kept now.
        seen: memories that were said once more.
        approved: memories that wait no longer, because somebody said them outright.
        reviews: new memories that are held back → for what.
        contradicting: new memories that speak against older ones.
        links: of memories to others and to their turns, that are made.
    """

    same: Mapping[uuid.UUID, int] = field(default_factory=dict)
    replaced: Sequence[uuid.UUID] = ()
    longer: Mapping[uuid.UUID, Life] = field(default_factory=dict)
    seen: Sequence[uuid.UUID] = ()
    approved: Sequence[uuid.UUID] = ()
    reviews: Mapping[uuid.UUID, str] = field(default_factory=dict)
    contradicting: Mapping[uuid.UUID, Draft] = field(default_factory=dict)
    links: Sequence[state_rows.Link] = ()

    @property
    def are_none(self) -> bool:
        """Return true if there is no side effect, whatever says the same already."""
        of_older = self.replaced, self.longer, self.seen, self.approved
        return not any(of_older) and not any((self.reviews, self.contradicting, self.links))


NO_EFFECTS: Final = Effects()


@dataclass(frozen=True)
class Origin:
    """The conversation that facts come from.

    Attributes:
        waiting: it had to wait for its extraction, and is done with now.
        kept: it stays, linked to its facts.
        new: it is to be kept from now on.
        names: its namespace by number.
    """

    id: uuid.UUID
    waiting: bool = False
    kept: bool = False
    new: rows.NewEpisode | None = None
    names: Mapping[int, Namespace] = field(default_factory=dict)


@dataclass(frozen=True)
class Committed:
    """The outcome of a write.

    Attributes:
        receipts: of what was stored.
        others: receipts of what it changed or erased beside.
        changes: the states that it changed.
        memories_before: how many memories the account had been given before.
    """

    receipts: list[bytes]
    others: list[bytes] = field(default_factory=list)
    changes: Mapping[uuid.UUID, Change] = field(default_factory=dict)
    memories_before: int = 0


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The sealed rows of one write, in the namespaces of `names`; marks may be of `within`."""

    op: str
    memories: Sequence[rows.NewMemory]
    episodes: Sequence[rows.NewEpisode]
    names: Mapping[int, Namespace]
    within: Collection[Namespace]
    marks: Sequence[rows.Mark]
    origin: Origin | None
    manual_vector: vector_rows.UploadVector | None

    @property
    def blobs(self) -> list[tuple[bytes, bytes]]:
        """Return (id, bytes) of each envelope."""
        memories = [(m.blob_id, m.blob) for m in self.memories]
        return memories + [(e.blob_id, e.blob) for e in self.episodes]

    @property
    def new_bytes(self) -> int:
        """Return the bytes that it adds to the account's quota.

        Vectors that it does not bring are counted once they are made.
        """
        sealed = sum(len(blob) for _, blob in self.blobs)
        index = sum(m.index_bytes for m in self.memories)
        if self.manual_vector is not None and self.manual_vector.embedding is not None:
            index += vector_bytes(len(self.manual_vector.embedding))
        return sealed + index

    @property
    def wordy(self) -> list[rows.NewMemory]:
        """Return memories with so many words that these are stored before the account is locked.

        What is restored may have some of its own there still.
        """
        if self.op == "restore":
            return []
        return [m for m in self.memories if len(m.postings) > WORDS_FEW]

    @property
    def epochs(self) -> list[int]:
        """Return those that its envelopes are sealed under."""
        return [m.epoch for m in self.memories] + [e.epoch for e in self.episodes]
