"""Conversations in tables of separated values: CSV, TSV and their kin.

It does not own the members of a message (`json_chats.py`), nor the other formats.

- A table is one whose first row names who speaks and what is said, or whose rows all begin with a
  role. Any other table is a text.
"""

import csv
import io
from collections.abc import Sequence
from typing import Final

from relayer.extraction.json_chats import TEXTS, TIMES, message_of
from relayer.extraction.message import Message, role_named

_DELIMITERS: Final = ",;\t|"
_HEAD_CHARS_MAX: Final = 1000
_AUTHORS: Final = {
    **dict.fromkeys(("role", "speaker", "from", "sender", "author", "user", "username"), ""),
    **dict.fromkeys(("name", "who", "participant", "person", "member", "by"), "speaker"),
}
_SAYINGS: Final = {
    **dict.fromkeys(TEXTS, ""),
    **dict.fromkeys(("utterance", "said", "line", "sentence", "transcript", "comment"), "text"),
}
_WHENS: Final = {
    **dict.fromkeys(TIMES, ""),
    **dict.fromkeys(("datetime", "when", "sent", "start", "start_time"), "time"),
}


def is_table_of_messages(text: str) -> bool:
    """Tell whether the first row of `text` names who speaks and what is said."""
    return _head(text) is not None


def csv_messages(text: str) -> list[Message] | None:
    """Return the messages of a table; None if `text` is none, or a row of it has no place."""
    head = _head(text)
    try:
        if head is not None:
            delimiter, names = head
            return _of_rows(_rows(text, delimiter)[1:], names, delimiter)
        first = text.partition("\n")[0]
        return next(
            (
                found
                for delimiter in _DELIMITERS
                if delimiter in first and (found := _of_roles(text, delimiter)) is not None
            ),
            None,
        )
    except csv.Error:
        return None


def _head(text: str) -> tuple[str, list[str]] | None:
    """Return what parts the cells of a table, and the members of messages that its columns are."""
    first = text.partition("\n")[0]
    if len(first) > _HEAD_CHARS_MAX:
        return None
    for delimiter in _DELIMITERS:
        cells = [cell.strip().strip('"').strip() for cell in first.split(delimiter)]
        names = [_member(cell) for cell in cells]
        has_author = any(name in _AUTHORS for name in names)
        if len(cells) > 1 and has_author and any(name in _SAYINGS for name in names):
            return delimiter, names
    return None


def _member(cell: str) -> str:
    """Return the member of a message that a column is, or the column's own name."""
    name = "_".join(cell.casefold().split())
    meant = (table.get(name) for table in (_AUTHORS, _SAYINGS, _WHENS))
    return next(filter(None, meant), name)


def _rows(text: str, delimiter: str) -> list[list[str]]:
    """Return the rows with something in them.

    Raises:
        csv.Error: a cell that is quoted does not end, or goes on behind its quotes.
    """
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    return [row for row in reader if any(cell.strip() for cell in row)]


def _of_rows(
    rows: Sequence[Sequence[str]], names: Sequence[str], delimiter: str
) -> list[Message] | None:
    found = list[Message]()
    for row in rows:
        # A last cell that nobody quoted may have what parts cells in it.
        cells = [*row[: len(names) - 1], delimiter.join(row[len(names) - 1 :])]
        if len(row) < len(names):
            return None
        message = message_of(dict(zip(names, map(str.strip, cells), strict=True)))
        if message is None:
            return None
        found.append(message)
    return found or None


def _of_roles(text: str, delimiter: str) -> list[Message] | None:
    rows = _rows(text, delimiter)
    if len(rows) < 2 or any(len(row) < 2 or role_named(row[0]) is None for row in rows):
        return None
    return _of_rows(rows, ("role", "content"), delimiter)
