"""ChatGPT's export: `conversations.json`, or `conversations-000.json` and on, a list.

It does not own reading JSON (`json_stream.py`) or what becomes of a conversation
(`conversations.py`).

- A conversation is a tree, `mapping`, of nodes with a `parent`: whoever edits a message or asks for
  another answer begins a branch. What counts is the way from the root to `current_node`.
- Of messages, only texts of the user and to the user: no tools, no reasoning, nothing hidden such
  as the user's own instructions, no files. What was dictated counts as its transcript.
- A conversation that was marked not to be remembered is not.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final

from memrelay.importing.conversations import Conversation, Utterance, role_of
from memrelay.importing.drafts import PRIVATE, ImportItem, Omission, parse_moment

_TEXTS: Final = ("text", "multimodal_text")
_CITATION: Final = re.compile("\ue200[^\ue200\ue201]{0,2000}\ue201")


def conversation(value: Any, place: str, zone: tzinfo) -> Iterator[Conversation | ImportItem]:
    """Yield the conversation of one item of the list; nothing for what is none."""
    if not isinstance(value, Mapping) or not isinstance(value.get("mapping"), Mapping):
        return
    if value.get("is_do_not_remember") is True:
        yield Omission(place, PRIVATE)
        return
    begun = parse_moment(value.get("create_time"), zone)
    messages = [
        Utterance(said.role, said.text, said.time or begun)
        for node in _path_to(value["mapping"], value.get("current_node"))
        if (said := _utterance(node.get("message"), zone)) is not None
    ]
    id = value.get("conversation_id") or value.get("id") or place
    if messages:
        yield Conversation(place, str(id), tuple(messages))


def _path_to(mapping: Mapping[str, Any], current: object) -> Sequence[Mapping[str, Any]]:
    """Return the nodes from the root to the current one; without it, to the newest leaf."""
    at = current if isinstance(current, str) and current in mapping else _newest(mapping)
    way, seen = list[Mapping[str, Any]](), set[str]()
    while isinstance(at, str) and at not in seen and isinstance(mapping.get(at), Mapping):
        seen.add(at)
        way.append(mapping[at])
        at = mapping[at].get("parent")
    return way[::-1]


def _newest(mapping: Mapping[str, Any]) -> str | None:
    def read_time(name: str) -> float:
        node = mapping[name]
        message = node.get("message") if isinstance(node, Mapping) else None
        time = message.get("create_time") if isinstance(message, Mapping) else None
        return time if isinstance(time, int | float) else 0

    return max(mapping, key=read_time, default=None)


def _utterance(message: object, zone: tzinfo) -> Utterance | None:
    if not isinstance(message, Mapping):
        return None
    author, content = message.get("author"), message.get("content")
    metadata = message.get("metadata") or {}
    if not (isinstance(author, Mapping) and isinstance(content, Mapping)):
        return None
    role = role_of(author.get("role"))
    is_hidden = isinstance(metadata, Mapping) and (
        metadata.get("is_visually_hidden_from_conversation")
        or metadata.get("is_user_system_message")
    )
    is_aside = message.get("recipient") not in (None, "all") or message.get("weight") == 0
    is_thought = message.get("channel") not in (None, "final")
    if role is None or is_hidden or is_aside or is_thought:
        return None
    text = _CITATION.sub("", _text(content)).strip()
    return Utterance(role, text, parse_moment(message.get("create_time"), zone)) if text else None


def _text(content: Mapping[str, Any]) -> str:
    parts = content.get("parts")
    if content.get("content_type") not in _TEXTS or not isinstance(parts, list):
        return ""
    return "\n".join(filter(None, map(_part, parts)))


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("content_type") == "audio_transcription":
        spoken = part.get("text")
        return spoken if isinstance(spoken, str) else ""
    return ""
