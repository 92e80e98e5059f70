"""A relayer that listens on a Unix socket instead of a port."""

import json
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx2
import pytest

from relayer.run_file import socket_url, split_socket_url
from relayer.settings import Settings, SettingsError, is_local, open_to_this_machine
from tests.conftest import TestDatabase
from tests.processes import RunningRelayer, command, running_relayer


@pytest.fixture
def place() -> Iterator[Path]:
    """A path that is short enough for a socket, whatever it looks like."""
    with tempfile.TemporaryDirectory(prefix="mr-") as folder:
        yield Path(folder) / "a relayer%.sock"


@pytest.fixture
def served(
    place: Path, tmp_path: Path, model_dir: Path, fresh_database: TestDatabase
) -> Iterator[RunningRelayer]:
    with running_relayer(
        tmp_path / "data",
        model_dir,
        *("--socket", str(place)),
        database_url=fresh_database.url,
        RELAYER_EMBEDDER="none",
    ) as process:
        yield process


def test_this_user_alone_may_connect_and_is_answered(served: RunningRelayer, place: Path) -> None:
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert split_socket_url(served.url) == ("http://localhost", str(place))
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(place))) as client:
        assert client.get("http://localhost/health").json()["status"] == "ok"
    assert served.command("health")["status"] == "ok"
    top = command("top", "--once", "--json", data=served.data_dir)
    assert top.returncode == 0, top.stderr
    assert json.loads(top.stdout)


def test_the_socket_goes_with_the_relayer_and_one_that_a_killed_one_left_is_replaced(
    place: Path, tmp_path: Path, model_dir: Path, fresh_database: TestDatabase
) -> None:
    def serve() -> AbstractContextManager[RunningRelayer]:
        return running_relayer(
            *(tmp_path / "data", model_dir, "--socket", str(place)),
            database_url=fresh_database.url,
            RELAYER_EMBEDDER="none",
        )

    with serve() as first:
        first.kill()
        assert place.exists()
    with serve() as second:
        assert second.command("health")["status"] == "ok"
        taken = command(
            *("serve", "--socket", str(place)),
            data=tmp_path / "other",
            database_url=fresh_database.url,
        )
        assert f"another program listens at {place}" in taken.stderr
        assert taken.returncode == 1
        assert place.exists()
    assert not place.exists()


def test_what_is_no_socket_stays(place: Path, tmp_path: Path) -> None:
    place.write_text("mine")
    refused = command("serve", "--socket", str(place), data=tmp_path)
    assert f"{place} is no socket; move it away" in refused.stderr
    assert place.read_text() == "mine"


def test_several_workers_share_it(
    place: Path, tmp_path: Path, model_dir: Path, fresh_database: TestDatabase
) -> None:
    with running_relayer(
        tmp_path / "data",
        model_dir,
        *("--socket", str(place), "--workers", "2", "--database-connections", "2"),
        database_url=fresh_database.url,
        RELAYER_EMBEDDER="none",
    ) as process:
        assert [process.command("health")["status"] for _ in range(4)] == ["ok"] * 4


def test_it_is_local_and_open_to_nobody_else() -> None:
    chosen = Settings(socket="relayer.sock", host="0.0.0.0")
    assert is_local(chosen)
    assert open_to_this_machine(chosen) == ()
    assert not is_local(Settings(socket="relayer.sock", public_url="https://memory.example.org"))
    assert socket_url(Path("relayer.sock")) == f"unix://{os.getcwd()}/relayer.sock"


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(SettingsError, match="RELAYER_SOCKET is too long"):
        Settings(socket="/" + "x" * 101)
    with pytest.raises(SettingsError, match="RELAYER_IDLE_EXIT_S is for one worker"):
        Settings(idle_exit_s=60, workers=2)
    with pytest.raises(SettingsError, match="RELAYER_IDLE_EXIT_S must be at least 0"):
        Settings(idle_exit_s=-1)


def test_nobody_who_may_not_connect_is_needed_for_a_probe(place: Path) -> None:
    """A listener that accepts nothing keeps its place, too."""
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(place))
        other.listen(1)
        refused = command("serve", "--socket", str(place), data=place.parent / "data")
    assert f"another program listens at {place}" in refused.stderr
