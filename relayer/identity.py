"""The relayer's own key file: its key, and below it how it came to have that one.

Not here: what the key signs, and the steps of replacing it (`succession.py`). The file is the one
secret beside the database, so it has its own place and its own mode.

- The first line is the key. Below stand the `relayer-next` objects of the keys before it, oldest
  first: a key and its succession are replaced together or not at all.
- A key that is to come lies beside it until the accounts are ready for it; nothing else may be
  done with the relayer meanwhile.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from relayer.durable import create, sync
from relayer.sealed.keys import Identity
from relayer.sealed.primitives import from_base64, to_base64
from relayer.sealed.succession import keys_of

_NEXT: Final = ".next"


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
    lines = _lines(path)
    try:
        return Identity(bytes.fromhex(lines[0].strip()))
    except Exception:
        raise IdentityError(f"{path} does not hold 64 hex digits.") from None


def load_succession(path: Path) -> tuple[bytes, ...]:
    """The `relayer-next` objects that lead to the key in the file, oldest first.

    Raises:
        IdentityError: they do not lead to it.
    """
    identity = load_identity(path)
    try:
        objects = tuple(from_base64(line.strip()) for line in _lines(path)[1:])
        keys_of(objects, identity.public_key)
    except Exception:
        raise IdentityError(
            f"{path}: the lines below the key do not lead to it; put the whole file back."
        ) from None
    return objects


def next_path(path: Path) -> Path:
    """Where a relayer's next key waits."""
    return path.with_name(path.name + _NEXT)


def refuse_interrupted(path: Path) -> None:
    """Return unless the key is half replaced.

    Raises:
        IdentityError: it is; the message says how to go on.
    """
    if next_path(path).exists():
        raise IdentityError(
            f"The relayer's key is being replaced: {next_path(path)} is there. Run `relayer"
            " identity rotate` again, which goes on where it stopped."
        )


def write_next(path: Path, seed: bytes, succession: tuple[bytes, ...]) -> None:
    """Make the next key durable beside today's.

    Raises:
        FileExistsError: one waits already.
    """
    _write(next_path(path), "\n".join([seed.hex(), *map(to_base64, succession)]))


def replace_identity(path: Path) -> None:
    """Put the next key in the place of today's, which is gone then."""
    os.replace(next_path(path), path)
    sync(path.parent)


def _lines(path: Path) -> list[str]:
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise IdentityError(f"{path} is readable by others: chmod 600 it.")
    try:
        return path.read_text().strip().splitlines()
    except UnicodeDecodeError:
        raise IdentityError(f"{path} does not hold 64 hex digits.") from None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    create(path, f"{text}\n".encode())
