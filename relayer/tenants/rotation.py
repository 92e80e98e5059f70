"""Beginning a new epoch of an account.

Not here: how far its memories have followed (`rotation_progress.py`), sealing them anew
(`memories/reseal.py`), accepting single grants (`granting.py`). Source: SPEC §16.

- A rotation is accepted as a whole: revocations first, then a grant of the new epoch to everybody
  who still holds one. Nobody joins by it, and nobody is left behind.
- The relayer never sees a root, unless it is the account's custodian.
- An epoch is not left out while something that a rebuilt account has no row of yet needs its key.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from relayer.clock import Clock, to_ms
from relayer.database import queue
from relayer.database import reseal as rows
from relayer.database.pool import Connection
from relayer.errors import BadRequest, Conflict, NotFound
from relayer.sealed.grants import (
    Chain,
    Grant,
    Revocation,
    parse_grant,
    parse_revocation,
)
from relayer.sealed.keys import AccountId, Namespace, PublicKey
from relayer.sealed.primitives import CryptoError
from relayer.tenants.accounts import Access, Accounts
from relayer.tenants.custody import Custody
from relayer.tenants.granting import Granting
from relayer.tenants.new_grants import (
    check_bounds,
    check_scope,
    check_use,
)
from relayer.tenants.rotation_progress import Progress, RotationProgress

Choice = Literal["revoked", "all", "none"]
# Whether a rebuilt account has no row yet of something of these epochs.
Needs = Callable[[AccountId, range], Awaitable[bool]]
REFUSED: Final = "grant.invalid"


@dataclass(frozen=True)
class Rotated:
    """The outcome of an accepted rotation."""

    epoch: int
    serial: int
    receipts: Sequence[bytes]


class Rotations:
    """Accepts rotations and tells their progress."""

    def __init__(
        self,
        *,
        accounts: Accounts,
        granting: Granting,
        custody: Custody,
        needs: Needs,
        progress: RotationProgress,
        clock: Clock,
    ) -> None:
        self._accounts = accounts
        self._granting = granting
        self._custody = custody
        self._needs = needs
        self._progress = progress
        self._clock = clock

    async def rotate(
        self,
        access: Access,
        *,
        revocations: Sequence[bytes],
        grants: Sequence[bytes],
        reseal: Choice | Sequence[Namespace],
    ) -> Rotated:
        """Accept a rotation and have sealed anew what it names.

        Raises:
            NotAllowed: not an owner.
            NotAuthenticated: the key was revoked meanwhile.
            BadRequest: an object breaks a rule, or a key would be left behind.
            Conflict: another serial is due, or an epoch that is left out is in use.
            NotFound: a namespace to be sealed anew, or the account, is not there.
            QuotaExceeded: the account has no room for more grants.
        """
        access.require_owner()
        before = await self._accounts.chain(access.account)
        items = await _parse(revocations, grants)
        after = await self._extend(before, items)
        below = _below(after, reseal)
        left_out = _epochs_left_out(before, items, to_ms(self._clock()))
        if left_out and await self._needs(access.account, left_out):
            raise Conflict(
                "Something that may need an older epoch is not restored yet since the database was "
                "lost: recall there with its key, and ask again.",
                code="epoch.in_use",
            )
        begins = access.custody == "managed" or (
            not items and await self._has_lent_keys(access.account)
        )

        async def also(connection: Connection) -> None:
            await _check_left_out(connection, access.account, left_out)
            chosen = await rows.choose(connection, account=access.account, below=below)
            if not isinstance(reseal, str) and set(reseal) - chosen:
                raise NotFound("No such namespace; nothing was changed.")
            if begins:
                await queue.enqueue(connection, queue.RESEAL, access.account)

        receipts = await self._granting.accept_rotation(after, items, access=access, also=also)
        return Rotated(after.epoch, after.serial, receipts)

    async def _has_lent_keys(self, account: AccountId) -> bool:
        """Return true if keys are here by which memories are sealed anew.

        Those of a new epoch are lent after it, which begins the work; lent again they begin none.
        """
        return await self._custody.reseal_keys(account) is not None

    async def progress(self, access: Access) -> Progress:
        """Return the progress of the namespaces that the key may read."""
        return await self._progress.of(access)

    async def _extend(self, before: Chain, items: Sequence[Grant | Revocation]) -> Chain:
        """Return the chain after a rotation's objects.

        Raises:
            BadRequest, Conflict: it does not accept them.
            QuotaExceeded: the account has no room for them.
        """
        after, now_ms = before.copy(), to_ms(self._clock())
        if items and items[0].serial != before.serial + 1:
            raise Conflict(
                f"The next serial of this account is {before.serial + 1}.", code="grant.serial"
            )
        try:
            for item in items:
                if isinstance(item, Grant):
                    if not after.live(item.recipient, now_ms):
                        raise CryptoError("a rotation gives nothing to new or withdrawn keys")
                    self._granting.check_custodian(item)
                    check_use(item, after.uuids, now_ms)
                    check_scope(item, before, now_ms, is_rotation=True)
                check_bounds(item)
                self._granting.check_room(after, item)
                after.add(item)
                await asyncio.sleep(0)  # others have their turn
            if after.epoch > before.epoch:
                self._check_epoch(before, after, now_ms)
        except CryptoError as error:
            raise BadRequest(f"The rotation was refused: {error}.", code=REFUSED) from None
        return after

    def _check_epoch(self, before: Chain, after: Chain, now_ms: int) -> None:
        """Return when one new epoch begins, for everybody who writes or reads here.

        Raises:
            CryptoError: one is skipped, there are two roots of it, or a key is left behind.
        """
        entries = [e for own in after.grants.values() for g in own for e in g.scope]
        roots = {e.key_id for e in entries if e.namespace is None and e.epoch == after.epoch}
        if after.epoch != before.epoch + 1 or len(roots) != 1:
            raise CryptoError("a rotation begins the next epoch, with one root")
        if any(self._takes_part(after, key, now_ms) for key in after.left_behind(now_ms)):
            raise CryptoError("a key is left behind without the newest epoch")

    def _takes_part(self, chain: Chain, key: PublicKey, now_ms: int) -> bool:
        """Return true if a key is used here: all are, but other relayers as custodians."""
        roles = {grant.role for grant in chain.live(key, now_ms)}
        return key == self._accounts.relayer or roles != {"custodian"}


def _epochs_left_out(before: Chain, items: Sequence[Grant | Revocation], now_ms: int) -> range:
    """Return the epochs, alive until now, that these grants leave out."""
    oldest = min((e.epoch for g in items if isinstance(g, Grant) for e in g.scope), default=0)
    return range(before.oldest_alive(now_ms), oldest)


async def _check_left_out(connection: Connection, account: AccountId, left_out: range) -> None:
    """Return when no row needs one of these epochs.

    Raises:
        Conflict: one does.
    """
    if left_out and await rows.anything_below(connection, account=account, epoch=left_out.stop):
        raise Conflict("An older epoch is still in use.", code="epoch.in_use")


async def _parse(revocations: Sequence[bytes], grants: Sequence[bytes]) -> list[Grant | Revocation]:
    items: list[Grant | Revocation] = []
    try:
        items += map(parse_revocation, revocations)
        for signed in grants:
            items.append(parse_grant(signed))
            await asyncio.sleep(0)  # others have their turn
        return items
    except CryptoError as error:
        raise BadRequest(f"The rotation was refused: {error}.", code=REFUSED) from None


def _below(chain: Chain, reseal: Choice | Sequence[Namespace]) -> Mapping[Namespace | None, int]:
    """Return namespace (None: each) → the epoch below which it is to be sealed anew."""
    if reseal == "none":
        return {}
    if reseal == "all":
        return {None: chain.epoch}
    if reseal == "revoked":
        known = _epochs_of_withdrawn(chain)
        return {name: min(epoch + 1, chain.epoch) for name, epoch in known.items()}
    return {Namespace(name): chain.epoch for name in reseal}


def _epochs_of_withdrawn(chain: Chain) -> dict[Namespace | None, int]:
    """Return namespace (None: each) → the newest epoch whose key a withdrawn key was given."""
    known: dict[Namespace | None, int] = {}
    for key, serial in chain.revoked_at.items():
        for grant in chain.grants.get(key, ()):
            for entry in grant.scope if grant.serial < serial else ():
                known[entry.namespace] = max(entry.epoch, known.get(entry.namespace, 0))
    return known
