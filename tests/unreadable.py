"""Files and folders that the system does not let be read, by root neither."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def make_unreadable(folder: Path, name: str) -> Callable[[], object]:
    """Put something that cannot be read in a file's place, for root neither; what puts it back."""
    [path] = folder.rglob(name)
    aside = path.rename(folder / "aside")
    path.mkdir()

    def back() -> None:
        path.rmdir()
        aside.rename(path)

    return back


def refuse_listing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the system refuse to say which names a folder has, though they can be opened."""
    scandir, listdir = os.scandir, os.listdir

    def refused(real: Callable[..., Any], path: Any) -> Any:
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", lambda path=".": refused(scandir, path))
    monkeypatch.setattr(os, "listdir", lambda path=".": refused(listdir, path))
