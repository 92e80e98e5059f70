"""Finds the files to read among those that somebody named: files, folders, zip archives.

It does not own in which format a file is, or reading it (`formats.py`).

- In a folder that one of the known programs laid out, only its memories and conversations count:
  its other files are instructions, skills and logs. Of an export, only its pages. In any other
  folder, every file of a known suffix that tells its format.
- Of an archive, only conversations count, and what stands beside them in such an export.
- Symbolic links inside a folder are skipped: they could lead out of it.
- A file is named relative to the folder that was given, so that no path of this machine is stored.
"""

import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from memrelay.config import expand_home
from memrelay.errors import ConfigError
from memrelay.importing.advice import MEM0_EXPORT, READ
from memrelay.importing.formats import CONVERSATIONS, JSON_SUFFIXES, UNKNOWN, format_of
from memrelay.importing.sources import HEAD_BYTES, File, text_of
from memrelay.pages import MARKER, is_page

_MEMBERS_MAX: Final = 50_000  # of an archive that are looked at
_SUFFIXES: Final = JSON_SUFFIXES | {".md", ".markdown", ".txt", ".html", ".zip"}
# What is there twice: tools' results and sub-agents of Claude Code, a Mac's shadows in archives.
_ASIDE: Final = frozenset({"node_modules", "tool-results", "subagents", "__MACOSX"})
_LAYOUTS: Final = (
    "MEMORY.md",
    "USER.md",
    "users/*/USER.md",
    "memory/**/*.md",
    "memories/MEMORY.md",
    "memories/USER.md",
    "profiles/*/memories/*.md",
    ".memsearch/*.md",
    ".memsearch/memory/**/*.md",
    *(
        f"{base}{part}"
        for base in ("", "memoryclaw/")
        for part in ("episodes/*.md", "semantic/*.*")
    ),
    *("conversations*.json", "conversations/*.json"),  # ChatGPT, Claude
    *("memories.json", "memories/*.json", "projects.json", "projects/*.json"),  # Claude
    *("projects/*/*.jsonl", "projects/*/memory/*.md"),  # Claude Code
    *("sessions/**/rollout-*.jsonl", "archived_sessions/**/rollout-*.jsonl"),  # Codex
    *("tmp/*/chats/session-*.json*", "tmp/*/memory/*.md"),  # Gemini CLI
)
_REPORTS: Final = "memory/dreaming/**/*.md"  # of OpenClaw, about notes that are there


def find(paths: Iterable[str]) -> tuple[list[File], int]:
    """Return the files of paths, which are files, folders or archives, in a stable order.

    The number is that of files of a known suffix that were left out of folders and archives,
    because whoever laid these out has its memories elsewhere in them, or they tell no format.

    Raises:
        ConfigError: a path is not there, or a folder or archive holds nothing that is read.
    """
    found: dict[tuple[Path, str | None], File] = {}
    left_out = 0
    for text in paths:
        path = expand_home(text)
        if path.is_dir():
            files, others = _inside(path)
            left_out += others
            if not files:
                raise ConfigError(_advice_on_folder(text, path))
        elif path.is_file() and zipfile.is_zipfile(path):
            files, others = _members_of(path)
            left_out += others
            if not files:
                raise ConfigError(
                    f"{text} is a document or a zip archive, without conversations of ChatGPT,"
                    " Claude or Gemini: save a document's text as .txt or .md, or unpack the"
                    " archive and name the files or the folder."
                )
        elif path.is_file():
            files = [File(path, path.name)]
        else:
            raise ConfigError(f"There is no file or folder {text}.")
        for file in files:
            found.setdefault((file.path.resolve(), file.member), file)
    return list(found.values()), left_out


def _inside(folder: Path) -> tuple[list[File], int]:
    every = chosen = _select_known(folder.rglob("*"), folder)
    laid_out = {path for name in _LAYOUTS for path in folder.glob(name)}
    laid_out -= set(folder.glob(_REPORTS))
    if (folder / MARKER).exists():
        chosen = [file for file in every if is_page(text_of(file.head()))]
    elif laid_out:
        chosen = _select_known(laid_out, folder)
    files = [file for file in chosen if format_of(file) != UNKNOWN]
    return files, len(every) - len(files)


def _select_known(paths: Iterable[Path], folder: Path) -> list[File]:
    return [
        File(path, path.relative_to(folder).as_posix())
        for path in sorted(paths)
        if path.suffix.lower() in _SUFFIXES and path.is_file() and not _is_aside(path, folder)
    ]


def _is_aside(path: Path, folder: Path) -> bool:
    """Return whether a path is hidden, there twice, or leads through a symbolic link."""
    parts = set(path.relative_to(folder).parts) - {".memsearch"}
    if any(part.startswith(".") for part in parts) or parts & _ASIDE:
        return True
    # Claude Code's is a list of links to the others.
    if path.match("memory/MEMORY.md") and len(list(path.parent.glob("*.md"))) > 1:
        return True
    return any(one.is_symlink() for one in (path, *path.parents) if folder in one.parents)


def _members_of(path: Path) -> tuple[list[File], int]:
    """Return the members of an archive that hold conversations, or what Claude remembered."""
    chosen, others = list[File](), 0
    try:
        with zipfile.ZipFile(path) as archive:
            for info in sorted(archive.infolist()[:_MEMBERS_MAX], key=lambda info: info.filename):
                file = File(path, f"{path.name}/{info.filename}", info.filename)
                if file.suffix not in _SUFFIXES or _ASIDE.intersection(file.inside.parts):
                    continue
                if _is_wanted(file, archive, info):
                    chosen.append(file)
                else:
                    others += 1
    except (zipfile.BadZipFile, OSError):
        return [], 0
    return chosen, others


def _is_wanted(file: File, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bool:
    """Return whether a member holds conversations, or cannot be read: reading it tells why."""
    try:
        with archive.open(info) as member:
            head = member.read(HEAD_BYTES)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError):
        return file.suffix == ".json"
    return format_of(file, head) in CONVERSATIONS


def _advice_on_folder(text: str, folder: Path) -> str:
    if (folder / "meta.json").is_file() and (folder / "collection").is_dir():
        return f"{text} is a store of Qdrant; if it is mem0's, {MEM0_EXPORT}"
    if (folder / "history.db").is_file():
        return f"{text} is mem0's own store; {MEM0_EXPORT}"
    return f"{text} holds no file that could be imported. {READ}."
