"""Webhooks of an account: who is told what happens to it, and the secret they know it by.

Not here: telling them (`delivery.py`), where they may be (`egress.py`).

- A webhook belongs to the account, not to the key that made it: revoking that key is told, too.
- The URL and the secret are at rest under the relayer's own key; the secret is shown once.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

import msgspec

from relayer.database import webhooks as rows
from relayer.database.pool import Database, Row
from relayer.errors import BadRequest, Corrupted, NotFound
from relayer.events.egress import Reach, parse_target
from relayer.sealed.at_rest import open_at_rest, seal_at_rest
from relayer.sealed.keys import NUMBER_MIN, AccountId, Identity, Namespace
from relayer.sealed.primitives import CryptoError, random_key, to_base64
from relayer.settings import Limits
from relayer.tenants.accounts import Access
from relayer.tenants.ledger import Ledger

PREFIX: Final = "whsec_"  # of secrets, so that they are recognised where they do not belong
_PURPOSE: Final = b"webhook"
_PAGE: Final = 200


class Address(msgspec.Struct):
    """The address of a webhook and its secret, which are kept sealed."""

    url: str
    secret: bytes

    def __repr__(self) -> str:
        return "Address()"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not copied out of its process")


@dataclass(frozen=True)
class Webhook:
    """One webhook as its owner sees it; `secret` only where it was made just now."""

    id: uuid.UUID
    host: str
    row: Row = field(repr=False)
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Wanted:
    """The wanted settings of a webhook; without `active` it is told nothing."""

    url: str = field(repr=False)
    events: Sequence[str]
    namespaces: Sequence[Namespace] | None
    active: bool
    new_secret: bool


class Webhooks:
    """Keeps the webhooks of accounts."""

    def __init__(
        self,
        *,
        database: Database,
        ledger: Ledger,
        identity: Identity,
        reach: Reach,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._identity = identity
        self._reach = reach

    async def put(self, access: Access, webhook_id: uuid.UUID, wanted: Wanted) -> Webhook:
        """Make or change a webhook; a new one is told what happens from now on.

        Raises:
            NotAllowed: the key does not own the account.
            BadRequest: the URL may not be called, or there are too many webhooks.
        """
        access.require_owner()
        parse_target(wanted.url, self._reach)
        account = access.account
        async with self._ledger.change(access, as_owner=True) as change:
            connection = change.connection
            known = {r["webhook_id"]: r for r in await rows.find_all(connection, account)}
            if webhook_id not in known and len(known) >= Limits.webhooks_max:
                raise BadRequest(
                    f"An account has at most {Limits.webhooks_max} webhooks.",
                    code="webhook.too_many",
                )
            fresh = wanted.new_secret or webhook_id not in known
            secret = (
                random_key() if fresh else self._open_address(account, known[webhook_id]).secret
            )
            sealed = seal_address(self._identity, account, webhook_id, Address(wanted.url, secret))
            await rows.put(
                connection,
                account=account,
                webhook_id=webhook_id,
                sealed=sealed,
                events=sorted(set(wanted.events)),
                namespaces=None if wanted.namespaces is None else sorted(set(wanted.namespaces)),
                active=wanted.active,
                now=change.time,
                receipt_seq=change.receipt_seq,
            )
        webhook = await self.get(access, webhook_id)
        shown = PREFIX + to_base64(secret) if fresh else None
        return Webhook(webhook.id, webhook.host, webhook.row, shown)

    async def get(self, access: Access, webhook_id: uuid.UUID) -> Webhook:
        """Return one webhook.

        Raises:
            NotAllowed: the key does not own the account.
            NotFound: it has no such webhook.
        """
        access.require_owner()
        row = await rows.find(self._database, access.account, webhook_id)
        if row is None:
            raise NotFound("No such webhook.")
        return self._to_webhook(access.account, row)

    async def all(self, access: Access) -> list[Webhook]:
        """Return every webhook of the account, oldest first.

        Raises:
            NotAllowed: the key does not own the account.
        """
        access.require_owner()
        found = await rows.find_all(self._database, access.account)
        return [self._to_webhook(access.account, row) for row in found]

    async def remove(self, access: Access, webhook_id: uuid.UUID) -> bool:
        """Remove a webhook with what it was still to be told; whether it was there.

        Raises:
            NotAllowed: the key does not own the account.
        """
        access.require_owner()
        async with self._ledger.change(access, as_owner=True) as change:
            return await rows.delete(change.connection, access.account, webhook_id)

    async def address(self, access: Access, webhook_id: uuid.UUID) -> Address:
        """Return the address of a webhook, for trying it.

        Raises:
            NotAllowed, NotFound: as `get`.
        """
        return self._open_address(access.account, (await self.get(access, webhook_id)).row)

    def _to_webhook(self, account: AccountId, row: Row) -> Webhook:
        url = self._open_address(account, row).url
        host = url.partition("://")[2].partition("/")[0].lower()
        return Webhook(row["webhook_id"], host, row)

    def _open_address(self, account: AccountId, row: Row) -> Address:
        return open_address(self._identity, account, row["webhook_id"], row["sealed"])


def seal_address(
    relayer: Identity, account: AccountId, webhook_id: uuid.UUID, address: Address
) -> bytes:
    """Return an address as it is kept."""
    content = msgspec.msgpack.encode(address)
    return seal_at_rest(relayer, content, _PURPOSE, account, webhook_id.bytes)


def open_address(
    relayer: Identity, account: AccountId, webhook_id: uuid.UUID, sealed: bytes
) -> Address:
    """Return an address that was kept.

    Raises:
        Corrupted: altered, or of another webhook.
    """
    try:
        content = open_at_rest(relayer, sealed, _PURPOSE, account, webhook_id.bytes)
    except CryptoError:
        raise Corrupted("A stored webhook was altered.") from None
    return msgspec.msgpack.decode(content, type=Address)


async def hand_over(database: Database, before: Identity, successor: Identity) -> None:
    """Seal every webhook under the relayer's next key; what was sealed so already stays."""
    after: tuple[AccountId | int, uuid.UUID] = (NUMBER_MIN, uuid.UUID(int=0))
    while page := await rows.every(database, after, _PAGE):
        for account, webhook_id, sealed in page:
            after = (account, webhook_id)
            try:
                address = open_address(before, account, webhook_id, sealed)
            except Corrupted:
                continue  # handed over before the last try was interrupted
            anew = seal_address(successor, account, webhook_id, address)
            await rows.seal_anew(database, account, webhook_id, anew)


def wants(row: Row, kind: str, namespace: str | None) -> bool:
    """Return true if a webhook is to be told of such an event.

    An event without a namespace is for every webhook.
    """
    named = row["namespaces"]
    return kind in row["events"] and (named is None or namespace is None or namespace in named)
