"""Workers' counts on disk: their blocks are there first, and a full disk ends no worker.

Not here: counts of several workers together (`test_workers.py`).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relayer.telemetry.room import KINDS, ROOM_BYTES, SEVERAL, take_room

# As a worker begins: a series of each kind and of a route, then what the folder holds.
WORKER = """
import os, resource, sys
from relayer.telemetry.room import take_room
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
take_room(os.environ)
import relayer.monitoring.exposition
from relayer.telemetry import instruments, pending, requests
instruments.rejected("clock")
instruments.INDEX_BYTES.set(1.0)
pending.settle()
print("PROMETHEUS_MULTIPROC_DIR" in os.environ)
"""


def worker(folder: Path, file_bytes_max: int) -> str:
    """What one says that may write files of this size at most; it ends well."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(file_bytes_max)],
        env=os.environ | {SEVERAL: str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_library_writes_to_no_block_that_is_not_there(tmp_path: Path) -> None:
    """Every file it has was made for it, and is as large as it was."""
    assert worker(tmp_path, ROOM_BYTES) == "True"
    kinds = {path.name.rpartition("_")[0]: path.stat() for path in tmp_path.iterdir()}
    assert set(kinds) == set(KINDS)
    assert {found.st_size for found in kinds.values()} == {ROOM_BYTES}
    assert min(found.st_blocks * 512 for found in kinds.values()) >= ROOM_BYTES


def test_a_worker_without_room_counts_for_itself(tmp_path: Path) -> None:
    assert worker(tmp_path, ROOM_BYTES // 2) == "False"
    assert list(tmp_path.iterdir()) == []


def test_counts_of_a_worker_with_the_same_number_go_on(tmp_path: Path) -> None:
    environment = {SEVERAL: str(tmp_path)}
    take_room(environment)
    path = tmp_path / f"counter_{os.getpid()}.db"
    path.write_bytes(b"counts")
    take_room(environment)
    assert path.read_bytes() == b"counts"


@pytest.mark.parametrize("environment", [{}, {"OTHER": "x"}])
def test_who_shares_no_counts_needs_none(environment: dict[str, str]) -> None:
    before = dict(environment)
    take_room(environment)
    assert environment == before
