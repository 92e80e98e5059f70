"""The account's rule for memories that a newer fact speaks against; pure.

Not here: noticing a contradiction (`extraction`), changing states (`journal/states.py`). Source:
SPEC §13.

- Nothing is overwritten: the older one is superseded, or the new one flagged; both are linked.
- A rule never supersedes what is pinned, what was said later than the conversation (it may have
  waited, or be an old one), also while it was thought about, or what was edited since.
- Nor what the same request says once more: the two are for somebody to look at.
- Nothing that waits for approval supersedes anything, nor does what is of low confidence, for it is
  second-hand or ambiguous: a mail that somebody quotes takes no memory out of recall. Nor does what
  is of less confidence than the memory: an assistant takes back nothing that its user said.
"""

import uuid
from collections.abc import Container, Mapping
from datetime import datetime

from relayer.database.pool import Row
from relayer.journal.states import Change
from relayer.preferences import AccountSettings
from relayer.record import CONFIDENCES, CONTRADICTION, PENDING, Draft, Memory


def settle(
    contradicting: Mapping[uuid.UUID, Draft],
    reviews: Mapping[uuid.UUID, str],
    standing: Mapping[uuid.UUID, Row],
    said_again: Container[uuid.UUID],
    settings: AccountSettings,
    now: datetime,
) -> dict[uuid.UUID, Change]:
    """Return the changes that new memories bring: memory id → what holds of it from now on.

    `contradicting` are new memories that each speak against another, `standing` has those others as
    far as they live, `reviews` what new ones are held back for, and `said_again` the memories that
    the same request says as well.
    """
    changes = {memory: Change(review=review) for memory, review in reviews.items()}
    for memory, draft in contradicting.items():
        assert draft.contradicts is not None
        row = standing.get(draft.contradicts.id)
        if row is None or row["superseded_at"] is not None or reviews.get(memory) == PENDING:
            continue
        old = draft.contradicts
        yields = old.id not in said_again and _yields(row, old, draft)
        if settings.contradictions == "newer_wins" and yields:
            changes[old.id] = Change(superseded_at=now, superseded_by=memory)
        else:
            changes[memory] = Change(review=CONTRADICTION)
    return changes


def _yields(row: Row, other: Memory, draft: Draft) -> bool:
    """Return true if a memory gives way to a fact that speaks against it."""
    if row["pinned"] or row["revision"] != other.revision or _is_doubtful(draft, other):
        return False
    if draft.said_at is None:  # it is said right now: again since it was asked, by another request?
        return bool(row["last_seen_at"] == other.last_seen_at)
    return draft.said_at >= max(other.last_said_at, row["last_seen_at"] or other.last_said_at)


def _is_doubtful(draft: Draft, other: Memory) -> bool:
    """Return true if a fact is of low confidence, or of less than a memory."""
    greater = CONFIDENCES[: CONFIDENCES.index(draft.confidence)]
    return draft.confidence == "low" or other.confidence in greater
