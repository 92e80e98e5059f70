"""Keeping an outside blob store and the database in step, across crashes of either.

Not here: the stores (`blobs.py`). A store inside the database commits with its rows and needs
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

from relayer.blobs import BlobStore
from relayer.clock import Clock
from relayer.database import blobs as staged
from relayer.database import outbox as outbox_rows
from relayer.database.pool import Database
from relayer.errors import Unavailable
from relayer.sealed.keys import AccountId
from relayer.sealed.primitives import to_base64url

log = logging.getLogger("relayer.outbox")

GRACE: Final = timedelta(minutes=10)  # far beyond the deadline of the request that put a blob
PAGE: Final = 100
RESISTING_MAX: Final = 1_000  # a store that is away refuses all
RESISTING_S: Final = 60.0  # and may take its time for each


class Outbox:
    """Notes, publishes and deletes on behalf of a store outside the database."""

    def __init__(self, *, database: Database, blobs: BlobStore, clock: Clock) -> None:
        self._database = database
        self._blobs = blobs
        self._clock = clock

    @property
    def outside(self) -> bool:
        """Whether the store is outside the database at all."""
        return not self._blobs.transactional

    @asynccontextmanager
    async def putting(
        self, account: AccountId, blobs: Sequence[tuple[bytes, bytes]], *, foreign: bool
    ) -> AsyncIterator[None]:
        """Put (name, bytes) blobs into an outside store around the transaction that refers to them.

        They come first, so that no row is without its blob. Foreign bytes may also be those of an
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

    async def publish(self) -> None:
        """Move staged journal objects into the outside store."""
        if not self.outside:
            return
        while page := await staged.first(self._database, limit=PAGE):
            for account, name, data in page:
                await self._blobs.put_many(account, {name: data})
                seq = await outbox_rows.newest_receipt(self._database, account)
                await self._blobs.mark(account, seq)
                await staged.delete(self._database, account, name)

    async def publish_soon(self) -> None:
        """Publish now if the store is there; what was committed is not undone by its absence."""
        try:
            await self.publish()
        except Unavailable as error:
            log.warning("journal waits", extra={"event": "outbox.wait", "code": error.code})

    async def empty(self) -> None:
        """Delete what is due; one blob that resists does not keep the others.

        Raises:
            Unavailable: some deletion has to be tried again.
        """
        refused: Unavailable | None = None
        resisting = 0
        until = asyncio.get_running_loop().time() + RESISTING_S
        while True:
            # Longest due first: those that resist come first again, and are stepped over.
            due = await outbox_rows.due_deletions(
                self._database, now=self._clock(), after=resisting, limit=PAGE
            )
            for account, blob_id in due:
                try:
                    await self._delete(account, blob_id)
                except Unavailable as error:
                    refused, resisting = error, resisting + 1
                    if asyncio.get_running_loop().time() > until:
                        raise
            if len(due) < PAGE or resisting >= RESISTING_MAX:
                break
        if refused is not None:
            raise refused

    async def _delete(self, account: AccountId, blob_id: bytes) -> None:
        # Under the lock, because the same foreign bytes may be uploaded again meanwhile.
        async with self._database.transaction() as connection:
            if await outbox_rows.lock_blob(connection, account=account, blob_id=blob_id):
                await self._blobs.delete(account, to_base64url(blob_id))
            await outbox_rows.confirm_deletion(connection, account=account, blob_id=blob_id)
