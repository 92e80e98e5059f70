"""A request's header as it was sent, without an object of all of them, which few requests need.

Not here: what a header says, and which may be there once only (`checks.py`).
"""

from litestar.types import Scope


def header(scope: Scope, name: bytes) -> str | None:
    """Return a header's value, of several the first; `name` in lower case, as the server has it."""
    for its, value in scope["headers"]:
        if its == name:
            return value.decode("latin-1")
    return None
