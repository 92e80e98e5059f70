"""A real OpenClaw on a machine of its own: relayer, agents' keys, gateway, and a scripted model.

It owns no assertion (`episodes.py`).
"""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memrelay import Settings, SyncMemoryClient
from memrelay.gateway.endpoint import Endpoint
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, openai_server
from tests.processes import RunningRelayer, running_relayer

AGENTS = ("researcher", "coder")
TURN_S_MAX = 180


@dataclass
class Turn:
    """One run of `openclaw agent`: what it printed, and what its model was asked."""

    reply: str
    log: str
    requests: list[dict[str, Any]]
    seconds: float

    @property
    def asked(self) -> str:
        """The user's message as the model got it, with all that was put before it."""
        users = [m for m in self.requests[0]["messages"] if m["role"] == "user"]
        return "\n".join(_text(message) for message in users)

    @property
    def system(self) -> str:
        """The system prompt as the model got it."""
        return _text(self.requests[0]["messages"][0])

    @property
    def tools(self) -> set[str]:
        """The tools that the model was offered."""
        return {tool["function"]["name"] for tool in self.requests[0].get("tools", ())}

    @property
    def tool_answers(self) -> list[str]:
        """What the tools answered, as the model got it."""
        return [_text(m) for m in self.requests[-1]["messages"] if m["role"] == "tool"]


@dataclass
class Scene:
    """All processes of one machine, and its folders."""

    folder: Path
    model: OpenAIServer
    relayer: RunningRelayer
    environment: dict[str, str]
    gateway: "subprocess.Popen[str] | None" = None
    table: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def profiles(self) -> Path:
        return self.folder / "config/memrelay"

    @property
    def openclaw_json(self) -> Path:
        return self.folder / "openclaw/openclaw.json"

    def memrelay(self, *arguments: str) -> str:
        """What a `memrelay` command prints."""
        return self._run(sys.executable, "-m", "memrelay", *arguments).stdout

    def turn(self, agent: str, message: str, *, session: str | None = None) -> Turn:
        """Run one turn of an agent, in a session of its own unless one is named."""
        self.model.received.clear()
        key = f"agent:{agent}:{session or uuid.uuid4().hex[:12]}"
        began_s = time.monotonic()
        done = self._run("openclaw", "agent", "--local", "--session-key", key, "-m", message)
        seconds = time.monotonic() - began_s
        requests = [received.json for received in self.model.received]
        return Turn(done.stdout, done.stderr, requests, seconds)

    def client(self, agent: str) -> SyncMemoryClient:
        """A client with an agent's own key."""
        path = self.profiles / "agents" / f"{agent}.json"
        return SyncMemoryClient.from_settings(Settings.load(path, environ={}))

    def endpoint(self) -> Endpoint:
        """Where the gateway answers."""
        found = Endpoint.read(self.profiles / "gateway.json")
        assert found is not None
        return found

    def start_gateway(self) -> None:
        """Start `memrelay gateway` and wait until it is ready."""
        with (self.folder / "gateway.log").open("a") as log:
            self.gateway = subprocess.Popen(
                [sys.executable, "-m", "memrelay", "gateway"],
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.gateway.stdout is not None
        assert "ready" in self.gateway.stdout.readline()

    def stop_gateway(self) -> None:
        """Stop the gateway as a service manager does."""
        if self.gateway is not None and self.gateway.poll() is None:
            self.gateway.send_signal(signal.SIGTERM)
            assert self.gateway.wait(timeout=30) == 0
        if self.gateway is not None and self.gateway.stdout is not None:
            self.gateway.stdout.close()

    def _run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TURN_S_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{command[:3]}: {done.stdout[-1500:]}{done.stderr[-3000:]}"
        return done


@contextmanager
def openclaw_scene(folder: Path, model_dir: Path) -> Iterator[Scene]:
    """Everything that a turn needs, set up with the commands that a user types."""
    environment = _environment(folder)
    with openai_server() as model, running_relayer(folder / "data", model_dir) as relayer:
        scene = Scene(folder, model, relayer, environment)
        _write_configuration(scene.openclaw_json, model.base_url)
        scene.memrelay("init", relayer.url)
        scene.memrelay("agents", "provision", *AGENTS)
        scene.start_gateway()
        try:
            scene.memrelay("openclaw", "install", "--yes")
            yield scene
        finally:
            scene.stop_gateway()


def _environment(folder: Path) -> dict[str, str]:
    programs = os.environ["OPENCLAW_PROGRAMS"]
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    for name in ("home", "runtime", "openclaw"):
        (folder / name).mkdir(mode=0o700)
    return kept | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_RUNTIME_DIR": str(folder / "runtime"),
        "OPENCLAW_STATE_DIR": str(folder / "openclaw"),
        "NO_COLOR": "1",
    }


def _write_configuration(path: Path, base_url: str) -> None:
    """The configuration of a user who has OpenClaw with a model of their own, and no plugin."""
    model = {"id": CHAT_MODEL, "name": "Scripted", "input": ["text"], "reasoning": False,
             "contextWindow": 120_000, "maxTokens": 4096}  # fmt: skip
    provider = {"baseUrl": base_url, "apiKey": API_KEY, "api": "openai-completions",
                "models": [model]}  # fmt: skip
    values = {
        "models": {"mode": "merge", "providers": {"scripted": provider}},
        "agents": {
            "ownership": "explicit",
            "defaults": {"model": {"primary": f"scripted/{CHAT_MODEL}"}},
            "entries": {name: {} for name in AGENTS},
        },
        "tools": {"toolSearch": False},  # so that the scripted model is offered tools by name
    }
    path.write_text(json.dumps(values, indent=2))


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", "") for block in content)
