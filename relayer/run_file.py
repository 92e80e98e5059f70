"""The process that serves a data folder, and its address, for commands on the same folder.

Not here: serving (`serve.py`).

- Whoever serves a folder holds a lock on it (flock) for as long: the kernel drops it however that
  process ends, and no number of a process is mistaken for another's.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from relayer.errors import Conflict
from relayer.locks import lock

SOCKET_SCHEME: Final = "unix://"
RUNNING_FILE: Final = "relayer.json"
LOCK_FILE: Final = "relayer.lock"
_WAIT_S: Final = 1.0  # whoever only asks holds the lock for a moment, too
_POLL_S: Final = 0.05


@contextlib.contextmanager
def alone(data_dir: Path) -> Iterator[None]:
    """Be the only one to serve this folder, or to change what a server of it relies on.

    Raises:
        Conflict: another process is that, or the lock is not ours to take.
    """
    path = data_dir / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Conflict(f"Cannot lock {path}: {error.strerror}.", code="folder.lock") from None
    try:
        deadline = time.monotonic() + _WAIT_S
        while not lock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise _conflict(data_dir)
            time.sleep(_POLL_S)
        (data_dir / RUNNING_FILE).unlink(missing_ok=True)  # what a killed server left
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def write_run_file(data_dir: Path, url: str, *, workers: int = 1) -> Iterator[None]:
    """Tell other commands where the server is; whoever calls this has the folder `alone`."""
    path = data_dir / RUNNING_FILE
    with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(json.dumps({"pid": os.getpid(), "url": url, "workers": workers}))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def is_served(data_dir: Path) -> bool:
    """Return true if a process has this folder `alone`, even if it does not answer yet."""
    try:
        descriptor = os.open(data_dir / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def find_url(data_dir: Path) -> str | None:
    """Return the URL of the server that serves this folder now, or None."""
    found = _read_run_file(data_dir)
    return None if found is None else str(found["url"])


def socket_url(path: Path) -> str:
    """Return the URL by which clients name a Unix socket."""
    return SOCKET_SCHEME + quote(str(path.absolute()))


def split_socket_url(url: str) -> tuple[str, str | None]:
    """Return the URL to ask a relayer by, and the Unix socket, if its URL names one."""
    if not url.startswith(SOCKET_SCHEME):
        return url, None
    return "http://localhost", unquote(url.removeprefix(SOCKET_SCHEME))


def count_workers(data_dir: Path) -> int:
    """Count the processes that serve this folder now."""
    found = _read_run_file(data_dir)
    return 0 if found is None else int(found["workers"])


def find_pid(data_dir: Path) -> int | None:
    """Return the number of the process that serves this folder now, or of the first of several."""
    found = _read_run_file(data_dir)
    return None if found is None else int(found["pid"])


def _read_run_file(data_dir: Path) -> dict[str, Any] | None:
    if not is_served(data_dir):
        return None
    try:
        announced: dict[str, Any] = json.loads((data_dir / RUNNING_FILE).read_text())
        names = ("pid", "url")
        return {name: announced[name] for name in names} | {"workers": announced.get("workers", 1)}
    except (OSError, ValueError, KeyError):
        return None


def _conflict(data_dir: Path) -> Conflict:
    url = find_url(data_dir)
    message = f"another relayer serves this folder at {url}" if url else "this folder is in use"
    return Conflict(f"{data_dir}: {message}", code="relayer.in_use")
