"""Memories as files: a page of Markdown a day, or JSON lines, the same bytes every time.

It does not own the form of a page (`pages.py`) or what people are told (`commands/transfer.py`).

- The files are readable, so only this user may read them. Each is replaced at once.
- A page belongs to the day of its memories' event, or else of their storing, in UTC.
- A page of an earlier export whose memories are all gone is removed, with its namespace or
  without: importing the folder must not bring back what was forgotten. Nothing else is ever
  removed or replaced. So a folder belongs to one account, which a file in it names.
- What is still remembered and cannot be read stays as an earlier export tells it: that may be
  the only copy left. So does all else while a relayer that lost its database may lack memories.
"""

import hashlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from memrelay.answers import onward, rfc3339
from memrelay.errors import ConfigError
from memrelay.importing.drafts import moment
from memrelay.importing.records import FIRST_STORED
from memrelay.models import Memory
from memrelay.pages import FIELDS, MARKER, is_page, page, read_page
from memrelay.secure_files import write_private_text
from memrelay.sync_client import SyncMemoryClient

_PAGE_LIMIT = 100
RESTORE_S = 30.0  # for which an export waits for memories that come back
_POLL_S = 1.0
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_ ")
_NAME_BYTES_MAX = 200  # file systems take 255

Record = Mapping[str, Any]


@dataclass(frozen=True)
class NamespaceExport:
    """The records of a namespace, in the order of files, and the ids of what has no text.

    `sealed` is what another client sealed; of what is `lost`, the relayer has no sound bytes.
    """

    records: tuple[Record, ...]
    sealed: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()


def collect(
    client: SyncMemoryClient, namespace: str, progress: Callable[[int], None]
) -> NamespaceExport:
    """Return all memories of a namespace; `progress` is told the number of each batch."""
    return collect_records(_iterate_memories(client, namespace, progress))


def _iterate_memories(
    client: SyncMemoryClient, namespace: str, progress: Callable[[int], None]
) -> Iterator[Memory]:
    cursor: str | None = None
    while True:
        found = client.list(namespace=namespace, limit=_PAGE_LIMIT, cursor=cursor)
        yield from found.memories
        progress(sum(memory.text is not None for memory in found.memories))
        cursor = onward(cursor, found.next_cursor)
        if cursor is None:
            return


def await_restored(client: SyncMemoryClient, names: Iterable[str]) -> bool:
    """Wait until a relayer that lost its database has all memories back, and return true if so.

    They come back with the keys of their namespaces, which these requests lend.
    """
    names, until = list(names), time.monotonic() + RESTORE_S
    while client.usage().unrestored:
        if time.monotonic() > until:
            return False
        for name in names:
            client.list(namespace=name, limit=1)
        time.sleep(_POLL_S)
    return True


def collect_records(memories: Iterable[Memory]) -> NamespaceExport:
    """Return memories of a namespace as they are exported."""
    records: list[Record] = []
    sealed, lost = set[str](), set[str]()
    for memory in memories:
        if memory.text is not None:
            records.append(record(memory))
        else:
            (lost if memory.status == "failed" else sealed).add(memory.id)
    return NamespaceExport(tuple(sorted(records, key=_order)), frozenset(sealed), frozenset(lost))


def record(memory: Memory) -> Record:
    """Return what is exported of a memory: a draft's fields, its id, revision and first storing.

    An import notes the latter in the metadata, from where it is taken back.
    """
    values = memory.to_json()
    metadata = dict(memory.metadata or {})
    first = moment(metadata.get(FIRST_STORED))
    if first is not None:
        values["created_at"] = rfc3339(first)
        del metadata[FIRST_STORED]
    values["metadata"] = metadata
    if values["revision"] == 1:
        values["revision"] = None  # it goes without saying
    known = {name: values[name] for name in (*FIELDS, "text")}
    return {name: value for name, value in known.items() if value not in (None, [], {})}


def _order(record: Record) -> tuple[str, ...]:
    # Nothing that another relayer would number otherwise.
    told = (record.get(name) for name in ("created_at", "kind", "text"))
    return (_when(record), *map(str, told))


def _when(record: Record) -> str:
    # On a page that somebody edited, anything may stand or be missing.
    return str(record.get("event_time") or record.get("created_at"))


def json_lines(records: Iterable[Record], *, ascii_only: bool = False) -> str:
    """Return records as JSON, one a line."""
    lines = (json.dumps(dict(one), ensure_ascii=ascii_only) for one in records)
    return "".join(f"{line}\n" for line in lines)


