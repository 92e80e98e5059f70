"""Cursors of pages as clients send them back: a number or an id, or nothing before the first page.

Not here: what follows it.
"""

import uuid
from typing import Final

from relayer.errors import BadRequest

_DIGITS_MAX: Final = 18  # each such number fits into a column


def number(cursor: str) -> int:
    """Return the number that a cursor holds; 0 before the first page.

    Raises:
        BadRequest: it is another route's or part's.
    """
    if cursor and (not cursor.isascii() or not cursor.isdigit() or len(cursor) > _DIGITS_MAX):
        raise not_ours()
    return int(cursor or 0)


def identifier(cursor: str) -> uuid.UUID:
    """Return the id that a cursor holds; the least one before the first page.

    Raises:
        BadRequest: it is another route's or part's.
    """
    try:
        return uuid.UUID(cursor) if cursor else uuid.UUID(int=0)
    except ValueError:
        raise not_ours() from None


def not_ours() -> BadRequest:
    """Return the error for any other cursor."""
    return BadRequest("cursor is not one of ours.")
