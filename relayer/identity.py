"""The relayer's own key file: its key, and below it how it came to have that one.

Not here: what the key signs, and the steps of replacing it (`upkeep/succession.py`). The file is
the one secret beside the database, so it has its own place and its own mode.

- The first line is the key. Below stand the `relayer-next` objects of the keys before it, oldest
  first: a key and its succession are replaced together or not at all.
- Further below stand keys that did not lead to it and are lost: their accounts it took over.
- A key that is to come lies beside it until the accounts are ready for it; nothing else may be
  done with the relayer meanwhile.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from relayer.durable import create, replace, sync
from relayer.sealed.keys import Identity, PublicKey, parse_public_key
from relayer.sealed.primitives import CryptoError, from_base64, to_base64
from relayer.sealed.succession import keys_of

_NEXT: Final = ".next"
_TAKEN_OVER: Final = "took over "


class IdentityError(Exception):
    """The key file cannot be used; the message says what to do."""


def make_identity(path: Path) -> Identity:
    """Return the identity in the file; a new one, durable before it is used, where there is none.

    Raises:
        IdentityError: the file cannot be written, is readable by others, or is not a key.
    """
    if not path.exists():
        with suppress(FileExistsError):  # another process was first: then its key counts
            _write(path, os.urandom(32).hex())
    return load_identity(path)


def load_identity(path: Path) -> Identity:
    """Return the identity in the file.

    Raises:
        IdentityError: the file is not there, is readable by others, or is not a key.
    """
    lines = _lines(path)
    try:
        return Identity(bytes.fromhex(lines[0].strip()))
    except Exception:
        raise IdentityError(f"{path} does not hold 64 hex digits.") from None


def load_succession(path: Path) -> tuple[bytes, ...]:
    """Return the `relayer-next` objects that lead to the key in the file, oldest first.

    Raises:
        IdentityError: they do not lead to it.
    """
    identity = load_identity(path)
    try:
        below = (line for line in _lines(path)[1:] if not line.startswith(_TAKEN_OVER))
        objects = tuple(from_base64(line.strip()) for line in below)
        keys_of(objects, identity.public_key)
    except Exception:
        raise IdentityError(
            f"{path}: the lines below the key do not lead to it; put the whole file back."
        ) from None
    return objects


def load_taken_over(path: Path) -> tuple[PublicKey, ...]:
    """Return the keys whose accounts the key in the file took over.

    Raises:
        IdentityError: a line of them is no key.
    """
    try:
        return tuple(
            parse_public_key(line.removeprefix(_TAKEN_OVER).strip()) for line in _take_over(path)
        )
    except CryptoError:
        raise IdentityError(f"{path}: a key that was taken over is none.") from None


def take_over(path: Path, keys: Iterable[PublicKey]) -> None:
    """Let the key in the file go on with accounts of these keys, which are lost.

    Raises:
        IdentityError: the file cannot be written.
    """
    known = load_taken_over(path)
    lines = _lines(path) + [_TAKEN_OVER + key.hex() for key in keys if key not in known]
    with _explain(path):
        replace(path, "".join(f"{line}\n" for line in lines).encode())


def next_path(path: Path) -> Path:
    """Return the path where a relayer's next key waits."""
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
    lines = [seed.hex(), *map(to_base64, succession), *_take_over(path)]
    _write(next_path(path), "\n".join(lines))


def replace_identity(path: Path) -> None:
    """Put the next key in the place of today's, which is gone then."""
    os.replace(next_path(path), path)
    sync(path.parent)


def _take_over(path: Path) -> list[str]:
    return [line for line in _lines(path)[1:] if line.startswith(_TAKEN_OVER)]


def _lines(path: Path) -> list[str]:
    with _explain(path):
        mode, data = path.stat().st_mode, path.read_bytes()
    if stat.S_IMODE(mode) & 0o077:
        raise IdentityError(f"{path} is readable by others: chmod 600 it.")
    try:
        return data.decode().strip().splitlines()
    except UnicodeDecodeError:
        raise IdentityError(f"{path} does not hold 64 hex digits.") from None


def _write(path: Path, text: str) -> None:
    with _explain(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        create(path, f"{text}\n".encode())


@contextmanager
def _explain(path: Path) -> Iterator[None]:
    """Say of a file that cannot be used which one it is; that one is there already stays as it is.

    Raises:
        IdentityError: the system refuses it.
    """
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise IdentityError(f"cannot use the relayer's key {path}: {error.strerror}.") from None