def write_lines(path: Path, records: Iterable[Record]) -> None:
    """Replace a file by records as JSON lines; where a link leads, not the link.

    Raises:
        ConfigError: it cannot be written, or is a folder or a device.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise ConfigError(f"{path} is no file; choose another name, or - for standard output.")
    write_private_text(target, json_lines(records))


def claim(folder: Path, account_id: str) -> None:
    """Make a folder the export of an account, unless it is that already.

    Raises:
        ConfigError: it has pages of another account or of nobody knows whom, or cannot be written.
    """
    try:
        owner = _owner(folder)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}.") from error
    if owner is None:
        write_private_text(folder / MARKER, f"{account_id}\n")
    elif owner != account_id:
        raise ConfigError(
            f"{folder} has pages of another account, or lacks the {MARKER} that says whose they "
            "are; choose another folder."
        )


def _owner(folder: Path) -> str | None:
    try:
        return (folder / MARKER).read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return "" if any(_pages_in(place) for place in folder.glob("*/")) else None


def write_pages(
    folder: Path, namespace: str, records: Sequence[Record], kept: Collection[str] | None = ()
) -> tuple[int, int]:
    """Bring a namespace's pages up to date; return how many there are, and how many were removed.

    What stands there of the ids that are to be `kept` stays on its page; None keeps all of them.

    Raises:
        ConfigError: a file cannot be written, or one in the way is no page.
    """
    days: dict[str, list[Record]] = defaultdict(list)
    for one in records:
        days[f"{_when(one)[:10]}.md"].append(one)
    place = folder / folder_name(namespace)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        old = _pages_in(place)
        present = {str(one.get("id")) for one in records}
        for name, told in _find_records(old, kept):
            if kept is not None or str(told.get("id")) not in present:
                days[name].append(told)
        for name, of_day in days.items():
            text = page(sorted(of_day, key=_order))
            if name not in old and (place / name).exists():
                raise ConfigError(f"{place / name} is no page of an export; choose another folder.")
            if old.get(name) != text:
                write_private_text(place / name, text)
        removed = old.keys() - days.keys()
        for name in removed:
            (place / name).unlink()
        with suppress(OSError):
            place.rmdir()  # only if nothing is left in it
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}.") from error
    return len(days), len(removed)


def _find_records(
    pages: Mapping[str, str], ids: Collection[str] | None
) -> Iterator[tuple[str, Record]]:
    """Yield what pages tell of some memories, or all (None), each with the name of its page."""
    if ids is None or ids:
        for name, text in pages.items():
            for record in _records_on(text):
                if ids is None or str(record.get("id")) in ids:
                    yield name, record


def _records_on(text: str) -> Iterator[Record]:
    # Lines as an import reads them: other ends of lines are part of a text.
    for _, record in read_page(StringIO(text.removeprefix("\ufeff"), newline="\n")):
        yield record


def others(folder: Path, names: Collection[str]) -> set[str]:
    """Return the namespaces, other than `names`, that have pages in an export."""
    found: set[str] = set()
    for place in folder.glob("*/"):
        for text in _pages_in(place).values():
            of_page = {str(one.get("namespace", "")) for one in _records_on(text)}
            # What somebody copied into another folder is theirs.
            found |= {name for name in of_page if folder_name(name) == place.name}
    return found.difference(names)


def _pages_in(place: Path) -> dict[str, str]:
    found = {}
    for path in filter(Path.is_file, place.glob("????-??-??.md")):
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            text = file.read()
        if is_page(text):
            found[path.name] = text
    return found


def folder_name(namespace: str) -> str:
    """Return a namespace's folder: its name, with what file systems mix up or refuse escaped.

    A name too long for them is cut, and told from others by a hash behind `~`.
    """
    name = "".join(
        char if char in _PLAIN or (char > "\x7f" and char == char.casefold()) else _escape(char)
        for char in namespace
    )
    if len(name.encode()) <= _NAME_BYTES_MAX:
        return name
    digest = hashlib.blake2b(namespace.encode(), digest_size=16).hexdigest()
    return f"{name.encode()[: _NAME_BYTES_MAX - 33].decode(errors='ignore')}~{digest}"


def _escape(char: str) -> str:
    return "".join(f"%{byte:02x}" for byte in char.encode())
