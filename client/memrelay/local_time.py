"""Shows times to people, in this machine's zone.

It does not own times as people type them (`commands/times.py`).
"""

from datetime import UTC, datetime


def when(moment: datetime | None) -> str:
    """Return a time for people: in this machine's zone, to the minute, with the offset."""
    if moment is None:
        return ""
    return to_local(moment).isoformat(" ", "minutes").replace("+00:00", "Z")


def to_local(moment: datetime) -> datetime:
    """Return a time in this machine's zone; in UTC, where that zone has no such time."""
    try:
        return moment.astimezone()
    except (OverflowError, ValueError, OSError):  # the first and the last day there are
        return moment.astimezone(UTC)
