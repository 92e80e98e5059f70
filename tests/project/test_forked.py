"""A command that was forked is like one that was started, and like the first one."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import forked


@pytest.mark.parametrize(
    "line",
    [
        ("memrelay", "--version"),
        ("memrelay", "recall", "--nonsense"),
        ("memrelay", "list", "--json"),
        ("relayer", "account", "--help"),
        ("relayer", "nonsense"),
        ("relayer", "account", "list", "--json"),
    ],
    ids=" ".join,
)
def test_it_prints_and_ends_as_if_it_were_started(line: tuple[str, ...], tmp_path: Path) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "MEMRELAY_PROFILE": str(tmp_path / "none.json"),
        "RELAYER_DATA_DIR": str(tmp_path / "none"),
    }
    done = forked(*line, env=env, timeout_s=60)
    started = subprocess.run(
        [sys.executable, "-m", *line], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        started.returncode,
        started.stdout,
        started.stderr,
    )
    assert done.stdout + done.stderr


def test_it_leaves_nothing_to_the_next() -> None:
    told = [
        forked("memrelay", "list", env=env | {"HOME": "/nonexistent"}, timeout_s=60).stderr
        for env in ({"MEMRELAY_URL": "http://127.0.0.1:9"}, {})
    ]
    assert ["MEMRELAY_ACCOUNT_ID" in error for error in told] == [True, False], told
    assert "There is no memory yet" in told[1]


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """What it asks takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        line = ("init", f"http://127.0.0.1:{silent.getsockname()[1]}")
        env = {"MEMRELAY_PROFILE": str(tmp_path / "profile.json")}
        done = forked("memrelay", *line, env=env, timeout_s=1)
    assert done.returncode == -signal.SIGALRM
    assert forked("memrelay", "--version", env=env, timeout_s=60).returncode == 0
