"""Transcripts in the formats of programs: JSON, chat templates, XML, captions, CSV, a mail.

It does not own numbered parts and labelled lines (`labels.py`), JSON's shapes (`json_chats.py`),
captions (`captions.py`), tables (`csv_chats.py`), nor mails (`mails.py`).

- A text is such a transcript as a whole or not at all: marks inside a message stay its text.
- Roles are the format's own. What stands inside a message never begins another one, where the
  format can tell them apart.
- Time is linear in the text.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from relayer.extraction.captions import are_captions, caption_messages
from relayer.extraction.csv_chats import csv_messages, is_table_of_messages
from relayer.extraction.json_chats import is_json, json_messages
from relayer.extraction.labels import split_numbered
from relayer.extraction.mails import mails
from relayer.extraction.message import ROLES, Message, Role, role_of, speaker_named
from relayer.extraction.moments import moment_named

_FENCED: Final = re.compile(
    r"\s*(`{3,}|~{3,})[\w-]{0,20}[ \t]*\n(?P<inside>.*)\n[ \t]*\1\s*", re.DOTALL
)


def transcript_messages(text: str) -> list[Message] | None:
    """Return the messages of `text`, also empty ones; None if it is in no format of a program.

    There are none in what only begins as captions, as a table or as printed objects.
    """
    if split_numbered(text):
        return None
    if fenced := _FENCED.fullmatch(text):
        text = fenced["inside"]
    text = text.strip().removeprefix("\ufeff")
    if text[:1] in ("[", "{") and (found := json_messages(text)) is not None:
        return found
    if text[:1] in ("<", "["):
        for read in (_parse_templates, _parse_instructions, _parse_tags):
            if (found := read(text)) is not None:
                return found
    for read in (caption_messages, csv_messages):
        if (found := read(text)) is not None:
            return found
    return [] if _unreadable(text) else mails(text)


def transcript_problem(text: str) -> str | None:
    """Return why nothing of `text` can be heard, if it looks like a transcript and is none.

    In words for whoever sent it, without any of the text's.
    """
    text = text.replace("\r\n", "\n").strip()
    found = transcript_messages(text)
    if found == []:
        return _unreadable(text) or _NO_ROLE
    if found is not None:
        return None if any(message.role != "other" for message in found) else _NO_ROLE
    if split_numbered(text):
        return None
    if text[:1] in ("[", "{") and (_JSON_MESSAGE.search(text) or is_json(text)):
        return _NO_MESSAGES
    return _NOT_WELL_FORMED if _MARK.match(text) else None


def _unreadable(text: str) -> str | None:
    """Return why a text is not read, if it begins as a format without marks and is not in it."""
    if are_captions(text):
        return _NO_CUES
    if is_table_of_messages(text):
        return _NO_ROWS
    return _NO_MESSAGES if _PRINTED_OBJECT.match(text) else None


_NO_ROLE: Final = (
    "No message of this transcript has a role that is heard: name them user and assistant."
)
_NO_MESSAGES: Final = (
    "The text is JSON without messages, or only nearly JSON. Send a list of objects with a role "
    "and a content, one such object a line, or plain text."
)
_NOT_WELL_FORMED: Final = (
    "The text begins like a transcript with marks of roles, but is not one as a whole. Close each "
    "message, and put nothing between them."
)
_NO_CUES: Final = "The text begins like captions, but no cue of it says anything."
_NO_ROWS: Final = (
    "The text begins like a table of messages, but a row of it has too few cells, or quotes that "
    "do not end. Put cells with commas or line breaks in double quotes."
)
# As Python's `repr` writes messages of chat libraries.
_PRINTED_OBJECT: Final = re.compile(r"\[?\s*[A-Za-z_.]{0,60}Message\w{0,20}\((?:content|role)=")
_JSON_MESSAGE: Final = re.compile(r"[\"'](?:role|from|sender|author)[\"']\s*:")
_MARK: Final = re.compile(
    rf"<\|\w|\[INST\]|<start_of_turn>|</?(?:{'|'.join(ROLES)})>", re.IGNORECASE
)


@dataclass(frozen=True)
class _Template:
    """Marks by which a program tells messages apart.

    `begin` names the role, and may name a person or the channel that a model writes to. A message
    must have its `end`, if that is `required`, but for the last one.
    """

    before: re.Pattern[str]
    begin: re.Pattern[str]
    end: re.Pattern[str]
    is_required: bool = True


def _template(before: str, begin: str, end: str, *, is_required: bool = True) -> _Template:
    return _Template(
        re.compile(rf"(?:{before})?\s*"), re.compile(begin), re.compile(end), is_required
    )


_ROLE: Final = r"(?P<role>[A-Za-z_]{1,20})"
_TEMPLATES: Final = (
    _template(  # ChatML
        r"<\|begin_of_text\|>|<s>",
        rf"<\|im_start\|>[ \t]*{_ROLE}(?:[ \t]+name=(?P<name>[\w.-]{{1,40}}))?[ \t]*(?:\n|\Z)",
        r"<\|im_end\|>",
    ),
    _template(  # Llama 3
        r"<\|begin_of_text\|>",
        rf"<\|start_header_id\|>{_ROLE}<\|end_header_id\|>",
        r"<\|(?:eot_id|eom_id|end_of_text)\|>",
    ),
    _template("<bos>", rf"<start_of_turn>{_ROLE}(?:\n|\Z)", "<end_of_turn>"),  # Gemma
    _template(  # harmony
        r"<\|startoftext\|>",
        rf"<\|start\|>{_ROLE}(?: to=[\w.]{{1,40}})?(?:<\|channel\|>(?P<channel>\w{{1,20}})"
        r"(?: to=[\w.]{1,40})?)?(?: ?<\|constrain\|>\w{1,20})?<\|message\|>",
        r"<\|(?:end|return|call)\|>",
    ),
    _template(  # Zephyr, Phi, ChatGLM
        r"<s>|\[gMASK\](?:<sop>)?",
        r"<\|(?P<role>user|assistant|system|tool|observation)\|>",
        r"<\|(?:end|endoftext|eot)\|>|</s>",
        is_required=False,
    ),
    _template(  # DeepSeek
        "<｜begin▁of▁sentence｜>",
        "<｜(?P<role>User|Assistant|System)｜>",
        "<｜end▁of▁sentence｜>",
        is_required=False,
    ),
)
_HEARD_CHANNELS: Final = (None, "final")


def _parse_templates(text: str) -> list[Message] | None:
    for template in _TEMPLATES:
        before = template.before.match(text)
        begins = list(template.begin.finditer(text, before.end() if before else 0))
        if begins and before and begins[0].start() == before.end():
            return _parse_marked(text, template, begins)
    return None


def _parse_marked(
    text: str, template: _Template, begins: list[re.Match[str]]
) -> list[Message] | None:
    found = list[Message]()
    stops = [*(begin.start() for begin in begins[1:]), len(text)]
    for begin, stop in zip(begins, stops, strict=True):
        said, *behind = template.end.split(text[begin.end() : stop])
        is_open = not behind and (template.is_required and stop < len(text))
        if is_open or any(piece.strip() for piece in behind):
            return None
        named = begin.groupdict()
        role = _role(named["role"])
        if named.get("channel") not in _HEARD_CHANNELS:
            role = "other"
        found.append(Message(role, speaker_named(named.get("name")), said.strip()))
    return found


def _role(word: str) -> Role:
    """Return the role that a format names; one that is not known is nobody's."""
    return role_of(word) or "other"


