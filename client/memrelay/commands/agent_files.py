"""Finds what of the agents and notes on this machine could be tried or imported.

It does not own reading it (`importing/`). Of folders that are not an agent's, only the files beside
one another count: nobody asked for a walk through a whole disk.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from memrelay.coding.host_files import FILES
from memrelay.errors import ConfigError
from memrelay.hermes.home import home_path
from memrelay.importing.files import find
from memrelay.importing.formats import format_of
from memrelay.openclaw import config_path

_DOWNLOADS_MAX: Final = 20
_NOTES: Final = frozenset({".md", ".markdown"})


class AgentFiles(NamedTuple):
    """A folder or file, and the number of files in it that are read, by their format."""

    path: Path
    formats: Mapping[str, int]


def find_agent_files(environ: Mapping[str, str], here: Path) -> list[AgentFiles]:
    """Return where agents of this user keep memories and conversations, exports, and notes here."""
    home = Path(environ.get("HOME") or Path.home())
    folders = dict.fromkeys([*_agent_folders(environ), *_newest_zips(home / "Downloads")])
    found = [AgentFiles(path, formats) for path in folders if (formats := _read_formats(path))]
    notes = sum(1 for path in _list_files(here) if path.suffix.lower() in _NOTES)
    if notes and here not in folders:
        found.append(AgentFiles(here, {"markdown": notes}))
    return found


def _agent_folders(environ: Mapping[str, str]) -> Iterator[Path]:
    for host in FILES.values():
        yield host.home(environ)
    state = config_path(environ).parent
    yield from sorted(path for path in state.glob("workspace*") if path.is_dir())
    try:
        yield home_path(None, environ)
    except ConfigError:  # there is no Hermes here
        return


def _newest_zips(folder: Path) -> list[Path]:
    zips = [path for path in _list_files(folder) if path.suffix.lower() == ".zip"]
    return sorted(zips, key=lambda path: path.stat().st_mtime, reverse=True)[:_DOWNLOADS_MAX]


def _list_files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_file()]
    except OSError:
        return []


def _read_formats(path: Path) -> dict[str, int]:
    try:
        files, _ = find([str(path)])
    except (ConfigError, OSError):  # there is none, or nothing in it that is read
        return {}
    return dict(Counter(format_of(file) for file in files))
