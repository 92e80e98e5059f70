"""Workers' counts on disk: their blocks are there first, a full disk ends no worker, and what has
ended takes no room.

Not here: counts of several workers together (`test_workers.py`).
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relayer.telemetry.dead_workers import LOCK, add_dead_workers, make_lock, read_lock
from relayer.telemetry.preallocation import COUNTS_FOLDER, FILE_BYTES, KINDS, preallocate

# As a worker begins: a series of each kind and of a route, then what the folder holds.
WORKER = """
import os, resource, sys
from relayer.telemetry.preallocation import preallocate
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
preallocate(os.environ)
import relayer.monitoring.exposition
from relayer.http import requests
from relayer.telemetry import instruments
instruments.count_rejection("clock")
instruments.INDEX_BYTES.set(1.0)
instruments.flush()
print("PROMETHEUS_MULTIPROC_DIR" in os.environ)
"""

# What all of them counted, as one that is asked says.
SUMS = """
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""


def worker(folder: Path, file_bytes_max: int) -> str:
    """What one says that may write files of this size at most; it ends well."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(file_bytes_max)],
        env=os.environ | {COUNTS_FOLDER: str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_library_writes_to_no_block_that_is_not_there(tmp_path: Path) -> None:
    """Every file it has was made for it, and is as large as it was."""
    assert worker(tmp_path, FILE_BYTES) == "True"
    kinds = {path.name.rpartition("_")[0]: path.stat() for path in tmp_path.iterdir()}
    assert set(kinds) == set(KINDS)
    assert {found.st_size for found in kinds.values()} == {FILE_BYTES}
    assert min(found.st_blocks * 512 for found in kinds.values()) >= FILE_BYTES


def test_a_worker_without_room_counts_for_itself(tmp_path: Path) -> None:
    assert worker(tmp_path, FILE_BYTES // 2) == "False"
    assert list(tmp_path.iterdir()) == []


def test_counts_of_a_worker_with_the_same_number_go_on(tmp_path: Path) -> None:
    environment = {COUNTS_FOLDER: str(tmp_path)}
    preallocate(environment)
    path = tmp_path / f"counter_{os.getpid()}.db"
    path.write_bytes(b"counts")
    preallocate(environment)
    assert path.read_bytes() == b"counts"


@pytest.mark.parametrize("environment", [{}, {"OTHER": "x"}])
def test_who_shares_no_counts_needs_none(environment: dict[str, str]) -> None:
    before = dict(environment)
    preallocate(environment)
    assert environment == before


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Counts of three that have ended; tests write to copies."""
    folder = tmp_path_factory.mktemp("counted")
    make_lock(folder)
    for _ in range(3):
        assert worker(folder, FILE_BYTES) == "True"
    return folder


class TestWorkersThatHaveEnded:
    @pytest.fixture
    def folder(self, counted: Path, tmp_path: Path) -> Path:
        """The same counts, for one test to move and to damage."""
        return Path(shutil.copytree(counted, tmp_path, dirs_exist_ok=True))

    @staticmethod
    def ended(folder: Path) -> list[int]:
        return sorted(int(path.stem.rpartition("_")[2]) for path in folder.glob("counter_[0-9]*"))

    @staticmethod
    def sums(folder: Path) -> list[str]:
        text = subprocess.run(
            [sys.executable, "-c", SUMS],
            env=os.environ | {COUNTS_FOLDER: str(folder)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        counts = re.compile(r"[a-z_]+_(?:total|bucket|count|sum)[{ ]")
        return sorted(line for line in text if counts.match(line))

    def test_what_they_counted_stays_and_their_files_go(self, folder: Path) -> None:
        before = self.sums(folder)
        [clock] = [line for line in before if 'rejected_total{cause="clock"}' in line]
        assert clock.endswith(" 3.0")
        for pid in self.ended(folder):
            (folder / f"histogram_{pid}.new").touch()
            gone = {pid}
            assert add_dead_workers(folder, gone)
            assert gone == set()
            assert self.sums(folder) == before
        left = {path.name for path in folder.iterdir()}
        assert left == {LOCK, "counter_gone.db", "histogram_gone.db"}
        assert {(folder / name).stat().st_size for name in left - {LOCK}} == {FILE_BYTES}

    def test_nothing_is_moved_while_somebody_reads(self, folder: Path) -> None:
        pids = set(self.ended(folder))
        before = sorted(folder.iterdir())
        with read_lock(folder):
            assert not add_dead_workers(folder, pids)
        assert sorted(folder.iterdir()) == before
        assert add_dead_workers(folder, pids)

    @pytest.mark.parametrize(
        "damage", [b"x", b"\xff\xff\0\0" * 4, b"\x20\0\0\0" * 2 + b"\xff" * 24]
    )
    @pytest.mark.parametrize("damaged", range(3))
    def test_what_is_damaged_costs_only_itself(
        self, folder: Path, damage: bytes, damaged: int
    ) -> None:
        pids = self.ended(folder)
        (folder / f"counter_{pids[damaged]}.db").write_bytes(damage)
        gone = set(pids)
        assert add_dead_workers(folder, gone)
        assert gone == set()
        assert len(list(folder.iterdir())) == 3
        assert [line for line in self.sums(folder) if line.endswith('"clock"} 2.0')]

    def test_sums_that_are_damaged_begin_anew(self, folder: Path) -> None:
        first, *others = self.ended(folder)
        assert add_dead_workers(folder, {first})
        (folder / "counter_gone.db").write_bytes(b"x")
        assert add_dead_workers(folder, set(others))
        assert [line for line in self.sums(folder) if line.endswith('"clock"} 2.0')]

    def test_one_that_cannot_be_removed_is_in_nobodys_way(self, folder: Path) -> None:
        first, *others = self.ended(folder)
        (folder / f"counter_{first}.new").mkdir()
        gone = {first, *others}
        assert add_dead_workers(folder, gone)
        assert gone == {first}
        (folder / f"counter_{first}.new").rmdir()
        assert add_dead_workers(folder, gone)
        assert gone == set()
        assert len(list(folder.iterdir())) == 3

    def test_where_a_supervisor_of_before_moves_none_they_are_read(self, tmp_path: Path) -> None:
        read = []
        with read_lock(tmp_path):
            read.append(tmp_path)
        assert read == [tmp_path]
        assert list(tmp_path.iterdir()) == []

    def test_one_that_has_not_begun_leaves_nothing(self, tmp_path: Path) -> None:
        make_lock(tmp_path)
        (tmp_path / "counter_7.db").write_bytes(bytes(FILE_BYTES))
        (tmp_path / "histogram_7.new").write_bytes(bytes(FILE_BYTES))
        (tmp_path / "counter_8.db").write_bytes(bytes(FILE_BYTES))
        assert add_dead_workers(tmp_path, {7, 8})
        assert {path.name for path in tmp_path.iterdir()} == {LOCK, "counter_gone.db"}
        assert self.sums(tmp_path) == []
