"""A long text piece by piece: while Python is inside one call of its own, no other thread goes on.

Not here: which work is given to a thread (`concurrency.py`).
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

AT_ONCE: Final = 65_536  # characters that a shape is looked for in, in one call: some milliseconds
# Until when the next match has to begin, and how far is looked for it; of a text, from a place on.
Window = Callable[[str, int], tuple[int, int]]
Replace = Callable[[re.Match[str]], str]


def fixed_window(longest: int) -> Window:
    """Return the windows for a shape of which no match is longer than that."""
    return lambda text, at: (at + AT_ONCE, at + AT_ONCE + longest)


def substitute(shapes: Iterable[tuple[re.Pattern[str], Replace]], text: str, window: Window) -> str:
    """Return what `pattern.sub(replace, text)` does with one shape after another.

    No match is empty.
    """
    for pattern, replace in shapes:
        text = _substitute_one(pattern, replace, text, window)
    return text


def _substitute_one(pattern: re.Pattern[str], replace: Replace, text: str, window: Window) -> str:
    if len(text) <= AT_ONCE:
        return pattern.sub(replace, text)
    kept, done, at = list[str](), 0, 0
    while at < len(text):
        stop, end = window(text, at)
        for found in pattern.finditer(text, at, end):
            if found.start() >= stop:
                break
            # What was looked at ends within it.
            whole = pattern.match(text, found.start()) if found.end() >= end else None
            match = whole or found
            kept += text[done : match.start()], replace(match)
            done = match.end()
        at = max(stop, done)
    return "".join([*kept, text[done:]])
