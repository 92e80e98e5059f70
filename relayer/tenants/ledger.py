"""The ledger of an account: the one way in which it is changed.

Not here: what a change stores and signs (`journal/changes.py` and the modules that change
something), the store outside the database (`journal/outbox.py`), chains of grants (`accounts.py`).

- A change is one transaction. It locks the account, checks that who asks still has its right, takes
  its one time, and carries the chain of receipts from one who signs to the next. When it is
  committed, the objects that it put into the journal are published.
- Not changed through it yet: writes (`memories/writer.py`), erasures (`memories/eraser.py`), edits,
  sealing anew, what moves in (`archives/`), what is said again (`recovery/replay.py`), grants,
  namespaces, and closing.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from relayer.clock import Clock
from relayer.database.pool import Database
from relayer.journal.changes import AccountChange
from relayer.journal.outbox import Outbox
from relayer.sealed.keys import Namespace
from relayer.tenants.access import Access
from relayer.tenants.accounts import Accounts


class Ledger:
    """Opens changes of accounts."""

    def __init__(
        self,
        *,
        database: Database,
        accounts: Accounts,
        outbox: Outbox,
        clock: Clock,
    ) -> None:
        self._database = database
        self._accounts = accounts
        self._outbox = outbox
        self._clock = clock

    @asynccontextmanager
    async def change(
        self,
        access: Access,
        namespaces: Iterable[Namespace],
        *,
        op: str,
        publishes: bool = True,
    ) -> AsyncIterator[AccountChange]:
        """A change by a writer of these namespaces, or by the relayer for work it goes on with.

        Who makes many changes at once lets none of them publish, and calls `publish_soon` behind
        the last: a store that is away would hold up each.

        Raises:
            NotFound: the account is gone.
            NotAuthenticated: the key was revoked or has expired since its request was checked.
            NotAllowed: it is no writer of one of these namespaces any more.
        """
        async with self._database.transaction() as connection:
            heads = await self._accounts.locked(connection, access, namespaces)
            change = AccountChange(
                connection,
                account=access.account,
                actor=access.key,
                op=op,
                heads=heads,
                now=self._clock(),
            )
            yield change
        if change.has_objects and publishes:
            await self.publish_soon()

    async def publish_soon(self) -> None:
        """Publish what changes put into the journal, as far as its store takes it by then."""
        await self._outbox.publish_soon()
