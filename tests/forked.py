"""Commands of ours, each in a process of its own that was forked instead of started.

Loading takes a command ten times as long as what most of them do. Here one process loads it, does
nothing else, and forks for each: no command finds anything of an earlier one, as if it were new.

Not here: how commands start, and what their streams may be (`client/test_client_cli.py`,
`upkeep/test_commands.py`).
"""

import atexit
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, Final, NoReturn

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
    while True:
        call, streams, _, _ = socket.recv_fds(asked, _CALL_BYTES_MAX, 3)
        if not call:
            return
        child = os.fork()
        if not child:
            asked.close()
            _become(program, json.loads(call), streams)
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        asked.send(str(os.waitstatus_to_exitcode(status)).encode())


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
