"""Real relayer processes for tests: started, watched, stopped by the id they were started with."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memrelay import SyncMemoryClient
from tests.forked import LaunchedProcess, forked, launch

QUIET = {"RELAYER_EMBEDDER": "none"}


START_S_MAX = 60
LASTING_PORTS = range(10_000, 32_000)  # below those that systems hand out


def lasting_ports(number: int) -> list[int]:
    """Free ports that no other connection is given while their server is away."""
    found = []
    for port in random.SystemRandom().sample(LASTING_PORTS, 100 + number):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
            if len(found) == number:
                return found
    raise AssertionError("every port is taken")


def lasting_port() -> int:
    """One such port."""
    return lasting_ports(1)[0]


@dataclass
class RunningRelayer:
    """A `relayer serve` process that accepts requests."""

    process: "subprocess.Popen[str] | LaunchedProcess"
    url: str
    data_dir: Path
    log: Path
    environment: dict[str, str]

    def command(self, *arguments: str) -> dict[str, Any]:
        """The JSON a `relayer` command prints, run beside the server."""
        done = forked(
            *("relayer", *arguments, "--data-dir", str(self.data_dir), "--json"),
            env=self.environment,
            timeout_s=START_S_MAX,
        )
        done.check_returncode()
        parsed: dict[str, Any] = json.loads(done.stdout)
        return parsed

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running_relayer(
    data_dir: Path, model_dir: Path, *arguments: str, database_url: str = "", **environment: str
) -> Iterator[RunningRelayer]:
    """Start a relayer on a free port and stop it at the end, however the test ended."""
    others = ("RELAYER_", "OPENAI_", "PYTEST_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(others)}
    env |= {"RELAYER_MODEL_DIR": str(model_dir), "RELAYER_DATABASE_URL": database_url} | environment
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = data_dir / f"stderr-{time.monotonic_ns()}.log"
    with log.open("w") as errors:
        process = launch(
            *("relayer", "serve", "--data-dir", str(data_dir), "--port", "0", *arguments),
            env=env,
            stderr=errors,
        )
    try:
        line = process.stdout.readline()
        match = re.search(r"ready at (\S+)", line)
        assert match, f"no ready line but {line!r}; {log.read_text()[-2000:]}"
        yield RunningRelayer(process, match[1], data_dir, log, env)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stdout.close()


def holder(account: dict[str, Any]) -> dict[str, Any]:
    """Whom a client acts for, out of what the command that made the account told."""
    members = ("account_id", "private_key", "relayer_key", "custody")
    return {name: account[name] for name in members}


def client(account: dict[str, Any], url: str, **options: Any) -> SyncMemoryClient:
    return SyncMemoryClient(url=url, **holder(account), **options)


def create_account(relayer: RunningRelayer, custody: str) -> dict[str, Any]:
    return relayer.command("account", "create", "--label", "test", "--custody", custody)


def postgres_of(data_dir: Path) -> int | None:
    """The process id of the embedded server of a folder, if it runs."""
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        pid = int((data_dir / "postgres/cluster/postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, 0)
        return pid
    return None


def workers_of(relayer: RunningRelayer) -> set[int]:
    """The process ids of the workers that are there."""
    pid = relayer.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    commands = {int(c): Path(f"/proc/{c}/cmdline") for c in children}
    found = set()
    for child, command in commands.items():
        with suppress(OSError):
            if b"relayer.workers" in command.read_bytes():
                found.add(child)
    return found


def begun_by(relayer: RunningRelayer) -> int:
    """Count the workers that have begun to answer so far."""
    return relayer.log.read_text().count("workers.began")


def is_there(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def all_texts(memory: SyncMemoryClient) -> list[str]:
    texts: list[str] = []
    cursor = None
    while True:
        page = memory.list(limit=200, cursor=cursor)
        texts += [m.text or "" for m in page.memories]
        cursor = page.next_cursor
        if cursor is None:
            return texts


def command(
    *arguments: str, data: Path, database_url: str = "", **environment: str
) -> "subprocess.CompletedProcess[str]":
    """What a command does without an embedder; `serve` is started, all others are forked."""
    others = ("RELAYER_", "OPENAI_", "PYTEST_")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(others)}
    env = inherited | QUIET | {"RELAYER_DATABASE_URL": database_url} | environment
    argv = (*arguments, "--data-dir", str(data))
    if arguments[0] != "serve":
        return forked("relayer", *argv, env=env, timeout_s=120)
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "relayer", *argv],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
