"""Edits a TOML text in place: tables are added behind all others, or taken out.

It does not own files (`config_files.py`) or the check of what came out (`documents.py`).

- A table of its own is all that is written: `[a.b]`, or `[[a]]` for an element of a list.
- Only such a table can be taken out; one in dotted keys or in braces is left to its owner.
- Time is linear in the text.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from memrelay.installing.errors import NotEditable, Steps

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
# What ends a statement or hides such an end: texts of all four kinds, comments, brackets, lines.
_TOKEN: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+"{3,5}'
    r"|'''(?:[^']|'(?!''))*+'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*+"'
    r"|'[^'\n]*'"
    r"|#[^\n]*|[\[\]{}]|\n",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table's header, its place, and the end of the last line that belongs to it."""

    path: tuple[str, ...]
    is_element: bool
    start: int
    end: int


def read(text: str) -> Any:
    """Return the value of a text.

    Raises:
        NotEditable: it is no TOML.
    """
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise NotEditable(f"this is no TOML ({error})") from None
    except (ValueError, RecursionError):
        raise NotEditable("this is no TOML") from None


def set_value(text: str, path: Steps, value: Any) -> str:
    """Return the text with a table at a path, in the place of one that is there.

    Raises:
        NotEditable: the value is no table.
    """
    if not isinstance(value, Mapping):
        raise NotEditable("only whole tables are written")
    own = [t for t in _tables(text) if _is_below(t.path, path)]
    if not own:
        return _append_table(text, f"[{_render_key(path)}]", value)
    for table in reversed(own[1:]):
        text = _cut(text, table)
    first = own[0]
    header = text[first.start : _end_of_line(text, first.start)].rstrip()
    return (
        text[: first.start]
        + _line_break(text).join([header, *_render_members(value)])
        + text[first.end :]
    )


def append(text: str, path: Steps, value: Any) -> str:
    """Return the text with one more table at the end of a list of tables.

    Raises:
        NotEditable: the value is no table.
    """
    if not isinstance(value, Mapping):
        raise NotEditable("only whole tables are written")
    return _append_table(text, f"[[{_render_key(path)}]]", value)


def remove(text: str, path: Steps) -> str:
    """Return the text without a table and those below it, or without one of a list of tables."""
    tables = list(_tables(text))
    if isinstance(path[-1], int):
        heads = [n for n, t in enumerate(tables) if t.is_element and t.path == path[:-1]]
        if path[-1] >= len(heads):
            return text
        first = heads[path[-1]]
        until = heads[path[-1] + 1] if path[-1] + 1 < len(heads) else len(tables)
        own = [t for n, t in enumerate(tables[first:until]) if _is_below(t.path, path[:-1])]
    else:
        own = [t for t in tables if _is_below(t.path, path)]
    for table in reversed(own):
        text = _cut(text, table)
    return text


def _cut(text: str, table: _Table) -> str:
    before, after = text[: table.start], text[table.end :]
    # One blank line stood before it, and goes with it.
    if re.search(r"(?:\A|\n)[ \t]*\r?\n\Z", before):
        before = re.sub(r"[ \t]*\r?\n\Z", "", before)
    if after.startswith("\r\n") or after.startswith("\n"):
        after = after.removeprefix("\r").removeprefix("\n")
    return before + after


def _is_below(path: tuple[str, ...], above: Steps) -> bool:
    return path[: len(above)] == tuple(above)


def _append_table(text: str, header: str, value: Mapping[str, Any]) -> str:
    break_ = _line_break(text)
    before = text if not text or text.endswith("\n") else text + break_
    gap = break_ if before.strip("\ufeff") else ""
    return before + gap + break_.join([header, *_render_members(value)]) + break_


def _render_members(value: Mapping[str, Any]) -> list[str]:
    return [f"{_render_key((name,))} = {_render(item)}" for name, item in value.items()]


def _render_key(path: Steps) -> str:
    return ".".join(
        str(step) if _BARE.fullmatch(str(step)) else _render(str(step)) for step in path
    )


def _render(value: Any) -> str:
    if isinstance(value, Mapping):
        members = ", ".join(_render_members(value))
        return f"{{ {members} }}" if members else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_render, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise NotEditable(f"TOML has no {type(value).__name__}")


def _line_break(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _end_of_line(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end


def _tables(text: str) -> Iterator[_Table]:
    """Yield the tables of a text in order; comments before a header belong to the table before."""
    head: tuple[tuple[str, ...], bool, int] | None = None
    last = 0  # where the last statement ended
    for start, end in _statements(text):
        line = text[start:end]
        if line.lstrip().startswith("["):
            if head is not None:
                yield _Table(*head, last)
            indent = len(line) - len(line.lstrip())
            head = (*_read_header(line), start + indent)
        last = end
    if head is not None:
        yield _Table(*head, last)


def _statements(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each header and each assignment begins and ends, its comment included."""
    start, depth = 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] == "\n":
            if depth == 0:
                end = token.start()
                if _says_something(text[start:end]):
                    yield start, end - text[start:end].endswith("\r")
                start = token.end()
        elif token[0] in {"[", "{"}:
            depth += 1
        elif token[0] in {"]", "}"}:
            depth -= 1
    if _says_something(text[start:]):
        yield start, len(text)


def _says_something(line: str) -> bool:
    return bool(line.strip("\ufeff \t\r\n")) and not line.lstrip("\ufeff \t").startswith("#")


def _read_header(line: str) -> tuple[tuple[str, ...], bool]:
    value, path = read(line), list[str]()
    is_element = line.lstrip().startswith("[[")
    while value:
        [(name, value)] = value.items()
        path.append(name)
        if isinstance(value, list):
            value = value[0]
    return tuple(path), is_element
