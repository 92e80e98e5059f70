"""Captured turns that wait for the relayer: sealed, on disk, bounded.

It does not own what a turn is, or when it is delivered (`capture.py`).

A file `MICROSECONDS-KEY-RANDOM.turn` (16 decimal, 16 and 16 hexadecimal digits) holds one turn:

    version, 1 (1 byte) ‖ nonce (24) ‖ XChaCha20-Poly1305 of the padded turn

The associated data is the version and the file's name. Key and KEY are derived from the agent's
private key, so that a spool opens with that key only, and names tell nothing of what was said.

- A turn is on disk, whole and flushed, when `put` returns; a crash loses nothing after that.
- Beyond its bounds the oldest turns are dropped, counted in one warning.
- Where the disk cannot be written, and without a folder, turns wait in memory, in the same bounds.
- A damaged file is set aside as `.damaged`; files of other names are left alone.
"""

import contextlib
import logging
import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from nacl import bindings
from nacl.exceptions import CryptoError

from memrelay.errors import ConfigError, Invalid
from memrelay.sealed.envelope import padded, unpadded
from memrelay.sealed.keys import Identity, kdf, mac

log = logging.getLogger("memrelay.gateway")

_VERSION = b"\x01"
_NONCE_BYTES = 24
_WAITING = ".turn"
# Half-written files of a crash and damaged ones count, too, so that they are dropped in time.
_NAME = re.compile(r"\d{16}-[0-9a-f]{16}-[0-9a-f]{16}\.(turn|part|damaged)")


@dataclass(frozen=True, repr=False)
class SpoolKey:
    """What seals and names the turns of one agent's key."""

    secret: bytes
    name: str

    @classmethod
    def of(cls, identity: Identity) -> "SpoolKey":
        """Return the spool key of an identity."""
        secret = identity.derived("spool")
        return cls(kdf(secret, "seal"), mac(8, secret, "name").hex())


class Spool:
    """The turns that wait, in a folder, or in memory when there is none."""

    def __init__(self, folder: Path | None, *, bytes_max: int, turns_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._turns_max = turns_max
        self._memory: dict[str, bytes] = {}
        self._overflowing = False
        if folder is not None:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.chmod(0o700)
            except OSError as error:
                raise ConfigError(f"{folder} cannot be used: {error.strerror}.") from error

    def put(self, key: SpoolKey, turn: bytes) -> None:
        """Keep a turn until it is removed, or dropped for newer ones."""
        name = f"{time.time_ns() // 1000:016d}-{key.name}-{secrets.token_hex(8)}{_WAITING}"
        sealed = _seal(key, name, turn)
        try:
            if self._folder is None:
                self._memory[name] = sealed
            else:
                _write(self._folder, name, sealed)
        except OSError as error:
            log.warning("the spool cannot be written (%s)", type(error).__name__)
            self._memory[name] = sealed
        self._trim()

    def names(self, key: SpoolKey) -> list[str]:
        """Return the names of a key's waiting turns, oldest first."""
        return [
            name
            for name in sorted(self._sizes())
            if name.endswith(_WAITING) and name.split("-")[1] == key.name
        ]

    def get(self, key: SpoolKey, name: str) -> bytes | None:
        """Return a waiting turn; None if it is gone, or was damaged and is set aside now."""
        try:
            sealed = self._memory.get(name) or self._path(name).read_bytes()
        except OSError:
            return None  # another process delivered it meanwhile
        try:
            return _open(key, name, sealed)
        except (Invalid, CryptoError):
            log.warning("a waiting turn is damaged: its file is set aside")
            with contextlib.suppress(OSError):
                self._path(name).rename(self._path(name).with_suffix(".damaged"))
            return None

    def remove(self, name: str) -> None:
        """Forget a turn that was delivered."""
        if self._memory.pop(name, None) is None:
            with contextlib.suppress(OSError):
                self._path(name).unlink()

    def _path(self, name: str) -> Path:
        if self._folder is None:
            raise FileNotFoundError(name)
        return self._folder / name

    def _sizes(self) -> dict[str, int]:
        sizes = {name: len(sealed) for name, sealed in list(self._memory.items())}
        if self._folder is not None:
            with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
                for entry in entries:
                    if _NAME.fullmatch(entry.name):
                        with contextlib.suppress(OSError):
                            sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
        return sizes

    def _trim(self) -> None:
        sizes = self._sizes()
        left, total = len(sizes), sum(sizes.values())
        dropped = 0
        for name in sorted(sizes)[:-1]:  # the newest stays, however large it is
            if left <= self._turns_max and total <= self._bytes_max:
                break
            self.remove(name)
            left, total, dropped = left - 1, total - sizes[name], dropped + 1
        if dropped and not self._overflowing:
            log.warning("the spool is full: the oldest captured turns are dropped (%d)", dropped)
        self._overflowing = dropped > 0


def _seal(key: SpoolKey, name: str, turn: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    sealed = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
        padded(turn), _VERSION + name.encode(), nonce, key.secret
    )
    return _VERSION + nonce + sealed


def _open(key: SpoolKey, name: str, data: bytes) -> bytes:
    nonce, sealed = data[1 : 1 + _NONCE_BYTES], data[1 + _NONCE_BYTES :]
    # libsodium's binding wants whole nonces and tags before it looks at them.
    if data[:1] != _VERSION or len(sealed) < bindings.crypto_aead_xchacha20poly1305_ietf_ABYTES:
        raise Invalid("spool", "A waiting turn is no file of this version.")
    return unpadded(
        bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed, _VERSION + name.encode(), nonce, key.secret
        )
    )


def _write(folder: Path, name: str, data: bytes) -> None:
    part = (folder / name).with_suffix(".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.rename(folder / name)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
