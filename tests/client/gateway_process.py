"""A user's machine with a real `memrelay gateway` process, and raw connections to it.

It owns no assertion on what the gateway answers (`test_openclaw_serve.py`).
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memrelay import Settings, SyncMemoryClient
from memrelay.gateway.endpoint import Endpoint
from tests.client.gateway_scene import write_profile
from tests.processes import RunningRelayer

PATIENT = {"recallDeadlineS": 15}
WAIT_S_MAX = 60.0


@dataclass
class Machine:
    """A user's folders, with the profiles of two agents beside the owner's."""

    folder: Path
    owner: Settings
    runtime: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("MEMRELAY_", "XDG_"))}
        return kept | {
            "XDG_CONFIG_HOME": str(self.folder),
            "XDG_RUNTIME_DIR": str(self.runtime),
        }

    @property
    def profiles(self) -> Path:
        return self.folder / "memrelay"

    def memrelay(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "memrelay", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def texts(self, agent: str) -> list[str | None]:
        """What an agent remembers, newest first."""
        path = self.profiles / "agents" / f"{agent}.json"
        with SyncMemoryClient.from_settings(Settings.load(path, environ={})) as client:
            return [memory.text for memory in client.list().memories]


@dataclass
class RunningGateway:
    """A `memrelay gateway` process that answers."""

    machine: Machine
    process: "subprocess.Popen[str]"
    ready: str
    log: Path

    @property
    def endpoint(self) -> Endpoint:
        found = Endpoint.read(self.machine.profiles / "gateway.json")
        assert found is not None
        return found

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def logged(self, words: str) -> bool:
        """Whether the log holds some words by now, or soon."""
        until = time.monotonic() + WAIT_S_MAX
        while words not in self.log.read_text():
            if time.monotonic() >= until:
                return False
            time.sleep(0.05)
        return True


@contextmanager
def machine_of(folder: Path, relayer: RunningRelayer) -> Iterator[Machine]:
    """A machine with an account and two agents of its own."""
    new = SyncMemoryClient.create_account(relayer.url)
    owner = Settings(url=relayer.url, account_id=new.account_id, private_key=new.private_key)
    profiles = folder / "memrelay"
    write_profile(profiles / "profile.json", owner)
    with SyncMemoryClient.from_settings(owner) as client:
        for name in ("anna", "bob"):
            key = client.add_key(namespaces=[name], label=name).private_key
            agent = replace(owner, private_key=key, namespace=name)
            write_profile(profiles / "agents" / f"{name}.json", agent)
    # The path of a socket has about 100 bytes, which the folders of tests may use up.
    with TemporaryDirectory(prefix="mr-", dir="/tmp") as runtime:
        yield Machine(folder, owner, Path(runtime))


@contextmanager
def running_gateway(machine: Machine, *arguments: str) -> Iterator[RunningGateway]:
    log = machine.folder / "gateway.log"
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "memrelay", "gateway", *arguments],
            env=machine.environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        ready = process.stdout.readline()
        assert ready, log.read_text()[-2000:]
        yield RunningGateway(machine, process, ready, log)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=30)
        process.stdout.close()


class Line:
    """A raw connection that says what it wants."""

    def __init__(self, endpoint: Endpoint) -> None:
        assert endpoint.socket is not None
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(endpoint.socket)
        self._file = self._socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self) -> Any:
        """The next answer; None when the connection was ended."""
        try:
            line = self._file.readline()
        except ConnectionResetError:
            return None
        return json.loads(line) if line else None

    def call(self, method: str, params: object) -> Any:
        """The answer to a call, with its result or its error."""
        call = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        self.send(json.dumps(call).encode() + b"\n")
        return self.read()

    def result(self, method: str, **params: object) -> Any:
        return self.call(method, params)["result"]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@contextmanager
def greeted(gateway: RunningGateway, **settings: object) -> Iterator[Line]:
    """A connection that showed the token."""
    endpoint = gateway.endpoint
    line = Line(endpoint)
    line.result("hello", token=endpoint.token, settings={**PATIENT, **settings})
    yield line
    line.close()


@contextmanager
def stranger(gateway: RunningGateway) -> Iterator[Line]:
    """A connection that did not say anything yet."""
    line = Line(gateway.endpoint)
    yield line
    line.close()


def wait_for(machine: Machine, agent: str, text: str) -> None:
    """Wait until an agent remembers a text."""
    until = time.monotonic() + WAIT_S_MAX
    while text not in machine.texts(agent):
        assert time.monotonic() < until, f"{agent} does not remember it"
        time.sleep(0.05)
