"""Memories in JSON: lists and lines of objects, as memrelay, mem0 and MemWal write them.

It does not own Markdown (`markdown.py`) or MemoryClaw's files (`memoryclaw.py`).

- memrelay: an object with a draft's fields; an export adds `id`, `created_at` and, after the first,
  `revision`.
- mem0: `memory` is the text; `id`, `created_at`, `categories`, `metadata`, `user_id`, `agent_id`,
  `run_id`, `expiration_date` (the last day), `role` (of a message that was kept as it was said), in
  a list or under `results`. Its platform answers page by page (`count`, `next`), its library with
  20 unless somebody asks for more (mem0ai 2.2.1).
- MemWal: `text` and `blob_id`, from a recall also `distance` and `created_at`, under `results`.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, tzinfo
from typing import Any
from uuid import UUID

from memrelay.importing.drafts import (
    ASSISTANT,
    NESTED,
    Entry,
    Fault,
    ImportItem,
    Omission,
    Page,
    check_draft,
    draft_of,
    end_of,
    find_unknown,
    fits,
    metadata_of,
    moment,
    resolve_moment,
    source_of,
    tags_of,
)
from memrelay.importing.sources import File
from memrelay.models import Draft

LINE_BYTES_MAX = 8 << 20  # a text of 1 MiB, written in escapes
FIRST_STORED = "memrelay_created_at"  # the metadata that keeps an exported `created_at`
_LISTS = ("results", "memories")
_TOTALS = ("count", "total")
_NEXT = ("next", "next_cursor", "next_page", "has_more")
_MEM0_NOTES = (
    *("user_id", "agent_id", "run_id", "app_id", "actor_id"),
    *("role", "attributed_to"),
)
_MEM0_AT_ONCE = 20

Reader = Callable[[dict[str, Any], str, tzinfo], Draft]


def json_lines(file: File, *, format: str, zone: tzinfo) -> Iterator[ImportItem]:
    """Yield the memories of a file with one JSON object a line, however long it is."""
    with file.stream() as stream:
        number = 0
        while line := stream.readline(LINE_BYTES_MAX + 1):
            number += 1
            if len(line) > LINE_BYTES_MAX:
                yield Fault(str(number), "the line is longer than 8 MiB; the rest was not read")
                return
            if line.strip(b"\xef\xbb\xbf\r\n\t "):
                yield _line(line, str(number), file.name, format, zone)


def _line(line: bytes, place: str, file: str, format: str, zone: tzinfo) -> ImportItem:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return Fault(place, "not JSON")
    return record(value, place, file, format=format, zone=zone)


def json_list(text: str, file: str, *, format: str, zone: tzinfo) -> Iterator[ImportItem]:
    """Yield the memories of a JSON list, or of the list in an answer; then whether it is a page.

    Raises:
        ValueError: the text is not JSON, or holds no list of memories.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    answer: dict[str, Any] = {}
    if isinstance(value, dict):
        answer = value
        value = next((answer[name] for name in _LISTS if name in answer), [answer])
    if not isinstance(value, list):
        raise ValueError("no list of memories")
    for number, entry in enumerate(value, 1):
        yield record(entry, f"#{number}", file, format=format, zone=zone)
    page = _page(answer, len(value), format)
    if page is not None:
        yield page


def _page(answer: Mapping[str, Any], held: int, format: str) -> Page | None:
    """Return what an answer says of memories that it does not hold."""
    totals = [answer[name] for name in _TOTALS if type(answer.get(name)) is int]
    if any(total > held for total in totals):
        return Page(held, max(totals))
    if any(answer.get(name) for name in _NEXT):
        return Page(held, None)
    if format == "mem0" and held == _MEM0_AT_ONCE and not totals:
        return Page(held, None, is_certain=False)
    return None


