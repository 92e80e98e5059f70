"""Memories in Markdown: notes and daily logs of people and of agents.

It does not own choosing files and formats (`files.py`), the outline of a text (`outline.py`), what
OpenClaw's and memsearch's files have beside memories (`workspace.py`), or memrelay's own pages
(`pages.py`).

- Headings become tags, and a bullet of a few words gets the nearest one in front of it. Days and
  times at the beginning of headings and notes date them; so do front matter, the name of a daily
  file and, seen from these, words such as "yesterday".
- OpenClaw: `MEMORY.md` and `USER.md`, `memory/YYYY-MM-DD.md`, and the saved sessions
  `memory/YYYY-MM-DD-SLUG.md`, which begin with `# Session: DATE TIME ZONE` and bullets `Session
  Key`, `Session ID`, `Source` or `Reason`.
- memsearch: `YYYY-MM-DD.md` with `## Session HH:MM`, and for each turn `### HH:MM`, a comment
  `session:ID turn:ID transcript:PATH`, and bullets. Of the path, only the file's name is kept.
- Hermes: `MEMORY.md` and `USER.md`, entries of any shape between lines of a lone `§`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from pathlib import PurePosixPath
from typing import Any

from memrelay.importing import workspace
from memrelay.importing.drafts import (
    REPORT,
    TEMPLATE,
    ImportItem,
    Omission,
    check_draft,
    metadata_of,
    moment,
    resolve_moment,
    source_of,
    tags_of,
)
from memrelay.importing.outline import NOTE_CHARS_MAX, Block, blocks
from memrelay.importing.times import DAY, note_time, split_time, zone_of
from memrelay.models import Draft

_FRONT_LINES_MAX = 200
_CONTEXT_WORDS_MAX, _CONTEXT_CHARS_MAX = 3, 32  # what is so short says little alone

_PAIR = re.compile(r"([A-Za-z_][\w-]*):\s*(.*)")
_CLOCK_ALONE = re.compile(r"(?:Session )?\d{1,2}:\d{2}(?::\d{2})?")
_SESSION = re.compile(r"Session: (\d{4}-\d{2}-\d{2} \d{1,2}:\d{2}(?::\d{2})?) (\S+)$")
_SESSION_BULLET = re.compile(r"\*\*(Session Key|Session ID|Source|Reason)\*\*:\s*(.*)$")
_FRAME = re.compile(
    r"(long-term |curated )?memor(y|ies)|(memory|user|project|soul|identity|agents|tools)\.md\b.*"
    r"|conversation summary|directives|promoted from short-term memory|(user|project) memory",
    re.IGNORECASE,
)
_KINDS = {"preferences": "preference", "decisions": "decision", "events": "event"}
_SIGN = re.compile(r"^[^\S\n]*§[^\S\n]*$", re.MULTILINE)


def has_separators(text: str) -> bool:
    """Return whether a line of a text is a lone `§`, which parts Hermes' entries."""
    return _SIGN.search(text) is not None


def hermes_entries(text: str, file: str) -> Iterator[ImportItem]:
    """Yield the entries between lines of a lone `§`, each whole."""
    at, line = 0, 1
    for sign in (*_SIGN.finditer(text), None):
        end = sign.start() if sign else len(text)
        entry = text[at:end]
        if entry.strip():
            before = entry[: -len(entry.lstrip())]
            place = str(line + before.count("\n"))
            yield check_draft(place, Draft(text=entry.strip(), source=source_of(file)))
        line += entry.count("\n")
        at = sign.end() if sign else end


def entries(
    text: str, file: str, *, kind: str | None, zone: tzinfo, tags: Sequence[str] = ()
) -> Iterator[ImportItem]:
    """Yield the memories of a Markdown file; `file` is its relative name, for dates and sources.

    Times without an offset are those of `zone`. `tags` are those of the whole file.
    """
    front, lines, first = front_matter(text)
    named = DAY.search(PurePosixPath(file).name)
    written = front.get("date") or front.get("created") or front.get("timestamp")
    default = moment(written, zone) or moment(named[0] if named else None, zone)
    general = front.get("tags") or []
    general = tags_of(general if isinstance(general, list) else str(general).split(",")) or ()
    session: dict[str, str] = {}
    is_workspace = workspace.has_name(file)

    def read(block: Block) -> tuple[ImportItem, Block] | None:
        told = len(block.text) <= NOTE_CHARS_MAX and _SESSION_BULLET.match(block.text)
        if told and any(_SESSION.match(heading) for heading in block.headings):
            session[told[1].lower().replace(" ", "_")] = told[2]
            return None
        if "report" in block.note:
            return Omission(str(block.line), REPORT), block
        text, promoted = workspace.strip_score(block.text)
        text = workspace.strip_template(text, block.note) if is_workspace else text
        if not text:
            return Omission(str(block.line), TEMPLATE), block
        anchor = {**session, **block.anchor}
        anchor |= {"session": anchor.pop("session_id")} if "session_id" in anchor else {}
        when, titles = _split_headings(block.headings, default, zone)
        when = moment(promoted or block.note.get("observed"), zone) or when
        draft = Draft(
            text=_in_context(text, titles),
            kind=_KINDS.get(titles[-1].lower(), kind) if titles else kind,
            tags=tags_of([*general, *tags, *titles]),
            source=source_of(file, block.anchor.get("session") or "/".join(titles)),
            event_time=resolve_moment(text, note_time(text, when, zone)),
            metadata=metadata_of(anchor),
        )
        return check_draft(str(block.line), draft), block

    read_blocks = filter(None, map(read, blocks(lines, first)))
    yield from workspace.attach_superseded(read_blocks)


def _split_headings(
    headings: Sequence[str], default: datetime | None, zone: tzinfo
) -> tuple[datetime | None, list[str]]:
    """Return the moment that headings give, and what they say beside it and the file's name."""
    when, titles = default, list[str]()
    for heading in headings:
        session = _SESSION.match(heading)
        if session:
            when, title = moment(session[1], zone_of(session[2], zone)) or when, ""
        else:
            when, title = split_time(heading, when, zone)
        if title and not _FRAME.fullmatch(title) and not _CLOCK_ALONE.fullmatch(title):
            titles.append(title)
    return when, titles


def _in_context(text: str, titles: Sequence[str]) -> str:
    short = len(text.split()) <= _CONTEXT_WORDS_MAX and len(text) <= _CONTEXT_CHARS_MAX
    if titles and short:
        return f"{titles[-1]}: {text}"
    return text


def front_matter(text: str) -> tuple[dict[str, Any], list[str], int]:
    """Return a text's front matter, the lines after it, and the number of the first of these.

    The values are JSON, lists and plain texts; nothing deeper is read.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return {}, lines, 1
    for end, line in enumerate(lines[1:_FRONT_LINES_MAX], 1):
        if line.rstrip() in {"---", "..."}:
            return _pairs(lines[1:end]), lines[end + 1 :], end + 2
    return {}, lines, 1


def _pairs(lines: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    last = ""
    for line in lines:
        pair = _PAIR.match(line)
        if pair:
            last = pair[1]
            values[last] = _value(pair[2].strip())
        elif last and line.strip().startswith("- "):
            items = values[last] if isinstance(values[last], list) else []
            values[last] = [*items, _value(line.strip()[2:].strip())]
    return values


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if text.startswith("[") and text.endswith("]"):
            return [item.strip().strip("'\"") for item in text[1:-1].split(",") if item.strip()]
        return text.strip("'\"")
