"""Counts that are noted first and added up later: on a hot path, a note costs a tenth of a count.

Not here: what is counted (`instruments.py`), who asks for the sums (`monitoring/exposition.py`),
that a full disk ends no worker (`preallocation.py`).

- Whoever reads the instruments flushes first; otherwise notes are flushed when there are many.
- A count reads code and memory that a request has nothing else to do with; hundreds in a row do so
  once.
- A count that the disk which workers share counts on refuses fails nobody's request.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

NOTES_MAX: Final = 1_024
Count = Callable[[float], object]
_values: list[tuple[Count, float]] = []
_increases: list[tuple[Count, float]] = []


def defer_observation(observe: Count, value: float) -> None:
    """Observe this value soon."""
    _values.append((observe, value))
    if len(_values) >= NOTES_MAX:
        flush()


def defer_increase(count: Count, by: float = 1.0) -> None:
    """Count so much more soon, together with what else there is of it by then."""
    _increases.append((count, by))
    if len(_increases) >= NOTES_MAX:
        flush()


def flush() -> None:
    """Count everything that was noted."""
    sums: dict[Count, float] = {}
    for count, by in _pop_all(_increases):
        sums[count] = sums.get(count, 0.0) + by
    for count, by in sums.items():
        _tell(count, by)
    for observe, value in _pop_all(_values):
        _tell(observe, value)


def _pop_all(notes: list[tuple[Count, float]]) -> Iterator[tuple[Count, float]]:
    """Yield all of them, each for one taker only, whichever threads there are."""
    with suppress(IndexError):
        while True:
            yield notes.pop()


def _tell(count: Count, value: float) -> None:
    with suppress(OSError):
        count(value)
