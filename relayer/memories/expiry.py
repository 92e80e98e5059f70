"""Letting memories expire: how long a namespace keeps them, and erasing those whose time is over.

Not here: a memory's own expiry (`writer.py`), erasing (`eraser.py`).

- Out of every answer from the second they expire; erased by the next round of housekeeping, on
  sealed accounts as well, since nothing has to be opened for it.
"""

import logging
from dataclasses import dataclass
from typing import Final

from relayer.clock import Clock
from relayer.database import expiry as rows
from relayer.database.pool import Database
from relayer.errors import NotFound, RelayerError
from relayer.memories.eraser import Eraser
from relayer.sealed.keys import AccountId, Namespace
from relayer.tenants.accounts import Access
from relayer.tenants.ledger import Ledger
from relayer.tenants.namespaces import Namespaces

log = logging.getLogger("relayer.expiry")

PAGE: Final = 500
PAGES_MAX: Final = 20  # of one account before the next has its turn
APPLIED_AT_ONCE: Final = 2_000
APPLIED_MAX: Final = 50_000  # of one request, whose deadline they have to meet


@dataclass(frozen=True)
class Kept:
    """The time for which a namespace keeps memories, and how many were given another end."""

    ttl_s: int | None
    changed: int
    more: bool


class Expiry:
    """Sets how long namespaces keep memories, and erases what has expired."""

    def __init__(
        self,
        *,
        database: Database,
        ledger: Ledger,
        namespaces: Namespaces,
        eraser: Eraser,
        clock: Clock,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._namespaces = namespaces
        self._eraser = eraser
        self._clock = clock

    async def keep(self, access: Access, namespace: Namespace, ttl_s: int | None) -> Kept:
        """Keep memories of a namespace for so many seconds from when they were stored.

        It counts for what is stored from now on at once, and for what is there, bounded: with
        `more`, asking again goes on. Pinned memories and earlier expiries of their own stay.

        Raises:
            NotAllowed: the key does not own the account.
            NotAuthenticated: it was revoked meanwhile; what was given another end before has it.
            NotFound: the namespace is not there.
        """
        access.require_owner()
        entry = await self._namespaces.find(access.account, namespace)
        if entry is None:
            raise NotFound("No such namespace.")
        account, number = access.account, entry.namespace_id
        await self._expire_episodes(account, number)
        async with self._ledger.change(access, as_owner=True) as change:
            if not await rows.set_ttl(
                change.connection, account=account, namespace_id=number, ttl_s=ttl_s
            ):
                raise NotFound("No such namespace.")
        total = 0
        while total < APPLIED_MAX:
            async with self._ledger.change(access, as_owner=True) as change:
                changed = await rows.apply_ttl(
                    change.connection,
                    account=account,
                    namespace_id=number,
                    ttl_s=ttl_s,
                    now=change.time,
                    limit=APPLIED_AT_ONCE,
                )
            total += changed
            if changed < APPLIED_AT_ONCE:
                return Kept(ttl_s, total, more=False)
        return Kept(ttl_s, total, more=True)

    async def _expire_episodes(self, account: AccountId, number: int) -> None:
        """Erase a namespace's episodes whose time is over: as their end is stored nowhere, a longer
        time would bring them back."""
        while ids := await rows.find_expired_episodes(
            self._database, account=account, namespace_id=number, now=self._clock(), limit=PAGE
        ):
            await self._eraser.expire(account, ids)

    async def expire(self) -> None:
        """Erase what has expired, of every account, bounded; the rest is for the next round."""
        for account in await rows.accounts_expired(self._database, now=self._clock()):
            try:
                await self._expire(account)
            except RelayerError as error:
                log.warning("expiry waits", extra={"event": "expiry.wait", "code": error.code})

    async def _expire(self, account: AccountId) -> None:
        for _ in range(PAGES_MAX):
            ids = await rows.find_expired(
                self._database, account=account, now=self._clock(), limit=PAGE
            )
            if not ids:
                return
            await self._eraser.expire(account, ids)
