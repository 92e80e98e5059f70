"""An owner who begins new epochs, and what is then stored under which keys."""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from relayer.errors import BadRequest, Conflict, Misdirected, NotAllowed
from relayer.llm import LanguageModel
from relayer.memories.conversations import Conversation
from relayer.memories.opener import Caller
from relayer.memories.reseal import OLD_BYTES_LIVE
from relayer.sealed import envelope
from relayer.sealed.grants import Grant, issue_grant, issue_revocation
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey, PublicKey, Root
from relayer.sealed.primitives import CryptoError, random_key
from relayer.tenants.accounts import Access
from relayer.tenants.rotation import Rotated
from relayer.upkeep import provision
from tests.services import TEAM, Bench, access_of

CUSTODIES = ("managed", "sealed")
EPOCHS = "SELECT epoch, count(*)::int FROM memories GROUP BY epoch ORDER BY epoch"
NOT_NOW: Callable[[], bool] = lambda: False  # noqa: E731  # as a type checker sees it
ALWAYS: Callable[[], bool] = lambda: True  # noqa: E731


class Rotator:
    """An owner who knows every root of an account, and the objects it would send."""

    def __init__(self, bench: Bench, owner: provision.NewKey) -> None:
        self.bench, self.owner = bench, owner
        self.roots = [bench.root[owner.account]]

    async def objects(
        self,
        roots: Sequence[Root],
        *,
        revoke: Sequence[PublicKey] = (),
        without: Sequence[PublicKey] = (),
        more: Sequence[PublicKey] = (),
    ) -> tuple[list[bytes], list[bytes]]:
        """(revocations, grants of the same again for everybody under these roots)."""
        account, clock = self.owner.account, self.bench.clock
        chain = await self.bench.storage.accounts.chain(account)
        now_ms = round(clock().timestamp() * 1000)
        serial = chain.serial
        revocations, grants = [], []
        for key in revoke:
            serial += 1
            revocations.append(
                issue_revocation(
                    self.owner.identity,
                    account=account,
                    serial=serial,
                    recipient=key,
                    created_ms=now_ms,
                )
            )
        held = [(k, g) for k in chain.grants for g in chain.live(k, now_ms)]
        held = [(k, g) for k, g in held if k not in (*revoke, *without)]
        # As clients do: a relayer that the account left gets nothing.
        here = self.bench.storage.identity.public_key
        held = [(k, g) for k, g in held if g.role != "custodian" or k == here]
        for key, grant in [*held, *((k, held[0][1]) for k in more)]:
            serial += 1
            grants.append(
                issue_grant(
                    self.owner.identity,
                    account=account,
                    serial=serial,
                    recipient=key,
                    role=grant.role,
                    keys=_keys(account, grant, roots),
                    created_ms=now_ms,
                    expires_ms=grant.expires_ms,
                )
            )
        return revocations, grants

    async def rotate(
        self, *, revoke: Sequence[PublicKey] = (), reseal: Any = "revoked", **how: Any
    ) -> Rotated:
        """Begin the next epoch."""
        root = Root(self.roots[-1].epoch + 1, random_key())
        revocations, grants = await self.objects([*self.roots, root], revoke=revoke, **how)
        rotated = await self.send(revocations, grants, reseal)
        self.roots.append(root)
        return rotated

    async def send(
        self, revocations: Sequence[bytes], grants: Sequence[bytes], reseal: Any = "none"
    ) -> Rotated:
        """Send these objects."""
        access = await access_of(self.bench, self.owner)
        assert access is not None
        return await self.bench.services.rotations.rotate(
            access, revocations=revocations, grants=grants, reseal=reseal
        )

    def keys(self, *namespaces: Namespace) -> list[NamespaceKey]:
        """The keys of namespaces in every epoch."""
        account = self.owner.account
        return [root.namespace_key(account, n) for root in self.roots for n in namespaces]

    async def caller(
        self,
        key: provision.NewKey | None = None,
        *namespaces: Namespace,
        hold_s: int = 0,
        bench: Bench | None = None,
    ) -> Caller:
        """A caller with the keys of all epochs, as its client would send them."""
        bench = bench or self.bench
        key = key or self.owner
        return await bench.caller(
            key, bench.unlock(key, self.keys(*(namespaces or (TEAM,))), hold_s=hold_s)
        )

    async def reseal(self, *namespaces: Namespace, go_on: Callable[[], bool] = ALWAYS) -> bool:
        """Do the work of the job now, with the keys that it would find."""
        await self.caller(self.owner, *(namespaces or (TEAM,)), hold_s=300)
        keys = await self.bench.storage.custody.reseal_keys(self.owner.account)
        assert keys is not None
        return await self.bench.services.resealer.work(self.owner.account, keys, go_on)

    async def drop_old_bytes(self) -> None:
        """Let the grace of replaced bytes pass, and delete them as housekeeping would."""
        self.bench.clock.advance(OLD_BYTES_LIVE.total_seconds() + 1)
        await self.bench.storage.outbox.empty()


def _keys(account: AccountId, grant: Grant, roots: Sequence[Root]) -> Any:
    if grant.whole_account:
        return list(roots)
    names = dict.fromkeys(e.namespace for e in grant.scope if e.namespace is not None)
    return [root.namespace_key(account, name) for name in names for root in roots]


async def rotator(bench: Bench, custody: str) -> Rotator:
    return Rotator(bench, await bench.account(custody))


async def epochs(bench: Bench) -> dict[int, int]:
    return {r["epoch"]: r["count"] for r in await bench.sql(EPOCHS)}


async def all_bytes(bench: Bench, account: AccountId) -> dict[str, bytes]:
    """Every object that the store holds of an account."""
    store = bench.storage.blobs
    names = [name async for name in store.names(account)]
    found = await store.get_many(account, names)
    return {name: data for name, data in found.items() if isinstance(data, bytes)}


async def opened_by(bench: Bench, account: AccountId, keys: Sequence[NamespaceKey]) -> set[str]:
    """Names of the stored objects that any of these keys opens."""
    names = set()
    for name, data in (await all_bytes(bench, account)).items():
        for key in keys:
            try:
                envelope.open_envelope(key, envelope.read_header(data).address, data)
                names.add(name)
            except CryptoError:
                continue
    return names


async def refused(code: str, use: Awaitable[Any]) -> None:
    with pytest.raises((BadRequest, Conflict, Misdirected, NotAllowed)) as caught:
        await use
    assert caught.value.code == code


async def keep_turn(bench: Bench, caller: Caller) -> uuid.UUID:
    """A turn that waits for its extraction."""
    away = bench.another(language_model=_away())
    await away.services.analysis.analyze(caller, _conversation())
    return uuid.UUID(str(await bench.value("SELECT episode_id FROM episodes")))


async def admitted(bench: Bench, key: provision.NewKey) -> Access:
    access = await access_of(bench, key)
    assert access is not None
    return access


def _away() -> LanguageModel:
    return LanguageModel(base_url="http://127.0.0.1:9/v1", api_key="", model="away", timeout_s=1.0)


def _conversation() -> Conversation:
    return Conversation(text="user: I prefer tea over coffee.", namespace=TEAM)
