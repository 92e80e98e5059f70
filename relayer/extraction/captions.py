"""Captions of what was said: SRT, WebVTT and SBV.

It does not own the other formats of transcripts (`transcripts.py`).

- A cue is a piece of what somebody says. Cues without a name of their own go on with what stands
  before them: a sentence may be parted among several.
- Where no cue names anybody, all is one text of nobody known.
- Time is linear in the text.
"""

import html
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from relayer.extraction.message import Message, Role, is_name, role_of, speaker_named

_CLOCK: Final = r"(?:\d{1,3}:)?\d{1,2}:\d\d[.,]\d{1,3}"
_TIMING: Final = re.compile(rf"[ \t\u00a0]*{_CLOCK}(?:[ \t]*-+>[ \t]*|,){_CLOCK}(?:[ \t].*)?")
_HEADER: Final = re.compile(r"WEBVTT(?:[ \t].*)?")
_NO_CUE: Final = re.compile(r"(?:NOTE|STYLE|REGION)(?:[ \t]|\Z)")
_VOICE: Final = re.compile(r"<v(?:\.[\w.-]{1,60})?[ \t]+([^<>]{1,100})>")
_TAG: Final = re.compile(r"</?[\w.:][^<>]{0,200}>|\{\\[^{}]{0,100}\}")
_LABEL: Final = re.compile(r"(?:>>[ \t]*)?\[?([^\s:\[\]][^:\[\]\n]{0,59})\]?:[ \t]+(?=\S)")
_DASH: Final = re.compile(r"[-–—>]{1,2}[ \t]+")


def are_captions(text: str) -> bool:
    """Tell whether a text begins as captions do: with their name, or a cue."""
    lines = text.lstrip().split("\n", 2)
    return bool(_HEADER.fullmatch(lines[0].rstrip()) or any(map(_TIMING.fullmatch, lines[:2])))


def caption_messages(text: str) -> list[Message] | None:
    """Return what captions say, by who says it; None if `text` is none."""
    if not are_captions(text):
        return None
    found, words, last = list[Message](), list[str](), ""
    role: Role = "unknown"
    speaker = ""
    for line in _lines(text.split("\n")):
        named = _parse_caption(line)
        if named is not None and named[:2] != (role, speaker):
            _add(found, role, speaker, words)
            role, speaker, _ = named
            words = []
        said = line if named is None else named[2]
        if said and said != last:  # captions that roll show each line twice
            words.append(said)
        last = said
    _add(found, role, speaker, words)
    return found or None


def without_timings(lines: Sequence[str]) -> list[str]:
    """Return lines with an empty one in place of each timing of a cue, and of its number."""
    kept = list(lines)
    for at, line in enumerate(lines):
        if ":" in line and _TIMING.fullmatch(line):
            kept[at] = ""
            if at and lines[at - 1].strip().isdigit():
                kept[at - 1] = ""
    return kept


def _add(found: list[Message], role: Role, speaker: str, words: Sequence[str]) -> None:
    if words:
        found.append(Message(role, speaker, " ".join(words)))


def _lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of all cues, each with the voice that its cue names before it."""
    timings = [at for at, line in enumerate(lines) if _TIMING.fullmatch(line)]
    for at, end in pairwise([*timings, len(lines)]):
        for paragraph in _paragraphs(_without_name(lines[at + 1 : end], end < len(lines))):
            if not _NO_CUE.match(paragraph[0]):
                yield from filter(None, map(_plain, paragraph))


def _without_name(lines: Sequence[str], is_followed: bool) -> Sequence[str]:
    """Return the lines behind a timing without the name of the next cue, if that has one."""
    if not is_followed or not lines or not lines[-1].strip():
        return lines
    is_name_of_next = lines[-1].strip().isdigit() or (len(lines) > 1 and not lines[-2].strip())
    return lines[:-1] if is_name_of_next else lines


def _paragraphs(lines: Sequence[str]) -> Iterator[list[str]]:
    paragraph = list[str]()
    for line in [*lines, ""]:
        if line.strip():
            paragraph.append(line.strip())
        elif paragraph:
            yield paragraph
            paragraph = []


def _plain(line: str) -> str:
    voice = _VOICE.search(line)
    said = html.unescape(_TAG.sub("", line)).strip()
    said = said[dash.end() :] if (dash := _DASH.match(said)) else said
    return f"{voice[1].strip()}: {said}" if voice and said else said


def _parse_caption(line: str) -> tuple[Role, str, str] | None:
    """Return whose line it is, by role and name, and what they say; None if it names nobody."""
    label = _LABEL.match(line)
    if label is None:
        return None
    name, said = label[1].strip(), line[label.end() :]
    if (role := role_of(name)) is not None:
        return role, "", said
    name = name.title() if name.isupper() else name
    return ("user", speaker_named(name), said) if is_name(name) else None