_INSTRUCTION: Final = re.compile(r"\[(/?)INST\]")
_SENTENCE_MARK: Final = re.compile(r"</?s>")


def _parse_instructions(text: str) -> list[Message] | None:
    """Return the messages of Llama 2's and Mistral's form: `[INST] user [/INST] assistant</s>`."""
    text = text.removeprefix("<s>").lstrip()
    marks = list(_INSTRUCTION.finditer(text))
    if not marks or marks[0].start() or any(bool(m[1]) != bool(n % 2) for n, m in enumerate(marks)):
        return None
    found = list[Message]()
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    for mark, end in zip(marks, ends, strict=True):
        said = text[mark.end() : end]
        if mark[1]:
            found.append(Message("assistant", "", _SENTENCE_MARK.sub("", said).strip()))
        else:
            found.append(Message("user", "", _without_system(said).strip()))
    return found


def _without_system(said: str) -> str:
    before, _, rest = said.partition("<<SYS>>")
    _, end, after = rest.partition("<</SYS>>")
    return before + after if end else said


_WRAPPER: Final = re.compile(
    r"(?:<\?xml[^<>]{0,100}\?>\s*)?<(conversation|chat|transcript|messages|dialog(?:ue)?|history"
    r"|session)(?:\s[^<>]{0,300})?>(?P<inside>.*)</\1>",
    re.DOTALL | re.IGNORECASE,
)
_ELEMENT: Final = re.compile(
    rf"\s*<(?P<tag>{'|'.join(sorted(ROLES, key=len, reverse=True))}|message|msg|turn|utterance)"
    r"(?P<attributes>(?:\s[^<>]{0,300})?)>",
    re.IGNORECASE,
)
_ATTRIBUTE: Final = re.compile(r"([\w-]{1,30})\s?=\s?(?:\"([^\"]{0,100})\"|'([^']{0,100})')")
_SAID_BY: Final = ("role", "from", "speaker", "author", "sender", "name")
_SAID_AT: Final = ("time", "timestamp", "date", "at", "ts")


def _parse_tags(text: str) -> list[Message] | None:
    """Return the messages of `<user>…</user>`, `<message role="user">…</message>` and so on."""
    if wrapper := _WRAPPER.fullmatch(text):
        text = wrapper["inside"].strip()
    found = list[Message]()
    lower = text.lower()
    if len(lower) != len(text):  # a letter becomes two: places would not fit
        return None
    position = 0
    while position < len(text):
        begin = _ELEMENT.match(text, position)
        end = lower.find(f"</{begin['tag'].lower()}>", begin.end()) if begin else -1
        if begin is None or end < 0:
            return None
        said = html.unescape(text[begin.end() : end]).strip()
        found.append(_element(begin["tag"], begin["attributes"], said))
        position = end + len(begin["tag"]) + 3
    return found


def _element(tag: str, attributes: str, said: str) -> Message:
    values = {key.lower(): one or other for key, one, other in _ATTRIBUTE.findall(attributes)}
    by = [values[key] for key in _SAID_BY if key in values]
    moments: Iterator[str] = (values[key] for key in _SAID_AT if key in values)
    said_at = moment_named(next(moments, None))
    role = ROLES.get(tag.lower())
    if role is None:
        role = role_of(by[0]) if by else "other"
        role = "user" if role is None and "role" not in values else role or "other"
    return Message(role, next(filter(None, map(speaker_named, by)), ""), said, said_at)
