"""Other programs' configuration files: changed, remembered, and put back.

It does not own forms (`documents.py`) or what is written (`mcp_clients.py` and others).

- A file is replaced at once, with its mode; a symbolic link stays one. One that changed while it
  was edited, does not parse, or belongs to somebody else is left alone.
- What is changed is remembered first, so that it can be taken back after a crash.
- Taking back restores the very bytes, if nobody changed the file since; otherwise our values alone
  go, and what stood in their place comes back.
- Files are changed for a purpose (`mcp`, `hooks` …); several purposes share a file.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from memrelay.errors import ConfigError
from memrelay.installing.documents import ABSENT, Document, Form
from memrelay.installing.errors import NotEditable, Steps
from memrelay.secure_files import lock_file, read_private, replace_file, write_private

_BYTES_MAX = 64 * 1024 * 1024  # one of Claude Code's holds what was typed in every project
_RECORD_BYTES_MAX = 4 * 1024 * 1024  # what stood in our place may be long
RECORD_NAME = "installed.json"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One value to set at a path of a file, or with `is_element` one to append to the list there.

    `is_own` says that the whole value is ours: it is taken out even if the user changed it.
    """

    path: tuple[str, ...]
    value: Any
    is_element: bool = False
    is_own: bool = False

    def __str__(self) -> str:
        place, value = ".".join(self.path), json.dumps(self.value, ensure_ascii=False)
        return f"{place}: add {value}" if self.is_element else f"{place}: {value}"

    def is_made(self, document: Document) -> bool:
        """Return whether a document has this value already."""
        found = document.get(self.path)
        if self.is_element:
            return isinstance(found, list) and self.value in found
        return bool(found == self.value)


@dataclass(frozen=True, kw_only=True)
class _Made:
    """A change that was made: what stood there (a list of one value, or of none), and how deep."""

    change: Change
    before: list[Any]
    depth: int

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "_Made":
        change = value["change"] | {"path": tuple(value["change"]["path"])}
        return cls(change=Change(**change), before=list(value["before"]), depth=value["depth"])


