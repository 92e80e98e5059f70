"""What becomes of memories that a newer fact speaks against, by the account's own rule; pure.

Not here: noticing a contradiction (`extraction`), changing states (`journal/states.py`). Source:
SPEC §13.

- Nothing is overwritten: the older one is superseded, or the newer one flagged; both are linked.
- A rule never supersedes what is pinned, and nothing that waits for approval supersedes anything.
"""

import uuid
from collections.abc import Mapping
from datetime import datetime

from relayer.database.pool import Row
from relayer.journal.states import Change
from relayer.preferences import AccountSettings
from relayer.record import CONTRADICTION, PENDING


def settled(
    contradicted: Mapping[uuid.UUID, uuid.UUID],
    reviews: Mapping[uuid.UUID, str],
    standing: Mapping[uuid.UUID, Row],
    settings: AccountSettings,
    now: datetime,
) -> dict[uuid.UUID, Change]:
    """The changes that new memories bring: memory id → what holds of it from now on.

    `contradicted` leads from a new memory to the older one that it speaks against, `standing` has
    the older ones that live, and `reviews` what new ones are held back for.
    """
    changes = {memory: Change(review=review) for memory, review in reviews.items()}
    for memory, other in contradicted.items():
        row = standing.get(other)
        if row is None or row["superseded_at"] is not None or reviews.get(memory) == PENDING:
            continue
        if settings.contradictions == "newer_wins" and not row["pinned"]:
            changes[other] = Change(superseded_at=now, superseded_by=memory)
        else:
            changes[memory] = Change(review=CONTRADICTION)
    return changes
