"""Keeping an outside blob store and the database in step, across crashes of either.

Not here: the stores (`blobs/store.py`). A store inside the database commits with its rows and needs
nothing of this.

- A blob is noted before it is put and the note goes with the transaction that refers to it: what a
  crash leaves behind is deleted when its grace is over, and never taken for a lost memory.
- Blobs are deleted under the locks of their notes, and only those that are due. The transaction
  that is to refer to one locks its note and asks whether it is not due: then it is in the store.
  Of a store inside the database they are deleted under the account's lock, like everything there.
- What is erased is noted in the erasing transaction and deleted until the store confirms.
- Journal objects are staged in the database by the transaction they belong to, then published; the
  store is told how far the account's history has come by then.
- It is told so after every transaction that put blobs, too, before anybody is answered: else
  nothing would show that a database was set back to the moment in which they were noted.
- Those of an account come in order: grants with a gap between them would not be believed. One that
  resists waits with what is behind it, and keeps nothing of other accounts.
- What was published of an account that was closed meanwhile is noted like a blob that is erased.
- What a crash leaves in the store of a blob that never came is dropped when its grace is over.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from weakref import WeakValueDictionary

from relayer.blobs.store import BlobStore
from relayer.clock import Clock
from relayer.database import accounts as account_rows
from relayer.database import blobs as staged
from relayer.database import closing as closing_rows
from relayer.database import outbox as outbox_rows
from relayer.database.pool import Connection, Database
from relayer.errors import Unavailable
from relayer.sealed.envelope import blob_hash
from relayer.sealed.envelope import blob_id as name_of
from relayer.sealed.keys import AccountId
from relayer.sealed.primitives import to_base64url

log = logging.getLogger("relayer.outbox")

GRACE: Final = timedelta(minutes=10)  # far beyond the deadline of the request that put a blob
PUTS_MAX: Final = 3  # of the same blobs: none is slow or asleep for its grace time after time
PAGE: Final = 100
RESISTING_MAX: Final = 1_000  # a store that is away refuses all
RESISTING_SOON_MAX: Final = 10  # accounts, while a request waits
TURN_S: Final = 60.0  # whether a store resists or is only far away; other work waits meanwhile
MARKS_MAX: Final = 2  # of one object; a history may grow faster than it is marked


@dataclass(eq=False)
class _Marking:
    """Those of this process that mark one account: what the first has marked serves the others."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    marked: int = 0


class _LateError(Exception):
    """Blobs were deleted since they were put."""


