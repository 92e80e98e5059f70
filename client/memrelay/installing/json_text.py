"""Edits a JSON text in place: JSON, with comments and trailing commas, or JSON5.

It does not own files (`config_files.py`) or the check of what came out (`documents.py`).

- Only what is asked for changes: comments, order, indentation, line ends and commas stay.
- What is written is plain JSON, which every reader of these forms takes.
- Time is linear in the text.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from memrelay.installing.errors import NotEditable, Steps

_DEPTH_MAX = 100
_BLANK: Final = re.compile(r"[\s\ufeff]*")
_NAME: Final = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
_NUMBER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|Infinity|NaN|[0-9.][0-9.eE+-]*)")
_WORDS: Final = {"true": True, "false": False, "null": None}
_DOUBLE: Final = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SINGLE: Final = re.compile(r"'(?:[^'\\]|\\.)*+'", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|\r\n|.)", re.DOTALL)
_FOLLOWING: Final = re.compile(r"[\s,:\]}/\ufeff]|\Z")
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}


class _Number(str):
    """A number of JSON5 that JSON has not, as it is written."""

    __slots__ = ()


@dataclass(slots=True)
class _Node:
    """A value and where it stands; `items` are those of an object or a list."""

    start: int
    end: int
    value: Any = None
    items: "list[_Item] | None" = None


@dataclass(slots=True)
class _Item:
    """A member of an object or an element of a list, and the comma behind it."""

    start: int
    node: _Node
    name: str | None = None
    comma: int | None = None


@dataclass(frozen=True, slots=True)
class _Tree:
    """A text, its outermost value if it has one, and where its comments stand."""

    text: str
    root: _Node | None
    comments: list[tuple[int, int]]

    def is_behind_line_comment(self, place: int) -> bool:
        """Return whether a comment that lasts to the end of its line ends at a place."""
        return any(end == place and self.text.startswith("//", at) for at, end in self.comments)


def read(text: str) -> Any:
    """Return the value of a text, an empty object for one of blanks and comments alone.

    Raises:
        NotEditable: it is none of these forms, or a name occurs twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        root = _parse(text, ()).root  # which reads more, and says what is wrong where
    return {} if root is None else _value(root)


def set_value(text: str, path: Steps, value: Any) -> str:
    """Return the text with a value at a path; objects that are missing on the way are made.

    Raises:
        NotEditable: something on the way is no object.
    """
    tree = _parse(text, path)
    if tree.root is None:
        return _begin(text, _nest(path, value))
    node = tree.root
    for number, step in enumerate(path):
        item = _find(node, step, path)
        if item is None:
            return _insert(tree, node, step, _nest(path[number + 1 :], value))
        node = item.node
    if node.items and "\n" not in text[node.start : node.end]:
        new = json.dumps(value, ensure_ascii=False)
    else:
        new = _render(text, value, _line_indent(text, node.start))
    return text[: node.start] + new + text[node.end :]


def append(text: str, path: Steps, value: Any) -> str:
    """Return the text with one more element at the end of a list, which is made if missing.

    Raises:
        NotEditable: it is no list, or something on the way is no object.
    """
    tree = _parse(text, path)
    node = None if tree.root is None else _descend(tree.root, path)
    if node is None:
        return set_value(text, path, [value])
    if not isinstance(node.value, list):
        raise NotEditable(f"{_format_path(path)} is no list")
    return _insert(tree, node, None, value)


def remove(text: str, path: Steps) -> str:
    """Return the text without the member or element at a path; a missing one is no fault."""
    tree = _parse(text, path)
    parent = None if tree.root is None else _descend(tree.root, path[:-1])
    item = None if parent is None else _find(parent, path[-1], path)
    return text if parent is None or item is None else _cut(tree, parent, item)


def _parse(text: str, path: Steps) -> _Tree:
    parser = _Parser(text, path)
    return _Tree(text, parser.parse(), parser.comments)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name occurs twice")
    return value


def _nest(path: Sequence[str | int], value: Any) -> Any:
    for step in reversed(path):
        value = {step: value}
    return value


def _descend(node: _Node, path: Steps) -> _Node | None:
    for step in path:
        item = _find(node, step, path)
        if item is None:
            return None
        node = item.node
    return node


def _find(node: _Node, step: str | int, path: Steps) -> _Item | None:
    if not isinstance(node.value, list if isinstance(step, int) else dict):
        raise NotEditable(f"{_format_path(path)} does not lead through objects")
    assert node.items is not None
    if isinstance(step, int):
        return node.items[step] if step < len(node.items) else None
    return next((item for item in node.items if item.name == step), None)


