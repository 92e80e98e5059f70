"""A page: memories as Markdown, each with YAML front matter, for people, editors and git.

It does not own which memories stand on which page (`exporting.py`), or storing those of a page.

- Values are JSON, which is valid YAML and needs no parser of its own. A bare word is a text.
- A line of the text that could be taken for the edge of front matter has a backslash before it, so
  that every text comes back as it was.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

FIELDS = (
    "id",
    "namespace",
    "created_at",
    "event_time",
    "kind",
    "tags",
    "source",
    "importance",
    "confidence",
    "expires_at",
    "metadata",
)

_EDGE = "---"
_EDGE_LIKE = re.compile(r"^(\\*---[^\S\n]*)$", re.MULTILINE)
_ESCAPED = re.compile(r"^\\(\\*---[^\S\n]*)$", re.MULTILINE)
_HEAD = re.compile(rf'{_EDGE}\r?\nid: "[0-9a-f-]{{36}}"')
_MEMBER = re.compile(rf"({'|'.join(FIELDS)}):\s*(.*)")


def page(records: Iterable[Mapping[str, Any]]) -> str:
    """Return the page of some memories, each with its fields and a `text`."""
    return "\n".join(map(_block, records))


def _block(record: Mapping[str, Any]) -> str:
    fields = [
        f"{name}: {json.dumps(record[name], ensure_ascii=False)}"
        for name in FIELDS
        if name in record
    ]
    text = _EDGE_LIKE.sub(r"\\\1", record["text"])
    return "\n".join([_EDGE, *fields, _EDGE, "", text, ""])


def is_page(head: str) -> bool:
    """Return whether a text begins like a page that was exported."""
    return _HEAD.match(head) is not None


def read_page(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the memories of a page, each with the number of its first line.

    A record has a `text` and the fields that were given; a value that is no JSON is a text.
    """
    if text.startswith(f"{_EDGE}\r\n"):
        text = text.replace("\r\n", "\n")  # an editor or git changed every line
    lines = text.split("\n")
    starts = [number for number in range(len(lines) - 1) if _starts(lines, number)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield start + 1, _record(lines[start + 1 : end])


def _starts(lines: list[str], number: int) -> bool:
    return lines[number].rstrip() == _EDGE and _MEMBER.match(lines[number + 1]) is not None


def _record(lines: list[str]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    while lines and (member := _MEMBER.match(lines[0])):
        record[member[1]] = _value(member[2].strip())
        lines = lines[1:]
    if lines and lines[0].rstrip() == _EDGE:
        lines = lines[1:]
    text = "\n".join(lines).removeprefix("\n").removesuffix("\n")
    return {**record, "text": _ESCAPED.sub(r"\1", text)}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
