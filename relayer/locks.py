"""Locks on files (flock): the kernel drops one when the last process that holds it ends, however.

Not here: which files, and who waits for them (`run_file.py`, `postgres/`).
"""

import fcntl
import os
from pathlib import Path


def try_lock(path: Path, kind: int) -> int | None:
    """Return a file descriptor holding the lock, or None; every call opens the file anew."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if lock(descriptor, kind):
        return descriptor
    os.close(descriptor)
    return None


def lock(descriptor: int, kind: int) -> bool:
    """Take the lock (fcntl.LOCK_SH or LOCK_EX) without waiting; true if it got it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