def record(value: object, place: str, file: str, *, format: str, zone: tzinfo) -> ImportItem:
    """Return the memory of one JSON object of a format; with `jsonl`, the object tells itself."""
    if not isinstance(value, dict):
        return Fault(place, "not an object")
    try:
        told = format_of(value) if format == "jsonl" else format
        if told == "mem0" and value.get("role") not in (None, "user"):
            return Omission(place, ASSISTANT)
        found = check_draft(place, READERS[told](value, file, zone))
        return (
            _read_exported(found, value) if told == "jsonl" and isinstance(found, Entry) else found
        )
    except ValueError as error:
        return Fault(place, str(error))
    except RecursionError:
        return Fault(place, NESTED)


def format_of(value: Mapping[str, Any]) -> str:
    """Return which program writes such objects: mem0, memwal, or jsonl for a draft's fields."""
    if isinstance(value.get("memory"), str):
        return "mem0"
    return "memwal" if "blob_id" in value and "kind" not in value else "jsonl"


def _read_exported(entry: Entry, value: Mapping[str, Any]) -> Entry:
    """Return an entry with what no memory has, and with the one that it was exported from, if it
    names one."""
    entry = replace(entry, unknown=find_unknown(value))
    try:
        memory_id = str(UUID(value.get("id")))
    except (ValueError, TypeError, AttributeError):
        return entry
    revision = value.get("revision", 1)
    if isinstance(revision, bool) or not isinstance(revision, int) or not 0 < revision < 1 << 31:
        raise ValueError("revision is a whole number from 1")
    return replace(entry, memory_id=memory_id, revision=revision)


def _mem0(value: dict[str, Any], file: str, zone: tzinfo) -> Draft:
    if not isinstance(value.get("memory"), str):
        raise ValueError("not an object with a memory")
    noted = value.get("metadata")
    notes = {name: value.get(name) for name in _MEM0_NOTES}
    categories = value.get("categories")
    # One that is not understood is no leave to keep it for ever.
    expires = value.get("expiration_date") or None
    _read_time(expires, "expiration_date", zone)
    return Draft(
        text=value["memory"],
        tags=tags_of(categories if isinstance(categories, list) else ()),
        source=source_of(file),
        event_time=resolve_moment(value["memory"], moment(value.get("created_at"), zone)),
        expires_at=end_of(expires, zone),
        metadata=metadata_of(
            {**(noted if isinstance(noted, dict) else {}), **notes, "mem0_id": value.get("id")}
        ),
    )


def _memwal(value: dict[str, Any], file: str, zone: tzinfo) -> Draft:
    if not isinstance(value.get("text"), str):
        raise ValueError("not an object with a text")
    return Draft(
        text=value["text"],
        source=source_of(file),
        event_time=resolve_moment(value["text"], moment(value.get("created_at"), zone)),
        metadata=metadata_of({"memwal_blob_id": value.get("blob_id")}),
    )


def _own(value: dict[str, Any], file: str, zone: tzinfo) -> Draft:
    draft = draft_of(value)
    metadata = {
        name: part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)
        for name, part in (draft.metadata or {}).items()
    }
    created_at = value.get("created_at")
    # No relayer can be told when a memory was first stored, so it is kept beside it, if there is
    # room: the memory itself matters more.
    if isinstance(created_at, str) and moment(created_at):
        dated = {FIRST_STORED: created_at, **metadata}
        metadata = dated if fits(dated) else metadata
    exported = "id" in value
    return replace(
        draft,
        source=draft.source if draft.source or exported else source_of(file),
        event_time=_read_time(draft.event_time, "event_time", zone),
        expires_at=_read_time(draft.expires_at, "expires_at", zone),
        metadata=metadata or None,
        idempotency_key=None,
    )


def _read_time(value: object, name: str, zone: tzinfo) -> datetime | None:
    time = moment(value, zone)
    if value is not None and time is None:
        raise ValueError(f"{name} is no time")
    return time


READERS: Mapping[str, Reader] = {"mem0": _mem0, "memwal": _memwal, "jsonl": _own}
