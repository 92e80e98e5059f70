"""Writes a number with its noun, as people say it.

Not here: the counts in JSON, which are numbers.
"""

from typing import Final

# Those that are more than an s behind the noun.
_PLURALS: Final = {"entry": "entries", "memory": "memories"}


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun, which is given for one: "1 memory", "2 memories"."""
    return f"{number} {noun if number == 1 else _PLURALS.get(noun, f'{noun}s')}"
