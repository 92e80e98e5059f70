"""The shape of JSON by its beginning: which members its first objects have.

It does not own which program writes which shape (`formats.py`).

- A file's beginning is enough, wherever it is cut: objects may be larger than that.
- Work is linear in the beginning.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_LINES_MAX: Final = 64
_MARK = re.compile(r'["{}\[\]:,]')
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_DEPTH_MAX: Final = 64
_VALUE_CHARS_MAX: Final = 128

_Stack = list[dict[str, str] | None]


@dataclass
class Shape:
    """The members of the first object, and of the first one in the first list of objects.

    Of a member that is a text, the value is that text, up to 128 characters; of others, "".
    """

    top: dict[str, str] = field(default_factory=dict)
    item: dict[str, str] = field(default_factory=dict)
    is_list: bool = False


def shape_of(head: str) -> Shape:
    """Return the shape of a JSON text by its beginning."""
    shape = Shape(is_list=head.lstrip()[:1] == "[")
    stack: _Stack = []  # of each open bracket, where its members are noted
    key, at, is_value = "", 0, False
    while mark := _MARK.search(head, at):
        at = mark.end()
        target = stack[-1] if stack else None
        if mark[0] == '"':
            string = _STRING.match(head, mark.start())
            if string is None:
                break
            at = string.end()
            if target is not None and is_value and key:
                target[key] = _plain(string[0])
            elif target is not None:
                key = _plain(string[0])
                target.setdefault(key, "")
        elif mark[0] in "{[":
            if len(stack) == _DEPTH_MAX:
                break
            stack.append(_target_of(shape, stack, mark[0]))
            key, is_value = "", False
        elif mark[0] in "}]":
            if not stack:
                break
            stack.pop()
            if not stack:
                break
            key, is_value = "", False
        else:
            is_value = mark[0] == ":"
    return shape


def _target_of(
    shape: Shape, stack: list[dict[str, str] | None], mark: str
) -> dict[str, str] | None:
    """Return where the members of an object are noted that opens here; nowhere for most."""
    if mark == "[":
        return None
    depth = 1 if shape.is_list else 0
    if len(stack) == depth and not shape.top:
        return shape.top
    is_in_list = len(stack) == depth + 2 and stack[depth] is shape.top and stack[depth + 1] is None
    return shape.item if is_in_list and not shape.item else None


def _plain(string: str) -> str:
    try:
        return str(json.loads(string))[:_VALUE_CHARS_MAX]
    except ValueError:
        return ""


def first_lines(head: str) -> list[Mapping[str, Any]]:
    """Return the objects of the first whole lines; none if the first one is not a whole object."""
    found: list[Mapping[str, Any]] = []
    for line in head.split("\n")[:_LINES_MAX]:
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(value, Mapping):
            break
        found.append(value)
    return found
