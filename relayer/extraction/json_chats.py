"""Conversations in JSON or nearly: one document, or a document a line.

It does not own the other formats (`transcripts.py`).

- Read is what programs write: a message has an author and a text under names that are usual for
  them, lists of messages stand under names that are. Nothing else in a document is a message.
- A text of blocks is its blocks of text: what a model thought, called or was answered is none.
- Nearly JSON is what programs print of their values: Python's and JavaScript's strings in single
  quotes, names without quotes, tuples, commas before an end, and `None`, `True`, `False`.
- Deep documents are no conversations; the caller bounds their length.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from relayer.extraction.message import Message, Role, role_of, speaker_named
from relayer.extraction.moments import moment_named

_DEPTH_MAX: Final = 6
_LISTS: Final = (
    *("messages", "chat_messages", "conversation", "conversations", "mapping", "contents", "turns"),
    *(
        "history",
        "chat",
        "dialog",
        "dialogue",
        "transcript",
        "input",
        "items",
        "entries",
        "data",
        "payload",
    ),
)
_NAMES: Final = ("from", "sender", "speaker", "author", "user", "username")
TEXTS: Final = ("content", "text", "value", "message", "parts", "body", "msg")
TIMES: Final = ("timestamp", "created_at", "create_time", "time", "date", "sent_at", "ts")
_BLOCKS_OF_TEXT: Final = ("text", "input_text", "output_text", "multimodal_text")
# Parts of a line in Telegram's export, beside its plain text.
_SPANS: Final = frozenset(
    "bold italic underline strikethrough spoiler link text_link mention mention_name hashtag"
    " cashtag email phone plain".split()
)


def json_messages(text: str) -> list[Message] | None:
    """Return the messages of a JSON text; None if it is none, or has no messages."""
    try:
        documents = _documents(text)
        found = None if documents is None else _find_messages(documents, 0)
    except RecursionError:
        return None
    return found or None


def is_json(text: str) -> bool:
    """Tell whether `text` is a JSON document, or a document a line."""
    try:
        return _documents(text) is not None
    except RecursionError:
        return True


def _documents(text: str) -> Any:
    """Return what a JSON text says: a document, those of its lines, or those between commas."""
    found = _documents_of_json(text)
    return _documents_of_json(_as_json(text)) if found is None else found


def _documents_of_json(text: str) -> Any:
    try:
        return _decode(text)
    except ValueError:
        pass
    if text[0] != "{":
        return None
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    try:
        if len(lines) > 1 and all(line[0] == "{" and line[-1] == "}" for line in lines):
            return [_decode(line) for line in lines]
        return _decode(f"[{text.rstrip(', ')}]")
    except ValueError:
        return None


_STRING: Final = r"[^{0}\\]*(?:\\.[^{0}\\]*)*"
_PRINTED: Final = re.compile(
    rf"(?P<string>u?'{_STRING.format(chr(39))}'|\"{_STRING.format(chr(34))}\")|\\."
    r"|(?P<word>\b(?:None|True|False|undefined)\b)|(?P<name>[A-Za-z_$][\w$]{0,40})(?=[ \t]{0,9}:)"
    r"|(?P<tuple>[()])|(?P<comma>,)(?=\s*[\]})])",
    re.DOTALL,
)
_JSON_OF: Final = {
    **{"None": "null", "undefined": "null", "True": "true", "False": "false"},
    **{"(": "[", ")": "]", ",": ""},
}
_ESCAPE: Final = re.compile(
    r"\\(?:x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})"
    r"|(?P<other>.))",
    re.DOTALL,
)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}


def _as_json(text: str) -> str:
    """Return a text in which what a program printed of its values is JSON."""
    return _PRINTED.sub(_write, text)


def _write(match: re.Match[str]) -> str:
    if (string := match["string"]) is not None:
        inside = string.removeprefix("u")[1:-1]
        return json.dumps(_ESCAPE.sub(_unescape, inside))
    if (name := match["name"]) is not None:
        return json.dumps(name)
    return _JSON_OF.get(match[0], match[0])


def _unescape(match: re.Match[str]) -> str:
    if (other := match["other"]) is not None:
        return _ESCAPED.get(other, other)
    return chr(int(match["x"] or match["u"] or match["U"], 16))


def _decode(text: str) -> Any:
    """Return the document.

    Raises:
        ValueError: it is none, or holds what no text may hold.
        RecursionError: it is too deep.
    """
    try:
        return msgspec.json.decode(text.encode())
    except msgspec.DecodeError as error:
        raise ValueError from error


def _find_messages(value: object, depth: int) -> list[Message] | None:
    """Return the messages in a document, in its order; None if it has none."""
    if depth > _DEPTH_MAX:
        return None
    if isinstance(value, list):
        return _join_parts(value, depth)
    if not isinstance(value, dict):
        return None
    if (message := message_of(value)) is not None:
        return [message]
    name = next((name for name in _LISTS if isinstance(value.get(name), list | dict)), None)
    if name is None:
        return None
    inside = value[name]
    # ChatGPT's export: messages by their ids, each in a node of its own.
    if name == "mapping" and isinstance(inside, dict):
        nodes = [node for node in inside.values() if isinstance(node, dict)]
        return _join_parts([node.get("message") for node in nodes], depth)
    return _find_messages(inside, depth + 1)


def _join_parts(values: Iterable[object], depth: int) -> list[Message] | None:
    parts = [part for value in values if (part := _find_messages(value, depth + 1)) is not None]
    return [message for part in parts for message in part] if parts else None


def message_of(item: Mapping[str, Any]) -> Message | None:
    """Return the message that an object is, with the text it has; None if it is none."""
    for name in ("message", "payload"):  # Claude Code's and Codex' lines: the message inside
        if isinstance(inside := item.get(name), dict):
            message = message_of({**{key: item[key] for key in TIMES if key in item}, **inside})
            if message is not None:
                return message
    author = _author(item)
    texts = [_text(item[key], 0).strip() for key in TEXTS if key in item]
    if author is None or not texts:
        return None
    said_at = next((item[key] for key in TIMES if key in item), None)
    return Message(*author, next(filter(None, texts), ""), moment_named(said_at))


def _author(item: Mapping[str, Any]) -> tuple[Role, str] | None:
    """Return (role, name) of who wrote a message; None if nobody is named.

    A role that is not known is nobody's; somebody who is named in its place is a person.
    """
    author = item.get("author")
    if isinstance(author, dict):
        return _author({**author, "from": author.get("name") or author.get("username")})
    if isinstance(role := item.get("role"), str):
        return role_of(role) or "other", speaker_named(item.get("name"))
    for key in _NAMES:
        if isinstance(name := item.get(key), str) and name.strip():
            known = role_of(name)
            return known or "user", "" if known else speaker_named(name)
    return None


def _text(content: object, depth: int) -> str:
    """Return the text of a message's content: a text, blocks, or parts."""
    if isinstance(content, str):
        return content
    if depth > _DEPTH_MAX:
        return ""
    if isinstance(content, list):
        if all(isinstance(part, str) or _is_span(part) for part in content):
            return ("" if any(map(_is_span, content)) else "\n").join(
                part if isinstance(part, str) else part["text"] for part in content
            )
        return "\n".join(filter(None, (_block(block, depth + 1) for block in content)))
    return _block(content, depth + 1)


def _is_span(part: object) -> bool:
    if not isinstance(part, dict) or not isinstance(part.get("text"), str):
        return False
    return isinstance(part.get("type"), str) and part["type"] in _SPANS


def _block(block: object, depth: int) -> str:
    if isinstance(block, str):
        return block
    if not isinstance(block, dict) or not _is_of_text(block):
        return ""
    key = next((key for key in ("text", "parts", "value", "content") if key in block), None)
    return "" if key is None else _text(block[key], depth)


def _is_of_text(block: Mapping[str, Any]) -> bool:
    return all(block.get(key, "text") in _BLOCKS_OF_TEXT for key in ("type", "content_type"))
