"""A user at a shell, for tests of commands."""

import json
from pathlib import Path
from typing import Any

import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_OK, main


class Machine:
    """A user's shell, with a profile of an account of its own."""

    def __init__(self, profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.profile = profile
        self._capsys = capsys

    def __call__(self, *argv: str, code: int = EXIT_OK) -> Any:
        """Run a command with `--json` and return its value."""
        assert main([*argv, "--profile", str(self.profile), "--json"], {}) == code
        out, self.err = self._capsys.readouterr()
        return json.loads(out) if out else None

    def lines(self, *argv: str, code: int = EXIT_OK) -> list[str]:
        """Run a command and return what people are shown."""
        assert main([*argv, "--profile", str(self.profile)], {}) == code
        out, self.err = self._capsys.readouterr()
        return out.splitlines()

    def remember(self, text: str, *argv: str) -> str:
        stored: str = self("remember", text, *argv)["id"]
        return stored

    def texts(self, *argv: str) -> list[str]:
        return [memory["text"] for memory in self("list", *argv)["memories"]]

    def client(self) -> SyncMemoryClient:
        return SyncMemoryClient.from_profile(self.profile)
