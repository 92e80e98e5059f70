"""Memories in Markdown: notes and daily logs of people and of agents, a bullet or paragraph each.

It does not own choosing files and formats (`files.py`), or memrelay's own pages (`pages.py`).

- A bullet keeps what is nested under it, a paragraph its code block; nothing is cut.
- Headings become tags, and a bullet of a few words gets the nearest one in front of it. Headings
  that are dates and times date what follows; so do front matter and the name of a daily file.
- OpenClaw: `MEMORY.md` and `USER.md`, `memory/YYYY-MM-DD.md`, and the saved sessions
  `memory/YYYY-MM-DD-SLUG.md`, which begin with `# Session: DATE TIME ZONE` and bullets `Session
  Key`, `Session ID`, `Source` or `Reason`.
- memsearch: `YYYY-MM-DD.md` with `## Session HH:MM`, and for each turn `### HH:MM`, a comment
  `session:ID turn:ID transcript:PATH`, and bullets. Of the path, only the file's name is kept.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, tzinfo
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from zoneinfo import ZoneInfo

from memrelay.importing.found import Found, checked, metadata_of, moment, source_of, tags_of
from memrelay.models import Draft

_FRONT_LINES_MAX = 200
_CONTEXT_WORDS_MAX, _CONTEXT_CHARS_MAX = 3, 32  # what is so short says little alone
# Of what is looked at again with each block that follows: a tag, a source and metadata have less.
_TITLE_CHARS_MAX, _NOTE_CHARS_MAX = 512, 8192

_HEADING = re.compile(r" {0,3}(#{1,6})(?:\s+(.*))?$")
_BULLET = re.compile(r"(\s*)([-*+]|\d{1,9}[.)])(\s+)(?=\S)")
_RULE = re.compile(r" {0,3}([-*_=])(\s*\1){2,}\s*$")
_FENCE = re.compile(r"\s*(?:[-*+]\s+)?(`{3,}(?=[^`]*$)|~{3,})")
_PAIR = re.compile(r"([A-Za-z_][\w-]*):\s*(.*)")
_ANCHOR = re.compile(r"(?:^|(?<=\s))(\w+):")
_DAY = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)")
_TIME = re.compile(r"(?:Session )?(\d{1,2}:\d{2})(?::\d{2})?$")
_SESSION = re.compile(r"Session: (\d{4}-\d{2}-\d{2} \d{1,2}:\d{2}(?::\d{2})?) (\S+)$")
_SESSION_BULLET = re.compile(r"\*\*(Session Key|Session ID|Source|Reason)\*\*:\s*(.*)$")
_FRAME = re.compile(
    r"(long-term |curated )?memor(y|ies)|memory\.md\b.*|user\.md\b.*|conversation summary",
    re.IGNORECASE,
)
_KINDS = {"preferences": "preference", "decisions": "decision", "events": "event"}


@dataclass(frozen=True, slots=True)
class Block:
    """A bullet or paragraph: its line, its text, the headings over it, the last anchor comment."""

    line: int
    text: str
    headings: tuple[str, ...]
    anchor: Mapping[str, str]


def entries(text: str, file: str, *, kind: str | None, zone: tzinfo) -> Iterator[Found]:
    """Yield the memories of a Markdown file; `file` is its relative name, for dates and sources.

    Times without an offset are those of `zone`.
    """
    front, lines, first = front_matter(text)
    named = _DAY.search(PurePosixPath(file).name)
    written = front.get("date") or front.get("created") or front.get("timestamp")
    default = moment(written, zone) or moment(named[0] if named else None, zone)
    general = front.get("tags") or []
    general = tags_of(general if isinstance(general, list) else str(general).split(",")) or ()
    session: dict[str, str] = {}
    for block in blocks(lines, first):
        told = len(block.text) <= _NOTE_CHARS_MAX and _SESSION_BULLET.match(block.text)
        if told and any(_SESSION.match(heading) for heading in block.headings):
            session[told[1].lower().replace(" ", "_")] = told[2]
            continue
        anchor = {**session, **block.anchor}
        anchor |= {"session": anchor.pop("session_id")} if "session_id" in anchor else {}
        titles = _titles(block.headings)
        draft = Draft(
            text=_in_context(block.text, titles),
            kind=_KINDS.get(titles[-1].lower(), kind) if titles else kind,
            tags=tags_of([*general, *titles]),
            source=source_of(file, block.anchor.get("session") or "/".join(titles)),
            event_time=_time(block.headings, default, zone),
            metadata=metadata_of(anchor),
        )
        yield checked(str(block.line), draft)


def _titles(headings: Sequence[str]) -> list[str]:
    """Return what headings say beside dates, times and the name of the file."""
    undated = [re.sub(rf"^{_DAY.pattern}[\s:–—-]*", "", heading) for heading in headings]
    frames = (_TIME, _SESSION, _FRAME)
    return [title for title in undated if title and not any(f.fullmatch(title) for f in frames)]


def _in_context(text: str, titles: Sequence[str]) -> str:
    short = len(text.split()) <= _CONTEXT_WORDS_MAX and len(text) <= _CONTEXT_CHARS_MAX
    if titles and short:
        return f"{titles[-1]}: {text}"
    return text


def _time(headings: Sequence[str], default: datetime | None, zone: tzinfo) -> datetime | None:
    when = default
    for heading in headings:
        session, day, clock = _SESSION.match(heading), _DAY.match(heading), _TIME.match(heading)
        if session:
            when = moment(session[1], _zone(session[2], zone)) or when
        elif day:
            when = moment(day[0], zone) or when
        elif clock and when is not None:
            hour, minute = map(int, clock[1].split(":"))
            if hour < 24 and minute < 60:
                when = datetime.combine(when.date(), time(hour, minute), tzinfo=when.tzinfo)
    return when


def _zone(name: str, default: tzinfo) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not known on this machine, or no name at all
        return default


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


def blocks(lines: Sequence[str], first: int = 1) -> Iterator[Block]:
    """Yield the bullets and paragraphs of Markdown lines, which are numbered from `first`."""
    outline = _Outline()
    for number, line in enumerate(lines, first):
        yield from outline.feed(number, line)
    yield from outline.end()


class _Outline:
    """Where a reader of Markdown stands: under which headings, in which bullet or code block."""

    def __init__(self) -> None:
        self._headings: list[tuple[int, str]] = []
        self._lead: str | None = None  # a line with a colon, of which the bullets below speak
        self._anchor: dict[str, str] = {}
        self._began: tuple[int, dict[str, str]] = (0, {})  # line and anchor of the block
        self._lines: list[str] = []
        self._indent: int | None = None  # of the bullet that the lines belong to
        self._fence = ""
        self._comment = False
        self._blank = False

    def feed(self, number: int, line: str) -> Iterator[Block]:
        """Take one more line; yield the block that it ends, if it ends one."""
        if self._fence:
            self._lines.append(line)
            if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
                self._fence = ""
            return
        line = self._without_comments(line).expandtabs(4)
        if not line.strip():
            self._blank = True
            return
        heading = _HEADING.match(line)
        if heading or _RULE.match(line):
            yield from self.end()
            self._lead = None
            if heading:
                title = re.sub(r"\s#+$", "", (heading[2] or "").rstrip())
                self._open(len(heading[1]), title.strip(" *_`:"))
        elif self._lines and self._continues(line):
            self._lines += ["", line] if self._blank else [line]
        else:
            yield from self._begin(number, line)
        self._blank = False
        fence = None if heading else _FENCE.match(line)
        self._fence = fence[1] if fence else ""

    def end(self) -> Iterator[Block]:
        """Yield the block that is under way, if one is."""
        text = "\n".join(self._lines).strip()
        self._lines, self._indent, self._blank = [], None, False
        if any(char.isalnum() for char in text):
            titles = [title for _, title in self._headings if title]
            lead = [self._lead] if self._lead else []
            line, anchor = self._began
            yield Block(line, text, (*titles, *lead), anchor)

    def _begin(self, number: int, line: str) -> Iterator[Block]:
        bullet = _BULLET.match(line)
        leads = len(self._lines) == 1 and len(self._lines[0]) <= _TITLE_CHARS_MAX
        leads = leads and self._lines[0].rstrip(" *_").endswith(":")
        if bullet and leads and self._indent is None:
            self._lead = self._lines.pop().strip(" *_:")
        yield from self.end()
        if not bullet:
            self._lead = None
        self._began = number, self._anchor
        self._indent = len(bullet[1]) if bullet else None
        self._lines = [line[bullet.end() :] if bullet else line]

    def _continues(self, line: str) -> bool:
        indent = len(line) - len(line.lstrip())
        if self._indent is not None and indent > self._indent:
            return True
        is_code = _FENCE.match(line) and self._lines[-1].rstrip().endswith(":")
        return bool(is_code) or not (self._blank or _BULLET.match(line))

    def _open(self, level: int, title: str) -> None:
        self._headings = [entry for entry in self._headings if entry[0] < level]
        self._headings.append((level, title[:_TITLE_CHARS_MAX]))
        self._anchor = {}

    def _without_comments(self, line: str) -> str:
        # One step for each mark, none of which looks at the rest of the line again.
        kept: list[str] = []
        says, at, last_end = False, 0, line.rfind("-->")
        while at < len(line):
            mark = "-->" if self._comment else "<!--"
            found = line.find(mark, at)
            end = len(line) if found < 0 else found
            part, at = line[at:end], end + len(mark)
            if self._comment:
                self._comment = found < 0
                self._note(part)
                continue
            kept.append(part)
            says = says or bool(part.strip())
            # One that ends on a later line begins a line; anything else is no comment.
            self._comment = found >= 0 and (last_end >= at or not says)
            if found >= 0 and not self._comment:
                kept.append(mark)
                says = True
        return "".join(kept)

    def _note(self, comment: str) -> None:
        # Whatever follows is dated and noted by it, each time anew.
        if len(comment) <= _NOTE_CHARS_MAX and comment.strip().startswith("session:"):
            _, *parts = _ANCHOR.split(comment.strip())  # a path may have spaces in it
            self._anchor = dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
            # A path is one of another time or machine; the name finds the file anywhere.
            for name in self._anchor.keys() - {"session", "turn"}:
                self._anchor[name] = PureWindowsPath(self._anchor[name]).name
