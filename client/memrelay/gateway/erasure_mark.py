"""The time at which a key last erased a memory on this machine, for processes that know no session.

It does not own the erasures of a gateway that lives on (`erasures.py`). The file beside the profile
is empty; its time is all that it tells.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

from memrelay.config import Settings


def note_erasure(settings: Settings) -> None:
    """Note that a memory is about to be erased with this key."""
    path = _path(settings)
    if path is not None:
        with suppress(OSError):  # then that turn may be captured, as without this file
            path.touch(mode=0o600)
            os.utime(path, ns=(time.time_ns(), time.time_ns()))


def has_erased_since(settings: Settings, at: float) -> bool:
    """Return whether a memory was erased with this key at or after a time of Unix."""
    path = _path(settings)
    try:
        return path is not None and path.stat().st_mtime_ns >= int(at * 1e9)
    except OSError:
        return False


def _path(settings: Settings) -> Path | None:
    seen = settings.seen_path
    return None if seen is None else seen.with_name(f"{seen.stem}.erased")
