"""Prepares a process that is a command.

It does not own the keys (`sealed/keys.py`), or files of this user alone (`secure_files.py`).
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

if sys.platform != "win32":
    import resource

_PR_SET_DUMPABLE = 4


def forbid_core_files() -> None:
    """Let this process leave no core file, which would hold every key and text in its memory.

    The limit alone is not enough: Linux ignores it where core files go to a program.
    """
    if sys.platform == "win32":
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def keep_what_was_loaded() -> None:
    """Never look for cycles in what was loaded: it stays.

    To go through it at the end took a fifth of a short command.
    """
    gc.freeze()


@contextmanager
def pause_collection() -> Iterator[None]:
    """Look for no cycles meanwhile, and never in what was loaded.

    To go through it each time that it had grown took a fifth of a start with large libraries.
    """
    gc.disable()
    try:
        yield
    finally:
        keep_what_was_loaded()
        gc.enable()
