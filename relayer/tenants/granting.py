"""Changes to who may read and write: accounts founded, grants and revocations accepted.

Not here: what a chain allows now (`accounts.py`), a new root under which all are granted anew
(`rotation.py`), SQL (`database.accounts`).

- Each change is one transaction with its receipt and its journal object.
- A chain is continued before anything is stored, so nothing is stored that its rules refuse.
"""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from relayer.clock import Clock, to_ms
from relayer.database import accounts as statements
from relayer.database.pool import Connection
from relayer.errors import BadRequest, Conflict, NotAllowed, QuotaExceeded
from relayer.journal.changes import AccountChange
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.grants import (
    Chain,
    Grant,
    Revocation,
    issue_grant,
    issue_revocation,
    open_grant,
    parse_grant,
    parse_revocation,
    verify_join,
)
from relayer.sealed.keys import AccountId, Identity, PublicKey, account_id
from relayer.sealed.named import NamedKey
from relayer.sealed.primitives import CryptoError
from relayer.sealed.receipts import Item
from relayer.settings import Limits
from relayer.tenants.accounts import Access, Accounts, unasked
from relayer.tenants.ledger import Ledger, Stale
from relayer.tenants.namespaces import Namespaces
from relayer.tenants.new_grants import (
    check_bounds,
    check_names,
    check_scope,
    check_use,
)

NIL: Final = uuid.UUID(int=0)  # stands in receipts for a revocation, which has no id


