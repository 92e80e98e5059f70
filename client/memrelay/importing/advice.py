"""Advises on a file that holds nothing memrelay reads: what it is, and what to type instead.

It does not own the formats that are read (`formats.py`). Nothing of a file is quoted.
"""

import re
from collections.abc import Container
from typing import Final

from memrelay.importing.drafts import Page
from memrelay.importing.shapes import shape_of
from memrelay.importing.sources import File, text_of

READ: Final = (
    "memrelay reads the exports of ChatGPT, Claude, Gemini, mem0, MemWal and memrelay, sessions of"
    " Claude Code, Codex and Gemini CLI, the memories of OpenClaw, Hermes, memsearch, MemoryClaw"
    " and the MCP memory server, Markdown, text, and JSON lines with a text"
)
MEM0_EXPORT: Final = (
    "write mem0's memories of a user as JSON, with the configuration that your program uses, and"
    ' import that: python -c "import json; from mem0 import Memory; print(json.dumps('
    "Memory().get_all(filters={'user_id': 'USER'}, top_k=100000), default=str))\" > mem0.json"
)
_BEGINNINGS: Final = (
    (b"SQLite format 3\0", "a SQLite database"),
    (b"%PDF-", "a PDF document; save its text as .txt or .md"),
    (b"PK\x03\x04", "a zip archive; unpack it, and name the files or the folder"),
    (b"\x1f\x8b", "a gzip archive; unpack it, and name the files or the folder"),
    (b"BZh", "a bzip2 archive; unpack it, and name the files or the folder"),
    (b"\xfd7zXZ\0", "an xz archive; unpack it, and name the files or the folder"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it, and name the files or the folder"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive; unpack it, and name the files or the folder"),
    (b"PAR1", "a Parquet table; write its rows as JSON lines with a text"),
    (b"\xd0\xcf\x11\xe0", "an old Office document; save its text as .txt or .md"),
    (b"{\\rtf", "an RTF document; save its text as .txt or .md"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"RIFF", "a sound, a film or a picture"),
    (b"\x7fELF", "a program"),
    (b"\xff\xfe", "text in UTF-16; save it as UTF-8"),
    (b"\xfe\xff", "text in UTF-16; save it as UTF-8"),
)
_TABLES: Final = frozenset({".csv", ".tsv"})
_CAPTIONS: Final = frozenset({".srt", ".vtt", ".sbv"})
_ANALYZE: Final = "`memrelay analyze < FILE`"
_HTML: Final = re.compile(
    r"\s{0,64}(?:<!--.{0,400}?-->\s{0,64})?<(?:!doctype html|html|head|body)\b", re.I | re.S
)
_GEMINI: Final = re.compile(rb"\b(?:Gemini|Bard)\b")
_PAGE_BYTES: Final = 1 << 20
_MAIL: Final = re.compile(r"From \S+ .{0,80}\d{4}\n|(?:From|Return-Path|Delivered-To): ")


def is_page_of_gemini(file: File, head: str) -> bool:
    """Return whether a file is Takeout's page of what was asked of Gemini, by its beginning.

    A long style sheet stands before the first record.
    """
    if _HTML.match(head) is None or "mdl-" not in head:
        return False
    try:
        with file.stream() as stream:
            beginning = stream.read(_PAGE_BYTES)
    except (OSError, ValueError):
        return False
    return b"content-cell" in beginning and _GEMINI.search(beginning) is not None


def is_of_deepseek(members: Container[str]) -> bool:
    """Return whether an object is a conversation of DeepSeek, a tree as ChatGPT's."""
    return "mapping" in members and "inserted_at" in members


def describe(file: File, head: bytes) -> str | None:
    """Return what a file looks like, with what to do about it; None for text."""
    for beginning, words in _BEGINNINGS:
        if head.startswith(beginning):
            return _database(head) if words == "a SQLite database" else words
    if head[257:262] == b"ustar":
        return "a tar archive; unpack it, and name the files or the folder"
    if b"\0" in head:
        return "no text"
    if file.suffix in _TABLES:
        return (
            f"a table; of who said what, {_ANALYZE} finds the facts; else write its rows as JSON"
            ' lines, {"text": "…"}, or read it with --from text'
        )
    if file.suffix in _CAPTIONS:
        return f"captions of what was said; {_ANALYZE} finds the facts in them"
    text = text_of(head)
    if _HTML.match(text):
        if "jsonData" in text:
            return "ChatGPT's own page of its chats; name conversations.json, or the zip, instead"
        return "a page of HTML; save its text as .txt or .md"
    return "mail; save the text that matters as .txt or .md" if _MAIL.match(text) else None


def _database(head: bytes) -> str:
    if b"memory_id" in head and b"new_memory" in head:
        return f"mem0's history, which names neither users nor expiry; {MEM0_EXPORT}"
    if b"CREATE TABLE points" in head:
        return f"a store of Qdrant; if it is mem0's, {MEM0_EXPORT}"
    return "a SQLite database; export what it holds as JSON or Markdown"


def advise(file: File) -> str:
    """Return what a file of no known format looks like, and what to type."""
    head = file.head()
    found = describe(file, head)
    if found is not None:
        return f"it looks like {found}"
    text = text_of(head)
    if is_of_deepseek(shape_of(text).top):
        found = "DeepSeek's export, which memrelay does not read"
    elif text.lstrip()[:1] in {"{", "["}:
        found = "JSON of a shape that no program known here writes"
    else:
        found = "nothing that is known here"
    lines = 'write what matters as JSON lines: {"text": "…"}'
    return f"it looks like {found}; {lines}. {READ}"


def advise_on_page(page: Page, format: str) -> str:
    """Return what a file lacks that is one page of more, and what to type to have all of it."""
    if not page.is_certain:
        return (
            f"holds {page.held}, as many as mem0 gives unless somebody asks for more: there may be"
            " others. Ask for all of them: get_all(filters=…, top_k=100000)."
        )
    held = f"holds {page.held} of {page.total}" if page.total else f"holds {page.held} of more"
    if format == "mem0":
        return (
            f"{held}: it is a page of mem0's answer. Save the others, too, by get_all(filters=…,"
            ' page=2, page_size=100) and on, until "next" is null, and import all of them together.'
        )
    return (
        f"{held}: it is a page of an answer. Save the others, too, and import all of them together."
    )
