"""Captured turns that wait for the relayer: sealed, on disk, bounded.

It does not own what a turn is, or when it is delivered (`capture.py`).

A file `MICROSECONDS-KEY-RANDOM.turn` (16 decimal, 16 and 16 hexadecimal digits) holds one turn:

    version, 1 (1 byte) ‖ nonce (24) ‖ XChaCha20-Poly1305 of the padded turn

The associated data is the version and the file's name. Key and KEY are derived from the agent's
private key, so that a spool opens with that key only, and names tell nothing of what was said.

- A turn is on disk, whole and flushed, when `put` returns; a crash loses nothing after that.
- Beyond its bounds, which each key has for itself, the oldest turns are dropped: one warning begins
  that, one with their number ends it.
- Where the disk cannot be written, and without a folder, turns wait in memory, in the same bounds;
  they go to disk with the next one for which there is room.
- A folder that others may read is refused.
- A damaged file is set aside as `.damaged`; files of other names are left alone.
"""

import contextlib
import copy
import logging
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nacl import bindings
from nacl.exceptions import CryptoError

from memrelay.errors import ConfigError, Invalid
from memrelay.sealed.envelope import pad, unpad
from memrelay.sealed.keys import Identity, Secret, kdf, mac
from memrelay.secure_files import make_private_folder, sync_folder

log = logging.getLogger("memrelay.gateway")

_VERSION = b"\x01"
_NONCE_BYTES = 24
_WAITING = ".turn"
# Half-written files of a crash and damaged ones count, too, so that they are dropped in time.
_NAME = re.compile(r"(\d{16})-[0-9a-f]{16}-[0-9a-f]{16}\.(turn|part|damaged)")


