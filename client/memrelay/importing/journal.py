"""Remembers which parts of conversations earlier runs analyzed, in a file beside the profile.

It does not own the sending (`analyzing.py`).

- A relayer knows a repeated request for a day. A long import outlives that, and people export all
  their conversations again every month: no part is to cost a model's time twice.
- A line is the keyed hash of a part and its namespace, under a key that is derived from the
  client's own: it tells nobody what was said.
- Where the file cannot be read or written, parts are sent again; the relayer stores no fact twice.
"""

import os
from pathlib import Path
from typing import Final

from memrelay.sealed.keys import Identity, mac

_HASH_BYTES: Final = 16
_FILE_BYTES_MAX: Final = 256 << 20
_SUFFIX: Final = ".imported"


class Journal:
    """The parts that one key had analyzed, over all its runs."""

    def __init__(self, identity: Identity, seen_path: Path | None) -> None:
        self._key = identity.derived("imported")
        self._path = None
        if seen_path is not None:
            self._path = seen_path.with_name(seen_path.name.removesuffix(".seen.json") + _SUFFIX)
        self._lines = self._read()

    def _read(self) -> set[str]:
        try:
            if self._path is None or self._path.stat().st_size > _FILE_BYTES_MAX:
                return set()
            return set(self._path.read_text(encoding="ascii", errors="replace").split())
        except OSError:
            return set()

    def name(self, namespace: str, identity: str, text: str) -> str:
        """Return what a part is known again by: also its idempotency key."""
        parts = (namespace, identity, text)
        return mac(_HASH_BYTES, self._key, "part", *(part.encode() for part in parts)).hex()

    def __contains__(self, name: str) -> bool:
        return name in self._lines

    def add(self, name: str) -> None:
        """Note that a part was analyzed."""
        self._lines.add(name)
        if self._path is None:
            return
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            descriptor = os.open(self._path, flags, 0o600)
            try:
                os.write(descriptor, f"{name}\n".encode())
            finally:
                os.close(descriptor)
        except OSError:
            self._path = None
