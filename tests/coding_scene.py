"""A machine with a real coding agent on it: relayer, owner's profile, and the host's own folder.

It owns no assertion (`claude/`, `codex/`, `gemini/`).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memrelay import Settings, SyncMemoryClient
from tests.processes import RunningRelayer, running_relayer

TURN_S_MAX = 240
WAIT_S_MAX = 60.0


@dataclass
class CodingScene:
    """One user's home with the programs in it."""

    folder: Path
    relayer: RunningRelayer
    programs: str
    host: str
    agent: str
    table: list[tuple[str, str, str]] = field(default_factory=list)
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def profiles(self) -> Path:
        return self.home / ".config" / "memrelay"

    @property
    def environment(self) -> dict[str, str]:
        own = Path(sys.executable).parent
        return {
            "HOME": str(self.home),
            "PATH": f"{self.programs}:{own}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            **self.extra,
        }

    def memrelay(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return self.run([sys.executable, "-m", "memrelay", *arguments], code=None)

    def run(
        self, command: list[str], *, code: int | None = 0, **environ: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program in the project's folder."""
        done = subprocess.run(
            command,
            env=self.environment | environ,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TURN_S_MAX,
            check=False,
        )
        assert code is None or done.returncode == code, done.stdout[-2000:] + done.stderr[-2000:]
        return done

    def texts(self) -> list[str]:
        """What the agent remembers, newest first."""
        path = self.profiles / "agents" / f"{self.agent}.json"
        with SyncMemoryClient.from_settings(Settings.load(path, environ={})) as client:
            return [memory.text or "" for memory in client.list(limit=100).memories]

    def wait_for(self, words: str) -> None:
        """Wait until the agent remembers some words."""
        until = time.monotonic() + WAIT_S_MAX
        while not any(words in text for text in self.texts()):
            assert time.monotonic() < until, f"it does not remember: {self.texts()}"
            time.sleep(0.2)

    def session_files(self) -> Iterator[Path]:
        """The files that the host keeps of its sessions."""
        yield from sorted((self.home / f".{self.host}").rglob("*.jsonl"))


@contextmanager
def coding_scene(
    folder: Path, model_dir: Path, host: str, agent: str, programs: str, **extra: str
) -> Iterator[CodingScene]:
    """A machine with a relayer, an owner's profile, and a host whose hooks are not installed."""
    with running_relayer(folder / "data", model_dir) as relayer:
        scene = CodingScene(folder, relayer, programs, host, agent, extra=extra)
        for place in (scene.home, scene.project):
            place.mkdir()
        done = scene.memrelay("init", relayer.url)
        assert done.returncode == 0, done.stderr
        yield scene


def read_json(path: Path) -> Any:
    """Return what a JSON file holds."""
    return json.loads(path.read_text())


def programs_of(variable: str) -> str:
    """Return the folders of the programs that a Makefile's target has installed."""
    return os.environ[variable]
