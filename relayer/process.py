"""What every process that holds keys does to itself first.

Not here: what it does then (`serve.py`, `__main__.py`).
"""

import ctypes
import resource
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def forbid_core_files() -> None:
    """A core file would hold every key and text in memory.

    The limit alone is not enough: the kernel ignores it where core files go to a program.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
