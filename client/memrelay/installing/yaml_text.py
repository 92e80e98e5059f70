"""Edits a YAML text in place: a member of a mapping is added behind the others, or taken out.

It does not own files (`config_files.py`) or the check of what came out (`documents.py`). It needs
the extra `memrelay[yaml]`, which finds where things stand; what is not changed is not written anew.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from memrelay.installing.errors import NotEditable, Steps

try:
    import yaml
except ImportError:
    raise NotEditable(
        'it is YAML, which needs an extra; in a checkout: pip install "./client[yaml]"'
    ) from None


def read(text: str) -> Any:
    """Return the value of a text, an empty object for an empty one.

    Raises:
        NotEditable: it is no YAML, or has more than plain values in it.
    """
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise NotEditable("this is no plain YAML") from None
    return {} if value is None else value


def set_value(text: str, path: Steps, value: Any) -> str:
    """Return the text with a value at a path; mappings that are missing on the way are made.

    Raises:
        NotEditable: something on the way is no mapping.
    """
    if (found := _find(text, path)) is not None:
        start, end = _lines_of(text, path, *found)
        indent = " " * found[1][0].start_mark.column
        return text[:start] + _dump(text, {path[-1]: value}, indent) + text[end:]
    node, steps = _compose(text), list(path)
    if node is None:
        return _append_lines(text, len(text), "", _nest(steps, value))
    while len(steps) > 1 and (pair := _member(node, steps[0])) is not None:
        node, steps = pair[1], steps[1:]
    if not isinstance(node, yaml.MappingNode):
        raise NotEditable(f"{'.'.join(map(str, path))} does not lead through mappings")
    if not node.flow_style:
        indent = " " * node.value[0][0].start_mark.column
        return _append_lines(text, _end_of(text, node), indent, _nest(steps, value))
    if node.value:
        place = node.end_mark.index - 1
        [(name, nested)] = _nest(steps, value).items()
        return f"{text[:place].rstrip()}, {json.dumps(name)}: {json.dumps(nested)}{text[place:]}"
    # An empty one in braces becomes lines of its own.
    start = node.start_mark
    line = text[text.rfind("\n", 0, start.index) + 1 : start.index]
    indent = line[: len(line) - len(line.lstrip())] + ("  " if line.strip() else "")
    head = text[: start.index].rstrip(" ")
    rest = text[node.end_mark.index :]
    gap = _line_break(text) if line.strip() else ""
    return f"{head}{gap}{_dump(text, _nest(steps, value), indent).rstrip()}{rest}"


def append(text: str, path: Steps, value: Any) -> str:
    """Refuse: no program whose YAML is edited here has a list to append to.

    Raises:
        NotEditable: always.
    """
    raise NotEditable(f"{'.'.join(map(str, path))} is a list in YAML")


def remove(text: str, path: Steps) -> str:
    """Return the text without a member of a mapping; a missing one is no fault."""
    found = _find(text, path)
    if found is None:
        return text
    parent = found[0]
    start, end = _lines_of(text, path, *found)
    if len(parent.value) > 1 or len(path) == 1:
        return text[:start] + text[end:]
    # Without a member it would be null: it is said to be empty.
    opening = len(text[:start].rstrip())
    return f"{text[:opening]} {{}}{_line_break(text)}{text[end:]}"


def _lines_of(text: str, path: Steps, parent: Any, pair: tuple[Any, Any]) -> tuple[int, int]:
    """Return where the lines of a member begin and end."""
    key, value = pair
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    if parent.flow_style or text[start : key.start_mark.index].strip("\ufeff "):
        raise NotEditable(f"{'.'.join(map(str, path))} has no lines of its own")
    return start, _line_end(text, max(_end_of(text, value), key.end_mark.index))


def _compose(text: str) -> Any:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise NotEditable("this is no plain YAML") from None


def _find(text: str, path: Steps) -> tuple[Any, tuple[Any, Any]] | None:
    """Return the mapping in which a path ends, and the key and value there."""
    node, parent, pair = _compose(text), None, None
    for step in path:
        parent, pair = node, _member(node, step)
        if pair is None:
            return None
        node = pair[1]
    return None if parent is None or pair is None else (parent, pair)


def _member(node: Any, name: str | int) -> tuple[Any, Any] | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((pair for pair in node.value if pair[0].value == name), None)


def _end_of(text: str, node: Any) -> int:
    """Return where the last scalar of a node ends: a mapping's own mark is past comments."""
    last = max(_leaves(node), key=lambda leaf: leaf.end_mark.index)
    return int(last.end_mark.index)


def _leaves(node: Any) -> Iterator[Any]:
    # A mapping in lines may be nested as deeply as the parser allows.
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, yaml.ScalarNode) or one.flow_style or not one.value:
            yield one
        elif isinstance(one, yaml.MappingNode):
            stack += [part for pair in one.value for part in pair]
        else:
            stack += one.value


def _append_lines(text: str, place: int, indent: str, value: Any) -> str:
    place = _line_end(text, place)
    before = text[:place]
    gap = _line_break(text) if before.strip("\ufeff") and not before.endswith("\n") else ""
    return before + gap + _dump(text, value, indent) + text[place:]


def _dump(text: str, value: Any, indent: str) -> str:
    lines = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000).splitlines()
    break_ = _line_break(text)
    return "".join(f"{indent}{line}{break_}" for line in lines)


def _line_end(text: str, place: int) -> int:
    """Return where the line after the one of a place begins; a block of text ends behind one."""
    if place and text[place - 1] == "\n":
        return place
    end = text.find("\n", place)
    return len(text) if end < 0 else end + 1


def _line_break(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _nest(path: Sequence[str | int], value: Any) -> Any:
    for step in reversed(path):
        value = {step: value}
    return value
