"""Session files of coding agents, and transcripts in the usual form of messages.

It does not own what becomes of a conversation (`conversations.py`).

- Claude Code (2.1.332): a line each, `user` and `assistant` among others. No line counts that is
  meta, a sub-agent's, a notice, a summary of what was said before, or made of tools.
- Codex (0.171.0): `item_completed` with `UserMessage` and `AgentMessage`; older ones have
  `user_message` and `agent_message`, the oldest nothing but the model's input, in which files and
  surroundings look like the user.
- Gemini CLI (0.61.0): a log of changes, where a line with an `id` replaces the one before; older
  ones are one object with `messages`.
- Of an agent's turn, its last words count: what it says between its tools is about these.
- Transcripts: objects with `role` and `content`, in a list, a line each, or under `messages`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from typing import Any, Final

from memrelay.importing.conversations import Conversation, Role, Utterance, role_of
from memrelay.importing.drafts import moment, parse_moment

# What Claude Code and Codex put into the user's messages, each in tags of its own.
_TAGS: Final = (
    "bash-input|bash-stderr|bash-stdout|command-args|command-contents|command-message|command-name"
    "|environment_context|hook_context|ide_diagnostics|ide_opened_file|ide_selection|INSTRUCTIONS"
    "|local-command-caveat|local-command-stderr|local-command-stdout|session_context|skill"
    "|system-reminder|task-notification|turn_aborted|user-prompt-submit-hook|user_instructions"
    "|subagent_notification"
)
_TAG: Final = re.compile(rf"<(?P<end>/?)(?:{_TAGS})(?:\s[^<>\n]{{0,400}})?>")
_TIMES: Final = ("timestamp", "created_at", "create_time", "time", "date", "ts")
_AGENTS_FILE: Final = re.compile(r"\s*# (?:AGENTS|CLAUDE|GEMINI)\.md instructions\b")
_INTERRUPTED: Final = re.compile(r"\[Request interrupted by user[^\]\n]{0,40}\]")


def claude_code(values: Iterable[Any], id: str, zone: tzinfo) -> Iterator[Conversation]:
    """Yield the conversation of a session of Claude Code."""
    said = list[Utterance]()
    first: str | None = None
    for value in values:
        if value.get("type") not in ("user", "assistant") or _is_aside(value):
            continue
        message = value.get("message")
        content = message.get("content") if isinstance(message, Mapping) else None
        text = _blocks(content, "text")
        role = role_of(value.get("type"))
        if text and role is not None:
            # A session that was resumed may begin with a copy of the one before.
            first = first or str(value.get("uuid") or "")
            said.append(Utterance(role, text, moment(value.get("timestamp"), zone)))
    yield from _conversation(said, first or id)


def _is_aside(value: Mapping[str, Any]) -> bool:
    return bool(
        value.get("isMeta")
        or value.get("isSidechain")
        or value.get("isCompactSummary")
        or value.get("isVisibleInTranscriptOnly")
        or value.get("isApiErrorMessage")
        or value.get("origin")
    )


def codex(values: Iterable[Any], id: str, zone: tzinfo) -> Iterator[Conversation]:
    """Yield the conversation of a session of Codex."""
    items, events, inputs = list[Utterance](), list[Utterance](), list[Utterance]()
    begun: datetime | None = None
    for value in values:
        payload = value.get("payload")
        payload = payload if isinstance(payload, Mapping) else value
        time = moment(value.get("timestamp"), zone) or begun
        begun = begun or time
        kind = payload.get("type")
        if kind == "item_completed" and isinstance(payload.get("item"), Mapping):
            _append(items, *_codex_item(payload["item"]), time)
        elif kind in ("user_message", "agent_message"):
            role: Role = "user" if kind == "user_message" else "assistant"
            _append(events, role, _blocks(payload.get("message")), time)
        elif kind == "message":
            content = payload.get("content")
            text = _blocks(content, "input_text", "output_text", "text")
            _append(inputs, role_of(payload.get("role")), text, time)
        elif value.get("type") == "session_meta" or "instructions" in value:
            id = str(payload.get("session_id") or payload.get("id") or id)
    yield from _conversation(items or events or inputs, id)


def _codex_item(item: Mapping[str, Any]) -> tuple[Role | None, str]:
    role: Role | None = None
    if item.get("type") == "UserMessage":
        role = "user"
    elif item.get("type") == "AgentMessage":
        role = "assistant"
    return role, _blocks(item.get("content"), "text", "Text")


def gemini_cli(values: Iterable[Any], id: str, zone: tzinfo) -> Iterator[Conversation]:
    """Yield the conversation of a session of Gemini CLI."""
    by_id = dict[str, Mapping[str, Any]]()
    for value in values:
        id = str(value.get("sessionId") or id)
        messages = value.get("messages")
        for one in messages if isinstance(messages, list) else [value]:
            if isinstance(one, Mapping) and one.get("id"):
                by_id[str(one["id"])] = one
    said = list[Utterance]()
    for one in by_id.values():
        shown = one.get("displayContent")
        text = _blocks(shown if shown is not None else one.get("content"), None)
        _append(said, role_of(one.get("type")), text, moment(one.get("timestamp"), zone))
    yield from _conversation(said, id)


def transcript(value: Any, place: str, id: str, zone: tzinfo) -> Iterator[Conversation]:
    """Yield the conversation of a list of messages, or of an object that has them."""
    if isinstance(value, Mapping):
        told = value.get("id") or value.get("session_id") or value.get("conversation_id")
        id = str(told) if isinstance(told, str | int) and told else id
        value = value.get("messages")
    said = list[Utterance]()
    for one in value if isinstance(value, list) else []:
        if isinstance(one, Mapping):
            message = one["message"] if isinstance(one.get("message"), Mapping) else one
            text = _blocks(message.get("content"), "text", "input_text", "output_text")
            _append(said, role_of(message.get("role")), text, _time(message, one, zone))
    if said:
        yield Conversation(place, id, tuple(said))


def _time(message: Mapping[str, Any], line: Mapping[str, Any], zone: tzinfo) -> datetime | None:
    told = ((one.get(name) for one in (message, line)) for name in _TIMES)
    times = (parse_moment(value, zone) for values in told for value in values)
    return next((time for time in times if time is not None), None)


def without_tags(text: str) -> str:
    """Return a text without what a coding agent put into it; a tag without an end reaches to it."""
    if _AGENTS_FILE.match(text):
        return ""
    kept, at, depth = list[str](), 0, 0
    for tag in _TAG.finditer(text):
        if depth == 0:
            kept.append(text[at : tag.start()])
        depth = max(0, depth - 1) if tag["end"] else depth + 1
        at = tag.end()
    if depth == 0:
        kept.append(text[at:])
    return _INTERRUPTED.sub("", "".join(kept)).strip()


def _append(said: list[Utterance], role: Role | None, text: object, time: datetime | None) -> None:
    if role is not None and isinstance(text, str) and text.strip():
        said.append(Utterance(role, text.strip(), time))


def _blocks(content: object, *types: str | None) -> str:
    """Return the words of a content: a text, or the blocks of some types."""
    texts: list[object] = [content] if isinstance(content, str) else []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, Mapping) and block.get("type") in types:
            texts.append(block.get("text"))
    words = (without_tags(text) for text in texts if isinstance(text, str))
    return "\n".join(filter(None, words))


def _conversation(said: list[Utterance], id: str) -> Iterator[Conversation]:
    last = [
        one
        for one, after in zip(said, [*said[1:], None], strict=True)
        if one.role == "user" or after is None or after.role == "user"
    ]
    if last:
        yield Conversation("1", id, tuple(last))