def _format_path(path: Steps) -> str:
    return ".".join(map(str, path))


def _value(node: _Node) -> Any:
    if node.items is None:
        return node.value  # that of a whole object or list, where it was plain JSON
    if isinstance(node.value, list):
        return [_value(item.node) for item in node.items]
    return {item.name: _value(item.node) for item in node.items}


def _begin(text: str, value: Any) -> str:
    """Return a text that has no value yet with one."""
    break_ = _line_break(text)
    before = text if not text.strip("\ufeff") or text.endswith("\n") else text + break_
    return before + _render(text, value, "") + break_


def _insert(tree: _Tree, node: _Node, name: str | int | None, value: Any) -> str:
    """Return the text with one more item at the end of an object or a list."""
    assert node.items is not None
    text, items, end = tree.text, node.items, node.end - 1
    base, break_ = _line_indent(text, node.start), _line_break(text)
    place = max([at for _, at in tree.comments if node.start < at <= end], default=node.start + 1)
    if items:
        comma = items[-1].comma
        place = max(place, items[-1].node.end if comma is None else comma + 1)
    multiline = not items or "\n" in text[node.start : end]
    indent = (_own_indent(text, items[-1].start) if items else None) or base + _unit(text)
    head = "" if name is None else f"{json.dumps(name, ensure_ascii=False)}: "
    body = _render(text, value, indent) if multiline else json.dumps(value, ensure_ascii=False)
    trailing = "," if items and items[-1].comma is not None else ""
    before = f"{break_}{indent}" if multiline else " "
    after = f"{break_}{base}" if multiline and "\n" not in text[place:end] else ""
    edits = [(place, place, f"{before}{head}{body}{trailing}{after}")]
    if items and not trailing:
        edits.insert(0, (items[-1].node.end, items[-1].node.end, ","))
    return _apply(text, edits)


def _cut(tree: _Tree, parent: _Node, item: _Item) -> str:
    """Return the text without an item, its comma, and the blanks before it."""
    assert parent.items is not None
    text, number = tree.text, parent.items.index(item)
    start, end = len(text[: item.start].rstrip()), item.node.end
    edits = []
    if item.comma is not None and not text[end : item.comma].strip():
        end = item.comma + 1
    elif item.comma is not None:  # behind a comment, which stays
        edits.append((item.comma, item.comma + 1, ""))
    elif number:
        comma = parent.items[number - 1].comma
        assert comma is not None
        edits.append((comma, comma + 1, ""))
    is_first_of_line = "\n" in text[start : item.start]
    if start == parent.start + 1 and not is_first_of_line:
        start, end = item.start, len(text) - len(text[end:].lstrip(" \t"))
    elif tree.is_behind_line_comment(start) and not re.match(r"[ \t]*\r?\n", text[end:]):
        start = text.index("\n", start) + 1
    if len(parent.items) == 1 and not edits:
        inside = text[parent.start + 1 : start] + text[end : parent.end - 1]
        if not inside.strip():
            return text[: parent.start + 1] + text[parent.end - 1 :]
    return _apply(text, [*edits, (start, end, "")])


def _apply(text: str, edits: list[tuple[int, int, str]]) -> str:
    """Return the text with pieces of it replaced; of two at one place the first comes first."""
    for (start, _), (end, new) in sorted(
        (((edit[0], number), edit[1:]) for number, edit in enumerate(edits)), reverse=True
    ):
        text = text[:start] + new + text[end:]
    return text


def _find_end_of_line(text: str, place: int) -> int:
    end = text.find("\n", place)
    if end < 0:
        return len(text)
    return end - 1 if text[end - 1] == "\r" else end


def _render(text: str, value: Any, indent: str) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return f"{_line_break(text)}{indent}".join(lines)


def _line_break(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """Return the indentation of one level: the first that the text has, else two blanks."""
    found = re.search(r"^(\t|  +)\S", text, re.MULTILINE)
    return found[1] if found else "  "


def _line_indent(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip())]


def _own_indent(text: str, place: int) -> str | None:
    """Return the blanks before an item, None if something else stands on its line."""
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return None if line.strip() else line


