"""Where the server of a data folder is, for other commands on the same folder.

Not here: serving (`serve.py`).
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

RUNNING_FILE: Final = "relayer.json"


@contextlib.contextmanager
def announced(data_dir: Path, url: str, *, workers: int = 1) -> Iterator[None]:
    """Tell other commands on this folder where the server is, while it is there."""
    path = data_dir / RUNNING_FILE
    path.unlink(missing_ok=True)  # what a killed server left
    with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(json.dumps({"pid": os.getpid(), "url": url, "workers": workers}))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def running_url(data_dir: Path) -> str | None:
    """The URL of the server that serves this folder now, or None."""
    found = _running(data_dir)
    return None if found is None else str(found["url"])


def running_workers(data_dir: Path) -> int:
    """How many processes serve this folder now."""
    found = _running(data_dir)
    return 0 if found is None else int(found["workers"])


def _running(data_dir: Path) -> dict[str, Any] | None:
    try:
        announced: dict[str, Any] = json.loads((data_dir / RUNNING_FILE).read_text())
        os.kill(announced["pid"], 0)
        return {"url": announced["url"], "workers": announced.get("workers", 1)}
    except (OSError, ValueError, KeyError):
        return None
