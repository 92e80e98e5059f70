"""Claude's export: conversations, what it remembered, and projects.

It does not own reading JSON (`json_stream.py`) or what becomes of a conversation
(`conversations.py`).

- `conversations.json`, a list, or a file for each: `chat_messages` with a `sender`, and texts among
  other blocks. Where messages name their parents, the way to the current leaf counts.
- `memories.json`: `conversations_memory`, Markdown that Claude wrote about the user, and
  `project_memories`, the same for each project.
- `projects.json`: what each is about, and what was asked for in it. Its documents are left out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final

from memrelay.importing.conversations import Conversation, Utterance, role_of
from memrelay.importing.drafts import (
    DOCUMENT,
    ImportItem,
    Omission,
    check_draft,
    moment,
    source_of,
    tags_of,
)
from memrelay.importing.markdown import entries
from memrelay.models import Draft

_BOLD_LINE: Final = re.compile(r"^\*\*([^*\n]{1,80})\*\*:?[^\S\n]*$", re.MULTILINE)


def conversation(value: Any, place: str, zone: tzinfo) -> Iterator[Conversation | ImportItem]:
    """Yield the conversation of one item of the list; nothing for what is none."""
    messages = value.get("chat_messages") if isinstance(value, Mapping) else None
    if not isinstance(messages, list):
        return
    leaf = value.get("current_leaf_message_uuid")
    told = [one for one in messages if isinstance(one, Mapping)]
    said = [_utterance(one, zone) for one in _path_to(told, leaf)]
    kept = tuple(one for one in said if one is not None)
    if kept:
        yield Conversation(place, str(value.get("uuid") or place), kept)


def _path_to(messages: Sequence[Mapping[str, Any]], leaf: object) -> Sequence[Mapping[str, Any]]:
    """Return the messages up to the current leaf; all of them where none is named."""
    by_id = {one["uuid"]: one for one in messages if isinstance(one.get("uuid"), str)}
    way, seen = list[Mapping[str, Any]](), set[str]()
    while isinstance(leaf, str) and leaf in by_id and leaf not in seen:
        seen.add(leaf)
        way.append(by_id[leaf])
        leaf = by_id[leaf].get("parent_message_uuid")
    return way[::-1] or messages


def _utterance(message: Mapping[str, Any], zone: tzinfo) -> Utterance | None:
    role = role_of(message.get("sender"))
    content, text = message.get("content"), message.get("text")
    blocks = [
        block["text"]
        for block in (content if isinstance(content, list) else [])
        if isinstance(block, Mapping)
        and block.get("type") == "text"
        and isinstance(block.get("text"), str)
    ]
    # The text alone also holds what stands in place of tools.
    words = "\n".join(blocks) if blocks else text
    if role is None or not isinstance(words, str) or not words.strip():
        return None
    return Utterance(role, words, moment(message.get("created_at"), zone))


def memories(value: Any, file: str, zone: tzinfo) -> Iterator[ImportItem]:
    """Yield what Claude remembered of the user, all in all and for each project."""
    if not isinstance(value, Mapping):
        return
    general, projects = value.get("conversations_memory"), value.get("project_memories")
    texts: list[tuple[Any, str, tuple[str, ...]]] = [(general, "conversations_memory", ())]
    for project, text in projects.items() if isinstance(projects, Mapping) else ():
        texts.append((text, str(project), (f"project:{project}",)))
    for text, part, tags in texts:
        if isinstance(text, str):
            told = _BOLD_LINE.sub(r"## \1", text)  # Claude writes its headings so
            yield from entries(told, f"{file}#{part}", kind=None, zone=zone, tags=tags)


def project(value: Any, place: str, file: str, zone: tzinfo) -> Iterator[ImportItem]:
    """Yield what a project is about, and what its owner asked for in it."""
    name = value.get("name") if isinstance(value, Mapping) else None
    if not isinstance(name, str) or value.get("is_starter_project") is True:
        return
    wanted = (
        ("description", "Project {}: {}", None),
        ("prompt_template", "In {}: {}", "procedural"),
    )
    for member, form, kind in wanted:
        text = value.get(member)
        if isinstance(text, str) and text.strip():
            draft = Draft(
                text=form.format(name, text.strip()),
                kind=kind,
                tags=tags_of([f"project:{name}"]),
                source=source_of(file, name),
                event_time=moment(value.get("created_at"), zone),
            )
            yield check_draft(place, draft)
    documents = value.get("docs")
    if isinstance(documents, list):
        yield from (Omission(place, DOCUMENT) for _ in documents)
