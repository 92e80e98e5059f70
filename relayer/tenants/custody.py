"""Namespace keys that a request or a job may use: a custodian grant's, or an unlock header's.

Not here: who may act where (`accounts.py`), formats (`sealed.unlock`, `sealed.grants`).

- A request uses only keys of its own unlock header or of the custodian grant; the ring serves
  background work alone.
- Background work seals under the newest key that it finds, and thereby names it for good. So a key
  that nobody has named yet is kept only if its lender might have named it by a write.
- The ring lives in this process's memory, is bounded, and forgets on time: a key no later than its
  lender's right to it ends.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from relayer.clock import Clock, to_ms
from relayer.errors import Corrupted, Misdirected, NotAllowed
from relayer.sealed.grants import Chain, oldest_epoch, open_grant
from relayer.sealed.keys import AccountId, Identity, Namespace, NamespaceKey, PublicKey, Root
from relayer.sealed.primitives import CryptoError
from relayer.sealed.receipts import sign_statement
from relayer.sealed.unlock import UnknownUnlockKey, Unlock, open_unlock
from relayer.telemetry.instruments import count_lookups
from relayer.tenants.accounts import OUTDATED, Access, Accounts
from relayer.tenants.namespaces import Namespaces
from relayer.tenants.ring import KeyRing
from relayer.tenants.unlock_cache import UnlockCache
from relayer.tenants.unlock_key_pairs import MadeKeys, UnlockKeys

ROOTS_MAX: Final = 1_000
DERIVED_MAX: Final = 256  # namespaces of an account, half a KiB each; more are derived anew


class Keys(Protocol):
    """The namespace keys that one request or job may use."""

    @property
    def lender(self) -> PublicKey | None:
        """Return the key on whose word these are the keys; None where nobody asks."""

    def of(self, namespace: Namespace) -> Sequence[NamespaceKey]:
        """Return the namespace's keys, newest epoch first.

        Raises:
            NotAllowed: `unlock_required`, none is at hand.
        """


@dataclass(frozen=True)
class RootKeys:
    """Keys derived from the roots of a custodian grant."""

    account: AccountId
    roots: tuple[Root, ...] = field(repr=False)
    lender: PublicKey | None = None  # the custodian
    _derived: dict[Namespace, tuple[NamespaceKey, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def of(self, namespace: Namespace) -> Sequence[NamespaceKey]:
        """Return the namespace's keys, newest epoch first."""
        if namespace not in self._derived:
            if len(self._derived) >= DERIVED_MAX:
                self._derived.clear()
            self._derived[namespace] = tuple(
                root.namespace_key(self.account, namespace) for root in self.roots
            )
        return self._derived[namespace]


@dataclass(frozen=True)
class LentKeys:
    """Keys that came with an unlock header, or that the ring still holds."""

    keys: Mapping[Namespace, Sequence[NamespaceKey]] = field(repr=False)
    lender: PublicKey | None = None  # none of those that the ring holds

    def of(self, namespace: Namespace) -> Sequence[NamespaceKey]:
        """Return the namespace's keys, newest epoch first."""
        if not (found := self.keys.get(namespace)):
            raise NotAllowed(
                "This account is sealed: send the namespace's key in x-memrelay-unlock.",
                code="unlock_required",
            )
        return found


def lent(keys: Sequence[NamespaceKey], lender: PublicKey | None = None) -> LentKeys:
    """Return keys by namespace, newest epoch first."""
    by_namespace: dict[Namespace, list[NamespaceKey]] = {}
    for key in sorted(keys, key=lambda k: -k.epoch):
        by_namespace.setdefault(key.namespace, []).append(key)
    return LentKeys(by_namespace, lender)


