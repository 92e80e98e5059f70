"""The server process of one cluster: its settings, launching it, recognising it, stopping it.

It does not decide when (`relayer.postgres.embedded` does) and opens no connection.

- `server.lock` is inherited by the server and by all its children. Who gets it knows that no
  process of the cluster is left, even one that outlived a killed server and holds its memory.
- Only a process proven to be this cluster's server is ever signalled, and never with SIGKILL.
- The log holds no statement and no value of one: errors go to the client that caused them.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from relayer.locks import try_lock
from relayer.postgres.cluster import Cluster
from relayer.postgres.programs import PostgresError

# Given on the command line, where neither the configuration files nor ALTER SYSTEM override them.
SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "password_encryption": "scram-sha-256",
    # Nothing a client sent may reach the log. Messages of level ERROR quote values ("invalid
    # input syntax for type uuid: …"), so only the server's own affairs are logged.
    "log_destination": "stderr",
    "logging_collector": "off",
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "log_checkpoints": "off",
    "log_autovacuum_min_duration": "-1",
    "autovacuum_naptime": "10s",  # plans of a fresh account need statistics soon
    "log_lock_waits": "off",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    # "minimal" would save nothing on small transactions and forbid online base backups.
    "wal_level": "replica",
    "max_wal_size": "512MB",
    "shared_buffers": "128MB",
    "effective_cache_size": "512MB",
    "maintenance_work_mem": "64MB",
    # Queries take about a millisecond: compiling them, workers and I/O processes cost more than
    # they bring, and parallel workers need more /dev/shm than containers have.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "io_method": "sync",
}

POLL_S = 0.02

_SIGQUIT_WAIT_S = 10.0  # the server itself kills its children after five
_PID_WAIT_S = 5.0
_PID_DIGITS_MAX = 9  # more stand in a file that is damaged
_LOG_BYTES_MAX = 1 << 20  # a longer one is set aside at the next launch


class Server:
    """The server of `cluster`, running or not."""

    def __init__(self, *, cluster: Cluster) -> None:
        self.log = cluster.home / "postgres.log"
        self._cluster = cluster
        self._lock_path = cluster.home / "server.lock"
        self._pid_file = cluster.folder / "postmaster.pid"
        self._log_bytes_before = 0

    def lock_if_gone(self) -> int | None:
        """Return a file descriptor with the server's lock, or None while a process of it lives."""
        return try_lock(self._lock_path, fcntl.LOCK_EX)

    async def launch(self, held: int, *, timeout_s: float) -> None:
        """Starts the server, which takes over the lock `held`; returns before it is ready.

        Raises: PostgresError.
        """
        self._prepare_log()
        socket_folder = self._cluster.create_socket_folder()
        self._clear_stale_locks(socket_folder)
        await self._cluster.launch(
            SETTINGS,
            socket_folder=socket_folder,
            log=self.log,
            lock=held,
            timeout_s=timeout_s,
        )

    def last_words(self) -> str:
        """Return the last fatal line that the server launched last has logged."""
        with self.log.open("rb") as file:
            file.seek(self._log_bytes_before)
            lines = file.read().decode(errors="replace").splitlines()
        # Refused connections are fatal too, but only for themselves.
        lines = [line for line in lines if "the database system is" not in line]
        fatal = [line for line in lines if "FATAL" in line or "PANIC" in line] or lines
        return fatal[-1] if fatal else "it left no message"

    async def stop(self, *, timeout_s: float) -> None:
        """Ends the server, at first with open sessions cut and everything written down.

        Raises: PostgresError.
        """
        # Without a pid it has just been launched, or processes of a killed server are ending.
        await _until(lambda: self.pid() is not None or self.is_gone(), _PID_WAIT_S)
        for number, wait_s in ((signal.SIGINT, timeout_s), (signal.SIGQUIT, _SIGQUIT_WAIT_S)):
            pid, socket_folder = self.pid(), self._read_socket_folder()
            if pid is None:
                return
            os.kill(pid, number)
            if await _until(self.is_gone, wait_s):
                # In a container the relayer may be the process that inherits orphans.
                _reap(pid)
                if socket_folder and socket_folder.parent != self._cluster.home:
                    with contextlib.suppress(OSError):
                        socket_folder.rmdir()
                return
        raise PostgresError(f"PostgreSQL does not stop (the log is {self.log})")

    def pid(self) -> int | None:
        """Return the server's pid, if that process is really this cluster's server."""
        pid = self._read_pid()
        if pid is None:
            return None
        command = _command_of(pid)
        if Path(os.fsdecode(command[0])).name != "postgres":
            return None
        expected = [b"-D", os.fsencode(self._cluster.folder)]
        return pid if command[1:3] == expected else None

    def socket_folder(self) -> Path:
        """Return the folder of the running server's socket, safe to send a password to.

        Raises: FileNotFoundError while the server has not published it, PostgresError.
        """
        folder = self._read_socket_folder()
        if folder is None:
            raise FileNotFoundError("the server has not published its socket yet")
        if not self._cluster.is_private(folder):
            raise PostgresError(
                f"the socket folder {folder} is open to others or not the server's: end the server "
                "and remove the folder"
            )
        return folder

    def is_gone(self) -> bool:
        """Return true if no process of the server is left, not even one that it forgot."""
        held = self.lock_if_gone()
        if held is not None:
            os.close(held)
        return held is not None

    def _read_pid(self) -> int | None:
        lines = self._pid_file_lines()
        # One that has no other process writes its number below zero.
        number = lines[0].removeprefix("-") if lines else ""
        return int(number) if number.isdecimal() and len(number) <= _PID_DIGITS_MAX else None

    def _read_socket_folder(self) -> Path | None:
        lines = self._pid_file_lines()
        return Path(lines[4]) if len(lines) > 4 and lines[4] else None

    def _pid_file_lines(self) -> list[str]:
        try:
            return self._pid_file.read_text(errors="surrogateescape").splitlines()
        except FileNotFoundError:
            return []

    def _clear_stale_locks(self, socket_folder: Path) -> None:
        """Removes what a dead server left, for which PostgreSQL would not start: empty files after
        a power loss, a number that another process has by now, in a container often the relayer.

        The caller holds the server lock, so no server of a relayer is left. One that somebody
        started by hand has none: while that may be, PostgreSQL itself decides.
        """
        pid = self._read_pid()
        if pid is not None:
            _reap(pid)
            if self._may_be_served_by(pid):
                return
        for lock_file in (self._pid_file, socket_folder / f".s.PGSQL.{SETTINGS['port']}.lock"):
            lock_file.unlink(missing_ok=True)

    def _may_be_served_by(self, pid: int) -> bool:
        """Return true if this process is PostgreSQL, and not known to be another cluster's."""
        if not _command_of(pid)[0].rsplit(b"/")[-1].startswith(b"postgres"):
            return False
        try:
            # Where every process of a cluster is, however its folder was named to it.
            return Path(f"/proc/{pid}/cwd").samefile(self._cluster.folder)
        except FileNotFoundError:
            return False
        except PermissionError:
            return True

    def _prepare_log(self) -> None:
        """Create the log, 0600, and remember how long it is."""
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES_MAX:
            self.log.replace(self.log.with_name(self.log.name + ".1"))
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            self._log_bytes_before = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)


def _command_of(pid: int) -> list[bytes]:
    """Return the command line; one empty word for processes that are gone or wait to be reaped."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return [b""]


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


async def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True
