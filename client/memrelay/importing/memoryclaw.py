"""Memories of MemoryClaw: an episode a file, and lists of facts about people, projects and tastes.

It does not own its raw logs, skills and working memory, which are no memories yet or no longer.

- `episodes/*.md`: front matter `timestamp`, `tags`, `summary`, `participants`, `confidence` and,
  when consolidated from a log, `source`; the text below begins with `**Details:**`.
- `semantic/*.md`: bullets `entity: value`, or an entity with its fields nested under it. Those of
  `_pending.md` wait for review and end in `(confidence: …, source: …, added: …)`.
- `semantic/*.json`: an object, or an object of objects, with an entity for each member.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import tzinfo
from pathlib import PurePosixPath
from typing import Any

from memrelay.importing.drafts import (
    NESTED,
    Fault,
    ImportItem,
    check_draft,
    metadata_of,
    moment,
    resolve_moment,
    source_of,
    tags_of,
)
from memrelay.importing.markdown import front_matter
from memrelay.importing.outline import blocks
from memrelay.models import Draft

_NOTE = re.compile(r"\s?\(confidence: (\w+)(?:, source: ([^,)]*))?(?:, added: ([^,)]*))?\)")
_LEVELS = ("high", "medium", "low")
_DEPTH_MAX = 32  # of what a fact is said in


def episode(text: str, file: str, *, zone: tzinfo) -> Iterator[ImportItem]:
    """Yield the one memory of an episode file."""
    front, lines, _ = front_matter(text)
    body = "\n".join(lines).strip().removeprefix("**Details:**").strip()
    tags = front.get("tags")
    notes = {"participants": front.get("participants"), "log": front.get("source")}
    if isinstance(notes["participants"], list):
        notes["participants"] = ", ".join(map(str, notes["participants"]))
    text = f"{front.get('summary') or ''}\n{body}".strip()
    draft = Draft(
        text=text,
        kind="episodic",
        tags=tags_of(tags if isinstance(tags, list) else ()),
        source=source_of(file),
        event_time=resolve_moment(text, moment(front.get("timestamp"), zone)),
        metadata=metadata_of(notes),
        confidence=_level(front.get("confidence")),
    )
    yield check_draft("1", draft)


def facts(text: str, file: str, *, zone: tzinfo) -> Iterator[ImportItem]:
    """Yield the facts of a semantic file in Markdown."""
    topic = _topic(file)
    for block in blocks(text.split("\n")):
        note = _NOTE.search(block.text)
        told = block.text if note is None else _NOTE.sub("", block.text)
        level, log, added = note.groups() if note else (None, None, None)
        draft = Draft(
            text=f"{topic}: {told}" if topic else told,
            kind=_kind(file),
            tags=tags_of([topic]),
            source=source_of(file),
            event_time=resolve_moment(told, moment(added, zone)),
            metadata=metadata_of({"log": log}),
            confidence=_level(level),
        )
        yield check_draft(str(block.line), draft)


def json_facts(text: str, file: str) -> Iterator[ImportItem]:
    """Yield the facts of a semantic file in JSON.

    Raises:
        ValueError: it is not a JSON object.
    """
    try:
        value = json.loads(text)
    except ValueError:
        raise ValueError("not JSON") from None
    if not isinstance(value, dict):
        raise ValueError("not an object")
    for number, (name, part) in enumerate(value.items(), 1):
        try:
            told = _format_value(part)
        except ValueError as error:
            yield Fault(f"#{number}", str(error))
            continue
        draft = Draft(
            text=f"{_topic(file)}: {name}: {told}",
            kind=_kind(file),
            tags=tags_of([_topic(file)]),
            source=source_of(file, name),
        )
        yield check_draft(f"#{number}", draft)


def _format_value(value: Any, depth: int = 0) -> str:
    # How deep Python itself would go depends on its version.
    if depth > _DEPTH_MAX:
        raise ValueError(NESTED)
    if isinstance(value, Mapping):
        return "; ".join(
            f"{name}: {_format_value(part, depth + 1)}" for name, part in value.items()
        )
    if isinstance(value, list):
        return ", ".join(_format_value(part, depth + 1) for part in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _topic(file: str) -> str:
    stem = PurePosixPath(file).stem
    return "" if stem.startswith("_") else stem.replace("_", " ").replace("-", " ").capitalize()


def _kind(file: str) -> str:
    return "preference" if PurePosixPath(file).stem.startswith("preference") else "semantic"


def _level(value: object) -> str | None:
    return str(value) if value in _LEVELS else None