class Outbox:
    """Notes, publishes and deletes on behalf of a store outside the database."""

    def __init__(
        self, *, database: Database, blobs: BlobStore, clock: Clock, soon_s: float
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._clock = clock
        self._soon_s = soon_s
        self._markings: WeakValueDictionary[AccountId, _Marking] = WeakValueDictionary()
        self._unmarked: dict[AccountId, None] = {}  # in this order they are tried again

    @property
    def outside(self) -> bool:
        """Return true if the store is outside the database at all."""
        return not self._blobs.transactional

    @asynccontextmanager
    async def transaction(
        self,
        account: AccountId,
        blobs: Sequence[tuple[bytes, bytes]],
        first: Callable[[Connection], Awaitable[None]] | None = None,
        *,
        keeps_plans: bool = False,
    ) -> AsyncIterator[Connection]:
        """Yield the transaction that comes to refer to blobs, which an outside store has.

        The blobs are (name, bytes).

        They come first, so that no row is without its blob. A process or machine that slept until
        their grace was over puts them again. `first` is done in it before the account is locked.

        Raises:
            Unavailable: the store is away, or was too slow time after time.
        """
        named = {to_base64url(name): data for name, data in blobs} if self.outside else {}
        for _ in range(PUTS_MAX):
            await self._put(account, named)
            with suppress(_LateError):
                async with self._database.transaction(keeps_plans=keeps_plans) as connection:
                    if first is not None:
                        await first(connection)
                    if not await self._has_kept(connection, account, named):
                        raise _LateError  # undoes what was done first
                    yield connection
                if named:
                    await self._mark_soon(account)
                return
        raise Unavailable("The blob store was too slow.", code="store.late")

    async def _put(self, account: AccountId, named: Mapping[str, bytes]) -> None:
        """Note blobs and put them. Some may be noted already: an upload of the same bytes was
        erased, or this is done once more."""
        if not named:
            return
        ids = [blob_hash(name) for name in named]
        due_at = self._clock() + GRACE
        noted = await outbox_rows.intend(
            self._database, account=account, blob_ids=ids, due_at=due_at
        )
        if len(noted) < len(ids):
            await outbox_rows.postpone(self._database, account=account, blob_ids=ids, due_at=due_at)
        await self._blobs.put_many(account, named)

    async def _has_kept(
        self, connection: Connection, account: AccountId, named: Mapping[str, bytes]
    ) -> bool:
        """Return true if none of these blobs was deleted since it was put.

        None will be until the transaction ends.
        """
        if not named:
            return True
        await account_rows.lock_account(connection, account)
        ids = {blob_hash(name) for name in named}
        ids -= await outbox_rows.not_due(
            connection, account=account, blob_ids=list(ids), now=self._clock()
        )
        # Somebody else who put the same bytes may have come first, and taken the note.
        return not ids or ids == await outbox_rows.find_referenced(
            connection, account=account, blob_ids=list(ids)
        )

    async def publish(self) -> None:
        """Move staged journal objects into the outside store, and mark what could not be before.

        Raises:
            Unavailable: some of them have to be tried again.
        """
        refused: Unavailable | None = None
        try:
            await self._publish(RESISTING_MAX)
        except Unavailable as error:  # nothing else: what is stopped meanwhile marks no more
            refused = error
        await self._mark_missed()
        if refused is not None:
            raise refused

    def mark_later(self, accounts: Iterable[AccountId]) -> None:
        """Let the next round tell the store of these accounts, too."""
        self._unmarked |= dict.fromkeys(accounts)

    async def _mark_missed(self) -> None:
        """Mark what could not be, for `TURN_S`; one account that resists keeps no other."""
        refused: Unavailable | None = None
        loop = asyncio.get_running_loop()
        until = loop.time() + TURN_S
        for account in list(self._unmarked):
            self._unmarked.pop(account, None)
            try:
                await self.mark(account)
            except Unavailable as error:
                refused = error
            if loop.time() > until:
                break
        if refused is not None:
            raise refused

    async def _publish(self, resisting_max: int) -> None:
        if not self.outside:
            return
        refused: Unavailable | None = None
        resisting: set[AccountId] = set()
        loop = asyncio.get_running_loop()
        until = loop.time() + TURN_S
        while page := await staged.first(self._database, passing_over=resisting, limit=PAGE):
            for account, name, data in page:
                if account in resisting:
                    continue
                try:
                    await self._publish_one(account, name, data)
                except Unavailable as error:
                    refused = error
                    resisting.add(account)
                if refused and (len(resisting) >= resisting_max or loop.time() > until):
                    raise refused
        if refused is not None:
            raise refused

    async def _publish_one(self, account: AccountId, name: str, data: bytes) -> None:
        try:
            await self._blobs.put_many(account, {name: data})
        finally:  # also what the store did not confirm may come
            await self._note_if_closed(account, name)
        await self.mark(account)
        await staged.delete(self._database, account, name)

    async def _note_if_closed(self, account: AccountId, name: str) -> None:
        """Let an object go that came into the store of an account after that was emptied.

        One that was open still is found there by whoever empties it later.
        """
        receipt = await closing_rows.last_receipt(self._database, account)
        if receipt is not None and name != name_of(receipt):
            await outbox_rows.intend(
                self._database,
                account=account,
                blob_ids=[blob_hash(name)],
                due_at=self._clock() + GRACE,
            )

    async def mark(self, account: AccountId) -> None:
        """Tell the store how far the account's history has come.

        Raises:
            Unavailable: it is away; the next round tries again.
        """
        try:
            marking = self._markings.setdefault(account, _Marking())
            async with marking.lock:
                await self._mark_newest(account, marking)
        except BaseException:  # also when nobody waits for it any more
            self._unmarked[account] = None
            raise

    async def _mark_newest(self, account: AccountId, marking: _Marking) -> None:
        # Another process may mark a newer receipt meanwhile, and this one's mark replace it.
        for _ in range(MARKS_MAX):
            newest = await outbox_rows.newest_mark(self._database, account)
            if newest == marking.marked:
                return
            await self._blobs.mark(account, newest)
            marking.marked = newest
        self._unmarked[account] = None  # somebody else may have marked a newer one before this

    async def _mark_soon(self, account: AccountId) -> None:
        """Mark what was just committed, within `soon_s`: it holds where the store is away, too."""
        try:
            async with asyncio.timeout(self._soon_s):
                await self.mark(account)
        except (Unavailable, TimeoutError) as error:
            code = error.code if isinstance(error, Unavailable) else "outbox.slow"
            log.warning("a mark waits", extra={"event": "outbox.unmarked", "code": code})

    async def publish_soon(self) -> None:
        """Publish now what the store takes within `soon_s`; the rest waits for its next round.

        Everybody's backlog may lie before what a request has just committed, and neither it nor a
        store that is away undoes that.
        """
        try:
            async with asyncio.timeout(self._soon_s):
                await self._publish(RESISTING_SOON_MAX)
        except (Unavailable, TimeoutError) as error:
            code = error.code if isinstance(error, Unavailable) else "outbox.slow"
            log.warning("journal waits", extra={"event": "outbox.wait", "code": code})

    async def waits(self, account: AccountId) -> bool:
        """Return true if anything may still come into the store of an account that was closed."""
        return await closing_rows.outbox_waits(
            self._database, account
        ) or await self._blobs.drop_drafts(account, older_than=GRACE)

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
            for account, blob_id in due:
                try:
                    await self._delete(account, blob_id)
                except Unavailable as error:
                    refused, resisting = error, resisting + 1
                if over := loop.time() > until:
                    break
            over = over or len(due) < PAGE or resisting >= RESISTING_MAX
        if refused is not None:
            raise refused

    async def _delete(self, account: AccountId, blob_id: bytes) -> None:
        # Under a lock, because the same foreign bytes may be uploaded again meanwhile. An outside
        # store may take long, and holds up no other write.
        now = self._clock()
        async with self._database.transaction() as connection:
            if not self.outside:
                await account_rows.lock_account(connection, account)
            if not await outbox_rows.lock_due(
                connection, account=account, blob_id=blob_id, now=now
            ):
                return
            if not await outbox_rows.find_referenced(
                connection, account=account, blob_ids=[blob_id]
            ):
                await self._remove(connection, account, to_base64url(blob_id))
            await outbox_rows.confirm_deletion(connection, account=account, blob_id=blob_id)

    async def _remove(self, connection: Connection, account: AccountId, name: str) -> None:
        if self.outside:
            await self._blobs.delete(account, name)
        else:
            # All other connections may be held by who waits for the lock that this one has.
            await staged.delete(connection, account, name)
