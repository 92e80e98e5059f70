"""Files that only this user may read: read, replaced at once, held by one process at a time.

It does not own what is in them (`config.py`, `trust_store.py`).
"""

import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memrelay.errors import ConfigError

if sys.platform != "win32":
    import fcntl

_FILE_BYTES_MAX = 64 * 1024


def read_private(path: Path, *, bytes_max: int = _FILE_BYTES_MAX) -> bytes | None:
    """Return a file's bytes if it belongs to this user alone, None if there is no such file.

    Raises:
        ConfigError: it is unreadable, too large, somebody else's, or others may read it.
    """
    try:
        # Without O_NONBLOCK, a named pipe in the profile's place would hang the client.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        _check_private(path, os.fstat(descriptor))
        data = os.read(descriptor, bytes_max + 1)
    finally:
        os.close(descriptor)
    if len(data) > bytes_max:  # its beginning alone would pass for a damaged file
        raise ConfigError(f"{path} is too large: at most {bytes_max} bytes are read.")
    return data


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path} is not a file.")
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        raise ConfigError(f"{path} belongs to another user.")
    if os.name == "posix" and stat.S_IMODE(status.st_mode) & 0o077:
        raise ConfigError(f"Others may read {path}; run `chmod 600 {path}`.")


def write_private(path: Path, values: Mapping[str, Any]) -> None:
    """Replace a JSON file at once; only this user may read it.

    Raises:
        ConfigError: the folder cannot be written.
    """
    write_private_text(path, json.dumps(dict(values), indent=2) + "\n")


def write_private_text(path: Path, text: str) -> None:
    """Replace a file at once; only this user may read it.

    Raises:
        ConfigError: the folder cannot be written.
    """
    replace_file(path, text.encode())


def replace_file(path: Path, data: bytes, *, mode: int = 0o600, is_private: bool = True) -> None:
    """Replace a file at once, in a folder that is made if missing, for this user alone.

    A folder that is not `is_private` is made as any other.

    Raises:
        ConfigError: the folder cannot be written.
    """
    try:
        if is_private:
            make_private_folder(path.parent)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
        # mkstemp makes the file with mode 0600.
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.chmod(name, mode)
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
        sync_folder(path.parent)  # a profile holds the only copy of a key
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error


def make_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents, which only this user may enter.

    Raises:
        OSError: it cannot be made.
    """
    # pathlib would make the parents with the mode that everything else gets.
    for place in (*reversed(folder.parents), folder):
        place.mkdir(mode=0o700, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Let a name that was just made or changed there outlive a power loss."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def lock_file(path: Path, *, otherwise: str = "") -> Iterator[None]:
    """Hold what one process at a time holds; `path` is its file, which is empty and stays.

    While another process holds it, wait; or raise an error that says `otherwise`.
    Windows has no such lock: there, nothing keeps another process away.

    Raises:
        ConfigError: the file cannot be made or locked.
    """
    try:
        make_private_folder(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        hold(descriptor, path, otherwise=otherwise)
        yield
    finally:
        os.close(descriptor)  # which also ends the lock, as the process's own end does


def hold(descriptor: int, path: Path, *, otherwise: str = "") -> None:
    """Hold an open file until it is closed, as `lock_file` does.

    Raises:
        ConfigError: it cannot be locked, or another process holds it and `otherwise` is said.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if otherwise else 0))
        except BlockingIOError:
            raise ConfigError(otherwise) from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be locked: {error.strerror}.") from error
