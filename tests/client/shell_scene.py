"""A user at a shell, for tests of commands."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
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


def show(profile: Path, columns: int, *argv: str, **environ: str) -> list[str]:
    """Return what a terminal of so many columns shows of a command."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    subprocess.run(
        [sys.executable, "-m", "memrelay", *argv, "--profile", str(profile)],
        stdout=theirs,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"} | environ,
        check=True,
    )
    os.close(theirs)
    with os.fdopen(ours, "rb") as terminal:
        shown = b""
        try:
            while piece := terminal.read1(65_536):
                shown += piece
        except OSError:  # the other end is closed, and all of it was read
            pass
    return shown.decode().splitlines()
