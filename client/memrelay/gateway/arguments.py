"""Reads what models and their hosts put in the place of a text.

It does not own which arguments a tool takes (`schemas.py`, `mcp/tools.py`).

- A host that reads every argument as JSON makes an object, a list or a number of a text that looks
  like one. It is a text again, in JSON's own words.
- A model that has to fill in a name writes "null". It is no name of a namespace: what it would be
  stored in, nobody would look for.
"""

import json
from typing import Final

_PLACEHOLDERS: Final = frozenset({"", "null", "none", "nil", "undefined"})
NO_NAMESPACE: Final = "leave it out for this agent's own, or give a name"


def as_text(value: object) -> object:
    """Return a JSON value that is given for a text as that text; None stays None."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def as_name(value: object) -> object:
    """Return a whole number that is given for a name as that name, anything else as it is."""
    return str(value) if type(value) is int else value


def is_placeholder(name: str) -> bool:
    """Return True if a text says that there is none."""
    return name.strip().casefold() in _PLACEHOLDERS
