"""A long text piece by piece: while Python is inside one call of its own, no other thread goes on.

Not here: which work is given to a thread (`concurrency.py`).
"""

import re
from collections.abc import Callable
from typing import Final

AT_ONCE: Final = 65_536  # characters that a shape is looked for in, in one call: some milliseconds
# Until when the next match has to begin, and how far is looked for it; of a text, from a place on.
Window = Callable[[str, int], tuple[int, int]]


def fixed_window(longest: int) -> Window:
    """Return the windows for a shape of which no match is longer than that."""
    return lambda text, at: (at + AT_ONCE, at + AT_ONCE + longest)


def substitute(
    pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str], text: str, window: Window
) -> str:
    """Return what `pattern.sub(replace, text)` does; no match is empty."""
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
