"""What coding agents tell their hooks, in forms that were recorded from the real programs.

Claude Code 2.1.332, Codex 0.171.0, Gemini CLI 0.61.0. It owns no assertion.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from tests.client.gateway_process import WAIT_S_MAX, Machine

TURN = {"claude": "prompt_id", "codex": "turn_id", "gemini": ""}
NAMES = {
    "claude": ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd"),
    "codex": ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd"),
    "gemini": ("SessionStart", "BeforeAgent", "AfterAgent", "PreCompress", "SessionEnd"),
}
EVENTS = ("session-start", "prompt", "stop", "compact", "session-end")


@dataclass
class Session:
    """One session of a coding agent, whose hooks are real processes."""

    machine: Machine
    host: str = "claude"
    agent: str = "anna"
    name: str = "1b2c3d4e-0000-4000-8000-000000000001"
    folder: str = "/"
    turn: int = 0
    environ: dict[str, str] | None = None

    def form(self, event: str, **told: Any) -> dict[str, Any]:
        """What the host writes to a hook's standard input."""
        form: dict[str, Any] = {
            "session_id": self.name,
            "transcript_path": f"/home/anna/.{self.host}/sessions/{self.name}.jsonl",
            "cwd": self.folder,
            "hook_event_name": NAMES[self.host][EVENTS.index(event)],
        }
        if self.host == "gemini":
            form["timestamp"] = "2026-11-28T20:38:00.000Z"
        elif event in {"prompt", "stop"}:
            form |= {TURN[self.host]: f"turn-{self.turn}", "permission_mode": "default"}
        return form | told

    def run(self, event: str, **told: Any) -> "subprocess.CompletedProcess[bytes]":
        return self.run_raw(event, json.dumps(self.form(event, **told)).encode())

    def run_raw(
        self, event: str, data: bytes, *arguments: str
    ) -> "subprocess.CompletedProcess[bytes]":
        chosen = arguments or ("--host", self.host, "--agent", self.agent)
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "memrelay", "hook", event, *chosen],
            input=data,
            env=self.machine.environment | (self.environ or {}),
            capture_output=True,
            timeout=60,
            check=False,
        )

    def prompt(self, text: str, **told: Any) -> dict[str, Any]:
        """What the hook answers to a prompt; an empty object for nothing."""
        self.turn += 1
        done = self.run("prompt", prompt=text, **told)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
        return answer

    def stop(self, answer: str, **told: Any) -> None:
        """End the turn; nothing may be said then."""
        form: dict[str, Any] = {"stop_hook_active": False}
        if self.host == "gemini":
            form |= {"prompt": "", "prompt_response": answer}
        else:
            form |= {"last_assistant_message": answer}
        done = self.run("stop", **form | told)
        assert (done.returncode, done.stdout) == (0, b""), done.stderr

    def recalled(self, text: str) -> str:
        """What the model is given with a prompt."""
        answer = self.prompt(text)
        if not answer:
            return ""
        output = answer["hookSpecificOutput"]
        assert output["hookEventName"] == NAMES[self.host][1]
        return str(output["additionalContext"])


def wait_until_kept(machine: Machine, agent: str, words: str) -> None:
    """Wait until some memory of an agent holds some words."""
    until = time.monotonic() + WAIT_S_MAX
    while not any(words in (text or "") for text in machine.texts(agent)):
        assert time.monotonic() < until, f"{agent} does not remember it"
        time.sleep(0.1)


def wait_until_sent(machine: Machine) -> None:
    """Wait until no captured turn waits on a machine."""
    until = time.monotonic() + WAIT_S_MAX
    while list((machine.profiles / "spool").glob("*.turn")):
        assert time.monotonic() < until, "a captured turn still waits"
        time.sleep(0.1)
