"""Finds what an agent's workspace has beside memories: template, marks of state, summaries.

It does not own reading Markdown (`markdown.py`) or which files are a workspace's (`files.py`).

- OpenClaw fills a new workspace with instructions and empty labels. What of these nobody changed is
  no memory: `templates.py` has a digest of each such line.
- OpenClaw's directives say in a comment when they were observed, and whether they are superseded.
  One stands next to the directive that took its place.
- What its dreaming promoted ends in scores and names the note that it came from.
- memsearch's `compact` writes a summary of all notes behind those of the day.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Final

from memrelay.importing.drafts import SUPERSEDED, Entry, ImportItem, Omission, moment
from memrelay.importing.outline import Block
from memrelay.importing.templates import DIGEST_BYTES, DIGESTS

_NAMES: Final = frozenset(
    f"{name}.md"
    for name in "AGENTS BOOT BOOTSTRAP HEARTBEAT IDENTITY MEMORY SOUL TOOLS USER".split()
)
_LINE_CHARS_MAX: Final = 2000  # no line of the template is longer
_NUMBER: Final = re.compile(r"^\s{0,16}\d{1,3}[.)]\s")
_MARKUP: Final = re.compile(r"[-+*_`#>]")
# A label without a value, or with a hint in slanting brackets instead of one.
_UNFILLED: Final = re.compile(
    r"\s*(?:[-*+]\s+)?(?:\*\*[^*\n]{1,60}\*\*:?|[^\W\d_][\w /'-]{0,40}:)\s*"
    r"(?:([_*])\([^()\n]{0,400}\)\1)?\s*"
)
_SCORE: Final = re.compile(
    r"\s*\[score=[^\[\]\n]{0,200}\bsource=(?P<source>[^\[\]\n]{1,400})\]\s*$"
    r"|\s+Source: (?P<path>memory/[^\s:]{1,300}:\d+-\d+)\s*$"
)
_SOURCE_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_SUMMARY: Final = re.compile(r"## Memory Compact(?: \d{1,2}:\d{2})?\s*$")
_TURN: Final = re.compile(r"### \d{1,2}:\d{2}\s*$")
_LOG: Final = re.compile(r"## Session \d{1,2}:\d{2}\s*$")


def has_name(file: str) -> bool:
    """Return whether a file has the name of one that OpenClaw's template fills."""
    return PurePosixPath(file).name in _NAMES


def digest(line: str) -> bytes:
    """Return what a line of the template is known again by, in whatever markup it stands."""
    plain = "".join(_MARKUP.sub("", _NUMBER.sub("", line.casefold())).split())
    return blake2b(plain.encode(), digest_size=DIGEST_BYTES).digest()


def strip_template(text: str, note: Mapping[str, str]) -> str:
    """Return what somebody wrote of a block of OpenClaw's template; nothing for nothing.

    A directive that says when it was observed is somebody's, whatever it says.
    """
    if moment(note.get("observed"), UTC) is not None:
        return text
    lines = text.split("\n")
    written = [line for line in lines if not _is_template(line)]
    if not any(map(str.isalnum, "".join(written))):
        return ""
    if len(written) == 1 and _UNFILLED.fullmatch(written[0]):
        return ""
    # Whoever wrote below a label of the template filled it in.
    kept = [line for line in lines if not _is_template(line) or line.rstrip(" *_").endswith(":")]
    return "\n".join(kept).strip()


def _is_template(line: str) -> bool:
    return len(line) <= _LINE_CHARS_MAX and bool(line.strip()) and digest(line) in DIGESTS


def strip_score(text: str) -> tuple[str, str | None]:
    """Return a text without the scores of a promotion, and the day of the note it came from."""
    found = _SCORE.search(text, max(0, len(text) - 700))
    if found is None:
        return text, None
    day = _SOURCE_DAY.search(found["source"] or found["path"])
    return text[: found.start()].rstrip(), day[0] if day else None


def attach_superseded(read: Iterable[tuple[ImportItem, Block]]) -> Iterator[ImportItem]:
    """Yield what was read, a superseded directive with the one that took its place.

    That is the next directive of its section, or else the one before it.
    """
    section: tuple[str, ...] | None = None
    kept: Entry | None = None
    waiting: list[Entry] = []
    for found, block in read:
        if not isinstance(found, Entry):
            yield found
            continue
        if block.headings != section or not block.note:
            yield from _attach(kept, waiting)
            section, kept, waiting = block.headings, None, []
        if block.note.get("status", "").lower().startswith("superseded"):
            waiting.append(found)
        elif block.note:
            if kept is not None:
                yield kept
            kept = replace(found, earlier=tuple(entry.draft for entry in waiting))
            waiting = []
        else:
            yield found
    yield from _attach(kept, waiting)


def _attach(kept: Entry | None, waiting: Sequence[Entry]) -> Iterator[ImportItem]:
    if kept is None:
        yield from (Omission(entry.place, SUPERSEDED) for entry in waiting)
    else:
        yield replace(kept, earlier=(*kept.earlier, *(entry.draft for entry in waiting)))


def has_summary(text: str) -> bool:
    """Return whether a text has a summary that memsearch's `compact` wrote."""
    return any(map(_SUMMARY.match, text.split("\n")))


def strip_summaries(text: str) -> tuple[str, list[int]]:
    """Return a log of memsearch with blank lines for its summaries, and the line of each."""
    lines, places, inside = text.split("\n"), list[int](), False
    for number, line in enumerate(lines):
        if _SUMMARY.match(line):
            inside = True
            places.append(number + 1)
        elif inside and (_LOG.match(line) or _is_turn(lines, number)):
            inside = False
        if inside:
            lines[number] = ""
    return "\n".join(lines), places


def _is_turn(lines: Sequence[str], number: int) -> bool:
    # A summary may have headings of any sort; those of turns have their comment below.
    below = lines[number + 1].lstrip() if number + 1 < len(lines) else ""
    return bool(_TURN.match(lines[number])) and below.startswith("<!-- session:")