class Custody:
    """Opens custodian grants and unlock headers, and keeps lent keys for background work."""

    def __init__(
        self,
        *,
        accounts: Accounts,
        namespaces: Namespaces,
        identity: Identity,
        clock: Clock,
        unlock_keys: UnlockKeys | None = None,
    ) -> None:
        self._accounts = accounts
        self._namespaces = namespaces
        self._identity = identity
        self._clock = clock
        self._unlock_keys = unlock_keys or MadeKeys()
        self._opened = UnlockCache()
        self._ring = KeyRing()
        self._roots: OrderedDict[tuple[bytes, ...], RootKeys] = OrderedDict()

    def statement(self) -> bytes:
        """Return the signed `relayer` statement with this process's own live unlock keys."""
        now_ms = to_ms(self._clock())
        keys = self._unlock_keys.live(now_ms)
        return sign_statement(
            self._identity,
            issued_ms=now_ms,
            unlock_keys=[(k.kid, k.public_key, k.not_after_ms) for k in keys.values()],
        )

    async def keys(self, access: Access, header: str | None) -> tuple[Keys, bool]:
        """Return the keys of a request, and whether the ring learned a key it did not hold.

        Raises:
            NotAllowed: `unlock_rejected`.
            Misdirected: the header is for keys this process does not hold.
        """
        chain = await self._accounts.chain(access.account, serial=access.serial)
        now_ms = to_ms(access.time)
        if access.custody == "managed" and (roots := self._root_keys(chain, now_ms)) is not None:
            return roots, False
        if header is None:
            return LentKeys({}), False
        try:
            unlock, unnamed = await self._open(access, chain, header)
        except UnknownUnlockKey:
            raise Misdirected(
                "The relayer's unlock keys have changed: fetch /v1/relayer and retry."
            ) from None
        except CryptoError:
            raise NotAllowed("The unlock header was rejected.", code="unlock_rejected") from None
        keys = lent(unlock.keys, access.key)
        if any(own[0].epoch < chain.epoch for own in keys.keys.values()):
            raise Misdirected(OUTDATED, code="epoch.outdated")
        until_ms = min(unlock.issued_ms, now_ms) + unlock.hold_s * 1000
        kept = [
            (k, access.ends_ms(k.namespace, until_ms))
            for k in unlock.keys
            if k.namespace not in unnamed or access.may_write(k.namespace)
        ]
        learned = self._ring.hold(chain, kept, now_ms, owned=access.is_owner)
        return keys, learned

    async def confirm(self, access: Access, keys: Keys) -> Keys:
        """Return the keys of a request that goes on later: a custodian's as its grants are now."""
        return (await self.keys(access, None))[0] if isinstance(keys, RootKeys) else keys

    async def job_keys(self, account: AccountId) -> Keys | None:
        """Return the keys of background work: the custodian's, or the ring's; None without any."""
        chain, now_ms = await self._accounts.chain(account), to_ms(self._clock())
        if (roots := self._root_keys(chain, now_ms)) is not None:
            return roots
        held = self._ring.held(chain, now_ms)
        return lent(held) if held else None

    async def reseal_keys(self, account: AccountId) -> Keys | None:
        """Return the keys that seal memories anew: the custodian's, or those an owner lent."""
        chain, now_ms = await self._accounts.chain(account), to_ms(self._clock())
        if (roots := self._root_keys(chain, now_ms)) is not None:
            return roots
        held = lent(self._ring.held(chain, now_ms, owned=True)).keys
        whole = {name: keys for name, keys in held.items() if keys[0].epoch == chain.epoch}
        return LentKeys(whole) if whole else None

    async def held_namespaces(self, account: AccountId) -> list[Namespace]:
        """Return the namespaces of an account whose keys the ring holds."""
        chain = await self._accounts.chain(account)
        return sorted({key.namespace for key in self._ring.held(chain, to_ms(self._clock()))})

    def forget_expired(self) -> None:
        """Drop lent keys whose time is over, and headers that count no longer."""
        now_ms = to_ms(self._clock())
        self._ring.forget_expired(now_ms)
        self._opened.forget_expired(now_ms)

    def _root_keys(self, chain: Chain, now_ms: int) -> RootKeys | None:
        grants = self._accounts.custodian_grants(chain, now_ms)
        if not grants:
            return None
        cached = tuple(g.signed for g in grants)
        count_lookups("roots", cached in self._roots)
        if cached not in self._roots:
            try:
                roots = {r.epoch: r for g in grants for r in open_grant(g, self._identity)}
            except CryptoError:
                raise Corrupted("The custodian's grant does not open.") from None
            oldest = oldest_epoch(grants)
            newest_first = tuple(roots[e] for e in sorted(roots, reverse=True) if e >= oldest)
            assert all(isinstance(r, Root) for r in newest_first)
            self._roots[cached] = RootKeys(
                chain.account,
                newest_first,  # type: ignore[arg-type]  # asserted above
                self._identity.public_key,
            )
            if len(self._roots) > ROOTS_MAX:
                self._roots.popitem(last=False)
        return self._roots[cached]

    async def _open(
        self, access: Access, chain: Chain, header: str
    ) -> tuple[Unlock, set[Namespace]]:
        """Open a header; return its contents, and the namespaces whose lent keys nobody knows yet.

        Raises:
            CryptoError: it does not open, or lends what its sender was not granted.
        """
        now_ms = to_ms(access.time)
        sent = header.encode() + access.key + access.account
        digest = hashlib.blake2b(sent, digest_size=32).digest()
        known = self._opened.of(digest, now_ms)
        unlock = known or open_unlock(
            header,
            unlock_keys=self._unlock_keys.live(now_ms),
            relayer=self._identity.public_key,
            account=access.account,
            sender=access.key,
            now_ms=now_ms,
        )
        unnamed = await self._check_scope(access, chain, unlock)
        if known is None:  # what nobody was granted is not kept
            self._opened.keep(access.account, digest, unlock)
        return unlock, unnamed

    async def _check_scope(self, access: Access, chain: Chain, unlock: Unlock) -> set[Namespace]:
        """Check the lent keys; return the namespaces of those that nobody knows yet.

        Every one is one its sender was granted, and the one everybody else knows, or has to know
        from now on.

        Raises:
            CryptoError: outside the grants, or another key than these say.
            NotAllowed: the namespace has another key.
        """
        unnamed = set()
        for key in unlock.keys:
            granted = _key_id_of(access, key)
            if granted is None and not any(g.whole_account for g in access.grants):
                raise CryptoError("the key is outside the grants")
            if granted is not None:
                if granted != key.key_id:
                    raise CryptoError("another key than the grant's")
                continue
            named = await self._namespaces.key_id(access.account, key.namespace, key.epoch)
            if named is not None:
                if named != key.key_id:
                    await self._namespaces.check(access.account, key, access.key)
                continue
            named = chain.key_ids.get((key.namespace, key.epoch))
            if named not in (None, key.key_id):
                raise CryptoError("another key than the namespace's")
            if named is None and not _root_epoch(access, key.epoch):
                raise CryptoError("no root of that epoch")
            if named is None:
                unnamed.add(key.namespace)
        return unnamed


def _key_id_of(access: Access, key: NamespaceKey) -> bytes | None:
    """Return the key id that one of the sender's own grants names for this namespace and epoch."""
    place = (key.namespace, key.epoch)
    entries = (entry for grant in access.grants for entry in grant.scope)
    return next((e.key_id for e in entries if (e.namespace, e.epoch) == place), None)


def _root_epoch(access: Access, epoch: int) -> bool:
    return any(e.namespace is None and e.epoch == epoch for g in access.grants for e in g.scope)
