"""The unlock keys of a process: made by itself, or handed down by the process that started it.

Not here: the header that they open (`sealed.unlock`), what is lent in it (`custody.py`).

- In memory only. A key that is over is forgotten, so that nothing opens what was recorded before.
"""

from collections.abc import Sequence
from typing import Protocol

from relayer.sealed.unlock import UnlockKey, generate_unlock_key
from relayer.settings import Limits


class UnlockKeys(Protocol):
    """The source of the unlock keys."""

    def live(self, now_ms: int) -> dict[bytes, UnlockKey]:
        """Return those that open headers now, by kid, the oldest first."""


class MadeKeys:
    """Keys of its own; a new one is made in time for the old one's overlap."""

    def __init__(self) -> None:
        self._keys: dict[bytes, UnlockKey] = {}

    def live(self, now_ms: int) -> dict[bytes, UnlockKey]:
        """Return those that open headers now, by kid, the oldest first."""
        live = {k: v for k, v in self._keys.items() if v.not_after_ms > now_ms}
        overlap_ms = Limits.unlock_key_overlap_s * 1000
        if all(key.not_after_ms - now_ms <= overlap_ms for key in live.values()):
            fresh = generate_unlock_key(not_after_ms=now_ms + Limits.unlock_key_life_s * 1000)
            live[fresh.kid] = fresh
        self._keys = live
        return live


class HandedKeys:
    """Keys of another process, which says when there is a new one. Without any, nothing opens."""

    def __init__(self, keys: Sequence[UnlockKey]) -> None:
        self.take(keys)

    def take(self, keys: Sequence[UnlockKey]) -> None:
        """Use these from now on."""
        self._keys = {key.kid: key for key in keys}

    def live(self, now_ms: int) -> dict[bytes, UnlockKey]:
        """Return those that open headers now, by kid, the oldest first."""
        self._keys = {k: v for k, v in self._keys.items() if v.not_after_ms > now_ms}
        return self._keys
