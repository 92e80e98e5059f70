"""A user's own relayer, in a data folder whose path is short enough for a socket."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from memrelay.local_relayer import ENVIRONMENT, LOG, SOCKET, LocalRelayer
from memrelay.secure_files import write_private_text
from tests.client.shell_scene import Machine


class LocalMachine(Machine):
    """A user's shell, and the data folder of the relayer that its commands start."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(home / "profile.json", capsys)
        self.home = home
        self.folder = home / "data"

    @property
    def relayer(self) -> LocalRelayer:
        return LocalRelayer(self.folder / SOCKET)

    def set_environment(self, **variables: str) -> None:
        """Write what the relayer is given at its next start."""
        write_environment(self.folder, variables)

    def init(self) -> list[str]:
        return self.lines("init", "--local", "--data-dir", str(self.folder))

    def pid(self) -> int:
        pid = self.relayer.pid()
        assert pid is not None
        return pid

    def with_profile(self, name: str) -> "LocalMachine":
        """Return the same machine, with another profile."""
        other = LocalMachine(self.home, self._capsys)
        other.profile = self.home / name
        return other

    def starts(self) -> int:
        """Return how many relayers were ready in this folder so far."""
        return (self.folder / LOG).read_text().count(" ready at ")

    def announce(self, pid: int) -> None:
        """Leave what a killed relayer leaves: the number of a process that is somebody else's."""
        (self.folder / "relayer.json").write_text(json.dumps({"pid": pid, "url": "", "workers": 1}))
        os.chmod(self.folder / "relayer.json", 0o600)


@contextmanager
def local_home(**environment: str) -> Iterator[Path]:
    """Yield the folder of a user whose relayer is given these; at the end it is ended and gone."""
    home = Path(tempfile.mkdtemp(prefix="mr-"))
    write_environment(home / "data", environment)
    try:
        yield home
    finally:
        LocalRelayer(home / "data" / SOCKET).stop()
        shutil.rmtree(home)


def write_environment(folder: Path, variables: Mapping[str, str]) -> None:
    """Write what the relayer of a data folder is given at its next start."""
    folder.mkdir(mode=0o700, exist_ok=True)
    lines = [f"{name}={value}" for name, value in variables.items()]
    write_private_text(folder / ENVIRONMENT, "# settings\n\n" + "\n".join(lines) + "\n")
