"""The ledger of an account: the one way in which it is changed.

Not here: what a change stores and signs (`journal/changes.py` and the modules that change
something), the store outside the database (`journal/outbox.py`), chains of grants (`accounts.py`).

- A change is one transaction. It locks the account, checks that who asks still has its right, takes
  its one time, and carries the chain of receipts from one who signs to the next. When it is
  committed, the objects that it put into the journal are published.
- What it was decided on may have changed before the lock. Whoever finds that raises `Stale`, which
  undoes the change; `retry_stale` looks again and decides anew.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from relayer.clock import Clock
from relayer.database.pool import Connection, UniqueViolation
from relayer.errors import Unavailable
from relayer.journal.changes import AccountChange, Operation, Signing
from relayer.journal.outbox import Outbox
from relayer.sealed.keys import AccountId, Identity, Namespace, PublicKey
from relayer.tenants.accounts import Access, Accounts, unasked

RACES_MAX: Final = 5  # attempts at a change that others overtake
T = TypeVar("T")


class Stale(Exception):
    """A change rests on what is not so any more: look again."""


async def retry_stale(attempt: Callable[[], Awaitable[T]], refusal: str) -> T:
    """Look, decide and change until nobody came in between.

    Raises:
        Unavailable: `write.contended`, in the words of `refusal`: others were faster each time.
    """
    for _ in range(RACES_MAX):
        with suppress(Stale):
            return await attempt()
    raise Unavailable(refusal, code="write.contended")


class Ledger:
    """Opens changes of accounts."""

    def __init__(
        self, *, accounts: Accounts, outbox: Outbox, identity: Identity, clock: Clock
    ) -> None:
        self._accounts = accounts
        self._outbox = outbox
        self._signing = Signing(identity, clock, outbox.outside)

    @property
    def relayer(self) -> PublicKey:
        """Return the key that receipts name as the actor where nobody asks."""
        return self._signing.identity.public_key

    def unasked(self, account: AccountId) -> Access:
        """Return the relayer's own access: to all that follows from what was accepted before."""
        return unasked(account, self.relayer, self._signing.clock())

    @asynccontextmanager
    async def change(
        self,
        access: Access,
        namespaces: Iterable[Namespace] = (),
        *,
        op: str = "",
        as_owner: bool = False,
        blobs: Sequence[tuple[bytes, bytes]] = (),
        first: Callable[[Connection], Awaitable[None]] | None = None,
        publishes: bool = True,
        keeps_plans: bool = False,
    ) -> AsyncIterator[AccountChange]:
        """Change an account as a writer of these namespaces, or in work that was accepted before.

        An outside store has the (name, bytes) `blobs` before the account is locked; `first` is done
        in the transaction before that, and may store no grant. Without `op`, nothing is signed. Who
        makes many changes in a row lets none of them publish, and calls `publish_soon` behind the
        last: a store that is away would hold up each. With `keeps_plans`, its statements may keep
        theirs: see `Database.transaction`.

        Raises:
            Stale: it broke a unique constraint, so somebody stored the same in between.
            NotFound: the account is gone.
            NotAuthenticated: the key was revoked or has expired since its request was checked.
            NotAllowed: it is no writer of one of these namespaces any more, or, `as_owner`, does
                not own the account.
            Unavailable: the store is away, or was too slow for `blobs` time after time.
        """
        try:
            async with self._outbox.transaction(
                access.account, blobs, first, keeps_plans=keeps_plans
            ) as connection:
                heads, time = await self._accounts.lock(
                    connection, access, namespaces, as_owner=as_owner
                )
                operation = Operation(access.account, access.key, op, time)
                change = AccountChange(connection, self._signing, operation, heads)
                yield change
        except UniqueViolation:
            raise Stale from None
        if change.has_objects and publishes:
            await self.publish_soon()

    def mark_later(self, accounts: Iterable[AccountId]) -> None:
        """Let the store be told, with the next round, how far the history of these has come."""
        self._outbox.mark_later(accounts)

    async def publish_soon(self) -> None:
        """Publish what changes put into the journal, as far as its store takes it by then."""
        await self._outbox.publish_soon()
