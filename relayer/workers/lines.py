"""The messages between a supervisor and its workers: lines by a socket that only they hold.

Not here: who says what when (`supervisor.py`, `worker.py`).

- The unlock keys go this way because nobody else sees it: it is memory of the system, no disk, no
  environment, no command line. Settings go with them, since some are secrets, too.
"""

import json
import socket
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Final

from relayer.sealed.unlock import UnlockKey
from relayer.settings import Settings

READY: Final = b"ready\n"  # a worker: it answers requests
LEAVE: Final = b"leave\n"  # its supervisor: another has taken its place
CHANNELS: Final = "channels"  # among the numbers: a place, where it reads, and all channels
PRESENT: Final = b"present "  # a supervisor: at these places a worker answers
_READ_BYTES: Final = 2**16


def read_lines(line: socket.socket) -> Iterator[bytes]:
    """Yield the whole lines that come in, until the other end is gone or this one is shut."""
    rest = b""
    while more := line.recv(_READ_BYTES):
        *whole, rest = (rest + more).split(b"\n")
        yield from (one + b"\n" for one in whole)


def settings_line(settings: Settings) -> bytes:
    """Return the line of all settings."""
    values = {item.name: getattr(settings, item.name) for item in fields(settings)}
    return json.dumps(values, default=str).encode() + b"\n"


def read_settings(line: bytes) -> Settings:
    """Return the settings of a line; those that this release does not know are left out.

    A supervisor outlives the release that it was started from: SIGHUP renews its workers alone.
    """
    known = {item.name for item in fields(Settings)}
    values = {name: value for name, value in json.loads(line).items() if name in known}
    return Settings(**values | {"data_dir": Path(values["data_dir"])})


def keys_line(keys: Iterable[UnlockKey]) -> bytes:
    """Return the unlock keys of now, the oldest first."""
    values = [(key.private_key.hex(), key.public_key.hex(), key.not_after_ms) for key in keys]
    return json.dumps(values).encode() + b"\n"


def read_keys(line: bytes) -> list[UnlockKey]:
    """Return the unlock keys of a line."""
    return [
        UnlockKey(bytes.fromhex(private), bytes.fromhex(public), not_after_ms)
        for private, public, not_after_ms in json.loads(line)
    ]


def present_line(places: Iterable[int]) -> bytes:
    """Return the line of the places at which a worker answers."""
    return PRESENT + json.dumps(sorted(places)).encode() + b"\n"


def read_present(line: bytes) -> frozenset[int]:
    """Return the places of a line."""
    return frozenset(json.loads(line.removeprefix(PRESENT)))
