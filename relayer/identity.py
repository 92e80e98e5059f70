"""The relayer's own key file.

Not here: what the key signs. The file is the one secret beside the database, so it has its own
place and its own mode.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from relayer.sealed.keys import Identity


class IdentityError(Exception):
    """The key file cannot be used; the message says what to do."""


def load_identity(path: Path) -> Identity:
    """The identity in the file; a new one, durable before it is used, where there is none.

    Raises:
        IdentityError: the file is readable by others, or is not a key.
    """
    if not path.exists():
        with suppress(FileExistsError):  # another process was first: then its key counts
            _write(path, os.urandom(32).hex())
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise IdentityError(f"{path} is readable by others: chmod 600 it.")
    try:
        return Identity(bytes.fromhex(path.read_text().strip()))
    except Exception:
        raise IdentityError(f"{path} does not hold 64 hex digits.") from None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    finally:
        temporary.unlink()
