"""Counts that are noted first and added up later: on a hot path, a note costs a tenth of a count.

Not here: what is counted (`instruments.py`), who asks for the sums (`exposition.py`), that a full
disk ends no worker (`room.py`).

- Whoever reads the instruments settles first; otherwise notes are settled when there are many.
- A count reads code and memory that a request has nothing else to do with; hundreds in a row do so
  once.
- A count that the disk which workers share counts on refuses fails nobody's request.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

NOTES_MAX: Final = 1_024
_notes: list[tuple[Callable[[float], object], float]] = []


def note(count: Callable[[float], object], value: float = 1.0) -> None:
    """Count so much soon."""
    _notes.append((count, value))
    if len(_notes) >= NOTES_MAX:
        settle()


def settle() -> None:
    """Count everything that was noted."""
    while _notes:
        count, value = _notes.pop()
        with suppress(OSError):
            count(value)
