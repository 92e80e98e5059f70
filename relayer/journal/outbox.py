"""Keeping an outside blob store and the database in step, across crashes of either.

Not here: the stores (`blobs/store.py`). A store inside the database commits with its rows and needs
nothing of this.

- A blob is noted before it is put and the note goes with the transaction that refers to it: what a
  crash leaves behind is deleted when its grace is over, and never taken for a lost memory.
- What is erased is noted in the erasing transaction and deleted until the store confirms.
- Journal objects are staged in the database by the transaction they belong to, then published; the
  store is told how far the account's history has come by then.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from relayer.blobs.store import BlobStore
from relayer.clock import Clock
from relayer.database import accounts as account_rows
from relayer.database import blobs as staged
from relayer.database import closing as closing_rows
from relayer.database import outbox as outbox_rows
from relayer.database.pool import Connection, Database
from relayer.errors import Unavailable
from relayer.sealed.envelope import blob_id
from relayer.sealed.keys import AccountId
from relayer.sealed.primitives import to_base64url

log = logging.getLogger("relayer.outbox")

GRACE: Final = timedelta(minutes=10)  # far beyond the deadline of the request that put a blob
PAGE: Final = 100
RESISTING_MAX: Final = 1_000  # a store that is away refuses all
TURN_S: Final = 60.0  # of deleting, whether it resists or is only far away; others wait for it
MARKS_MAX: Final = 2  # of one object; a history may grow faster than it is marked


class Outbox:
    """Notes, publishes and deletes on behalf of a store outside the database."""

    def __init__(
        self, *, database: Database, blobs: BlobStore, clock: Clock, soon_s: float
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._clock = clock
        self._soon_s = soon_s

    @property
    def outside(self) -> bool:
        """Whether the store is outside the database at all."""
        return not self._blobs.transactional

    @asynccontextmanager
    async def putting(
        self, account: AccountId, blobs: Sequence[tuple[bytes, bytes]], *, foreign: bool
    ) -> AsyncIterator[None]:
        """Put (name, bytes) blobs into an outside store around the transaction that refers to them.

        They come first, so that no row is without its blob; `check_noted` belongs into the
        transaction. Foreign bytes may also be those of an
        erased upload whose deletion is due: it cannot come any more once the row is there, so
        putting them again makes sure.
        """
        if not self.outside or not blobs:
            yield
            return
        named = {to_base64url(name): data for name, data in blobs}
        due_at = self._clock() + GRACE
        await outbox_rows.intend(
            self._database, account=account, blob_ids=[name for name, _ in blobs], due_at=due_at
        )
        await self._blobs.put_many(account, named)
        yield
        if foreign:
            await self._blobs.put_many(account, named)

    async def check_noted(
        self, connection: Connection, account: AccountId, names: Sequence[bytes]
    ) -> None:
        """Under the account's lock, return if none of these was deleted since it was put.

        A process that slept in between, with its machine, may have outlived their grace.

        Raises:
            Unavailable: one was; nothing is stored, and it can be put again.
        """
        wanted = set(names) if self.outside else set()
        if not wanted:
            return
        noted = await outbox_rows.noted(connection, account=account, blob_ids=sorted(wanted))
        if noted < len(wanted):
            raise Unavailable("The request was interrupted for too long.", code="store.late")

    async def publish(self) -> None:
        """Move staged journal objects into the outside store."""
        if not self.outside:
            return
        while page := await staged.first(self._database, limit=PAGE):
            for account, name, data in page:
                await self._blobs.put_many(account, {name: data})
                await self._mark(account)
                if not await staged.delete(self._database, account, name):
                    await self._take_back(account, name)

    async def _take_back(self, account: AccountId, name: str) -> None:
        """Delete an object whose account was erased and emptied while it was put."""
        row = await account_rows.find_account(self._database, account)
        if row is None or row["closed_at"] is None:
            return
        last = await closing_rows.last_receipt(self._database, account)
        if last is None or name != blob_id(last):
            await self._blobs.delete(account, name)

    async def _mark(self, account: AccountId) -> None:
        # Another process may mark a newer receipt meanwhile, and this one's mark replace it.
        marked = 0
        for _ in range(MARKS_MAX):
            newest = await outbox_rows.newest_receipt(self._database, account)
            if newest == marked:
                return
            await self._blobs.mark(account, newest)
            marked = newest

    async def publish_soon(self) -> None:
        """Publish now what the store takes within `soon_s`; the rest waits for its next round.

        Everybody's backlog may lie before what a request has just committed, and neither it nor a
        store that is away undoes that.
        """
        try:
            async with asyncio.timeout(self._soon_s):
                await self.publish()
        except (Unavailable, TimeoutError) as error:
            code = error.code if isinstance(error, Unavailable) else "outbox.slow"
            log.warning("journal waits", extra={"event": "outbox.wait", "code": code})

    async def empty(self) -> None:
        """Delete what is due, for `TURN_S`; one blob that resists does not keep the others.

        Raises:
            Unavailable: some deletion has to be tried again.
        """
        refused: Unavailable | None = None
        resisting = 0
        loop = asyncio.get_running_loop()
        until = loop.time() + TURN_S
        over = False
        while not over:
            # Longest due first: those that resist come first again, and are stepped over.
            due = await outbox_rows.due_deletions(
                self._database, now=self._clock(), after=resisting, limit=PAGE
            )
            for account, name in due:
                try:
                    await self._delete(account, name)
                except Unavailable as error:
                    refused, resisting = error, resisting + 1
                if over := loop.time() > until:
                    break
            over = over or len(due) < PAGE or resisting >= RESISTING_MAX
        if refused is not None:
            raise refused

    async def _delete(self, account: AccountId, name: bytes) -> None:
        # Under the lock, because the same foreign bytes may be uploaded again meanwhile.
        async with self._database.transaction() as connection:
            if await outbox_rows.lock_blob(connection, account=account, blob_id=name):
                await self._blobs.delete(account, to_base64url(name))
            await outbox_rows.confirm_deletion(connection, account=account, blob_id=name)