@dataclass(frozen=True, repr=False)
class SpoolKey:
    """The key that seals and names the turns of one agent's key."""

    secret: bytes
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "secret", Secret(self.secret))

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
        self._lock = threading.Lock()  # of keeping a turn, which may drop others
        self._unwritable = False
        self._dropped = 0
        if folder is not None:
            self._prepare(folder)

    def _prepare(self, folder: Path) -> None:
        try:
            make_private_folder(folder)
        except (FileExistsError, NotADirectoryError) as error:
            raise ConfigError(f"{folder} cannot be used: {error.strerror}.") from error
        except OSError as error:
            self._tell_unwritable(error)
            return
        status = folder.stat()
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            raise ConfigError(f"{folder} belongs to another user.")
        if os.name == "posix" and stat.S_IMODE(status.st_mode) & 0o077:
            # It may be any folder that somebody named: its mode is theirs to change.
            raise ConfigError(f"Others may read {folder}; run `chmod 700 {folder}`.")

    def anew(self) -> "Spool":
        """Return the same folder's spool for another event loop or a forked process.

        What waits in memory waits in both, and is captured once.
        """
        other = copy.copy(self)
        other._memory = dict(self._memory)
        other._lock = threading.Lock()  # that one may have been held at the fork
        return other

    def put(self, key: SpoolKey, turn: bytes) -> None:
        """Keep a turn until it is removed, or dropped for newer ones."""
        name = f"{time.time_ns() // 1000:016d}-{key.name}-{secrets.token_hex(8)}{_WAITING}"
        sealed = _seal(key, name, turn)
        with self._lock:
            try:
                self._keep(name, sealed)
            except OSError as error:
                self._tell_unwritable(error)
                self._memory[name] = sealed
            else:
                self._unwritable = False
                with contextlib.suppress(OSError):
                    self._write_back()
            self._trim(name)

    def reseal(self, old: Identity, new: Identity) -> int:
        """Seal the waiting turns of a key for the key that follows it; return how many.

        A turn is removed under the old key only when it is whole under the new one: after a crash,
        another run does the rest. If a process delivers a turn with the old key meanwhile, the new
        one delivers it again. The relayer tells repeated requests apart for each key by itself, so
        facts that come out in other words are then stored twice; none is lost.

        Raises:
            ConfigError: the disk cannot be written; what is left waits under the old key.
        """
        count, key, next_key = 0, SpoolKey.of(old), SpoolKey.of(new)
        for name in self.names(key):
            turn = self.get(key, name)
            if turn is not None:
                renamed = name.replace(f"-{key.name}-", f"-{next_key.name}-")
                try:
                    self._keep(renamed, _seal(next_key, renamed, turn))
                except OSError as error:
                    message = f"{self._folder} cannot be written: {error.strerror}."
                    raise ConfigError(message) from error
                self.remove(name)
                count += 1
        return count

    def _keep(self, name: str, sealed: bytes) -> None:
        if self._folder is None:
            self._memory[name] = sealed
        else:
            _write_in(self._folder, name, sealed)

    def _write_back(self) -> None:
        """Put on disk what waited in memory for that."""
        if self._folder is None:
            return
        for name, sealed in sorted(self._memory.items()):
            _write_in(self._folder, name, sealed)
            if self._memory.pop(name, None) is None:  # delivered meanwhile
                self.remove(name)

    def close(self) -> None:
        """Put on disk what is not; say what is lost, and how many were dropped if nobody did."""
        with self._lock:
            try:
                self._write_back()
            except OSError:
                log.warning("captured turns that waited in memory are lost (%d)", len(self._memory))
            self._tell_dropped()

    def names(self, key: SpoolKey) -> list[str]:
        """Return the names of a key's waiting turns, oldest first."""
        return [
            name
            for name in sorted(self._sizes())
            if name.endswith(_WAITING) and key_of(name) == key.name
        ]

    def strangers(self, keys: Iterable[SpoolKey]) -> int:
        """Return how many turns wait for other keys than these."""
        here = {key.name for key in keys}
        return sum(name.endswith(_WAITING) and key_of(name) not in here for name in self._sizes())

    def get(self, key: SpoolKey, name: str) -> bytes | None:
        """Return a waiting turn; None if it is gone, or was damaged and is set aside now."""
        try:
            sealed = self._memory.get(name) or self._path(name).read_bytes()
        except OSError:
            return None  # another process delivered it meanwhile
        try:
            return _open(key, name, sealed)
        except (Invalid, CryptoError):
            self.set_aside(name)
            return None

    def set_aside(self, name: str) -> None:
        """Make a turn that cannot be read wait no more, and keep its file for people."""
        log.warning("a waiting turn is damaged: its file is set aside")
        if self._memory.pop(name, None) is None:
            with contextlib.suppress(OSError):
                self._path(name).rename(self._path(name).with_suffix(".damaged"))

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

    def _trim(self, newest: str) -> None:
        """Drop a key's oldest turns beyond the bounds, but not the newest, however large it is."""
        key = key_of(newest)
        sizes = {name: size for name, size in self._sizes().items() if key_of(name) == key}
        left, total = len(sizes), sum(sizes.values())
        dropped = 0
        for name in sorted(sizes):
            if left <= self._turns_max and total <= self._bytes_max:
                break
            if name != newest:  # which sorts anywhere after the clock was set back
                self.remove(name)
                left, total, dropped = left - 1, total - sizes[name], dropped + 1
        if not dropped:
            self._tell_dropped()
        elif not self._dropped:
            log.warning("the spool is full: the oldest captured turns are dropped")
        self._dropped += dropped

    def _tell_dropped(self) -> None:
        if self._dropped:
            log.warning("captured turns were dropped while the spool was full (%d)", self._dropped)
        self._dropped = 0

    def _tell_unwritable(self, error: OSError) -> None:
        if not self._unwritable:
            log.warning("the spool cannot be written (%s)", type(error).__name__)
        self._unwritable = True


def find_kept_time(name: str) -> float | None:
    """Return when a turn's file was named, in seconds of Unix time; None if it waits no more."""
    match = _NAME.fullmatch(name) if name.endswith(_WAITING) else None
    return int(match[1]) / 1_000_000 if match else None


def key_of(name: str) -> str:
    """Return the name of the key that a turn's file is sealed for."""
    return name.split("-")[1]


def _seal(key: SpoolKey, name: str, turn: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    sealed = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
        pad(turn), _VERSION + name.encode(), nonce, key.secret
    )
    return _VERSION + nonce + sealed


def _open(key: SpoolKey, name: str, data: bytes) -> bytes:
    nonce, sealed = data[1 : 1 + _NONCE_BYTES], data[1 + _NONCE_BYTES :]
    # libsodium's binding wants whole nonces and tags before it looks at them.
    if data[:1] != _VERSION or len(sealed) < bindings.crypto_aead_xchacha20poly1305_ietf_ABYTES:
        raise Invalid("spool", "A waiting turn is no file of this version.")
    return unpad(
        bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed, _VERSION + name.encode(), nonce, key.secret
        )
    )


def _write_in(folder: Path, name: str, data: bytes) -> None:
    try:
        _write(folder, name, data)
    except FileNotFoundError:  # removed since, or there was no room for it at the start
        make_private_folder(folder)
        _write(folder, name, data)


def _write(folder: Path, name: str, data: bytes) -> None:
    part = (folder / name).with_suffix(".part")
    part.unlink(missing_ok=True)  # a crash may have left it
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
    sync_folder(folder)
