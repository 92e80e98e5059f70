"""Writes numbers as people say them: with their noun, or as a size.

Not here: the counts in JSON, which are numbers.
"""

from typing import Final

# Those that are more than an s behind the noun.
_PLURALS: Final = {"entry": "entries", "memory": "memories", "new memory": "new memories"}


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun, which is given for one: "1 memory", "2 memories"."""
    return f"{number} {noun if number == 1 else _PLURALS.get(noun, f'{noun}s')}"


def format_size(number: int) -> str:
    """Return a number of bytes in the unit in which it is short: "0 bytes", "8.0 KiB", "10 GiB"."""
    if number < 1024:
        return format_count(number, "byte")
    size, unit = number / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if size < 1023.5:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f} {unit}" if size < 9.95 else f"{size:.0f} {unit}"
