"""Holds what a reader finds in a file: memories to be stored, and places that hold none.

It does not own the formats of files, nor the relayer's limits, which it only foretells.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, time, timedelta, tzinfo
from difflib import get_close_matches
from typing import Any, Final

from memrelay.importing.relative import resolve_day
from memrelay.models import KINDS, Draft, Memory

TEXT_BYTES_MAX = 1 << 20
TAGS_MAX, TAG_CHARS_MAX = 32, 128
SOURCE_CHARS_MAX = 512
NESTED = "it is nested too deeply"
OTHERS = ""  # stands for members that are not told by name
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")
_DAY = re.compile(r"\d{4}-?\d{2}-?\d{2}")
_SECONDS_MAX = 1 << 36
_METADATA_ENTRIES_MAX, _METADATA_BYTES_MAX = 64, 8 << 10
_WORDS = {
    "kind": KINDS,
    "importance": ("vital", "standard", "trivial"),
    "confidence": ("high", "medium", "low"),
}
_FIELDS = frozenset(item.name for item in fields(Draft))
_TEXTS = _FIELDS - {"tags", "metadata"}
_TOLD = frozenset(item.name for item in fields(Memory))  # of a memory as it was read or exported


@dataclass(frozen=True, slots=True)
class Entry:
    """A memory to be stored, and where in its file it stood: a line, or `#` and a number.

    `memory_id` and `revision` are those of the memory that it was exported from, if it was;
    `unknown` are members of its object that no memory has, of which nothing is stored. `earlier`
    are memories whose place it took.
    """

    place: str
    draft: Draft
    memory_id: str | None = None
    revision: int = 1
    unknown: tuple[str, ...] = ()
    earlier: tuple[Draft, ...] = ()


@dataclass(frozen=True, slots=True)
class Omission:
    """A place that was understood, and is no memory of anybody's; the reason is one of these."""

    place: str
    reason: str


