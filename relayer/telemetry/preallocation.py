"""Room on disk for what a worker counts, taken before the library that writes there is imported.

Not here: what is counted (`instruments.py`), who asks for the sums (`monitoring/exposition.py`).

- Workers share counts by files that the library makes sparse and writes to as memory: on a full
  disk that is no error but a signal, which ends the process. So their blocks are there before.
- A worker that gets no room counts for itself alone and serves all the same.
"""

import os
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Final

COUNTS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"  # the folder of the files; set in workers alone
FILE_BYTES: Final = 4 * 2**20  # of each file; several times what the series there are take
KINDS: Final = ("counter", "histogram", "gauge_livesum")  # a file each, by the library's names


def preallocate(environment: MutableMapping[str, str]) -> None:
    """Make this process's files as large as they become, or have it share no counts."""
    if (folder := environment.get(COUNTS_FOLDER)) is None:
        return
    files = [Path(folder, f"{kind}_{os.getpid()}.db") for kind in KINDS]
    try:
        for path in files:
            _fill(path)
    except OSError:
        del environment[COUNTS_FOLDER]
        for path in files:
            with suppress(OSError):
                path.unlink()


def _fill(path: Path) -> None:
    """Write the file under another name first: whoever reads all of them trips over a short one."""
    if path.exists():
        return  # of a worker that had the same number: its counts go on
    beside = path.with_suffix(".new")
    try:
        with beside.open("wb") as file:
            file.write(bytes(FILE_BYTES))
            os.fsync(file.fileno())  # else the system may find out later that there is no room
        beside.rename(path)
    finally:
        beside.unlink(missing_ok=True)
