"""Files that people import: Markdown of every sort, JSON and JSON lines of every format, exports.

Not here: sending what was found (the client's `importing/storing.py`).
"""

import json
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

from memrelay.importing import (
    chatgpt,
    claude,
    conversations,
    drafts,
    formats,
    gemini,
    json_stream,
    markdown,
    memoryclaw,
    outline,
    records,
    relative,
    session_logs,
    shapes,
    sources,
    times,
    workspace,
)
from tests.client import conversations_scene as scene
from tests.fuzz.loop import Parser

_FOLDER = Path(tempfile.gettempdir())
_MARKDOWN = ("markdown", "openclaw", "hermes", "memsearch", "memoryclaw", "text", "memrelay")
_JSON = (*sorted(records.READERS), "memoryclaw", "mcp-memory")
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


def _read(data: bytes, kinds: tuple[str, ...], suffixes: tuple[str, ...]) -> None:
    """The first byte chooses format and name; every file gives entries and faults, no error."""
    first = data[0] if data else 0
    suffix = suffixes[first // len(kinds) % len(suffixes)]
    path = _FOLDER / f"memrelay-fuzz-{os.getpid()}{suffix}"
    path.write_bytes(data[1:])
    try:
        file = sources.File(path, f"memory/2026-05-08{suffix}")
        formats.format_of(file)
        for one in formats.read(file, kinds[first % len(kinds)], zone=UTC):
            assert isinstance(one, formats.Content)
            if isinstance(one, conversations.Conversation):
                for part in conversations.parts(one, UTC):
                    assert len(part.text.encode()) <= 64 * 1024
    finally:
        path.unlink()


def _markdown_seeds() -> Iterator[bytes]:
    texts = (
        "# Project\n\nTea.\n\n## Trip 2026-05-08\n\n- one\n- two\n  more\n\n```\nx\n```\n",
        "---\ntimestamp: 2026-05-08T09:30:00Z\nsummary: Trip\ntags: [a]\n---\n\n# Fact\n- x: y\n",
        "<!-- session: abc -->\n## 09:30 (Europe/Berlin)\n\n> quoted\n\n1. one\n<!-- a\nb -->\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n***\n\nLast *line*\n",
        "## 14:00 - call\n- today\n§\n<!-- observed: 2026-05-08 | status: superseded -->\n- a",
        "## Memory Compact 09:30\n\n- a [score=0.9 source=memory/2026-05-08.md:1-1]\n",
    )
    for at in range(len(_MARKDOWN)):
        for text in texts:
            yield bytes([at]) + text.encode()


MARKDOWN = Parser(
    (markdown, outline, workspace, times, relative, memoryclaw, formats, drafts),
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
        '{"type":"entity","name":"a","entityType":"b","observations":["c"]}\n{"type":"relation"}',
    )
    for at in range(2 * len(_JSON)):
        for text in texts:
            yield bytes([at]) + text.encode()


JSONL = Parser(
    (records, memoryclaw, formats, drafts),
    _json_seeds,
    lambda data: _read(data, _JSON, (".jsonl", ".json")),
    WORDS,
)


def _export_seeds() -> Iterator[bytes]:
    texts = (
        json.dumps([scene.CHAT]),
        json.dumps([scene.CLAUDE_CHAT]),
        json.dumps(scene.GEMINI_JSON, ensure_ascii=False),
        json.dumps(scene.GEMINI_HISTORY),
        scene.gemini_page("Prompted&nbsp;a<br>Nov 20, 2025, 2:30:05 PM CET<br><p>b</p>"),
        scene.CLAUDE_CODE,
        *scene.CODEX.values(),
        scene.GEMINI_CLI,
        '[{"role":"user","content":[{"type":"text","text":"a"}],"timestamp":1763632800000}]',
    )
    for at in range(len(formats.CONVERSATIONS)):
        for text in texts:
            yield bytes([at]) + text.encode()


EXPORTS = Parser(
    (chatgpt, claude, gemini, session_logs, conversations, json_stream, shapes, formats),
    _export_seeds,
    lambda data: _read(data, formats.CONVERSATIONS, (".json", ".jsonl", ".html")),
    (
        *WORDS,
        b'"role":"user"',
        b'"mapping":{',
        b'"parent":',
        b"<system-reminder>",
        b"<br>",
        b"\\ud83d",
    ),
)
