"""What every process that holds keys, or serves, does to itself first.

Not here: what it does then (`serve.py`, `__main__.py`).
"""

import contextlib
import ctypes
import gc
import os
import resource
import sys
from collections.abc import Iterator
from typing import Final

_PR_SET_DUMPABLE: Final = 4
YOUNG_MAX: Final = 10_000


def forbid_core_files() -> None:
    """A core file would hold every key and text in memory.

    The limit alone is not enough: the kernel ignores it where core files go to a program.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def stand_in_for_streams() -> None:
    """Open nothing for each standard stream that is closed.

    Else the next file or socket would get its number, and what is printed would go there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one


@contextlib.contextmanager
def loading() -> Iterator[None]:
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
