"""Conditions on a memory `m`, in SQL, that several statements have.

Not here: which state it is in (`states.IN_STATE`), whether an episode is over (`episodes.is_over`).
"""

from typing import Final

MOMENT: Final = "coalesce(m.event_time, m.created_at)"  # when it happened, else was first stored


def unexpired(now: str) -> str:
    """Return the condition in SQL that it has not expired by then."""
    return f"(m.expires_at IS NULL OR m.expires_at > {now})"


def within(after: str, before: str) -> str:
    """Return the condition in SQL that its moment is between two parameters; NULL is no bound.

    The first belongs to the span, the second does not.
    """
    return (
        f"({after}::timestamptz IS NULL OR {MOMENT} >= {after})"
        f" AND ({before}::timestamptz IS NULL OR {MOMENT} < {before})"
    )
