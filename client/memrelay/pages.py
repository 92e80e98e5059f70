"""A page: memories as Markdown, each with YAML front matter, for people, editors and git.

It does not own which memories stand on which page (`exporting.py`), or storing those of a page.

- Values are JSON, which is valid YAML and needs no parser of its own. A bare word is a text.
- A line of the text that could be taken for the edge of front matter has a backslash before it, so
  that every text comes back as it was.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise, takewhile
from typing import Any

MARKER = ".memrelay-export"  # the file that makes a folder one of pages, and says whose they are
FIELDS = (
    "id",
    "revision",
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
_HEAD = re.compile(rf'\ufeff?{_EDGE}\r?\nid: "[0-9a-f-]{{36}}"')
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


def read_page(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the memories of a page, each with the number of its first line.

    `lines` keep their ends. A record has a `text` and the fields that were given; a value that is
    no JSON is a text.
    """
    start, block = 0, list[str]()
    for number, (line, following) in enumerate(pairwise(chain(_alike(lines), [""])), 1):
        if line.rstrip() == _EDGE and _MEMBER.match(following):
            if start:
                block[-1] = block[-1].removesuffix("\n")  # of the empty line between two
                yield start, _record(block)
            start, block = number, []
        elif start:
            block.append(line)
    if start:
        yield start, _record(block)


def _alike(lines: Iterable[str]) -> Iterator[str]:
    changed = None
    for line in lines:
        if changed is None:
            changed = line.endswith("\r\n")  # an editor or git changed every line
        yield f"{line[:-2]}\n" if changed and line.endswith("\r\n") else line


def _record(lines: list[str]) -> dict[str, Any]:
    fields = list(takewhile(bool, map(_MEMBER.match, lines)))
    record = {member[1]: _value(member[2].strip()) for member in fields if member}
    rest = lines[len(fields) :]
    if rest and rest[0].rstrip() == _EDGE:
        rest = rest[1:]
    text = "".join(rest).removeprefix("\n").removesuffix("\n")
    return {**record, "text": _ESCAPED.sub(r"\1", text)}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
