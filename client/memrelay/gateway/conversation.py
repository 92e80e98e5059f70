"""A conversation as its people wrote it: without what gateways and we ourselves put into it.

It does not own which message is worth keeping (`filters.py`).

- What was injected is never captured: memory must not feed on itself.
- Nor is what a gateway, another session or an agent's reasoning said, and what was answered to it.
- A message keeps its words; only blocks, lines and prefixes that no person wrote are taken out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from memrelay.gateway.blocks import unwrap_tags, without_blocks, without_marked
from memrelay.gateway.filters import (
    has_fitting_length,
    is_worth_keeping,
    only_asks,
    without_noise,
)
from memrelay.gateway.guards import origin_refusal
from memrelay.gateway.host_events import ASSISTANT, USER, Message
from memrelay.gateway.replies import extract_reply
from memrelay.gateway.scaffolding import strip_scaffolding
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

_OWN_TAG = rf"\s{{0,4}}(?P<end>/?)\s{{0,4}}(?:{MEMWAL_TAG}|{CORE_PLUS_TAG}|{COLD_START_TAG})\b"
_OWN_BLOCK = re.compile(rf"<{_OWN_TAG}[^<>]*>", re.IGNORECASE)
# Some hosts escape what they put into a message, with its tags.
_ESCAPED_BLOCK = re.compile(rf"&lt;{_OWN_TAG}[^<>&]*&gt;", re.IGNORECASE)
# Who said something in a group, as the relayer reads it before what they said.
_NAME: Final = re.compile(r"[^\W\d_][\w.'-]{0,30}(?: [^\W\d_][\w.'-]{0,30})?")


def strip_injected(text: str) -> str:
    """Return a text without the blocks of memories, ours or of the plugins we replace.

    A block that is not closed reaches to the end. Escaped tags count in what is left.
    """
    return without_marked(without_marked(text, _OWN_BLOCK), _ESCAPED_BLOCK)


def clean_query(text: str) -> str:
    """Return the user's own words of a prompt on one line, at most `QUERY_CHARS_MAX` characters.

    Of more, half are its beginning and half its end: a question stands before what is pasted, or
    behind it.
    """
    line = clean_line(text) or clean_line(unwrap_tags(text))
    if len(line) <= QUERY_CHARS_MAX:
        return line
    half = QUERY_CHARS_MAX // 2
    return f"{line[: half - 1].rstrip()} {line[-half:].lstrip()}"


def clean_line(text: str) -> str:
    """Return a user's message without what a gateway put around it, on one line."""
    return " ".join(clean_text(text).split())


def clean_text(text: str) -> str:
    """Return a user's message without what a gateway put around it, line breaks kept."""
    return strip_scaffolding(strip_injected(text)).text


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


def number_messages(messages: Sequence[Message]) -> str:
    """Return messages as the numbered list that the relayer reads, with their roles.

    No text passes for another message: blank lines only stand between messages, and a line within
    one is indented, so that no role at its beginning counts.
    """
    texts = _cut_to_fit([_in_one_part(message.text) for message in messages])
    return "\n\n".join(
        f"{number}. {_who(message)}: {text}"
        for number, (message, text) in enumerate(zip(messages, texts, strict=True), 1)
    )


def _who(message: Message) -> str:
    return f"{message.speaker} ({message.role})" if message.speaker else message.role


def iterate_own_words(
    messages: Sequence[Message], settings: GatewaySettings
) -> Iterator[tuple[Message, Message]]:
    """Yield each message with words of its own, and these words, newest first.

    A message that no person wrote is left out, with all that was answered to it. What is answered
    is read no sooner than it is known to whom.
    """
    answers = list[Message]()
    for message in reversed(messages):
        if message.role != USER:
            answers.append(message)
            continue
        said = strip_scaffolding(strip_injected(message.text))
        if not said.by_gateway and origin_refusal(message.origin, settings) is None:
            yield from _with_words(answers)
            if said.text:
                yield message, _attribute(said.speaker, replace(message, text=said.text))
        answers = []
    yield from _with_words(answers)


def _with_words(answers: Sequence[Message]) -> Iterator[tuple[Message, Message]]:
    for answer in answers:
        if words := own_words(answer):
            yield answer, replace(answer, text=words)


def _attribute(speaker: str, message: Message) -> Message:
    """Return a message as its speaker's; a name that is no plain one is judged with its words."""
    if not speaker or _NAME.fullmatch(speaker):
        return replace(message, speaker=speaker)
    return replace(message, text=f"{speaker}: {message.text}")


def _window(messages: Sequence[Message], settings: GatewaySettings) -> list[Message]:
    """Return the last messages with words of their own, as many as may be captured, cleaned.

    It goes back from the end, and not further than it must: sessions get long.
    """
    found = list[Message]()
    for _, message in iterate_own_words(messages, settings):
        found.append(message)
        begins_turn = settings.capture_scope == "turn" and message.role == USER
        if begins_turn or len(found) == settings.capture_messages_max:
            break
    return found[::-1]


def own_words(message: Message) -> str:
    """Return a message's own words, none for roles that do not speak."""
    if message.role == USER:
        return clean_text(message.text)
    if message.role != ASSISTANT:
        return ""
    return without_blocks(strip_injected(extract_reply(message.text)))


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
