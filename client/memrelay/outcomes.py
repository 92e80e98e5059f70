"""Defines the relayer's answers when memories are listed, corrected and forgotten.

It does not own the memories themselves (`models.py`) or requests. Field names are the HTTP API's
own.

Source: SPEC.md §11, §13, §14.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memrelay.answers import Answer, sometimes
from memrelay.models import Memory

STATES = ("active", "superseded", "pending_review", "rejected", "all")


@dataclass(frozen=True, kw_only=True)
class Link(Answer):
    """The relation of two memories, or of a memory to the turn it came from."""

    relation: str
    memory_id: str
    other_id: str


@dataclass(frozen=True, kw_only=True)
class History(Answer):
    """Revisions of a memory, newest first, and what it is linked to."""

    id: str
    revisions: tuple[Memory, ...]
    links: tuple[Link, ...] = ()
    next_cursor: str | None = None


@dataclass(frozen=True, kw_only=True)
class Edited(Answer):
    """A memory's new revision; `unchanged` if it said all that already."""

    id: str
    revision: int
    status: str
    unchanged: bool = False
    redacted: Mapping[str, Any] | None = None  # how many secrets of each sort were taken out
    receipt: str | None = None


@dataclass(frozen=True, kw_only=True)
class StateChanged(Answer):
    """The whole state of a memory now; without a receipt, it was so before."""

    id: str
    state: str
    pinned: bool
    review: str | None = None
    stale: bool = False
    superseded_at: datetime | None = None
    superseded_by: str | None = None
    receipt: str | None = None


@dataclass(frozen=True, kw_only=True)
class Doubtful(Memory):
    """A memory that waits for somebody to look: why, and which others it speaks against.

    `reason` is pending (it waits to be approved) or contradiction.
    """

    reason: str
    others: tuple[Memory, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReviewPage(Answer):
    """Memories that wait to be looked at; `next_cursor` leads to the next page."""

    memories: tuple[Doubtful, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, kw_only=True)
class Episode(Answer):
    """A conversation that is kept, or pending: its facts are still to be found.

    Its `text` comes only when it is asked for by id. `extractor` is who found its facts last;
    `failure`, why the language model did not when it was asked last.
    """

    id: str
    namespace: str
    state: str
    created_at: datetime | None = None
    occurred_at: datetime | None = None
    source: str | None = None
    fact_ids: tuple[str, ...] = ()
    extractor: str | None = None
    failure: str | None = None
    text: str | None = sometimes()


@dataclass(frozen=True, kw_only=True)
class EpisodePage(Answer):
    """Conversations that were kept, newest first; `next_cursor` leads to the next page."""

    episodes: tuple[Episode, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, kw_only=True)
class ForgetStatus(Answer):
    """The outcome of one id: erased, already_erased or not_found."""

    id: str
    status: str


@dataclass(frozen=True, kw_only=True)
class ForgottenMany(Answer):
    """The memories that were erased, or with a dry run would be; `more` are still there.

    `ids` are the first 100, `results` says for each id that was named what became of it, and
    `pending` while an outside store has not confirmed.
    """

    matched: int
    erased: int
    more: bool = False
    pending: bool = False
    ids: tuple[str, ...] = ()
    receipts: tuple[str, ...] = ()
    results: tuple[ForgetStatus, ...] | None = sometimes()


@dataclass(frozen=True, kw_only=True)
class AccountClosed(ForgottenMany):
    """A closed account; `pending` while some of what it held is still to be erased."""

    account_id: str
    closed: bool


@dataclass(frozen=True, kw_only=True)
class AccountSettings(Answer):
    """The settings that the account has chosen, for all its keys."""

    redact: bool
    contradictions: str
    low_confidence: str
    keep_turns: bool
    count_recalls: bool = False  # older relayers count none
    consolidate_every_h: int


def marks_of(memory: Memory) -> tuple[str, ...]:
    """Return what is special about a memory, for people and models; never words of others."""
    special = (
        f"revision {memory.revision}" if (memory.revision or 1) > 1 else "",
        "pinned" if memory.pinned else "",
        "stale" if memory.stale else "",
        _STATES_TOLD.get(memory.state or "", ""),
        "contradicts another" if memory.review == "contradiction" else "",
        f"seen {memory.seen_count} times" if memory.seen_count > 1 else "",
    )
    return tuple(filter(None, special))


_STATES_TOLD = {
    "superseded": "superseded",
    "pending_review": "waits for review",
    "rejected": "rejected",
}
