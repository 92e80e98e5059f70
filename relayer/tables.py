"""Lays rows out for people: a table that fits their terminal, or whole values for a pipe.

Not here: what a command lists. The client has the same manner in `memrelay/commands/tables.py`,
which this program must not import.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple
from unicodedata import category, east_asian_width

ID_DIGITS_MIN: Final = 8
_GAP: Final = "  "
_TEXT_WIDTH_MIN: Final = 12  # columns that may be left out go before a text gets less
_ROLES: Final = {"account_id": "id", "public_key": "id", "label": "text", "namespaces": "text"}


class Column(NamedTuple):
    """A column: the greatest `rank` is left out first where there is no room, 0 never."""

    heading: str
    rank: int = 0
    is_text: bool = False
    is_number: bool = False


def format_rows(rows: Sequence[Mapping[str, Any]], width: int | None) -> list[str]:
    """Return the lines of rows with the same members, for a terminal so wide or for a pipe (None).

    A table has a heading and short ids, and leaves out the last members where there is no room. A
    pipe gets whole values between tabs, and no heading.
    """
    lines = [[_cell(value) for value in row.values()] for row in rows]
    if width is None or not rows:
        return ["\t".join(line) for line in lines]
    names = list(rows[0])
    for at, name in enumerate(names):
        if _ROLES.get(name) == "id":
            short = shorten_ids([line[at] for line in lines])
            for line in lines:
                line[at] = short[line[at]]
    columns = [
        Column(
            name.removesuffix("_id").replace("_", " "),
            rank=0 if _ROLES.get(name) else at,
            is_text=_ROLES.get(name) == "text",
            is_number=all(type(row[name]) in (int, float) for row in rows),
        )
        for at, name in enumerate(names)
    ]
    return format_table(columns, lines, width)


def format_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None
) -> list[str]:
    """Return a heading and a line for each row, in so many columns of a terminal; None: in any."""
    cells = [[column.heading for column in columns], *rows]
    widths = [max(map(measure_width, column)) for column in zip(*cells, strict=True)]
    shown = list(range(len(columns)))
    if width is not None:
        shown = _choose(columns, widths, width)
        _cut_texts(columns, widths, shown, width)
    lines = []
    for row in cells:
        padded = (_pad(cut(row[at], widths[at]), widths[at], columns[at]) for at in shown)
        line = _GAP.join(padded).rstrip()
        lines.append(line if width is None else cut(line, width))
    return lines


def shorten_ids(ids: Sequence[str]) -> dict[str, str]:
    """Return the beginnings that tell these ids apart, of 8 digits or more behind any `0x`."""
    shown = sorted(set(ids))
    alike = max((_count_alike(*pair) for pair in pairwise(shown)), default=0)
    least = ID_DIGITS_MIN + 2 * any(one.startswith("0x") for one in shown)
    return {one: one[: max(least, alike + 1)] for one in shown}


def measure_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(map(_measure_char, text))


def cut(text: str, width: int) -> str:
    """Return what of a text has room in so many columns."""
    if measure_width(text) <= width:
        return text
    kept, room = [], width - 1
    for char in text:
        room -= _measure_char(char)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"


def _choose(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Return the places of the columns that there is room for."""
    shown = list(range(len(columns)))

    def needed() -> int:
        least = (
            min(widths[at], _TEXT_WIDTH_MIN) if columns[at].is_text else widths[at] for at in shown
        )
        return sum(least) + len(_GAP) * (len(shown) - 1)

    while needed() > width and (droppable := [at for at in shown if columns[at].rank]):
        shown.remove(max(droppable, key=lambda at: columns[at].rank))
    return shown


def _cut_texts(
    columns: Sequence[Column], widths: list[int], shown: Sequence[int], width: int
) -> None:
    """Narrow the texts, the widest first, until a line fits."""
    over = sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1) - width
    while over > 0:
        wide = [at for at in shown if columns[at].is_text and widths[at] > len(columns[at].heading)]
        if not wide:
            return
        at = max(wide, key=lambda at: widths[at])
        widths[at] -= 1
        over -= 1


def _pad(text: str, width: int, column: Column) -> str:
    room = " " * (width - measure_width(text))
    return room + text if column.is_number else text + room


def _count_alike(one: str, other: str) -> int:
    """Return how many characters two texts begin alike with."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


def _cell(value: Any) -> str:
    """Return a value as a terminal may show it: labels are other people's texts."""
    text = ",".join(value) if isinstance(value, list) else "-" if value is None else str(value)
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _measure_char(char: str) -> int:
    if category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if east_asian_width(char) in {"W", "F"} else 1
