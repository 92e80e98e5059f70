"""The choice of the memory to keep of two that say the same, if they may be merged; pure.

Not here: finding such pairs (`consolidation_plan.py`, `database.consolidation`), merging them
(`consolidation.py`).

- They must say the same word for word, but for fillers. Near in meaning is not enough: a number,
  a name or a denial may be the point.
- Nothing is lost by it: the one that is kept has the source, tags and metadata of both, is of the
  same day, as important, as certain and lives as long. What is pinned is never merged into another.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Final

from relayer.extraction.facts import (
    CONFIDENCES,
    FACT_CHARS_MAX,
    FILLERS,
    IMPORTANCES,
    say_the_same,
)
from relayer.record import Draft
from relayer.words.tokens import words

HAPPENED = frozenset({"event", "episodic"})  # of another day, it happened once more
_PASSED_OVER: Final = frozenset(term for filler in FILLERS for term in words(filler))


@dataclass(frozen=True)
class Candidate:
    """A memory that may be merged.

    Attributes:
        blob_id: of the revision that was read.
        expires_at: when it ends, by whatever rule; a pin, which may be taken away, is none.
    """

    id: uuid.UUID
    blob_id: bytes
    draft: Draft = field(repr=False)
    pinned: bool
    seen_count: int
    seq: int
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True)
class Merge:
    """A pair of memories that say the same, of which the kept one supersedes the merged one."""

    kept: Candidate
    merged: Candidate


def telling_words(draft: Draft) -> list[str]:
    """Return the index terms that all which says the same shares; none if it is never merged."""
    if len(draft.text) > FACT_CHARS_MAX:
        return []
    return sorted(set(words(draft.text)) - _PASSED_OVER)


def merge_of(one: Candidate, other: Candidate) -> Merge | None:
    """Return the merge of two memories; None where they must both stay.

    Kept is what is pinned, else newer: a namespace may come to keep things for a time only, and the
    older one would end first. Of one moment, what is said more often, else longer, is kept.
    """
    kept, merged = sorted((one, other), key=_worth, reverse=True)
    if merged.pinned or not _same(kept.draft, merged.draft) or not _outlives(kept, merged):
        return None
    return Merge(kept, merged) if _covers(kept.draft, merged.draft) else None


def merges_of(pairs: Iterable[tuple[Candidate, Candidate]]) -> list[Merge]:
    """Return the merges of these pairs that can be done at once; each memory is in one alone."""
    chosen: list[Merge] = []
    kept: set[uuid.UUID] = set()
    merged: set[uuid.UUID] = set()
    for one, other in pairs:
        found = merge_of(one, other)
        if found is None or {one.id, other.id} & merged or found.merged.id in kept:
            continue
        chosen.append(found)
        kept.add(found.kept.id)
        merged.add(found.merged.id)
    return chosen


def _worth(one: Candidate) -> tuple[bool, datetime, int, int, int]:
    return one.pinned, one.created_at, one.seen_count, len(one.draft.text), one.seq


def _same(one: Draft, other: Draft) -> bool:
    if one.kind != other.kind or not say_the_same(one.text, other.text):
        return False
    days = {_day(one.event_time), _day(other.event_time)}
    return len(days) == 1 or (one.kind not in HAPPENED and None in days)


def _day(moment: datetime | None) -> date | None:
    return None if moment is None else moment.astimezone(UTC).date()


def _covers(kept: Draft, merged: Draft) -> bool:
    return (
        set(merged.tags) <= set(kept.tags)
        and merged.metadata.items() <= kept.metadata.items()
        and merged.source in (None, kept.source)
        # Both lists begin with the most.
        and IMPORTANCES.index(kept.importance) <= IMPORTANCES.index(merged.importance)
        and CONFIDENCES.index(kept.confidence) <= CONFIDENCES.index(merged.confidence)
    )


def _outlives(kept: Candidate, merged: Candidate) -> bool:
    if kept.expires_at is None:
        return True
    return merged.expires_at is not None and kept.expires_at >= merged.expires_at
