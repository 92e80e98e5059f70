"""An owner's machine: a home with a profile, the command line, and what its agents hold."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import main
from memrelay.config import Settings

KEY = re.compile(r"(?<![0-9a-fx])[0-9a-f]{64}(?![0-9a-f])")  # of an account id, an x stands before


class Machine:
    """An owner's machine: a home with a profile, and the command line."""

    def __init__(self, home: Path, url: str, capsys) -> None:
        self.environ = {"XDG_CONFIG_HOME": str(home)}
        self.folder = home / "memrelay" / "agents"
        self.profile = home / "memrelay" / "profile.json"
        self.url = url
        self._capsys = capsys
        self.err = ""

    def run(self, *argv: str, code: int = 0) -> str:
        """What a command prints; it must end with this exit code."""
        self._capsys.readouterr()
        ended = main(list(argv), self.environ)
        out, self.err = self._capsys.readouterr()
        assert ended == code, self.err
        assert code == 0 or (out == "" and self.err.count("\n") == 1)
        return out

    def json(self, *argv: str):
        return json.loads(self.run(*argv, "--json"))

    def provision(self, *argv: str):
        (agent,) = self.json("agents", "provision", *argv)["agents"]
        return agent

    def rotate(self, *argv: str):
        (agent,) = self.json("agents", "rotate", *argv)["agents"]
        return agent

    def keys(self, label: str | None = None):
        return [k for k in self.json("keys", "list")["keys"] if label in (None, k["label"])]

    def live(self, label: str):
        return [key["public_key"] for key in self.keys(label) if not key["revoked"]]

    def settings(self, name: str) -> Settings:
        return Settings.load(self.folder / f"{name}.json", environ={})

    def client(self, name: str | None = None) -> SyncMemoryClient:
        path = self.profile if name is None else self.folder / f"{name}.json"
        return SyncMemoryClient.from_settings(Settings.load(path, environ={}))

    def process(self, *argv: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "memrelay", *argv],
            env={**os.environ, **self.environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


@pytest.fixture
def machine(shared_relayer, tmp_path, capsys):
    machine = Machine(tmp_path, shared_relayer.url, capsys)
    machine.run("init", shared_relayer.url)
    return machine


def grants(machine: Machine, public_key: str):
    with machine.client() as owner:
        return [g for g, _ in owner.grants()._grants if g.recipient.hex() == public_key]


def keys_of(machine: Machine, name: str):
    """All namespace keys that an agent holds."""
    with machine.client(name) as client:
        keyring = client.run(client._session.keyring())
        return {held: keyring.namespace_keys(held)[0] for held in keyring.names}
