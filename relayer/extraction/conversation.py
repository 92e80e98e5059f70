"""A conversation taken apart: what facts may come from, message by message.

It does not own the formats that are read (`labels.py`, `transcripts.py`), what in a message is its
author's (`material.py`), its sentences (`sentences.py`), nor which of these is worth keeping
(`judge.py`).

- A message is read by itself: what becomes of it does not depend on the messages around it, so the
  same message sent again in another window yields the same sentences.
- Quoted lines, code, tool output and XML blocks are material of others and yield no sentence.
- What was never said in the conversation is not heard: messages of tools and systems, what a model
  only thought, blocks that programs put into a message, and the files that an agent is started
  with.
- In a numbered part only the first line says who speaks: what a tool returned may look like more.
- Time is linear in the text.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from typing import Final

from relayer.extraction.injection_filter import orders_the_reader, takes_over
from relayer.extraction.labels import ROLE_LINE, parse_labels
from relayer.extraction.material import (
    own_words,
    without_blocks,
    without_code,
    without_injected,
    without_quotes,
    without_reasoning,
)
from relayer.extraction.message import Message
from relayer.extraction.transcripts import transcript_messages

# What a message begins with that is a file an agent is started with, such as `# SOUL.md`.
_BOOT_FILE: Final = re.compile(
    r"[^\w\n]{0,8}(?:(?i:file|contents? of)[: ]{1,2})?(?:[\w.~-]{0,64}/){0,12}"
    r"(?:AGENTS|BOOT|BOOTSTRAP|CLAUDE|GEMINI|HEARTBEAT|IDENTITY|MEMORY|SOUL|TOOLS|USER)\.md"
    r"[^\w\n]{0,8}(?:\n|\Z)"
)
_NUMBERED_LINE: Final = re.compile(r"^[ \t]*(\d{1,5})\. ", re.MULTILINE)
_PIECE: Final = re.compile(r"[^.!?\n]*[.!?\n]+|[^.!?\n]+")


def messages(text: str) -> list[Message]:
    """Return the messages of `text`: of a transcript, of numbered parts, of lines with labels, or
    one message of unknown role."""
    text = text.replace("\r\n", "\n")
    found = transcript_messages(text)
    return parse_labels(text) if found is None else [message for message in found if message.text]


def select_messages(text: str) -> list[Message]:
    """Return the messages of `text` that facts may come from.

    One whose author orders its reader to break rules is left out whole: its other sentences are
    what it wants stored. Where only quotes or single sentences do, these are left out.
    """
    text = text.replace("\r\n", "\n")
    found = transcript_messages(text)
    if found is None:
        found = parse_labels(_without_injected(text))
    said = [
        replace(message, text=_own_statement(message))
        for message in found
        if message.role != "other" and not _BOOT_FILE.match(message.text)
    ]
    return [message for message in said if message.text]


def _own_statement(message: Message) -> str:
    """Return what the author of a message said in it, and no order to whoever reads it."""
    text = message.text
    if message.role in ("assistant", "unknown"):
        text = without_reasoning(text, is_open=message.role == "assistant")
    return _without_orders(without_injected(text).strip())


def _without_orders(text: str) -> str:
    if not orders_the_reader(text):
        return text
    if takes_over(without_quotes(without_code(text))) or takes_over(own_words(text)):
        return ""
    pieces = _PIECE.findall(own_words(text))
    return "".join(piece for piece in pieces if not orders_the_reader(piece)).strip()


def _without_injected(text: str) -> str:
    """Return `text` without blocks that programs put into a message; one across messages is none.

    Such a block may hold a numbered list, which begins with 1; the next message does not.
    """
    roles = [match.start() for match in ROLE_LINE.finditer(text)]
    numbers = [(match.start(), match[1]) for match in _NUMBERED_LINE.finditer(text)]

    def is_of_one_message(begin: int, end: int) -> bool:
        role, number = bisect_left(roles, begin), bisect_left(numbers, (begin, ""))
        crossed = any(at < end for at in roles[role : role + 1])
        return not crossed and all(at >= end or n == "1" for at, n in numbers[number : number + 1])

    return without_blocks(text, is_of_one_message)


def transcript(said: Sequence[Message]) -> str:
    """Return messages as a numbered list with what is known of who wrote them, and when.

    Lines after a message's first are indented, so that none of them passes for another message.
    """
    lines = [_label_text(message) for message in said]
    if len(lines) < 2:
        return "".join(lines)
    return "\n\n".join(f"{n}. {line}" for n, line in enumerate(lines, start=1))


def _label_text(message: Message) -> str:
    text = message.text.replace("\n", "\n  ")
    if message.role == "unknown":
        return text
    who = f"{message.speaker} ({message.role})" if message.speaker else message.role
    if message.said_at is not None:
        who = f"[{message.said_at.astimezone(UTC):%Y-%m-%d %H:%M}] {who}"
    return f"{who}: {text}"
