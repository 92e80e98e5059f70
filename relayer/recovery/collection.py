"""Finding stored objects that nothing refers to, and dealing with each as what it is.

Not here: telling what it is (`examiner.py`), deleting what is noted (`journal/outbox.py`), giving
blobs their rows back (`restore.py`).

- What was erased, or is of no use any more, goes at once. What nobody erased may be all that is
  left of a lost row: it is noted, can be restored meanwhile, and goes when nobody did for days.
- Sealed memories are restored without being asked (a database that was set back does not know
  them), and are kept until their keys were at hand: only those that do not open then may go.
- A grant, revocation or erasure in the journal that the database does not know holds from now on
  (`replay.py`).
- What a crash left half put goes when nobody can be writing it any more.
- Journal objects stay. Of an account whose memories lack their rows, everything stays.
"""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from relayer.blobs.store import BlobStore
from relayer.clock import Clock
from relayer.database import collection as rows
from relayer.database import outbox as outbox_rows
from relayer.database import queue
from relayer.database import rebuild as rebuild_rows
from relayer.database import replay as replay_rows
from relayer.database.pool import Connection, Database
from relayer.errors import RelayerError, Unavailable
from relayer.journal.outbox import GRACE
from relayer.recovery.examiner import Examiner, Unreferred
from relayer.recovery.replay import Replay
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, PublicKey
from relayer.sealed.primitives import to_base64url

log = logging.getLogger("relayer.collection")

STRAY_GRACE: Final = timedelta(days=7)  # time enough to rebuild what lost its rows
REST: Final = timedelta(hours=1)  # between two walks through everything
PAGES_AT_ONCE: Final = 4


class Collector:
    """Walks through the stores, some objects at a time."""

    def __init__(
        self,
        *,
        database: Database,
        blobs: BlobStore,
        replay: Replay,
        relayers: Sequence[PublicKey],
        clock: Clock,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._replay = replay
        self._examiner = Examiner(database=database, blobs=blobs, relayers=relayers)
        self._clock = clock
        self._account: AccountId | None = None
        self._after = ""
        self._rest_until: datetime | None = None

    async def collect(self) -> None:
        """Deal with the next objects; after the last of the last account, rest for a while."""
        now = self._clock()
        if self._rest_until is not None and now < self._rest_until:
            return
        if self._account is None:
            await self._replay.try_again()
        for _ in range(PAGES_AT_ONCE):
            if self._account is None and not await self._next_account(None):
                self._rest_until = now + REST
                return
            await self._collect_page()

    async def _drop_drafts(self, account: AccountId) -> None:
        try:
            await self._blobs.drop_drafts(account, older_than=GRACE)
        except Unavailable as error:
            log.warning("drafts stay", extra={"event": "collection.wait", "code": error.code})

    async def _next_account(self, after: AccountId | None) -> bool:
        self._account = await rows.next_account(self._database, after)
        self._after = ""
        if self._account is not None:
            await self._drop_drafts(self._account)
        return self._account is not None

    async def _collect_page(self) -> None:
        account = self._account
        assert account is not None
        page = await anext(self._examiner.pages(account, self._after), None)
        if page is None:
            if not await self._next_account(account):
                self._rest_until = self._clock() + REST
            return
        self._after = page[-1]
        found = await self._examiner.examine(account, page)
        await self._repeat(account, found)
        await rows.note_lasting(self._database, account, found.lasting)
        if await rebuild_rows.is_incomplete(self._database, account):
            return  # what has no row may get one
        now = self._clock()
        async with self._database.transaction() as connection:
            await self._note(connection, account, found.useless, now)
            stray = await self._note(connection, account, found.stray, now + STRAY_GRACE)
            if not stray.isdisjoint(found.memories):
                await replay_rows.set_incomplete(connection, account)
                await queue.enqueue(connection, queue.RESTORE, account, [])
        if found.altered:
            log.error("an object is altered", extra={"event": "blobs.corrupted"})

    async def _repeat(self, account: AccountId, found: Unreferred) -> None:
        """Let hold what the journal knows and the database does not."""
        try:
            if found.history:
                await self._replay.catch_up_late(account, found.history)
            await self._replay.repeat(found.unknown)
        except RelayerError as error:
            # The next walk finds it again.
            log.warning("catching up waits", extra={"event": "replay.wait", "code": error.code})

    async def _note(
        self, connection: Connection, account: AccountId, names: Sequence[str], due_at: datetime
    ) -> set[str]:
        """Note objects for deletion; what is noted already keeps its time. Those that were not."""
        if not names:
            return set()
        noted = await outbox_rows.intend(
            connection,
            account=account,
            blob_ids=[envelope.blob_hash(name) for name in names],
            due_at=due_at,
            stray=due_at > self._clock(),
        )
        return {to_base64url(blob) for blob in noted}
