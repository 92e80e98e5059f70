"""Files that a crash leaves whole or not there at all.

Not here: what is in them; a file that another program writes is only synced here.

- A file gets its name when its bytes are on disk: under it there is all of them or nothing.
- A file is its owner's alone, whatever the umask.
- A name outlives a power cut once its folder is synced, too.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

DRAFT: Final = ".new-"  # what an unfinished file's name begins with; a crash may leave one


def create(path: Path, data: bytes) -> None:
    """Write a new file, which is there for good when this returns.

    Raises:
        FileExistsError: there is one, which stays as it is.
    """
    place(path, data)
    sync(path.parent)


def place(path: Path, data: bytes) -> None:
    """Write a new file, for a caller that syncs the folder when it has placed the others, too.

    Raises:
        FileExistsError: there is one, which stays as it is.
    """
    with _draft(path.parent, data) as draft:
        os.link(draft, path)  # unlike a rename, this never replaces


def replace(path: Path, data: bytes) -> None:
    """Write a file in place of what was there, which is gone for good when this returns."""
    with _draft(path.parent, data) as draft:
        os.replace(draft, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Return when what a file holds, or which names a folder has, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def drop_drafts(folder: Path, older_than: timedelta) -> bool:
    """Delete what of a folder's files nobody finished in that time; whether younger ones are there.

    Whoever is that slow finds its draft gone, and fails. An absent folder has none.

    Raises:
        OSError: the folder cannot be listed, or a file not be deleted.
    """
    began = time.time() - older_than.total_seconds()  # a file's times are the system's own
    dropped = young = False
    for draft in _drafts(folder):
        with suppress(FileNotFoundError):  # it was finished, or dropped, just now
            if draft.lstat().st_mtime > began:
                young = True
            else:
                draft.unlink()
                dropped = True
    if dropped:
        sync(folder)
    return young


def _drafts(folder: Path) -> list[Path]:
    with suppress(FileNotFoundError):
        return [path for path in folder.iterdir() if path.name.startswith(DRAFT)]
    return []


@contextmanager
def _draft(folder: Path, data: bytes) -> Iterator[str]:
    descriptor, draft = tempfile.mkstemp(dir=folder, prefix=DRAFT)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield draft
    finally:
        with suppress(FileNotFoundError):  # a rename has taken it
            os.unlink(draft)
