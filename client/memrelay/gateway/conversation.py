"""A conversation as its people wrote it: without what gateways and we ourselves put into it.

It does not own which message is worth keeping (`filters.py`).

- What was injected is never captured: memory must not feed on itself.
- A message keeps its words; only blocks, lines and prefixes that no person wrote are taken out.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from memrelay.gateway.events import ASSISTANT, USER, Message
from memrelay.gateway.filters import is_worth_keeping, without_noise
from memrelay.gateway.settings import (
    COLD_START_TAG,
    CORE_PLUS_TAG,
    MEMWAL_TAG,
    GatewaySettings,
)

QUERY_CHARS_MAX = 2000  # a question is shorter; what follows it is material, and costs time
CONVERSATION_BYTES_MAX = 60_000  # the relayer reads 64 KiB; numbers and roles come on top

_OWN_BLOCK = re.compile(
    rf"<\s{{0,4}}(?P<end>/?)\s{{0,4}}(?:{MEMWAL_TAG}|{CORE_PLUS_TAG}|{COLD_START_TAG})\b[^<>]*>",
    re.IGNORECASE,
)
# What OpenClaw 2026.9 wraps runtime context in, and its own active memory.
_GATEWAY_BLOCK = re.compile(
    r"<<<(?:BEGIN|(?P<end>END))_OPENCLAW_INTERNAL_CONTEXT>>>|<(?P<close>/?)active_memory_plugin>"
)
_CONTEXT_MARK = "⟦openclaw:ctx⟧"
_CONTEXT_HEADER: Final = re.compile(
    rf".{{1,200}} {_CONTEXT_MARK}|[A-Z][^\n()]{{0,80}} \((?:untrusted|metadata)[^\n()]{{0,80}}\):"
)
_GATEWAY_LINE: Final = re.compile(
    r"System: .*|Context:|Current message:|\[Replying to: .*\]|\[message_id: [^\]]*\]"
    r"|Delivery: .*`message` tool.*|Active goal: .*update_goal.*"
    r"|OpenClaw runtime (?:context|event)\b.*|This context is runtime-generated\b.*"
)
_STAMP: Final = re.compile(
    r"^ {0,4}\[[^\[\]\n]{0,120}\d{4}-\d\d-\d\d[T ]\d\d:\d\d[^\[\]\n]{0,40}\] {0,4}", re.MULTILINE
)


def strip_injected(text: str) -> str:
    """Return a text without the blocks of memories, ours or of the plugins we replace.

    A block that is not closed reaches to the end.
    """
    return _outside(text, _OWN_BLOCK)


def clean_query(text: str) -> str:
    """Return the user's own words of a prompt on one line, at most `QUERY_CHARS_MAX` characters."""
    return " ".join(cleaned(text).split())[:QUERY_CHARS_MAX].rstrip()


def cleaned(text: str) -> str:
    """Return a user's message without what a gateway put around it, line breaks kept."""
    outside = _outside(strip_injected(text.replace("\r\n", "\n")), _GATEWAY_BLOCK)
    lines = _without_context(outside.split("\n"))
    written = (line for line in lines if not _GATEWAY_LINE.fullmatch(line.strip()))
    return _STAMP.sub("", "\n".join(written)).strip()


def capturable(messages: Sequence[Message], settings: GatewaySettings) -> tuple[Message, ...]:
    """Return the messages of a turn's end that are worth capturing, cleaned, oldest first.

    None when too little is left. Together they fit one request: if need be, long ones are cut.
    """
    spoken = [message for message in map(_spoken, messages) if message.text]
    if settings.capture_scope == "turn":
        spoken = _last_turn(spoken)
    kept = []
    for message in spoken[-settings.capture_messages_max :]:
        text = message.text if settings.capture_noise else without_noise(message.text)
        if is_worth_keeping(text, settings):
            kept.append(replace(message, text=text))
    if settings.require_user_message and not any(message.role == USER for message in kept):
        return ()
    if sum(len(message.text) for message in kept) < settings.conversation_chars_min:
        return ()
    return _cut_to_fit(kept)


def numbered(messages: Sequence[Message]) -> str:
    """Return messages as the numbered list that the relayer reads, with their roles.

    A blank line only stands between messages, so that no text passes for another message.
    """
    return "\n\n".join(
        f"{number}. {message.role}: {_without_blank_lines(message.text)}"
        for number, message in enumerate(messages, 1)
    )


def _spoken(message: Message) -> Message:
    """Return a message's own words, none for roles that do not speak.

    What could not be sent anyway is cut off here, before rules spend time on it.
    """
    text = ""
    if message.role == USER:
        text = cleaned(message.text)
    elif message.role == ASSISTANT:
        text = strip_injected(message.text)
    return replace(message, text=text[:CONVERSATION_BYTES_MAX])


def _last_turn(spoken: list[Message]) -> list[Message]:
    """Return the last message of the user and the answers to it."""
    for index in range(len(spoken) - 1, -1, -1):
        if spoken[index].role == USER:
            return spoken[index:]
    return spoken


def _cut_to_fit(kept: Sequence[Message]) -> tuple[Message, ...]:
    """Return messages, those over an equal share cut to it if all of them are too long."""
    texts = [message.text.encode("utf-8", "replace") for message in kept]
    if sum(map(len, texts)) <= CONVERSATION_BYTES_MAX:
        return tuple(kept)
    share = CONVERSATION_BYTES_MAX // len(texts)
    return tuple(
        replace(message, text=text[:share].decode("utf-8", "ignore"))
        for message, text in zip(kept, texts, strict=True)
    )


def _outside(text: str, marks: re.Pattern[str]) -> str:
    """Return a text without its blocks, which may contain blocks; a lone end is taken out."""
    kept, position, depth = list[str](), 0, 0
    for mark in marks.finditer(text):
        if depth == 0:
            kept.append(text[position : mark.start()])
        ends = any(mark.groupdict().values())
        depth = max(0, depth - 1) if ends else depth + 1
        position = mark.end()
    if depth == 0:
        kept.append(text[position:])
    return "".join(kept).strip()


def _without_context(lines: list[str]) -> list[str]:
    """Return lines without a gateway's sections: a header, then a JSON fence or a paragraph.

    The section `Context:` comes last and may hold blank lines.
    """
    kept, ends_at = list[str](), None
    for index, line in enumerate(lines):
        bare = line.strip()
        if ends_at is None and _CONTEXT_HEADER.fullmatch(bare):
            if bare == f"Context: {_CONTEXT_MARK}":
                break
            fenced = [after.strip() for after in lines[index + 1 : index + 2]] == ["```json"]
            ends_at = "```" if fenced else ""
        elif ends_at is None:
            kept.append(line)
        elif bare == ends_at:
            ends_at = None
    return kept


def _without_blank_lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())
