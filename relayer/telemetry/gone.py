"""Counts of workers that have ended: added up in one file of each kind, so that they take no room.

Not here: room for those that live (`room.py`), who asks for the sums (`monitoring/exposition.py`).

- Whoever reads the files holds a lock that all readers share; whoever adds a worker's counts to
  those of the others has it alone. So nobody reads them twice, or not at all, and no sum falls.
- The first worker's file becomes that of all: its blocks are there, also on a disk that is full.
"""

import fcntl
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from prometheus_client import multiprocess
from prometheus_client.mmap_dict import MmapedDict

LOCK: Final = "counts.lock"
ADDED: Final = ("counter", "histogram")  # what of a worker outlives it
OF_ALL: Final = "gone"  # in place of a process's number

# They have no annotations.
_opened: Callable[..., Any] = MmapedDict
_values_of: Callable[..., Any] = MmapedDict.read_all_values_from_file


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Read the counts while nobody moves any."""
    with ExitStack() as held:
        # A supervisor of a release before this made no lock, and moves none.
        with suppress(FileNotFoundError):
            descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield


def make_lock(folder: Path) -> None:
    """Make what readers and the one who adds lock, in a folder that is new."""
    (folder / LOCK).touch(mode=0o600)


def add_gone(folder: Path, pids: Collection[int]) -> bool:
    """Add up what these workers counted, which have ended; False while somebody reads.

    Raises:
        OSError, RuntimeError: the folder is gone, or a file is damaged.
    """
    descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for pid in pids:
            _add(folder, pid)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _add(folder: Path, pid: int) -> None:
    # Else what it was answering would be under way for ever.
    forget: Any = multiprocess.mark_process_dead
    forget(pid, str(folder))
    for draft in folder.glob(f"*_{pid}.new"):
        draft.unlink()
    for kind in ADDED:
        own, of_all = (folder / f"{kind}_{whose}.db" for whose in (pid, OF_ALL))
        if own.exists() and of_all.exists():
            _add_file(own, of_all)
            own.unlink()
        elif own.exists():
            own.rename(of_all)


def _add_file(own: Path, of_all: Path) -> None:
    sums = _opened(str(of_all))
    try:
        for key, value, _, _ in _values_of(str(own)):
            sums.write_value(key, sums.read_value(key)[0] + value, 0.0)
    finally:
        sums.close()