TEMPLATE: Final = "template"
REPORT: Final = "report"
SUMMARY: Final = "summary"
SUPERSEDED: Final = "superseded"
ASSISTANT: Final = "assistant"
PRIVATE: Final = "private"
DOCUMENT: Final = "document"
OMITTED: Final = {
    TEMPLATE: "of OpenClaw's own text",
    REPORT: "of OpenClaw's dreaming",
    SUMMARY: "summing up what is imported",
    SUPERSEDED: "superseded by nothing beside it",
    ASSISTANT: "not said by the user",
    PRIVATE: "marked not to be remembered",
    DOCUMENT: "of a project's documents",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A file that is one page of more: it holds so many of a total, None if it says no number.

    A page that is not certain holds just as many as its program writes if nobody asks for more.
    """

    held: int
    total: int | None
    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class Fault:
    """A place that holds no memory that could be stored; the reason quotes nothing of it.

    `expired` marks what is no error: a memory whose time is over.
    """

    place: str
    reason: str
    expired: bool = False


ImportItem = Entry | Omission | Page | Fault


def check_draft(place: str, draft: Draft) -> ImportItem:
    """Return a draft as an entry, or as a fault if a relayer would refuse it."""
    fault = _fault(draft)
    if fault is not None:
        return Fault(place, fault)
    expires = moment(draft.expires_at)
    if expires is not None and expires <= datetime.now(UTC):
        return Fault(place, "it has expired", expired=True)
    return Entry(place, draft)


def _fault(draft: Draft) -> str | None:
    if not draft.text.strip():
        return "the text is empty"
    if _has_surrogate(draft):
        return "it holds half a character"
    if len(draft.text.encode()) > TEXT_BYTES_MAX:
        return "the text is longer than 1 MiB"
    for name, words in _WORDS.items():
        if getattr(draft, name) not in {None, *words}:
            return f"{name} is none of {', '.join(words)}"
    tags, metadata = tuple(draft.tags or ()), draft.metadata or {}
    if len(tags) > TAGS_MAX or any(not 0 < len(tag) <= TAG_CHARS_MAX for tag in tags):
        return "there are more than 32 tags, or one is empty or longer than 128 characters"
    if draft.source is not None and not 0 < len(draft.source) <= SOURCE_CHARS_MAX:
        return "the source is empty or longer than 512 characters"
    if not all(isinstance(value, str) for value in metadata.values()):
        return "metadata has a value that is no text"
    if not fits(metadata):
        return "metadata has more than 64 entries or 8 KiB"
    for name in ("event_time", "expires_at"):
        value = getattr(draft, name)
        if value is not None and moment(value) is None:
            return f"{name} is no time"
    return None


def fits(metadata: Mapping[str, str]) -> bool:
    """Return whether a relayer takes so much metadata; it counts the bytes of compact JSON."""
    text = json.dumps(dict(metadata), ensure_ascii=False, separators=(",", ":"))
    size = len(text.encode(errors="surrogatepass"))
    return len(metadata) <= _METADATA_ENTRIES_MAX and size <= _METADATA_BYTES_MAX


def _has_surrogate(draft: Draft) -> bool:
    # JSON can write one half of a pair, which is no text and has no UTF-8.
    values = (draft.text, draft.source, draft.namespace, draft.tags, draft.metadata)
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def moment(value: object, zone: tzinfo | None = None) -> datetime | None:
    """Return the time that a text or value stands for, None if it stands for none.

    A day is its midnight. A time without an offset is one of `zone`; without a zone, none.
    """
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
        time = time.replace(tzinfo=zone) if time.utcoffset() is None else time
        # The first and the last year do not survive a change of time zone.
        return time if time.utcoffset() is not None and 1 < time.year < 9999 else None
    except (ValueError, OverflowError):
        return None


def parse_moment(value: object, zone: tzinfo) -> datetime | None:
    """Return the time that a value of another program stands for, also as seconds since 1970.

    What is too large for seconds is milliseconds.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return moment(value, zone)
    if not 0 < value <= 1000 * _SECONDS_MAX:
        return None
    return datetime.fromtimestamp(value / 1000 if value > _SECONDS_MAX else value, UTC)


def resolve_moment(text: str, when: datetime | None) -> datetime | None:
    """Return the midnight of the one day that words of a text name, seen from when it was written.

    Without such words, and where it is not known when it was written, return that.
    """
    day = None if when is None else resolve_day(text, when.date())
    if when is None or day is None or day == when.date():
        return when
    return moment(datetime.combine(day, time(), tzinfo=when.tzinfo)) or when


def end_of(value: object, zone: tzinfo) -> datetime | None:
    """Return the end of the time that a value stands for, None if for none: a day lasts whole."""
    begin = moment(value, zone)
    is_day = isinstance(value, str) and _DAY.fullmatch(value.strip())
    return begin + timedelta(days=1) if begin is not None and is_day else begin


def draft_of(value: object) -> Draft:
    """Return the draft in a JSON object with a draft's fields; others are left out.

    Raises:
        ValueError: it is no object with a text, or a field has another type.
    """
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise ValueError("not an object with a text")
    known = {name: part for name, part in value.items() if name in _FIELDS and part is not None}
    for name in known.keys() & _TEXTS:
        if not isinstance(known[name], str):
            raise ValueError(f"{name} is text")
    tags, metadata = known.get("tags"), known.get("metadata")
    if tags is not None:
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise ValueError("tags is a list of texts")
        known["tags"] = tuple(tags)
    if metadata is not None and not isinstance(metadata, dict):
        raise ValueError("metadata is an object")
    return Draft(**known)


def find_unknown(value: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the members of an object that no memory has: misspelt ones, or another program's.

    Those that no program would name so are told by `OTHERS` alone: they may be somebody's words.
    """
    names = (name for name in value if name not in _FIELDS | _TOLD)
    return tuple(dict.fromkeys(name if _NAME.fullmatch(name) else OTHERS for name in names))


def guess_field(name: str) -> str | None:
    """Return the field of a memory that a misspelt one stands for, if it looks like one."""
    return next(iter(get_close_matches(name.lower(), sorted(_FIELDS), n=1, cutoff=0.75)), None)


def tags_of(words: Iterable[object]) -> tuple[str, ...] | None:
    """Return words of another program as tags, within the limits; None for none."""
    texts = (str(word).strip()[:TAG_CHARS_MAX].strip() for word in words)
    return tuple(dict.fromkeys(filter(None, texts)))[:TAGS_MAX] or None


def metadata_of(values: Mapping[str, Any]) -> dict[str, str] | None:
    """Return what another program noted as metadata: texts as they are, the rest as JSON."""
    return {
        str(name): value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in values.items()
        if value not in (None, "", [], {})
    } or None


def source_of(file: str, part: str | None = None) -> str:
    """Return the source of an imported memory: its file, and the part of it if it has a name."""
    source = f"import:{file}" + (f"#{part}" if part else "")
    return source[:SOURCE_CHARS_MAX]
