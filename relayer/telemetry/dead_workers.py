"""Counts of workers that have ended: added up in one file of each kind, so that they take no room.

Not here: room for those that live (`preallocation.py`), who asks for the sums
(`monitoring/exposition.py`).

- Whoever reads the files holds a lock that all readers share; whoever adds a worker's counts to
  those of the others has it alone. So nobody reads them twice, or not at all, and no sum falls.
- What is damaged is given up: it would keep the counts of all the others from being read.
- The first worker's file becomes that of all: its blocks are there, also on a disk that is full.
"""

import fcntl
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
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
def read_lock(folder: Path) -> Iterator[None]:
    """Hold the readers' lock on the counts: nobody moves any meanwhile."""
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


def add_dead_workers(folder: Path, pids: set[int]) -> bool:
    """Add up what these workers counted, which have ended, and take them off `pids`; False while
    somebody reads.

    One whose files cannot be read or removed stays in `pids`.

    Raises:
        OSError: the folder is gone.
    """
    descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        for pid in sorted(pids):
            with suppress(OSError):
                _add(folder, pid)
                pids.discard(pid)
        return True
    finally:
        os.close(descriptor)


def _add(folder: Path, pid: int) -> None:
    # Else what it was answering would be under way for ever.
    forget: Any = multiprocess.mark_process_dead
    forget(pid, str(folder))
    for draft in folder.glob(f"*_{pid}.new"):
        draft.unlink()
    for kind in ADDED:
        own, of_all = (folder / f"{kind}_{whose}.db" for whose in (pid, OF_ALL))
        values, sums = _whole(own), _whole(of_all)
        if values is not None and sums is not None:
            _add_to(of_all, values)
            own.unlink()
        elif values is not None:
            own.rename(of_all)


def _whole(path: Path) -> dict[str, float] | None:
    """Return a file's counts; remove one that is damaged."""
    try:
        return {key: value for key, value, _, _ in _values_of(str(path)) if json.loads(key)}
    except FileNotFoundError:
        pass
    except (RuntimeError, ValueError, struct.error):
        path.unlink()
    return None


def _add_to(path: Path, values: Mapping[str, float]) -> None:
    sums = _opened(str(path))
    try:
        for key, value in values.items():
            sums.write_value(key, sums.read_value(key)[0] + value, 0.0)
    finally:
        sums.close()
