"""Files that people import: Markdown of every sort, JSON and JSON lines of every format.

Not here: sending what was found (the client's `importing/storing.py`).
"""

import os
import tempfile
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

from memrelay.importing import files, found, markdown, memoryclaw, records
from tests.fuzz.loop import Parser

_FOLDER = Path(tempfile.gettempdir())
_MARKDOWN = ("markdown", "openclaw", "memsearch", "memoryclaw", "text", "memrelay")
_JSON = (*sorted(records.READERS), "memoryclaw")
WORDS = (
    *(b"# ", b"## ", b"- ", b"```", b"~~~", b"<!--", b"-->", b"---\n", b"***", b"> ", b"1. "),
    *(b"timestamp: ", b"summary: ", b"2026-05-08", b"T09:30:00+02:00", b"UTC", b"<!-- session:"),
    *(
        b"\n\n",
        b"    ",
        b'{"text":',
        b'{"memory":',
        b'"results":[',
        b'"created_at":',
        b'"metadata":{',
    ),
)


def _read(data: bytes, formats: tuple[str, ...], suffixes: tuple[str, ...]) -> None:
    """The first byte chooses format and name; every file gives entries and faults, no error."""
    first = data[0] if data else 0
    suffix = suffixes[first // len(formats) % len(suffixes)]
    path = _FOLDER / f"memrelay-fuzz-{os.getpid()}{suffix}"
    path.write_bytes(data[1:])
    try:
        file = files.File(path, f"memory/2026-05-08{suffix}")
        files.format_of(file)
        for one in files.read(file, formats[first % len(formats)], zone=UTC):
            assert isinstance(one, found.Entry | found.Fault)
    finally:
        path.unlink()


def _markdown_seeds() -> Iterator[bytes]:
    texts = (
        "# Project\n\nTea.\n\n## Trip 2026-05-08\n\n- one\n- two\n  more\n\n```\nx\n```\n",
        "---\ntimestamp: 2026-05-08T09:30:00Z\nsummary: Trip\ntags: [a]\n---\n\n# Fact\n- x: y\n",
        "<!-- session: abc -->\n## 09:30 (Europe/Berlin)\n\n> quoted\n\n1. one\n<!-- a\nb -->\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n***\n\nLast *line*\n",
    )
    for at in range(len(_MARKDOWN)):
        for text in texts:
            yield bytes([at]) + text.encode()


MARKDOWN = Parser(
    (markdown, memoryclaw, files, found),
    _markdown_seeds,
    lambda data: _read(data, _MARKDOWN, (".md", ".txt")),
    WORDS,
)


def _json_seeds() -> Iterator[bytes]:
    texts = (
        '{"text":"Tea.","kind":"fact","tags":[],"event_time":"2026-05-08"}\n{"text":""}',
        '{"results":[{"id":"1","memory":"tea","created_at":"2026-05-08T09:30:00Z","metadata":{}}]}',
        '[{"text":"a","metadata":{"b":"c"},"expires_at":null},{"text":"","importance":"vital"}]',
        '{"facts":{"a":"b","c":{"d":["e"]}},"confidence":0.9}',
    )
    for at in range(2 * len(_JSON)):
        for text in texts:
            yield bytes([at]) + text.encode()


JSONL = Parser(
    (records, memoryclaw, files, found),
    _json_seeds,
    lambda data: _read(data, _JSON, (".jsonl", ".json")),
    WORDS,
)
