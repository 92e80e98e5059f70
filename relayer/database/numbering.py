"""Names for the parameters of long statements.

A statement with dozens of parameters has them in one table: what each is called, and what it is of
what is stored. The table numbers them, so that no number is written by hand.
"""

import re
from collections.abc import Iterable
from typing import Final

_NAMED: Final = re.compile(r"(?<![:\w]):([a-z_]+)")  # `:name`, which is neither a cast nor a slice


def used_names(statement: str) -> set[str]:
    """Return the names of the parameters that a statement uses."""
    return set(_NAMED.findall(statement))


def number_parameters(statement: str, names: Iterable[str]) -> str:
    """Return the statement with `$1`, `$2` … in place of `:name`, in the order of these names.

    Raises:
        ValueError: it uses other names than these, or leaves one out.
    """
    places = {name: f"${place}" for place, name in enumerate(names, 1)}
    if used := places.keys() ^ used_names(statement):
        raise ValueError(f"parameters that only the statement or its table has: {sorted(used)}")
    return _NAMED.sub(lambda found: places[found[1]], statement)
