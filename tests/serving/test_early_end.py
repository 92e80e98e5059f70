"""A relayer that is asked to end, or to reload, before it answers anybody."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import TestDatabase
from tests.life import WAIT_S_MAX
from tests.processes import create_account, running_relayer


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """An endpoint of buckets that hears and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(WAIT_S_MAX)
        yield listening


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("lost", [False, True], ids=["catching up", "rebuilding"])
def test_it_ends_and_is_never_ready(
    tmp_path: Path,
    model_dir: Path,
    fresh_database: TestDatabase,
    silent: socket.socket,
    lost: bool,
    workers: str,
) -> None:
    with running_relayer(tmp_path, model_dir, database_url=fresh_database.url) as relayer:
        if not lost:
            create_account(relayer, "sealed")
    bucket = {
        "RELAYER_BLOB_STORE": "s3://bucket/here",
        "RELAYER_S3_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
        "RELAYER_S3_ACCESS_KEY_ID": "name",
        "RELAYER_S3_SECRET_ACCESS_KEY": "key",
        "RELAYER_REQUEST_TIMEOUT_S": "500",
        "RELAYER_WORKERS": workers,
    }
    arguments = ["serve", "--data-dir", str(tmp_path), "--port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "relayer", *arguments],
        env=relayer.environment | bucket,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            with silent.accept()[0]:  # it asks its store
                process.send_signal(signal.SIGTERM)
                told, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, told
    assert not re.search("ready|Traceback", told), told


# A command that gets SIGHUP as it loads each of what takes long. Whoever started the tests may
# ignore it, as `nohup` does, and what it starts would, too.
RELOADED = """
import os, runpy, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
class Reload:
    def find_spec(self, name, *_):
        if name in ("click", "uvloop", "relayer.storage", "relayer.serve"):
            os.kill(os.getpid(), signal.SIGHUP)
sys.meta_path.insert(0, Reload())
sys.argv = ["relayer", *sys.argv[1:]]
runpy.run_module("relayer", run_name="__main__")
"""


def reloaded(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", RELOADED, *arguments], capture_output=True, text=True, check=False
    )


def test_a_reload_while_it_still_loads_does_not_end_it() -> None:
    done = reloaded("serve", "--port", "65536")
    assert (done.returncode, "RELAYER_PORT" in done.stderr) == (2, True), done


def test_a_terminal_that_closes_ends_every_other_command() -> None:
    assert reloaded("doctor", "--help").returncode == -signal.SIGHUP
