"""What is in a relayer's memory stays out of the swap, where the platform lets it."""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from relayer import process
from relayer.settings import Settings
from relayer.upkeep.doctor import OK, WARNING, examine
from tests.processes import RunningRelayer

LOCK = """
import json, os, resource
from relayer.process import has_locked_memory, lock_memory
if BOUNDED:
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))
    if os.geteuid() == 0:
        os.setresuid(65534, 65534, 65534)  # what root may is no bound
done = lock_memory()
grown = [bytes(1 << 20) for _ in range(64)]  # nothing that is asked for later is refused
print(json.dumps([done, has_locked_memory(os.getpid())]))
"""


def locked(*, bounded: bool) -> list[bool]:
    """What a process is told that locks its memory, and how it stands then."""
    source = LOCK.replace("BOUNDED", str(bounded))
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, check=True)
    said: list[bool] = json.loads(run.stdout)
    return said


def is_unbounded() -> bool:
    """Whether nothing keeps this process from locking memory, by its limit and its capabilities."""
    [held] = re.findall(r"CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text())
    limits = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return limits[1] == resource.RLIM_INFINITY or bool(int(held, 16) & 1 << 14)


def test_memory_is_locked_where_nothing_bounds_it() -> None:
    assert locked(bounded=False) == [is_unbounded()] * 2


def test_under_a_bound_it_is_not_and_whoever_asks_is_told() -> None:
    assert locked(bounded=True) == [False, False]


def test_a_serving_process_is_locked_likewise(relayer: RunningRelayer) -> None:
    assert process.has_locked_memory(relayer.process.pid) is is_unbounded()


def system(root: Path, *swaps: tuple[str, str, str]) -> Path:
    """Files as a system with these swaps has them: (name, file under /sys/block, what it says)."""
    (root / "proc").mkdir()
    lines = ["Filename Type Size Used Priority"]
    for name, member, says in swaps:
        lines.append(f"{name} partition 8388604 0 -2")
        if member:
            told = root / "sys/block" / Path(name).name / member
            told.parent.mkdir(parents=True)
            told.write_text(says)
    (root / "proc/swaps").write_text("\n".join(lines) + "\n")
    return root


@pytest.mark.parametrize(
    ("swap", "is_plain"),
    [
        (("/dev/sda2", "", ""), True),
        (("/swapfile", "", ""), True),
        (("/dev/dm-1", "dm/uuid", "CRYPT-PLAIN-swap\n"), False),
        (("/dev/dm-2", "dm/uuid", "CRYPT-LUKS2-0123-swap\n"), False),
        (("/dev/dm-3", "dm/uuid", "LVM-0123\n"), True),
        (("/dev/zram0", "backing_dev", "none\n"), False),
        (("/dev/zram1", "backing_dev", "/dev/sda3\n"), True),
    ],
)
def test_swaps_that_a_thief_of_the_disk_reads(
    tmp_path: Path, swap: tuple[str, str, str], is_plain: bool
) -> None:
    assert process.plain_swaps(system(tmp_path, swap)) == ([swap[0]] if is_plain else [])


def test_a_system_without_swap_and_one_that_does_not_tell(tmp_path: Path) -> None:
    assert process.plain_swaps(tmp_path) is None
    assert process.plain_swaps(system(tmp_path)) == []


async def test_an_operator_is_told_of_both(
    settings: Settings, relayer: RunningRelayer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running = Settings(data_dir=tmp_path / "data", database_url=settings.database_url)
    monkeypatch.setattr(process, "plain_swaps", lambda: ["/dev/sda2"])
    for is_locked, told, state in (
        (True, "is kept out", OK),
        (False, "is not kept out of it; keys in memory may get there unless", WARNING),
    ):
        monkeypatch.setattr(process, "has_locked_memory", lambda pid, says=is_locked: says)
        [found] = [f for f in await examine(running) if f["check"] == "swap"]
        assert found["detail"].startswith("swap is on and not known to be encrypted: /dev/sda2")
        assert told in found["detail"]
        assert found["state"] == state
        assert found["command"] == (None if is_locked else "sudo swapoff -a")
