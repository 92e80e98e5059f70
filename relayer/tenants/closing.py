"""Erasing an account: closed at once, emptied piece by piece, never to be founded again.

Not here: forgetting memories of an account that lives on (`memories/deletion.py`).

- One transaction closes it: from then on no key of it is known and no writer can lock it, on any
  replica. Its last receipt says so; nothing follows.
- What was stored goes afterwards, in bounded steps that may be interrupted anywhere. A blob that
  was on its way into an outside store when the account was closed stays noted until it has come.
- Kept are the account's id, with the last receipt here and in the journal.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from relayer.blobs.store import BlobStore
from relayer.clock import Clock
from relayer.database import accounts as account_rows
from relayer.database import closing as rows
from relayer.database.pool import Database
from relayer.errors import NotFound, RelayerError
from relayer.journal.outbox import Outbox
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.keys import AccountId, PublicKey
from relayer.tenants.accounts import Access, unasked
from relayer.tenants.ledger import Ledger

log = logging.getLogger("relayer.closing")

CLOSE: Final = "close"
PAGE: Final = 500
DELETED_AT_ONCE: Final = 16  # objects of a store that may be far away
ROUNDS_AT_ONCE: Final = 4  # in the request that closes
ROUNDS_MAX: Final = 100  # of one account before the next has its turn


@dataclass(frozen=True)
class Closed:
    """A closed account: how many memories it had, whether some still have to go, the receipt."""

    memories: int
    pending: bool
    receipt: bytes


class Closing:
    """Closes accounts and empties them."""

    def __init__(
        self,
        *,
        database: Database,
        ledger: Ledger,
        blobs: BlobStore,
        outbox: Outbox,
        clock: Clock,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._blobs = blobs
        self._outbox = outbox
        self._clock = clock

    async def close(self, access: Access) -> Closed:
        """Erase the account of an owner.

        Raises:
            NotAllowed: the key does not own it.
            NotAuthenticated: it was revoked meanwhile.
            NotFound: it is gone.
        """
        access.require_owner()
        return await self._close(access, as_owner=True)

    async def close_account(self, account: AccountId, actor: PublicKey) -> Closed:
        """Erase an account, whose operator or journal says so.

        Raises:
            NotFound: it is gone.
        """
        return await self._close(unasked(account, actor, self._clock()), as_owner=False)

    async def _close(self, access: Access, *, as_owner: bool) -> Closed:
        account = access.account
        row = await account_rows.find_account(self._database, account)
        async with self._ledger.change(access, op=CLOSE, as_owner=as_owner) as change:
            assert row is not None  # what is locked is there
            seq, receipt = change.sign_items(())
            await rows.close(
                change.connection,
                account=account,
                now=change.time,
                seq=seq,
                receipt=receipt,
                receipt_head=change.receipt_head,
                receipt_blob_id=blob_hash(blob_id(receipt)),
            )
            change.has_objects = True
        emptied = await self._empty_soon(account)
        return Closed(row["memory_count"], not emptied, receipt)

    async def _empty_soon(self, account: AccountId) -> bool:
        """Begin now; what was committed is not undone by a store that is away."""
        try:
            return await self._empty(account, ROUNDS_AT_ONCE)
        except RelayerError as error:
            log.warning("emptying waits", extra={"event": "closing.wait", "code": error.code})
            return False

    async def purge(self) -> None:
        """Go on emptying closed accounts, bounded; the rest is for the next round."""
        for account in await rows.find_unpurged(self._database):
            try:
                await self._empty(account, ROUNDS_MAX)
            except RelayerError as error:
                log.warning("emptying waits", extra={"event": "closing.wait", "code": error.code})

    async def _empty(self, account: AccountId, rounds: int) -> bool:
        """Delete what the account has left; true if only its id and its last receipt remain."""
        receipt = await rows.last_receipt(self._database, account)
        if receipt is None:
            raise NotFound("No such account.")
        kept = blob_id(receipt)
        for _ in range(rounds):
            deleted = await rows.empty(
                self._database,
                account=account,
                receipt_blob_id=blob_hash(kept),
                limit=PAGE,
                now=self._clock(),
            )
            deleted += await self._empty_store(account, kept)
            if not deleted:
                if await self._outbox.waits(account):
                    return False
                await rows.set_purged(self._database, account=account, now=self._clock())
                return True
        return False

    async def _empty_store(self, account: AccountId, kept: str) -> int:
        """Delete some of an outside store's objects; how many."""
        doomed: list[str] = []
        if self._outbox.outside:
            async for name in self._blobs.names(account):
                if len(doomed) == PAGE:
                    break
                if name != kept:
                    doomed.append(name)
        for at in range(0, len(doomed), DELETED_AT_ONCE):
            some = doomed[at : at + DELETED_AT_ONCE]
            await asyncio.gather(*(self._blobs.delete(account, name) for name in some))
        return len(doomed)
