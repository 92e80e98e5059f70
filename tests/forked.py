"""Commands of ours, each in a process of its own that was forked instead of started.

Loading takes a command ten times as long as what most of them do. Here one process loads it, does
nothing else, and forks for each: no command finds anything of an earlier one, as if it were new.

- A command that ends is waited for (`forked`). One that serves is launched (`launch`): it has a
  keeper, a process that waits for its end and tells its exit code.

Not here: how commands start, and what their streams may be (`client/test_client_cli.py`,
`upkeep/test_commands.py`).
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from importlib import import_module
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, Any, Final, NoReturn

from memrelay.commands.catalogue import GROUPS

LOADED: Final = {
    "memrelay": ("memrelay.cli", *(f"memrelay.commands.{group}" for group in GROUPS)),
    # With what most commands load only once they come to the database.
    "relayer": (
        *(
            f"relayer.commands.{n}"
            for n in ("accounts", "backup", "blobs", "installation", "upkeep")
        ),
        "pgqueuer",
    ),
    # All but what starts threads when it is loaded: a process with threads is not forked.
    "relayer serve": (
        *(f"relayer.{n}" for n in ("commands.serving", "serve", "app", "workers.supervisor")),
        "pgqueuer",
    ),
}
_CALL_BYTES_MAX: Final = 1 << 17
_ONE_AFTER_ANOTHER: Final = Lock()


def forked(
    program: str, *argv: str, env: Mapping[str, str], typed: str = "", timeout_s: int
) -> "subprocess.CompletedProcess[str]":
    """What `python -m program argv` does with this environment and input, within this time."""
    call = {"argv": argv, "env": dict(env), "cwd": os.getcwd(), "timeout_s": timeout_s}
    with ExitStack() as stack:
        given, out, errors = (stack.enter_context(TemporaryFile()) for _ in range(3))
        given.write(typed.encode())
        given.seek(0)
        stack.enter_context(_ONE_AFTER_ANOTHER)
        parent = _parent(program)
        socket.send_fds(
            parent, [json.dumps(call).encode()], [f.fileno() for f in (given, out, errors)]
        )
        code = int(parent.recv(16))
        for file in (out, errors):
            file.seek(0)
        return subprocess.CompletedProcess(
            [program, *argv], code, out.read().decode(), errors.read().decode()
        )


class LaunchedProcess:
    """A command that runs until it is told to end, with those parts of a `Popen` that tests use."""

    def __init__(self, stdout: IO[str], status: IO[bytes]) -> None:
        self.stdout = stdout
        self.returncode: int | None = None
        self._status = status
        self.pid = int(status.readline())

    def poll(self) -> int | None:
        """Return the exit code, the negative number of the signal that ended it, or None."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended, or raise `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("relayer", timeout or 0)
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def launch(program: str, *argv: str, env: Mapping[str, str], stderr: IO[str]) -> LaunchedProcess:
    """Start `python -m program argv`, whose first word is its command, and do not wait for it."""
    call = {"argv": argv, "env": dict(env), "cwd": os.getcwd(), "timeout_s": 0}
    out, its_out = os.pipe()
    status, its_status = os.pipe()
    with open(os.devnull, "rb") as nothing, _ONE_AFTER_ANOTHER:
        parent = _parent(f"{program} {argv[0]}")
        streams = [nothing.fileno(), its_out, stderr.fileno(), its_status]
        socket.send_fds(parent, [json.dumps(call).encode()], streams)
        parent.recv(16)
    os.close(its_out)
    os.close(its_status)
    return LaunchedProcess(os.fdopen(out), os.fdopen(status, "rb", buffering=0))


@cache
def _parent(program: str) -> socket.socket:
    """A connection to the process that forks; it ends with this one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.forked", program, str(its.fileno())],
        pass_fds=[its.fileno()],
    )
    its.close()

    def end() -> None:
        ours.close()
        process.kill()
        process.wait()

    atexit.register(end)
    return ours


def _fork_for_each(program: str, asked: socket.socket) -> None:
    for name in LOADED[program]:
        import_module(name)
    threads = os.listdir("/proc/self/task") if sys.platform == "linux" else [""]
    assert len(threads) == 1, "what was loaded has started threads"
    gc.freeze()
    while True:
        call, streams, _, _ = socket.recv_fds(asked, _CALL_BYTES_MAX, 4)
        if not call:
            asked.close()
            return
        _bury_keepers()
        child = os.fork()
        if not child:
            asked.close()
            if len(streams) == 4:
                _keep(streams.pop())
            _become(program.partition(" ")[0], json.loads(call), streams)
        for stream in streams:
            os.close(stream)
        if len(streams) == 4:
            asked.send(b"launched")
            continue
        asked.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _keep(status: int) -> None:
    """Fork, and return in the child; tell its id, its end and how it ended, and end with it."""
    child = os.fork()
    if not child:
        os.close(status)
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it still waits for the child
    os.closerange(3, status)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.write(status, f"{child}\n".encode())
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(status, f"{ended}\n".encode())
    os._exit(0)


def _bury_keepers() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(program: str, call: Mapping[str, Any], streams: Sequence[int]) -> NoReturn:
    """Be the command, to its end."""
    signal.alarm(call["timeout_s"])  # which ends it, unheard
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(call["env"])
    time.tzset()
    os.chdir(call["cwd"])
    sys.argv[1:] = call["argv"]
    runpy.run_module(program, run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    _fork_for_each(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
