"""Sealed bytes that were read lately, kept at hand in front of a store that is far away.

Not here: the stores (`store.py`, `buckets.py`).

- Only bytes that match their names are kept, as sealed as they came; at most `bytes_max` of them.
- What is deleted here is gone at once, also if a reading was under way. Another process does not
  hear of it: what it keeps, it keeps for `LIFE_S` at most, and answers with only where a row asks.
  Where a client names blobs itself (`tenants/proof.py`), the store `beneath` is read.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from relayer.blobs.store import BlobStore
from relayer.errors import Corrupted
from relayer.sealed.keys import AccountId
from relayer.telemetry.instruments import count_lookups

LIFE_S: Final = 300.0
_ENTRY_BYTES: Final = 256  # what an entry takes beside its bytes, roughly


def beneath(store: BlobStore) -> BlobStore:
    """Return the store itself, past what is kept of it."""
    return store.store if isinstance(store, CachedStore) else store


class CachedStore:
    """A store whose last readings are answered from memory."""

    def __init__(
        self,
        *,
        store: BlobStore,
        bytes_max: int,
        life_s: float = LIFE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self._bytes_max = bytes_max
        self._life_s = life_s
        self._now = now
        # The oldest first: what is asked for again does not become younger.
        self._kept: OrderedDict[tuple[AccountId, str], tuple[float, bytes]] = OrderedDict()
        self._bytes = 0
        self._deletions = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def transactional(self) -> bool:
        """Return true if blobs commit and vanish together with the rows that refer to them."""
        return self.store.transactional

    async def put_many(self, account: AccountId, blobs: Mapping[str, bytes]) -> None:
        """Store blobs durably; storing one again changes nothing."""
        deletions = self._deletions
        await self.store.put_many(account, blobs)
        self._keep(account, blobs, deletions)

    async def get_many(
        self, account: AccountId, names: Sequence[str]
    ) -> dict[str, bytes | Corrupted]:
        """Return the blobs that exist, each verified or the error that says why not."""
        found: dict[str, bytes | Corrupted] = {}
        for name in names:
            if (data := self._fresh(account, name)) is not None:
                found[name] = data
        count_lookups("blobs", len(found), len(set(names)))
        if missing := [name for name in names if name not in found]:
            deletions = self._deletions
            read = await self.store.get_many(account, missing)
            self._keep(
                account, {n: data for n, data in read.items() if isinstance(data, bytes)}, deletions
            )
            found |= read
        return found

    async def unreadable(self, account: AccountId, names: Sequence[str]) -> list[str]:
        """Return those of these, which were not read, that are there all the same."""
        return await self.store.unreadable(account, names)

    async def delete(self, account: AccountId, name: str) -> None:
        """Remove one blob; a missing one is no error."""
        self._forget((account, name))
        try:
            await self.store.delete(account, name)
        finally:
            # A reading that began meanwhile may have come first, and have been kept.
            self._forget((account, name))

    def names(self, account: AccountId, *, after: str = "") -> AsyncIterator[str]:
        """Yield every name of the account, or those behind one, in the store's own order."""
        return self.store.names(account, after=after)

    async def accounts(self) -> list[AccountId]:
        """Return every account that has objects here."""
        return await self.store.accounts()

    async def mark(self, account: AccountId, seq: int) -> None:
        """Remember that the account's history had come as far as this receipt."""
        await self.store.mark(account, seq)

    async def read_mark(self, account: AccountId) -> int:
        """Return the highest receipt number that was marked."""
        return await self.store.read_mark(account)

    async def unmark(self, account: AccountId) -> None:
        """Forget that, once nothing of the account is here any more."""
        await self.store.unmark(account)

    async def drop_drafts(self, account: AccountId, *, older_than: timedelta) -> bool:
        """Delete what crashes left of objects that were never there whole, if nobody can be putting
        them still; whether younger ones are there."""
        return await self.store.drop_drafts(account, older_than=older_than)

    def _fresh(self, account: AccountId, name: str) -> bytes | None:
        self._drop_old()
        entry = self._kept.get((account, name))
        return None if entry is None else entry[1]

    def _keep(self, account: AccountId, blobs: Mapping[str, bytes], deletions: int) -> None:
        """Keep blobs that were there when so much was deleted; if more is by now, keep none."""
        if deletions != self._deletions:
            return
        for name, data in blobs.items():
            self._drop((account, name))
            self._kept[account, name] = (self._now(), data)
            self._bytes += len(data) + _ENTRY_BYTES
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._kept)))
        if self._kept and self._timer is None:
            self._age()

    def _age(self) -> None:
        """Drop what is too old, now and from then on, also if nobody asks for anything."""
        self._drop_old()
        self._timer = None
        if self._kept:
            since, _ = next(iter(self._kept.values()))
            left_s = self._life_s - (self._now() - since)
            self._timer = asyncio.get_running_loop().call_later(left_s, self._age)

    def _drop_old(self) -> None:
        now = self._now()
        while self._kept:
            entry, (since, _) = next(iter(self._kept.items()))
            if now - since < self._life_s:
                return
            self._drop(entry)

    def _forget(self, entry: tuple[AccountId, str]) -> None:
        self._deletions += 1
        self._drop(entry)

    def _drop(self, entry: tuple[AccountId, str]) -> None:
        if (dropped := self._kept.pop(entry, None)) is not None:
            self._bytes -= len(dropped[1]) + _ENTRY_BYTES
