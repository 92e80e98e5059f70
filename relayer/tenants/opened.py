"""Unlock headers that were opened a moment ago: clients send the same one many times.

Not here: how one is opened (`sealed.unlock`), what its sender may lend (`custody.py`).
"""

from collections import OrderedDict
from typing import Final

from relayer.sealed.unlock import Unlock
from relayer.settings import Limits
from relayer.telemetry.instruments import looked_up

# Of all headers together, half a KiB each: one header has up to a hundred times as many as another.
KEYS_MAX: Final = 20_000


class OpenedUnlocks:
    """What headers held, by a digest of header and sender, as long as they count."""

    def __init__(self) -> None:
        self._opened: OrderedDict[bytes, Unlock] = OrderedDict()
        self._keys = 0

    def of(self, digest: bytes, now_ms: int) -> Unlock | None:
        """What was kept of a header that still counts."""
        unlock = self._opened.get(digest)
        if unlock is not None and not _counts(unlock, now_ms):
            unlock = None
        looked_up("unlocks", unlock is not None)
        return unlock

    def keep(self, digest: bytes, unlock: Unlock) -> None:
        """Keep it, if need be in the place of what was kept longest ago."""
        self._drop(digest)
        self._opened[digest] = unlock
        self._keys += len(unlock.keys)
        while self._keys > KEYS_MAX:
            self._drop(next(iter(self._opened)))

    def forget_expired(self, now_ms: int) -> None:
        """Drop what counts no longer."""
        for digest in [d for d, u in self._opened.items() if not _counts(u, now_ms)]:
            self._drop(digest)

    def _drop(self, digest: bytes) -> None:
        if (unlock := self._opened.pop(digest, None)) is not None:
            self._keys -= len(unlock.keys)


def _counts(unlock: Unlock, now_ms: int) -> bool:
    return abs(now_ms - unlock.issued_ms) <= Limits.clock_skew_s_max * 1000
