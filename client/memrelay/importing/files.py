"""Which files hold memories, in which format, and reading them.

It does not own the formats themselves (`markdown.py`, `records.py`, `memoryclaw.py`, `pages.py`).

- In a folder that one of the known programs laid out, only that program's memories count: its
  other files are instructions, skills and logs. Of an export, only its pages. In any other folder,
  every file of a known suffix.
- Symbolic links inside a folder are skipped: they could lead out of it.
- A file is named relative to the folder that was given, so that no path of this machine is stored.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path, PurePosixPath
from typing import Any, TextIO

from memrelay.config import expanded
from memrelay.errors import ConfigError
from memrelay.importing import markdown, memoryclaw, records, workspace
from memrelay.importing.found import NESTED, SUMMARY, Fault, Found, Omission, checked, source_of
from memrelay.models import Draft
from memrelay.pages import MARKER, is_page, read_page

FORMATS = (
    "memrelay",
    "openclaw",
    "hermes",
    "memsearch",
    "memoryclaw",
    "mem0",
    "memwal",
    "markdown",
    "text",
    "jsonl",
)
FILE_BYTES_MAX = 64 << 20  # of a file that is read at once: all but JSON lines and pages

_SUFFIXES = {".md", ".markdown", ".txt", ".json", ".jsonl", ".ndjson"}
_JSON_SUFFIXES = {".json", ".jsonl", ".ndjson"}
_LAYOUTS = (
    "MEMORY.md",
    "USER.md",
    "users/*/USER.md",
    "memory/**/*.md",
    "memories/*.md",
    "profiles/*/memories/*.md",
    ".memsearch/*.md",
    ".memsearch/memory/**/*.md",
    *(
        f"{base}{part}"
        for base in ("", "memoryclaw/")
        for part in ("episodes/*.md", "semantic/*.*")
    ),
)
_REPORTS = "memory/dreaming/**/*.md"  # of OpenClaw, about notes that are there
_HEAD_CHARS = 1 << 16
_LINE_CHARS_MAX = 2 << 20  # of a page: a text of 1 MiB, or metadata


@dataclass(frozen=True, slots=True)
class File:
    """A file to read, and its name relative to what was given."""

    path: Path
    name: str


def find(paths: Iterable[str]) -> tuple[list[File], int]:
    """Return the files of paths, which are files or folders, in a stable order.

    The number is that of files of a known suffix that were left out of folders, because whoever
    laid these out has its memories elsewhere in them.

    Raises:
        ConfigError: a path is not there, or a folder holds no file of memories.
    """
    found: dict[Path, File] = {}
    left_out = 0
    for text in paths:
        path = expanded(text)
        if path.is_dir():
            inside, others = _inside(path)
            left_out += others
            if not inside:
                raise ConfigError(f"{text} holds no file that could be imported.")
        elif path.is_file():
            inside = [File(path, path.name)]
        else:
            raise ConfigError(f"There is no file or folder {text}.")
        for file in inside:
            found.setdefault(file.path.resolve(), file)
    return list(found.values()), left_out


def _inside(folder: Path) -> tuple[list[File], int]:
    every = chosen = _known(folder.rglob("*"), folder)
    laid_out = {path for name in _LAYOUTS for path in folder.glob(name)}
    laid_out -= set(folder.glob(_REPORTS))
    if (folder / MARKER).exists():
        chosen = [path for path in every if is_page(_head(path))]
    elif laid_out:
        chosen = _known(laid_out, folder)
    files = [File(path, path.relative_to(folder).as_posix()) for path in chosen]
    return files, len(every) - len(files)


def _known(paths: Iterable[Path], folder: Path) -> list[Path]:
    return sorted(
        path
        for path in paths
        if path.suffix.lower() in _SUFFIXES and path.is_file() and not _is_aside(path, folder)
    )


def _is_aside(path: Path, folder: Path) -> bool:
    """Return whether a path is hidden, or leads through a symbolic link."""
    parts = set(path.relative_to(folder).parts) - {".memsearch"}
    if any(part.startswith(".") or part == "node_modules" for part in parts):
        return True
    return any(one.is_symlink() for one in (path, *path.parents) if folder in one.parents)


def _head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
            return stream.read(_HEAD_CHARS)
    except OSError:
        return ""  # reading it for good tells why


def format_of(file: File) -> str:
    """Return the format of a file, from its content and name."""
    path, head = file.path, _head(file.path)
    suffix = path.suffix.lower()
    if suffix == ".json" and path.parent.name == "semantic":
        return "memoryclaw"
    if suffix in _JSON_SUFFIXES or (suffix not in _SUFFIXES and _is_json(head)):
        return records.format_of(_first_record(head))
    if suffix == ".txt" or suffix not in _SUFFIXES:
        return "text"
    return "memrelay" if is_page(head) else _format_of_markdown(path, head)


def _is_json(head: str) -> bool:
    return head.lstrip()[:1] in {"{", "["}


def _first_record(head: str) -> dict[str, Any]:
    # The object that the text begins with, or the first one of the list in it.
    for start in (head.find("{"), head.find("{", head.find("[") + 1)):
        try:
            value, _ = json.JSONDecoder().raw_decode(head, max(0, start))
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and ("text" in value or "memory" in value):
            return value
    return {}


def _format_of_markdown(path: Path, head: str) -> str:
    front, _, _ = markdown.front_matter(head)
    if {"timestamp", "summary"} <= front.keys() or path.parent.name == "semantic":
        return "memoryclaw"
    if _is_log(head) or workspace.has_summary(head) or path.parent.name == ".memsearch":
        return "memsearch"
    if path.name in {"MEMORY.md", "USER.md"}:
        # One entry alone has no sign around it; nor has it a heading, as others' files have.
        is_alone = path.parent.name == "memories" and "\n#" not in f"\n{head}"
        return "hermes" if is_alone or markdown.has_signs(head) else "openclaw"
    return "openclaw" if path.parent.name == "memory" else "markdown"


def _is_log(head: str) -> bool:
    return "<!-- session:" in head


def has_logs(files: Iterable[File]) -> bool:
    """Return whether a file is a log of memsearch, which a summary beside it may repeat."""
    return any(_is_log(_head(file.path)) for file in files if file.path.suffix.lower() == ".md")


def read(
    file: File, format: str, *, zone: tzinfo = UTC, with_logs: bool = False
) -> Iterator[Found]:
    """Yield what a file holds; a file that cannot be read at all is one fault.

    Times without an offset are those of `zone`. With the logs that they sum up, summaries are left
    out.
    """
    try:
        yield from _read(file, format, zone, with_logs)
    except OSError as error:
        yield Fault("1", f"it cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        yield Fault("1", "not UTF-8 text")
    except ValueError as error:
        yield Fault("1", str(error))
    except RecursionError:
        yield Fault("1", NESTED)


def _read(file: File, format: str, zone: tzinfo, with_logs: bool) -> Iterator[Found]:
    head = _head(file.path)
    if format in records.READERS and _is_lines(file.path, head):
        return records.json_lines(file.path, file.name, format=format, zone=zone)
    if format == "memrelay":
        return _pages(file, zone)
    text = _text(file.path)
    if format in records.READERS:
        return records.json_list(text, file.name, format=format, zone=zone)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if format == "text":
        return _paragraphs(text, file.name)
    if format == "memoryclaw":
        return _memoryclaw(text, file, zone)
    if format == "hermes":
        return markdown.signed_entries(text, file.name)
    return _markdown(text, file, format, zone, with_logs)


def _markdown(text: str, file: File, format: str, zone: tzinfo, with_logs: bool) -> Iterator[Found]:
    name = PurePosixPath(file.name)
    is_daily = name.stem[:4].isdigit()
    kind = "episodic" if is_daily and format in {"memsearch", "openclaw"} else None
    if format == "memsearch" and workspace.has_summary(text):
        logs, places = workspace.without_summaries(text)
        if with_logs or _is_log(logs):
            text = logs
            yield from (Omission(str(place), SUMMARY) for place in places)
        else:
            kind = "summary"
    user = name.parent.name if name.parent.parent.name == "users" else None
    tags = (f"user:{user}",) if user and format == "openclaw" else ()
    yield from markdown.entries(text, file.name, kind=kind, zone=zone, tags=tags)


def _is_lines(path: Path, head: str) -> bool:
    if path.suffix.lower() in _JSON_SUFFIXES - {".json"}:
        return True
    first, _, rest = head.partition("\n")
    try:
        return isinstance(json.loads(first), dict) and bool(rest.strip())
    except (ValueError, RecursionError):
        return False


def _text(path: Path) -> str:
    if path.stat().st_size > FILE_BYTES_MAX:
        raise ValueError("the file is larger than 64 MiB; split it, or write it as JSON lines")
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return stream.read()


def _pages(file: File, zone: tzinfo) -> Iterator[Found]:
    with file.path.open(encoding="utf-8-sig", newline="\n") as stream:
        for line, value in read_page(_lines(stream)):
            yield records.record(value, str(line), file.name, format="jsonl", zone=zone)


def _lines(stream: TextIO) -> Iterator[str]:
    while line := stream.readline(_LINE_CHARS_MAX + 1):
        if len(line) > _LINE_CHARS_MAX:
            raise ValueError("a line is longer than 2 MiB; the rest was not read")
        yield line


def _memoryclaw(text: str, file: File, zone: tzinfo) -> Iterator[Found]:
    if file.path.suffix.lower() == ".json":
        return memoryclaw.json_facts(text, file.name)
    front, _, _ = markdown.front_matter(text)
    reader = memoryclaw.episode if "timestamp" in front else memoryclaw.facts
    return reader(text, file.name, zone=zone)


def _paragraphs(text: str, file: str) -> Iterator[Found]:
    number = 1
    for paragraph in re.split(r"\n[^\S\n]*\n", text):
        if paragraph.strip():
            line = number + len(paragraph[: -len(paragraph.lstrip())].split("\n")) - 1
            yield checked(str(line), Draft(text=paragraph.strip(), source=source_of(file)))
        number += paragraph.count("\n") + 2