@dataclass(frozen=True, kw_only=True)
class Installed:
    """The changes in one file for one purpose.

    `written` is the digest of the file as it was left. `original` says what to put back while that
    holds: the `backup`, nothing (`absent`), or None if only edits lead back.
    """

    path: Path
    form: Form
    written: str
    original: str | None
    backup: Path
    made: tuple[_Made, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes that were made."""
        return tuple(made.change for made in self.made)


class ConfigFile:
    """A configuration file as it stands; one that is missing is empty.

    With `is_private`, a new one is for this user alone.

    Raises:
        NotEditable: it does not parse, or is no file of this user's.
    """

    def __init__(self, path: Path, form: Form, *, is_private: bool = True) -> None:
        self.form = form
        self._is_private = is_private
        try:
            self.path = path.resolve()
            self._status = self.path.stat()
        except FileNotFoundError:
            self._data = None
            self.document = Document("", form)
            return
        except (OSError, RuntimeError):
            raise NotEditable(f"{path} cannot be read") from None
        self._data = self._read()
        try:
            self.document = Document(self._data.decode(), form)
        except UnicodeDecodeError:
            raise NotEditable(f"{path} is left alone: it is no UTF-8") from None
        except NotEditable as error:
            raise NotEditable(f"{path} is left alone: {error}") from None

    def _read(self) -> bytes:
        status = self._status
        if not stat.S_ISREG(status.st_mode):
            raise NotEditable(f"{self.path} is no file")
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            raise NotEditable(f"{self.path} belongs to another user")
        if status.st_size > _BYTES_MAX:
            raise NotEditable(f"{self.path} is too large")
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise NotEditable(f"{self.path} cannot be read: {error.strerror}") from None

    @property
    def exists(self) -> bool:
        """Return whether there is such a file."""
        return self._data is not None

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return self._data or b""

    def write(self, data: bytes | None) -> None:
        """Replace the file at once, or delete it (None).

        Raises:
            ConfigError: it cannot be written, or changed meanwhile.
        """
        now = self.path.read_bytes() if self.path.exists() else None
        if now != self._data:
            raise ConfigError(f"{self.path} was changed meanwhile; run this again.")
        if data is None:
            self.path.unlink()
        else:
            mode = stat.S_IMODE(self._status.st_mode) if self.exists else self._new_mode()
            replace_file(self.path, data, mode=mode, is_private=self._is_private)
        self._data = data

    def _new_mode(self) -> int:
        if self._is_private:
            return 0o600
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


class Installations:
    """The changes in others' files for one purpose; the record of all lies in `folder`."""

    def __init__(self, folder: Path, purpose: str) -> None:
        self._path = folder / RECORD_NAME
        self._purpose = purpose

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes of ours away from these files meanwhile."""
        with lock_file(self._path.with_suffix(".lock")):
            yield

    def list_installed(self) -> list[Installed]:
        """Return what was changed for this purpose, a file each.

        Raises:
            ConfigError: the record is damaged.
        """
        try:
            return [
                _read_installed(Path(path), purposes[self._purpose])
                for path, purposes in self._load().items()
                if self._purpose in purposes
            ]
        except (KeyError, TypeError, AttributeError):
            raise self._make_damaged_error() from None

    def find(self, path: Path) -> Installed | None:
        """Return what was changed in a file for this purpose, None if nothing was."""
        real = path.resolve()
        return next((one for one in self.list_installed() if one.path == real), None)

    def find_missing(self, file: ConfigFile, changes: Sequence[Change]) -> list[Change]:
        """Return the changes that a file has not."""
        return [change for change in changes if not change.is_made(file.document)]

    def install(
        self, file: ConfigFile, changes: Sequence[Change], strays: Sequence[Steps] = ()
    ) -> Path | None:
        """Make changes in a file, in the place of those made before; return the backup's path.

        None says that the file has them all already, or was not there before. `strays` are paths
        of what is ours and was not made here, in order: that goes for good.

        Raises:
            NotEditable: the file cannot be changed in these places alone.
            ConfigError: it cannot be written, or changed meanwhile.
        """
        old = self.find(file.path)
        made = list(old.made) if old else []
        document, kept = file.document, list[_Made]()
        for one in made:
            if one.change not in changes and not _is_replaced(one, changes):
                document = _undo(document, one)
        for path in reversed(strays):
            document = document.without(path, depth=0)
        for change in changes:
            document, one = _make(document, change, made)
            kept.append(one)
        data = document.text.encode()
        if data == file.data and file.exists and not strays:
            return None
        backup = file.path.with_name(f"{file.path.name}.before-memrelay-{self._purpose}")
        original: str | None = "backup" if file.exists else "absent"
        if old is not None:
            original = old.original if old.written == _digest(file.data) else None
        if strays:
            original = None
        if file.exists and (old is None or original is None):
            replace_file(backup, file.data, mode=0o600)
        # Remembered first: what is written can then always be taken back.
        installed = Installed(
            path=file.path,
            form=file.form,
            written=_digest(data),
            original=original,
            backup=backup,
            made=tuple(kept),
        )
        self._save(file.path, installed)
        file.write(data)
        return backup if backup.exists() else None

    def uninstall(self, file: ConfigFile) -> bool:
        """Take back what was changed in a file; return whether that changed it.

        Raises:
            NotEditable: the file cannot be changed in these places alone.
            ConfigError: it cannot be written, or changed meanwhile.
        """
        installed = self.find(file.path)
        if installed is None:
            return False
        data = self._restored(file, installed)
        changed = data != (file.data if file.exists else None)
        if changed:
            file.write(data)
        self._save(file.path, None)
        installed.backup.unlink(missing_ok=True)
        return changed

    def _restored(self, file: ConfigFile, installed: Installed) -> bytes | None:
        if not file.exists:
            return None
        if installed.written == _digest(file.data):
            if installed.original == "absent":
                return None
            if installed.original == "backup" and installed.backup.exists():
                return installed.backup.read_bytes()
        document = file.document
        for one in reversed(installed.made):
            document = _undo(document, one)
        if installed.original == "absent" and not document.value and document is not file.document:
            return None
        return document.text.encode()

    def _load(self) -> dict[str, dict[str, Any]]:
        data = read_private(self._path, bytes_max=_RECORD_BYTES_MAX)
        try:
            return dict(json.loads(data)) if data else {}
        except (ValueError, TypeError, RecursionError):
            raise self._make_damaged_error() from None

    def _save(self, path: Path, installed: Installed | None) -> None:
        record = self._load()
        purposes = record.setdefault(str(path), {})
        if installed is None:
            purposes.pop(self._purpose, None)
        else:
            places = {"path": str(installed.path), "backup": str(installed.backup)}
            purposes[self._purpose] = asdict(installed) | places
        record = {name: value for name, value in record.items() if value}
        if record:
            write_private(self._path, record)
        else:
            self._path.unlink(missing_ok=True)

    def _make_damaged_error(self) -> ConfigError:
        return ConfigError(f"{self._path} is damaged; remove it.")


def _read_installed(path: Path, value: dict[str, Any]) -> Installed:
    made = tuple(map(_Made.from_json, value["made"]))
    backup = Path(value["backup"])
    return Installed(**{**value, "path": path, "backup": backup, "made": made})


def _is_replaced(one: _Made, changes: Sequence[Change]) -> bool:
    """Return whether a change made before gives way to another at its place."""
    return any(
        change.path == one.change.path and change.is_element == one.change.is_element
        for change in changes
    )


def _make(document: Document, change: Change, made: list[_Made]) -> tuple[Document, _Made]:
    """Return the document with a change, and that change as made; one made before is replaced."""
    olds = [one for one in made if (one.change.path, one.change.is_element) == _key(change)]
    same = next((one for one in olds if one.change.value == change.value), None)
    if change.is_element:
        return _make_element(document, change, same, olds)
    found = document.get(change.path)
    old = same or (olds[0] if olds else None)
    if old is None:
        before = [] if found is ABSENT else [found]
        old = _Made(change=change, before=before, depth=document.depth(change.path))
    changed = document if found == change.value else document.with_value(change.path, change.value)
    return changed, replace(old, change=change)


def _make_element(
    document: Document, change: Change, same: _Made | None, olds: list[_Made]
) -> tuple[Document, _Made]:
    found = document.get(change.path)
    depth = same.depth if same else document.depth(change.path)
    if isinstance(found, list) and change.value in found:
        before = [] if same else [change.value]
        return document, _Made(change=change, before=before, depth=depth)
    for one in olds:
        if isinstance(found, list) and one.change.value in found:
            olds.remove(one)
            place: Steps = (*change.path, found.index(one.change.value))
            return document.with_value(place, change.value), replace(one, change=change)
    changed = document.with_element(change.path, change.value)
    return changed, _Made(change=change, before=[], depth=depth)


def _undo(document: Document, one: _Made) -> Document:
    """Return the document without a change; what the user has changed since stays."""
    change, found = one.change, document.get(one.change.path)
    if change.is_element:
        if one.before or not isinstance(found, list) or change.value not in found:
            return document
        return document.without((*change.path, found.index(change.value)), depth=one.depth)
    if found is ABSENT or not (change.is_own or found == change.value):
        return document
    if one.before:
        return document.with_value(change.path, one.before[0])
    return document.without(change.path, depth=one.depth)


def _key(change: Change) -> tuple[tuple[str, ...], bool]:
    return change.path, change.is_element


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
