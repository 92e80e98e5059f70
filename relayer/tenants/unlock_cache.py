"""Unlock headers that were opened a moment ago: clients send the same one many times.

Not here: how one is opened (`sealed.unlock`), what its sender may lend (`custody.py`).

- When there are too many keys, the account that has most of them loses its oldest header: one
  account cannot push out what is kept of another, however many headers it sends.
"""

from dataclasses import dataclass, field
from typing import Final

from relayer.sealed.keys import AccountId
from relayer.sealed.unlock import Unlock
from relayer.settings import Limits
from relayer.telemetry.instruments import count_lookups

# Of all headers together, half a KiB each: one header has up to a hundred times as many as another.
KEYS_MAX: Final = 20_000


@dataclass
class _Share:
    """The cache's part of one account: digests of headers, oldest first, and the count of keys."""

    digests: dict[bytes, None] = field(default_factory=dict)
    keys: int = 0


class UnlockCache:
    """Opened headers, by a digest of header and sender, as long as they count."""

    def __init__(self) -> None:
        self._opened: dict[bytes, tuple[AccountId, Unlock]] = {}
        self._shares: dict[AccountId, _Share] = {}
        self._keys = 0

    def of(self, digest: bytes, now_ms: int) -> Unlock | None:
        """Return the unlock of a header that still counts, or None."""
        _, unlock = self._opened.get(digest, (None, None))
        if unlock is not None and not _counts(unlock, now_ms):
            unlock = None
        count_lookups("unlocks", unlock is not None)
        return unlock

    def keep(self, account: AccountId, digest: bytes, unlock: Unlock) -> None:
        """Keep it, if need be in the place of what the account with most keys sent longest ago."""
        self._drop(digest)
        self._opened[digest] = account, unlock
        share = self._shares.setdefault(account, _Share())
        share.digests[digest] = None
        share.keys += len(unlock.keys)
        self._keys += len(unlock.keys)
        while self._keys > KEYS_MAX:
            largest = max(self._shares.values(), key=lambda one: one.keys)
            self._drop(next(iter(largest.digests)))

    def forget_expired(self, now_ms: int) -> None:
        """Drop what counts no longer."""
        for digest in [d for d, (_, u) in self._opened.items() if not _counts(u, now_ms)]:
            self._drop(digest)

    def _drop(self, digest: bytes) -> None:
        account, unlock = self._opened.pop(digest, (None, None))
        if account is None or unlock is None:
            return
        share = self._shares[account]
        del share.digests[digest]
        share.keys -= len(unlock.keys)
        self._keys -= len(unlock.keys)
        if not share.digests:
            del self._shares[account]


def _counts(unlock: Unlock, now_ms: int) -> bool:
    return abs(now_ms - unlock.issued_ms) <= Limits.clock_skew_s_max * 1000
