"""Starts the relayer of this user's own data folder when it is needed.

It does not own what is sent to it (`exchange.py`), nor when it ends: `relayer serve` does so by
itself once nobody has asked for a while.

- The URL of such a relayer is that of a socket in its data folder. Only this user may write that
  folder or open that socket: nobody else's program can take its place while it is away.
- Whoever finds nobody listening takes the lock and hands it to the relayer that it starts, which
  holds it until it ends, however it ends. So there is one, and all others see whether it lives.
- The relayer gets none of the caller's secrets, terminal, folder or open files.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket as sockets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from memrelay.errors import ConfigError, MemrelayError, NotStarted, Starting, TransportError
from memrelay.exchange import Keep, Repeating, Sleep, Waking
from memrelay.secure_files import read_private, write_private
from memrelay.unix_sockets import check_socket_folder, parse_socket, socket_url

if sys.platform != "win32":
    import fcntl

SOCKET = "relayer.sock"
SETTINGS, ENVIRONMENT, LOG = "local.json", "relayer.env", "relayer.log"
IDLE_EXIT_S = 900
LOG_BYTES_MAX = 2**20  # what is longer at a start is put aside
_LOCK, _SERVING_LOCK, _RUNNING = "local.lock", "relayer.lock", "relayer.json"
_POLL_S = 0.05
_STOP_S = 30.0
_LINE_CHARACTERS_MAX = 300
_INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
_VARIABLE = re.compile(r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)|#.*)?")
# In a shell's background a program has no parent that waits for it, and no terminal's Ctrl-C.
_DETACHED = ("/bin/sh", "-c", 'exec "$@" &', "sh")


def default_folder(environ: Mapping[str, str]) -> Path:
    """Return the data folder of this user's own relayer, unless another one is named."""
    base = environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "memrelay"


def prepare(folder: Path) -> str:
    """Make a data folder whose relayer is started when it is needed; return its URL.

    Raises:
        ConfigError: the folder cannot be used, or there is no program to start.
    """
    url = socket_url(folder / SOCKET)
    path = parse_socket(url)
    assert path is not None
    program = find_program(None)
    # The embedded database gives up root's rights, and still has to walk through.
    mode = 0o711 if os.geteuid() == 0 else 0o700
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=mode, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The data folder {folder} cannot be made: {error.strerror}. Choose another one with"
            " --data-dir."
        ) from error
    check_socket_folder(path)
    write_private(folder / SETTINGS, {"relayer": str(program)})
    return url


def find_program(recorded: str | None) -> Path:
    """Return the program `relayer`: the one that was recorded, or is beside this one, or in PATH.

    Raises:
        ConfigError: there is none; the message says what to install.
    """
    beside = [Path(place).with_name("relayer") for place in (sys.argv[0], sys.executable)]
    found = shutil.which("relayer")
    candidates = [recorded, *beside, found]
    for path in (Path(candidate).absolute() for candidate in candidates if candidate):
        if path.is_file() and os.access(path, os.X_OK):
            return path
    raise ConfigError(
        "The program `relayer` is not installed beside `memrelay`. Install it from a checkout:"
        " `pip install .` in its folder, into the same environment."
    )


