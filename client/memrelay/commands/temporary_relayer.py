"""Runs a relayer of one command's own, in a folder that is gone when the command ends.

It does not own how a relayer is started and ended (`local_relayer.py`), or what is asked of it.

- The folder stands in memory where there is room, else among the temporary files. Only this user
  may write it.
- Ctrl-C, SIGTERM, a terminal that closes and every error end the relayer and remove the folder; a
  second signal does not break that off.
- Nothing in a process can follow its SIGKILL: then the relayer ends by itself a minute later, and
  the next of these commands removes the folder.
"""

import contextlib
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from memrelay.commands.streams import warn
from memrelay.errors import ConfigError, MemrelayError, NotStarted
from memrelay.exchange import Repeating
from memrelay.local_relayer import ENVIRONMENT, SOCKET, LocalRelayer, prepare
from memrelay.secure_files import write_private_text
from memrelay.unix_sockets import parse_socket, socket_url

PREFIX: Final = "memrelay-try-"
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
_MEMORY_BYTES_MIN: Final = 2**30  # a new database takes a tenth
_START_S: Final = 120.0
_IDLE_EXIT_S: Final = 60
_ABANDONED_S: Final = 600.0
_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@contextlib.contextmanager
def run_temporary_relayer(tell: Repeating | None = None) -> Iterator[str]:
    """Yield the URL of a new relayer; leaving the block ends it and removes all that it stored.

    Raises:
        ConfigError: there is no program to start, or no place for its folder.
        NotStarted: it did not start; the message says why.
    """
    # Named before it is made: no signal can come between, and leave a folder that nobody knows.
    folder = _choose_base() / f"{PREFIX}{secrets.token_hex(8)}"
    relayer = LocalRelayer(folder / SOCKET)
    with _raise_on_signals():
        try:
            with _remove_at_end(relayer):
                url = prepare(folder)
                write_private_text(folder / ENVIRONMENT, f"RELAYER_IDLE_EXIT_S={_IDLE_EXIT_S}\n")
                _start(relayer, tell)
                yield url
        finally:
            # Once more: a second signal may come just before they are ignored.
            with _ignore_signals():
                _remove(relayer)


def remove_abandoned() -> None:
    """Remove the folders of commands that were killed, once their relayers have ended."""
    for base in _list_bases():
        for folder in base.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                status = folder.lstat()
                is_old = time.time() - status.st_mtime > _ABANDONED_S
                is_own = status.st_uid == os.geteuid()
                if is_old and is_own and not LocalRelayer(folder / SOCKET).is_held():
                    shutil.rmtree(folder)


def _start(relayer: LocalRelayer, tell: Repeating | None) -> None:
    try:
        relayer.start(timeout_s=_START_S, tell=tell)
    except NotStarted as error:  # it names a log that is gone when anybody could read it
        line = relayer.last_line() or "it said nothing"
        raise NotStarted(
            f"The temporary relayer did not start: {line.removesuffix('.')}."
        ) from error


def _choose_base() -> Path:
    """Return the folder for that of the relayer: in memory if there is room for a database.

    Raises:
        ConfigError: the paths in it are too long for a socket.
    """
    base = _list_bases()[0]
    try:
        parse_socket(socket_url(base / f"{PREFIX}{'0' * 16}" / SOCKET))
    except ConfigError as error:
        if sys.platform == "win32":
            raise
        raise ConfigError(
            f"{base} is too long for a socket in it; set TMPDIR to a shorter path, such as /tmp."
        ) from error
    return base


def _list_bases() -> list[Path]:
    bases = [Path(tempfile.gettempdir()).absolute()]
    if os.access(_MEMORY, os.W_OK | os.X_OK):
        is_roomy = shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES_MIN
        bases.insert(0 if is_roomy else 1, _MEMORY)
    return bases


@contextlib.contextmanager
def _remove_at_end(relayer: LocalRelayer) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        warn("Interrupted; the temporary relayer is being ended.")
        raise
    finally:
        with _ignore_signals():
            _remove(relayer)


def _remove(relayer: LocalRelayer) -> None:
    """End a relayer, by force if it does not end by itself, and remove its folder."""
    if not relayer.folder.exists():
        return
    try:
        relayer.stop()
    except MemrelayError:
        if (pid := relayer.pid()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    shutil.rmtree(relayer.folder)


@contextlib.contextmanager
def _raise_on_signals() -> Iterator[None]:
    """Let what would end the process unwind it, as Ctrl-C does."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:  # not what whoever started this process has it ignore
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        _restore(before)


@contextlib.contextmanager
def _ignore_signals() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        _restore(before)


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
