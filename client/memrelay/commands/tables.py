"""Lays rows out for people: a table that fits their terminal, or whole values for a pipe.

It does not own what a command lists. A table has a heading and short ids. A pipe gets a line for
each row, whole values between tabs, and no heading.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from shutil import get_terminal_size
from typing import NamedTuple
from unicodedata import category, east_asian_width

from memrelay.commands.streams import as_encoded, can_show, printable

ID_DIGITS_MIN = 8
_GAP = "  "
_TEXT_WIDTH_MIN = 24  # columns that may be left out go before a text gets less


class Column(NamedTuple):
    """A column: the greatest `rank` is left out first where there is no room, 0 never.

    A column of ids is shortened, and one of texts is cut to the room that the others leave.
    """

    heading: str
    rank: int = 0
    is_id: bool = False
    is_text: bool = False


def terminal_width() -> int | None:
    """Return how many columns the terminal has, None where standard output is none."""
    return get_terminal_size().columns if sys.stdout.isatty() else None


def format_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table for standard output, none for no rows."""
    lines = [[one_line(cell) for cell in row] for row in rows]
    width = terminal_width()
    if width is None:
        yield from ("\t".join(line) for line in lines)
    elif lines:
        yield from _lay_out(columns, lines, width)


def shorten_ids(ids: Sequence[str]) -> dict[str, str]:
    """Return the beginnings by which these ids can be told apart, of 8 digits or more."""
    shown = sorted(set(ids))
    alike = max((_count_alike(*pair) for pair in pairwise(shown)), default=0)
    return {one: one[: max(ID_DIGITS_MIN, alike + 1)].rstrip("-") for one in shown}


def display_ids(ids: Sequence[str]) -> dict[str, str]:
    """Return ids as they are shown: short ones on a terminal, whole ones in a pipe."""
    return shorten_ids(ids) if sys.stdout.isatty() else {one: one for one in ids}


def one_line(text: str) -> str:
    """Return a text in one line, with the characters that standard output will get for it."""
    return as_encoded(printable(" ".join(text.split())))


def measure_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(map(_char_width, text))


def cut(text: str, width: int) -> str:
    """Return what of a text has room in so many columns."""
    if measure_width(text) <= width:
        return text
    mark = "…" if can_show("…") else "~"
    kept, room = [], width - 1
    for char in text:
        room -= _char_width(char)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept).rstrip() + mark


def _lay_out(columns: Sequence[Column], rows: list[list[str]], width: int) -> Iterator[str]:
    for at, column in enumerate(columns):
        if column.is_id:
            short = shorten_ids([row[at] for row in rows])
            for row in rows:
                row[at] = short[row[at]]
    widths = [max(measure_width(row[at]) for row in rows) for at in range(len(columns))]
    shown = [at for at in range(len(columns)) if widths[at]]
    widths = [
        max(cells, measure_width(column.heading)) if not column.is_text else cells
        for cells, column in zip(widths, columns, strict=True)
    ]
    text_at = next((at for at in shown if columns[at].is_text), None)
    while (room := _room(widths, shown, text_at, width)) < 0:
        if not (droppable := [at for at in shown if columns[at].rank]):
            break
        shown.remove(max(droppable, key=lambda at: columns[at].rank))
    if text_at is not None:
        least = min(widths[text_at], _TEXT_WIDTH_MIN)
        widths[text_at] = max(len(columns[text_at].heading), min(widths[text_at], least + room))
    for row in ([column.heading for column in columns], *rows):
        cells = [_pad(cut(row[at], widths[at]), widths[at]) for at in shown]
        yield _GAP.join(cells).rstrip()


def _room(widths: Sequence[int], shown: Sequence[int], text_at: int | None, width: int) -> int:
    """Return how many columns are left when a text has the least that it should; or lacking."""
    others = sum(widths[at] for at in shown if at != text_at) + len(_GAP) * (len(shown) - 1)
    least = 0 if text_at is None else min(widths[text_at], _TEXT_WIDTH_MIN)
    return width - others - least


def _pad(text: str, width: int) -> str:
    return text + " " * (width - measure_width(text))


def _count_alike(one: str, other: str) -> int:
    """Return how many characters two texts begin alike with."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


def _char_width(char: str) -> int:
    if category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if east_asian_width(char) in {"W", "F"} else 1
