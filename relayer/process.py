"""First steps of every process that holds keys, or serves.

Not here: what it does then (`serve.py`, `__main__.py`).
"""

import contextlib
import ctypes
import gc
import os
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_CAP_IPC_LOCK: Final = 14
_PAGES: Final = 0x7  # MCL_CURRENT, MCL_FUTURE and MCL_ONFAULT: whatever is used, once it is used
YOUNG_MAX: Final = 10_000
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
PIECE_BYTES: Final = 2**20  # a piece of memory that goes back as it is freed
FREE_BYTES_MAX: Final = 2**25  # that lie behind all others: to ask for them again takes time


def forbid_core_files() -> None:
    """Forbid core files: one would hold every key and text in memory.

    The limit alone is not enough: the kernel ignores it where core files go to a program.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def lock_memory() -> bool:
    """Keep this process's memory out of the swap, and return whether the platform lets it.

    All of it: Python copies keys wherever they go, so that to lock single buffers would protect
    none. It is done only where nothing bounds it. Under a bound, memory that is asked for later
    would be refused, and the process would end.
    """
    if sys.platform != "linux":
        return False
    unlimited = resource.RLIM_INFINITY
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if hard == unlimited and soft != unlimited:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
    if hard != unlimited and not _may_lock():
        return False
    return bool(ctypes.CDLL(None).mlockall(_PAGES) == 0)


def prepare_to_serve() -> None:
    """Take the steps of a process that answers requests."""
    forbid_core_files()
    lock_memory()
    return_freed_memory()
    collect_rarely()


def return_freed_memory() -> None:
    """Let the C library give large pieces back to the system as they are freed.

    By itself glibc raises its bounds with each large piece that is freed, to 32 and 64 MiB. So a
    process kept most of what an index was put together from: 52 of 251 MB. Where the library has no
    such bounds, nothing is done.
    """
    with contextlib.suppress(OSError, AttributeError):
        change = ctypes.CDLL(None).mallopt
        change(_M_MMAP_THRESHOLD, PIECE_BYTES)
        change(_M_TRIM_THRESHOLD, FREE_BYTES_MAX)


def _may_lock() -> bool:
    """Return true if this process may lock memory beyond its limit."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return False
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> _CAP_IPC_LOCK & 1)


def has_locked_memory(pid: int) -> bool | None:
    """Return true if a process keeps memory out of the swap; None if the system does not tell."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = re.search(r"^VmLck:\s*(\d+) kB$", status, re.MULTILINE)
    return None if found is None else int(found[1]) > 0


def plain_swaps(root: Path = Path("/")) -> list[str] | None:
    """Return where memory may be swapped to that is not known to be encrypted.

    Empty: nowhere. None: the system does not tell. Memory that is compressed in memory (zram) is on
    no disk. `root` is where /proc and /sys are.
    """
    try:
        lines = (root / "proc/swaps").read_text().splitlines()[1:]
    except OSError:
        return None
    return [name for name in (line.split()[0] for line in lines) if not _is_safe(root, Path(name))]


def _is_safe(root: Path, swap: Path) -> bool:
    """Return true if a swap is a device that dm-crypt encrypts, or one in memory without a disk."""
    block = root / "sys/block" / Path(os.path.realpath(swap)).name
    try:
        if block.name.startswith("zram"):
            return (block / "backing_dev").read_text().strip() == "none"
        return (block / "dm/uuid").read_text().startswith("CRYPT-")
    except OSError:
        return False


def stand_in_for_streams() -> None:
    """Open nothing for each standard stream that is closed.

    Else the next file or socket would get its number, and what is printed would go there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
        if getattr(sys, name) is None:  # Python found it closed
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


@contextlib.contextmanager
def pause_collection() -> Iterator[None]:
    """Look for no cycles meanwhile, and never in what was loaded: it stays.

    To go through it each time that it has grown took a tenth of a start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def collect_rarely() -> None:
    """Look for cycles among so many new objects at a time.

    Hardly anything of a request outlives it, and hardly anything of it is in a cycle: looked
    through 700 at a time, as Python does, the rest took a twentieth of a request.
    """
    gc.set_threshold(YOUNG_MAX)
