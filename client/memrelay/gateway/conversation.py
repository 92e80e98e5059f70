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
from memrelay.gateway.filters import (
    has_fitting_length,
    is_worth_keeping,
    only_asks,
    without_noise,
)
from memrelay.gateway.settings import (
    COLD_START_TAG,
    CORE_PLUS_TAG,
    MEMWAL_TAG,
    GatewaySettings,
)

QUERY_CHARS_MAX = 2000  # a question is shorter; what stands beside it is material, and costs time
CONVERSATION_BYTES_MAX = 60_000  # the relayer reads 64 KiB; numbers and roles come on top
_INDENT = "\N{NO-BREAK SPACE} "
_FENCES = ("```", "~~~")

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
_IN_HEADERS = (_CONTEXT_MARK, "(untrusted", "(metadata")  # no header without one of them
_GATEWAY_LINE: Final = re.compile(
    r"^[^\S\n]*(?:"
    r"System: .*|Context:|Current message:|\[Replying to: .*\]|\[message_id: [^\]\n]*\]"
    r"|Delivery: .*`message` tool.*|Active goal: .*update_goal.*"
    r"|OpenClaw runtime (?:context|event)\b.*|This context is runtime-generated\b.*"
    r")[^\S\n]*(?:\n|\Z)",
    re.MULTILINE,
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
    """Return the user's own words of a prompt on one line, at most `QUERY_CHARS_MAX` characters.

    Of more, half are its beginning and half its end: a question stands before what is pasted, or
    behind it.
    """
    line = cleaned_line(text)
    if len(line) <= QUERY_CHARS_MAX:
        return line
    half = QUERY_CHARS_MAX // 2
    return f"{line[: half - 1].rstrip()} {line[-half:].lstrip()}"


def cleaned_line(text: str) -> str:
    """Return a user's message without what a gateway put around it, on one line."""
    return " ".join(cleaned(text).split())


def cleaned(text: str) -> str:
    """Return a user's message without what a gateway put around it, line breaks kept."""
    outside = _outside(strip_injected(text.replace("\r\n", "\n")), _GATEWAY_BLOCK)
    if any(mark in outside for mark in _IN_HEADERS):
        outside = "\n".join(_without_context(outside.split("\n")))
    return _STAMP.sub("", _GATEWAY_LINE.sub("", outside)).strip()


def capturable(messages: Sequence[Message], settings: GatewaySettings) -> tuple[Message, ...]:
    """Return the messages of a turn's end that are worth capturing, cleaned, oldest first.

    None when too little is left. Long ones are cut so that all fit one request, before any rule
    spends time on them.
    """
    said = _window(messages, settings)
    if not settings.capture_noise:
        said = [replace(message, text=without_noise(message.text)) for message in said]
    said = [message for message in said if has_fitting_length(message.text, settings)]
    texts = _cut_to_fit([message.text for message in said])
    kept = tuple(
        replace(message, text=text)
        for message, text in zip(said, texts, strict=True)
        if is_worth_keeping(text, settings)
    )
    if settings.require_user_message and not any(message.role == USER for message in kept):
        return ()
    if all(only_asks(message.text) for message in kept):
        return ()
    if sum(len(message.text) for message in kept) < settings.conversation_chars_min:
        return ()
    return kept


def numbered(messages: Sequence[Message]) -> str:
    """Return messages as the numbered list that the relayer reads, with their roles.

    No text passes for another message: blank lines only stand between messages, and a line within
    one is indented, so that no role at its beginning counts.
    """
    texts = _cut_to_fit([_in_one_part(message.text) for message in messages])
    return "\n\n".join(
        f"{number}. {message.role}: {text}"
        for number, (message, text) in enumerate(zip(messages, texts, strict=True), 1)
    )


def _window(messages: Sequence[Message], settings: GatewaySettings) -> list[Message]:
    """Return the last messages with words of their own, as many as may be captured, cleaned.

    It goes back from the end, and not further than it must: sessions get long.
    """
    found = list[Message]()
    for message in reversed(messages):
        text = own_words(message)
        if not text:
            continue
        found.append(replace(message, text=text))
        begins_turn = settings.capture_scope == "turn" and message.role == USER
        if begins_turn or len(found) == settings.capture_messages_max:
            break
    return found[::-1]


def own_words(message: Message) -> str:
    """Return a message's own words, none for roles that do not speak."""
    if message.role == USER:
        return cleaned(message.text)
    return strip_injected(message.text) if message.role == ASSISTANT else ""


def _cut_to_fit(texts: Sequence[str]) -> list[str]:
    """Return texts, those over an equal share cut to it if all of them are too long."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    if sum(map(len, encoded)) <= CONVERSATION_BYTES_MAX:
        return list(texts)
    share = CONVERSATION_BYTES_MAX // len(encoded)
    return [text[:share].decode("utf-8", "ignore") for text in encoded]


def _in_one_part(text: str) -> str:
    """Return a text without blank lines, and with all lines but the first one indented.

    The relayer passes over blanks before a role, but not over a no-break blank. A fence stays at
    the margin: it has to be seen as one.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    later = (line if line.lstrip().startswith(_FENCES) else _INDENT + line for line in lines[1:])
    return "\n".join([*lines[:1], *later])


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