class Granting:
    """Founds accounts, and accepts grants and revocations."""

    def __init__(
        self,
        *,
        accounts: Accounts,
        ledger: Ledger,
        namespaces: Namespaces,
        identity: Identity,
        clock: Clock,
        grants_max: int,
    ) -> None:
        self._accounts = accounts
        self._ledger = ledger
        self._namespaces = namespaces
        self._identity = identity
        self._clock = clock
        self._grants_max = grants_max

    async def create(
        self, *, founder: PublicKey, grants: Sequence[bytes], label: str
    ) -> tuple[Chain, list[bytes]]:
        """Found an account with its first grants; return (chain, receipts).

        Raises:
            BadRequest: a grant breaks a rule.
            Conflict: the account exists, or a key belongs to another account.
        """
        account = account_id(founder)
        chain = Chain(account)
        try:
            items = [parse_grant(signed) for signed in grants]
            for item in items:
                check_use(item, chain.uuids, to_ms(self._clock()))
                check_scope(item, chain, to_ms(self._clock()))
                chain.add(item)
                check_bounds(item)
                self.check_custodian(item)
        except CryptoError as error:
            raise BadRequest(f"A grant was refused: {error}.", code="grant.invalid") from None
        if chain.founder != founder or any(not self._known_here(i, founder) for i in items):
            raise BadRequest(
                "An account begins with the founder's own grant and, if managed, the custodian's.",
                code="grant.invalid",
            )
        try:
            receipts = await self._store_first(account, founder, items, label)
        except Stale:  # founded before, or at the same time, or erased
            raise await self._refusal(account) from None
        self._accounts.remember(chain)
        return chain, receipts

    async def _store_first(
        self, account: AccountId, founder: PublicKey, items: Sequence[Grant], label: str
    ) -> list[bytes]:
        """Return the receipts of an account's first grants, which are stored with it.

        Raises:
            Stale: there is, or was, such an account.
            Conflict: the key belongs to another one.
        """

        async def found(connection: Connection) -> None:
            await statements.insert_account(
                connection, account=account, label=label, now=self._clock()
            )
            if not await statements.claim_key(connection, key=founder, account=account):
                raise Conflict("That key belongs to another account.", code="key.taken")

        asked = unasked(account, founder, self._clock())
        async with self._ledger.change(asked, first=found) as change:
            return [await _store(change, item, label=label) for item in items]

    async def _refusal(self, account: AccountId) -> Conflict:
        """Return the reason why an account cannot be founded."""
        if await self._accounts.is_closed(account):
            return Conflict("That account was erased, for good.", code="account.closed")
        return Conflict("That account exists.", code="account.exists")

    def check_custodian(self, grant: Grant) -> None:
        """Return when a custodian's grant is this relayer's and opens, and any other one is not
        the relayer's: jobs rely on it, and a custodian that is an owner, too, stands elsewhere in
        the chain, where it may name no successor.

        Raises:
            CryptoError: it is another's, its box holds other keys than it says, or it gives this
                relayer another role.
        """
        if grant.role == "custodian":
            open_grant(grant, self._identity)
        elif grant.recipient == self._identity.public_key:
            raise CryptoError("a relayer is a custodian and nothing else")

    def check_room(self, before: Chain, item: Grant | Revocation) -> None:
        """Return when a chain may be continued with this; what relayers add by themselves always
        may.

        Raises:
            QuotaExceeded: the chain is full.
        """
        spare = Limits.revocations_spare if isinstance(item, Revocation) else 0
        count = self._grants_max + spare
        size = count * Limits.grant_bytes_mean
        if before.serial >= count or before.bytes + len(item.signed) > size:
            raise QuotaExceeded("The account has no room for more grants.", code="grant.quota")

    def _known_here(self, grant: Grant, founder: PublicKey) -> bool:
        """Return true if a recipient is the founder or this relayer: others join, with proof."""
        return grant.recipient in (founder, self._identity.public_key)

    async def grant(
        self, *, account: AccountId, actor: PublicKey, signed: bytes, join: bytes, label: str
    ) -> tuple[Grant, bytes]:
        """Accept a grant to a key that agreed to join; (grant, receipt).

        Raises:
            BadRequest: the grant or the join breaks a rule.
            Conflict: another serial is due, or the key belongs to another account.
            QuotaExceeded: the account has no room for more grants.
        """
        try:
            grant = parse_grant(signed)
            if grant.role != "custodian":
                verify_join(
                    join,
                    account=account,
                    issuer=grant.issuer,
                    recipient=grant.recipient,
                    relayer=self._identity.public_key,
                )
            check_bounds(grant)
            check_names(grant)
            self.check_custodian(grant)
        except CryptoError as error:
            raise BadRequest(f"The grant was refused: {error}.", code="grant.invalid") from None
        chain = await self._accounts.chain(account)
        self.check_room(chain, grant)
        if any(entry.epoch > chain.epoch for entry in grant.scope):
            raise BadRequest("A new epoch begins with a rotation.", code="grant.invalid")
        self._check_continued(chain, grant)
        await self._settle(grant)
        return grant, await self._accept(account, grant, actor=actor, label=label)

    def _check_continued(self, chain: Chain, grant: Grant) -> None:
        """Return when a grant may be the chain's next.

        Raises:
            BadRequest: it breaks a rule.
            Conflict: another serial is due.
        """
        if grant.account == chain.account and grant.serial != chain.serial + 1:
            raise Conflict(
                f"The next serial of this account is {chain.serial + 1}.", code="grant.serial"
            )
        try:
            check_use(grant, chain.uuids, to_ms(self._clock()))
            check_scope(grant, chain, to_ms(self._clock()))
            chain.copy().add(grant)
        except CryptoError as error:
            raise BadRequest(f"The grant was refused: {error}.", code="grant.invalid") from None

    async def _settle(self, grant: Grant) -> None:
        """Return when namespaces have the keys that a grant names, where they have any.

        Raises:
            BadRequest: one has another one, which an owner named, or a grant.
        """
        entries = {
            (e.namespace, e.epoch): NamedKey(grant.account, e.namespace, e.epoch, e.key_id)
            for e in grant.scope
            if e.namespace is not None
        }
        names = [name for name, _ in entries]
        for name, epoch, key_id in await self._namespaces.stored_keys(grant.account, names):
            entry = entries.get((name, epoch))
            if entry is None or entry.key_id == key_id:
                continue
            try:
                await self._namespaces.settle(grant.account, entry, grant.issuer)
            except NotAllowed as error:
                raise BadRequest(error.message, code="grant.invalid") from None

    async def revoke(
        self, *, account: AccountId, actor: PublicKey, signed: bytes
    ) -> tuple[Revocation, bytes]:
        """Accept a revocation; (revocation, receipt).

        Raises:
            BadRequest: it breaks a rule.
            Conflict: another serial is due.
            QuotaExceeded: the account has no room for more revocations.
        """
        try:
            revocation = parse_revocation(signed)
            check_bounds(revocation)
        except CryptoError as error:
            raise BadRequest(
                f"The revocation was refused: {error}.", code="grant.invalid"
            ) from None
        self.check_room(await self._accounts.chain(account), revocation)
        return revocation, await self._accept(account, revocation, actor=actor, label="")

    async def accept_rotation(
        self,
        after: Chain,
        items: Sequence[Grant | Revocation],
        *,
        access: Access,
        also: Callable[[Connection], Awaitable[None]],
    ) -> list[bytes]:
        """Store what a chain has accepted that ends in `after`, all or nothing; the receipts.

        `also` is done in the same transaction, under the account's lock. Keys keep the labels that
        they have.

        Raises:
            Conflict: another grant came in between, or `also` says so.
            NotFound: the account is gone.
            NotAuthenticated, NotAllowed: there are no items, and the key owns the account no more.
        """
        labels = await self._accounts.labels_of_keys(after)
        # What is signed was judged by its chain. Else the key's right is, as it is by now.
        by = unasked(access.account, access.key, access.time) if items else access
        async with self._ledger.change(by, as_owner=not items) as change:
            receipts = [
                await _store(change, item, label=labels.get(item.recipient, "")) for item in items
            ]
            await also(change.connection)
        self._accounts.remember(after)
        return receipts

    async def accept_moved(
        self,
        after: Chain,
        moved: Sequence[tuple[Grant | Revocation, str, bytes | None]],
        *,
        actor: PublicKey,
        also: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> list[bytes]:
        """Store what a chain has accepted elsewhere, as (item, label, succession); the receipts.

        Nobody proves here to hold the keys, so they belong to no account until they `claim`.
        `also` is done in the same transaction, under the account's lock.

        Raises:
            Conflict: another grant came in between, or `also` says so.
        """
        async with self._ledger.change(unasked(after.account, actor, self._clock())) as change:
            receipts = [
                await _store(change, item, label=label, succession=succession, joins=False)
                for item, label, succession in moved
            ]
            if also is not None:
                await also(change.connection)
        self._accounts.remember(after)
        return receipts

    async def hand_over(self, account: AccountId, successor: Identity, named: bytes) -> bool:
        """Give custody to this relayer's next key and take it from today's; whether there was any.

        `named` is the `relayer-next` object. What an interrupted handover did is not done again.
        """
        chain = await self._accounts.chain(account)
        held = chain.live(successor.public_key, to_ms(self._clock()))
        known = {entry for grant in held for entry in grant.scope}
        if not (custody := self._accounts.custodian_grants(chain)):
            return False
        for grant in custody:
            if not known.issuperset(grant.scope):
                await self._pass_on(grant, successor, named)
        chain = await self._accounts.chain(account)
        signed = issue_revocation(
            successor,
            account=account,
            serial=chain.serial + 1,
            recipient=self._identity.public_key,
            created_ms=to_ms(self._clock()),
        )
        actor = successor.public_key
        await self._accept(account, parse_revocation(signed), actor=actor, label="")
        return True

    async def _pass_on(self, custody: Grant, successor: Identity, named: bytes) -> None:
        """Grant the successor what a custodian's grant gave."""
        signed = issue_grant(
            self._identity,
            account=custody.account,
            serial=(await self._accounts.chain(custody.account)).serial + 1,
            recipient=successor.public_key,
            role="custodian",
            keys=open_grant(custody, self._identity),
            created_ms=to_ms(self._clock()),
            expires_ms=custody.expires_ms,
        )
        actor = self._identity.public_key
        grant = parse_grant(signed)
        await self._accept(custody.account, grant, actor=actor, label="", succession=named)

    async def _accept(
        self,
        account: AccountId,
        item: Grant | Revocation,
        *,
        actor: PublicKey,
        label: str,
        succession: bytes | None = None,
    ) -> bytes:
        chain = (await self._accounts.chain(account)).copy()
        if item.account == account and item.serial != chain.serial + 1:
            raise Conflict(
                f"The next serial of this account is {chain.serial + 1}.", code="grant.serial"
            )
        try:
            if succession is not None:
                chain.learn(succession)
            chain.add(item)
        except CryptoError as error:
            raise BadRequest(f"The grant was refused: {error}.", code="grant.invalid") from None
        async with self._ledger.change(unasked(account, actor, self._clock())) as change:
            receipt = await _store(change, item, label=label, succession=succession)
        self._accounts.remember(chain)
        return receipt


async def _store(
    change: AccountChange,
    item: Grant | Revocation,
    *,
    label: str,
    succession: bytes | None = None,
    joins: bool = True,
) -> bytes:
    """Store a grant or revocation that its chain accepted; the receipt.

    With `joins`, its recipient's key belongs to the account from now on.

    Raises:
        Conflict: another one came in between, or the key belongs to another account.
    """
    if change.grant_serial + 1 != item.serial:
        raise Conflict("Another grant came in between.", code="grant.serial")
    is_grant = isinstance(item, Grant)
    # A relayer belongs to no account.
    joins = joins and isinstance(item, Grant) and item.role != "custodian"
    if joins and not await statements.claim_key(
        change.connection, key=item.recipient, account=item.account
    ):
        raise Conflict("That key belongs to another account.", code="key.taken")
    change.continue_grants(item.serial)
    seq, receipt = change.sign_items([_grant_item(item)], op="grant" if is_grant else "revoke")
    await statements.insert_grant(
        change.connection,
        account=item.account,
        serial=item.serial,
        recipient=item.recipient,
        label=label,
        signed=item.signed,
        now=change.time,
        receipt_seq=seq,
        receipt=receipt,
        receipt_head=change.receipt_head,
        blob_id=blob_hash(blob_id(item.signed)),
        succession=succession,
        succession_blob_id=None if succession is None else blob_hash(blob_id(succession)),
        epoch=max((e.epoch for e in item.scope), default=0) if isinstance(item, Grant) else 0,
    )
    change.has_objects = True
    return receipt


def _grant_item(item: Grant | Revocation) -> Item:
    identifier = item.grant if isinstance(item, Grant) else NIL
    return Item(identifier, 0, blob_id(item.signed))