class LocalRelayer:
    """The relayer of one data folder, as one client sees it while it asks."""

    def __init__(self, socket: Path, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.folder = socket.parent
        self.socket = socket
        self._monotonic = monotonic
        self._log_start: int | None = None  # where the log of the start that is ours begins

    @property
    def is_on_demand(self) -> bool:
        """True if clients may start it."""
        return self.socket.name == SOCKET and (self.folder / SETTINGS).exists()

    def wake(self, error: TransportError, until_s: float, tell: Repeating | None) -> Waking:
        """Return once it listens; start it if nobody does. `error` says that nobody listened.

        Raises:
            TransportError: as `error`, if it is not started on demand.
            NotStarted: it could not be started, or not in time; the message says why.
        """
        self._check_folder(error)
        is_ready = False

        def step() -> None:
            nonlocal is_ready
            is_ready = self._advance()

        self._log_start = None
        while True:
            yield Keep(step)
            if is_ready:
                return
            if tell is not None:
                tell(Starting(f"The local relayer is starting, with its data in {self.folder}."))
                tell = None
            if self._monotonic() >= until_s:
                raise NotStarted(
                    "The local relayer is still starting; try again in some seconds, or see"
                    f" {self.folder / LOG}."
                )
            yield Sleep(_POLL_S)

    def start(self, *, timeout_s: float, tell: Repeating | None = None) -> None:
        """Return once it listens, as `wake`.

        Raises:
            TransportError: as of `wake`.
        """
        error = TransportError(f"Nobody listens at {self.socket}.", sent=False)
        for step in self.wake(error, self._monotonic() + timeout_s, tell):
            if isinstance(step, Keep):
                step.work()
            else:
                time.sleep(step.seconds)

    def answers(self) -> bool:
        """Return whether anybody listens at its socket."""
        with sockets.socket(sockets.AF_UNIX) as probe:
            probe.settimeout(_POLL_S)
            try:
                probe.connect(os.fspath(self.socket))
            except OSError:
                return False
        return True

    def is_held(self) -> bool:
        """Return whether it runs, begins or ends."""
        return _is_locked(self.folder / _LOCK) or self.is_served()

    def is_served(self) -> bool:
        """Return whether any relayer serves this folder, or begins to."""
        return _is_locked(self.folder / _SERVING_LOCK)

    def pid(self) -> int | None:
        """Return the number of the process that serves this folder, None if none does."""
        if not self.is_served():
            return None
        try:
            return int(json.loads(read_private(self.folder / _RUNNING) or b"")["pid"])
        except (ValueError, KeyError, TypeError):
            return None

    def stop(self) -> bool:
        """End it as Ctrl-C would, and return once it is gone; False if none ran.

        Raises:
            MemrelayError: it does not end.
        """
        was_there = self.is_held()
        told, until_s = False, self._monotonic() + _STOP_S
        while self.is_held():
            pid = None if told else self.pid()  # one that begins is told once it has begun
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                told = True
            if self._monotonic() > until_s:
                raise MemrelayError(
                    f"The local relayer does not end; {self.folder / LOG} may say why."
                )
            time.sleep(_POLL_S)
        return was_there

    def last_line(self, start: int = 0) -> str:
        """Return the last line of its log, behind a place; empty if there is none."""
        try:
            with open(self.folder / LOG, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(start, size - 16 * 2**10))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return _describe_line(next((line for line in reversed(lines) if line.strip()), ""))

    def examination(self) -> str:
        """Return the command that says what is wrong with its installation."""
        recorded = read_settings(self.folder).get("relayer")
        program = "relayer" if shutil.which("relayer") else str(find_program(recorded))
        return shlex.join([program, "doctor", "--data-dir", str(self.folder)])

    def _check_folder(self, error: TransportError) -> None:
        """Return if it may be started.

        Raises:
            TransportError: as `error`, or it says that the folder is gone.
        """
        if self.socket.name == SOCKET and not self.folder.exists():
            raise NotStarted(
                f"The data folder {self.folder} is gone. Where it was moved, type"
                " `memrelay local use FOLDER`"
            )
        if not self.is_on_demand:
            raise error

    def _advance(self) -> bool:
        """Start it if nobody has; return whether it listens.

        Raises:
            NotStarted: the one that was started ended, or another one serves the folder.
            ConfigError: the folder cannot be used, or there is no program.
        """
        if self.answers():
            return True
        with _try_lock(self.folder / _LOCK) as descriptor:
            if descriptor is None:  # it begins or ends, or another process starts it
                return False
            if self._log_start is not None:
                line = self.last_line(self._log_start) or "it ended without a word"
                raise NotStarted(
                    f"The local relayer did not start: {line.removesuffix('.')}. Its log is"
                    f" {self.folder / LOG}; type `{self.examination()}`"
                )
            if self.is_served():
                raise NotStarted(
                    f"Another relayer serves {self.folder}, and not at its socket: end it with"
                    " Ctrl-C where it was started, and try again"
                )
            self._launch(descriptor)
        return False

    def _launch(self, lock: int) -> None:
        recorded = read_settings(self.folder).get("relayer")
        command = (
            *(str(find_program(recorded)), "serve", "--data-dir", str(self.folder)),
            *("--socket", str(self.socket)),
        )
        environment = self._environment()
        with self._open_log() as log:
            launcher = subprocess.Popen(  # noqa: S603 - the user's own program, by its whole path
                [*_DETACHED, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd="/",
                pass_fds=[lock],
                start_new_session=True,
            )
            launcher.wait()

    def _environment(self) -> dict[str, str]:
        """The environment of the relayer: what any program needs, and the folder's own file."""
        found = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        found |= {"RELAYER_IDLE_EXIT_S": str(IDLE_EXIT_S), "RELAYER_LOG_LEVEL": "warning"}
        path = self.folder / ENVIRONMENT
        text = (read_private(path) or b"").decode(errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            read = _VARIABLE.fullmatch(line)
            if read is None:
                raise ConfigError(f"{path}, line {number}, is no NAME=VALUE.")
            if read["name"]:
                found[read["name"]] = read["value"]
        return found

    @contextlib.contextmanager
    def _open_log(self) -> Iterator[int]:
        path = self.folder / LOG
        try:
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_size > LOG_BYTES_MAX:
                    path.replace(path.with_suffix(".log.old"))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise ConfigError(_describe_folder_error(path, error)) from error
        try:
            self._log_start = os.fstat(descriptor).st_size
            yield descriptor
        finally:
            os.close(descriptor)


class LocalState(NamedTuple):
    """The state of a local relayer, without starting it."""

    state: str  # running, busy (it begins or ends), stopped, or missing (no such folder)
    pid: int | None


def state_of(relayer: LocalRelayer) -> LocalState:
    """Return how a local relayer is, without starting it."""
    if not relayer.folder.exists():
        return LocalState("missing", None)
    if relayer.answers():
        return LocalState("running", relayer.pid())
    return LocalState("busy" if relayer.is_held() else "stopped", None)


def read_settings(folder: Path) -> dict[str, Any]:
    """Return what `local.json` of a data folder says; empty when there is none.

    Raises:
        ConfigError: it is damaged, or others may read it.
    """
    path = folder / SETTINGS
    try:
        values = json.loads(read_private(path) or b"{}")
    except ValueError:
        values = None
    if not isinstance(values, dict) or not isinstance(values.get("relayer", ""), str):
        raise ConfigError(f"{path} is damaged; type `memrelay local use {folder}`.")
    return values


def _describe_line(line: str) -> str:
    """Return a line of the log for people."""
    try:
        read = json.loads(line)
        line = str(read["message"]) if isinstance(read, dict) else line
    except (ValueError, KeyError, RecursionError):
        line = line.removeprefix("relayer: ")
    cut = line.strip()[:_LINE_CHARACTERS_MAX]
    return "".join(char if char.isprintable() else " " for char in cut)


def _describe_folder_error(path: Path, error: OSError) -> str:
    return (
        f"{path} cannot be written: {error.strerror}. The local relayer needs its data folder: mend"
        " that, or move the folder and type `memrelay local use FOLDER`."
    )


@contextlib.contextmanager
def _try_lock(path: Path) -> Iterator[int | None]:
    """Yield a descriptor that holds the lock of a file, None while another process holds it."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise ConfigError(_describe_folder_error(path, error)) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield descriptor
    finally:
        os.close(descriptor)


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