class _Parser:
    """Reads a text into values that know their places, as far as a path leads through them.

    What is beside the path, and plain JSON, is read by the library, which is many times faster.
    """

    def __init__(self, text: str, path: Steps) -> None:
        self._text = text
        self._path = path
        self._place = 0
        self._decoder = json.JSONDecoder(object_pairs_hook=_unique)
        self.comments: list[tuple[int, int]] = []

    def parse(self) -> _Node | None:
        self._skip()
        if self._place == len(self._text):
            return None
        node = self._parse_value(0, on_path=True)
        self._skip()
        if self._place != len(self._text):
            self._fail()
        return node

    def _fail(self, why: str = "this is no JSON") -> NoReturn:
        line = self._text.count("\n", 0, self._place) + 1
        raise NotEditable(f"line {line}: {why}")

    def _skip(self) -> None:
        text = self._text
        while True:
            blank = _BLANK.match(text, self._place)
            assert blank is not None
            self._place = blank.end()
            if text.startswith("//", self._place):
                end = _find_end_of_line(text, self._place)
            elif text.startswith("/*", self._place):
                end = text.find("*/", self._place + 2) + 2
                if end < 2:
                    self._fail("a comment has no end")
            else:
                return
            self.comments.append((self._place, end))
            self._place = end

    def _parse_value(self, depth: int, *, on_path: bool) -> _Node:
        if depth > _DEPTH_MAX:
            self._fail("it is nested too deeply")
        if not on_path and (plain := self._parse_plain()) is not None:
            return plain
        start, char = self._place, self._text[self._place : self._place + 1]
        if char and char in "{[":
            return self._parse_items(start, "}" if char == "{" else "]", depth, on_path)
        if char and char in "\"'":
            text = self._parse_string()
            return _Node(start, self._place, text)
        return self._parse_word(start)

    def _parse_plain(self) -> _Node | None:
        """Return a value of plain JSON, None if it is anything else."""
        start = self._place
        try:
            value, end = self._decoder.raw_decode(self._text, start)
        except (ValueError, RecursionError):
            return None
        if _FOLLOWING.match(self._text, end) is None:  # a number of JSON5 begins as one of JSON
            return None
        self._place = end
        return _Node(start, end, value)

    def _parse_items(self, start: int, closing: str, depth: int, on_path: bool) -> _Node:
        items: list[_Item] = []
        names: set[str] = set()
        self._place += 1
        while True:
            self._skip()
            if self._text.startswith(closing, self._place):
                break
            if items and items[-1].comma is None:
                self._fail()
            step = len(items) if closing == "]" else None
            items.append(self._parse_item(step, depth, names, on_path))
            self._skip()
            if self._text.startswith(",", self._place):
                items[-1].comma = self._place
                self._place += 1
        self._place += 1
        return _Node(start, self._place, [] if closing == "]" else {}, items)

    def _parse_item(self, number: int | None, depth: int, names: set[str], on_path: bool) -> _Item:
        start, name = self._place, None
        if number is None:
            name = self._parse_name()
            if name in names:
                self._fail("a name occurs twice")
            names.add(name)
            self._skip()
            if not self._text.startswith(":", self._place):
                self._fail()
            self._place += 1
            self._skip()
        step = number if name is None else name
        leads = on_path and self._path[depth : depth + 1] == (step,)
        return _Item(start, self._parse_value(depth + 1, on_path=leads), name)

    def _parse_name(self) -> str:
        if self._text[self._place : self._place + 1] in {'"', "'"}:
            return self._parse_string()
        found = _NAME.match(self._text, self._place)
        if found is None:
            self._fail()
        self._place = found.end()
        return found[0]

    def _parse_string(self) -> str:
        form = _DOUBLE if self._text[self._place] == '"' else _SINGLE
        found = form.match(self._text, self._place)
        if found is None:
            self._fail("a text has no end")
        self._place = found.end()
        if form is _DOUBLE:
            try:
                return str(json.loads(found[0], strict=False))
            except ValueError:
                pass
        return _ESCAPE.sub(_unescape, found[0][1:-1])

    def _parse_word(self, start: int) -> _Node:
        found = _NUMBER.match(self._text, start) or _NAME.match(self._text, start)
        if found is None:
            self._fail()
        self._place = found.end()
        if found[0] in _WORDS:
            return _Node(start, self._place, _WORDS[found[0]])
        try:
            value = json.loads(found[0])
        except ValueError:
            if _NUMBER.fullmatch(found[0]) is None:
                self._fail()
            value = _Number(found[0])
        # It is not equal to itself.
        return _Node(start, self._place, _Number(found[0]) if found[0] == "NaN" else value)


def _unescape(found: "re.Match[str]") -> str:
    code = found[1]
    if code[0] in "ux" and len(code) > 1:
        return chr(int(code[1:], 16))
    return "" if code in {"\n", "\r\n", "\r"} else _ESCAPES.get(code, code)
