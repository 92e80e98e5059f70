"""Services over a test's own database, built as the application builds them, and their callers."""

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from nacl import bindings

from relayer.database.pool import Database
from relayer.embedding.embedders import Embedder
from relayer.llm import LanguageModel
from relayer.memories.intake import Remembered
from relayer.memories.opener import Caller
from relayer.memories.recognition import Stored
from relayer.query.query import Query
from relayer.record import Draft
from relayer.sealed.grants import (
    Role,
    open_grant,
)
from relayer.sealed.keys import (
    AccountId,
    Identity,
    Namespace,
    NamespaceKey,
    PublicKey,
    Root,
    account_text,
)
from relayer.sealed.objects import strict_json
from relayer.sealed.primitives import aead_seal, exchange_public_key, to_base64, to_base64url
from relayer.services import Services, build_services
from relayer.settings import Settings
from relayer.storage import Storage, storage_on
from relayer.tenants.accounts import Access
from relayer.upkeep import provision
from tests.optional import unwrap

COUNT = "SELECT count(*) FROM memories"

TEAM = Namespace("team")
OTHER = Namespace("other")
CUSTODY: Mapping[str, Literal["managed", "sealed"]] = {"managed": "managed", "sealed": "sealed"}
START = datetime(2031, 5, 4, 9, 30, tzinfo=UTC)


class FakeClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Bench:
    """One relayer without its HTTP side."""

    settings: Settings
    storage: Storage
    services: Services
    clock: FakeClock
    root: dict[AccountId, Root] = field(default_factory=dict)

    async def account(self, custody: str = "managed", label: str = "test") -> provision.NewKey:
        """A new account; its root is kept for building unlock headers and grants."""
        founder = await provision.create_account(
            self.storage,
            label=label,
            custody=CUSTODY[custody],
            clock=self.clock,
        )
        chain = await self.storage.accounts.chain(founder.account)
        [root] = open_grant(chain.grants[founder.identity.public_key][0], founder.identity)
        assert isinstance(root, Root)
        self.root[founder.account] = root
        return founder

    async def key(
        self,
        founder: provision.NewKey,
        *namespaces: Namespace,
        role: Role = "writer",
        expires_at: datetime | None = None,
        label: str = "agent",
    ) -> provision.NewKey:
        """One more key of the account, granted by its founder."""
        return await provision.add_key(
            self.storage,
            account=founder.account,
            namespaces=namespaces,
            role=role,
            label=label,
            expires_at=expires_at,
            owner=founder.identity,
            clock=self.clock,
        )

    async def revoke(self, founder: provision.NewKey, key: PublicKey) -> None:
        """Withdraw everything a key holds, in the founder's name."""
        await provision.revoke_key(
            self.storage,
            account=founder.account,
            key=key,
            owner=founder.identity,
            clock=self.clock,
        )

    async def caller(self, key: provision.NewKey, header: str | None = None) -> Caller:
        """What the application makes of a checked request of this key."""
        access = await self.storage.accounts.access(key.account, key.identity.public_key)
        assert access is not None
        access = lasting(access, self.clock)
        keys, learned = await self.storage.custody.keys(access, header)
        if learned:
            held = await self.storage.custody.held_namespaces(access.account)
            await self.services.sweeper.resume(access.account, held)
        await self.storage.namespaces.wait_settled()  # as long as a client takes to ask again
        return Caller(access, keys)

    async def unlocked(
        self, key: provision.NewKey, *namespaces: Namespace, hold_s: int = 0
    ) -> Caller:
        """A caller of a sealed account that sent the keys of these namespaces along."""
        keys = [self.namespace_key(key.account, n) for n in namespaces]
        return await self.caller(key, self.unlock(key, keys, hold_s=hold_s))

    def namespace_key(self, account: AccountId, namespace: Namespace) -> NamespaceKey:
        """The right key of a namespace."""
        return self.root[account].namespace_key(account, namespace)

    def unlock(
        self,
        key: provision.NewKey,
        keys: Sequence[NamespaceKey],
        *,
        hold_s: int = 0,
        statement: bytes | None = None,
    ) -> str:
        """An unlock header for the keys that the relayer's statement names."""
        named = strict_json((statement or self.storage.custody.statement())[:-64])["unlock_keys"]
        payload = {
            "v": 1,
            "relayer": self.storage.identity.public_key.hex(),
            "account": account_text(key.account),
            "sender": key.identity.public_key.hex(),
            "iat": round(self.clock().timestamp() * 1000),
            "hold": hold_s,
            "keys": [{"ns": k.namespace, "epoch": k.epoch, "key": to_base64(k.key)} for k in keys],
        }
        return box_unlock(key.identity, named, payload)

    async def remember(self, caller: Caller, *texts: str, **members: Any) -> list[Stored]:
        """Remember texts in `team`, or as `members` say."""
        drafts = [Draft(**{"text": t, "namespace": TEAM, **members}) for t in texts]
        return list((await self.stored(caller, drafts)).items)

    async def stored(self, caller: Caller, drafts: Sequence[Draft]) -> Remembered:
        """What became of drafts."""
        return await self.services.intake.remember(caller, drafts, route="remember")

    async def embed(self, caller: Caller, items: Sequence[Stored]) -> None:
        """Do the work of the embedding job now."""
        await self.services.indexer.embed(
            caller.access.account, caller.keys, [item.id for item in items]
        )

    async def texts(self, caller: Caller, query: str, **members: Any) -> list[str]:
        """Recalled texts, best first."""
        asked = Query(**{"text": query, "namespaces": [TEAM], **members})
        recalled = await self.services.recaller.recall(caller, asked)
        return [unwrap(found.memory.text) for found in recalled.found]

    async def sql(self, statement: str, *arguments: Any) -> list[Any]:
        """Rows of a statement of the test's own: what a meddler could do."""
        return await self.storage.database.fetch(statement, *arguments)

    async def value(self, statement: str, *arguments: Any) -> Any:
        """The first column of the first row."""
        return (await self.sql(statement, *arguments))[0][0]

    def another(self, **changes: Any) -> "Bench":
        """Another replica on the same storage: nothing cached, keys of its own."""
        storage = storage_on(
            self.settings,
            self.storage.connect_args,
            self.storage.database,
            self.storage.identity,
            self.clock,
        )
        services = build_services(
            storage,
            self.settings,
            embedder=changes.get("embedder", self.services.embedders.current),
            language_model=changes.get("language_model"),
            clock=self.clock,
        )
        return Bench(self.settings, storage, services, self.clock, self.root)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """The worker runs meanwhile."""
        task = asyncio.create_task(self.services.worker.run())
        try:
            yield
        finally:
            self.services.worker.stop()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, statement: str, wanted: Any, *arguments: Any) -> None:
        """Wait until a statement's value is the wanted one."""
        async with asyncio.timeout(120):
            while (found := await self.value(statement, *arguments)) != wanted:
                await asyncio.sleep(0.05)
        assert found == wanted


def lasting(access: Access, clock: Callable[[], datetime]) -> Access:
    """The access of a test's caller, which outlives many writes; a request's is as old as it is.

    Its time is the clock's, and it has not seen how far the index of its account had come.
    """

    class LastingAccess(Access):
        def __getattribute__(self, name: str) -> Any:
            return clock() if name == "time" else super().__getattribute__(name)

    return LastingAccess(**vars(access) | {"index_mark": None})


def box_unlock(sender: Identity, named: Sequence[dict[str, Any]], payload: dict[str, Any]) -> str:
    """The header of SPEC §6 for unlock keys as a statement names them."""
    content_key = os.urandom(32)
    raw = bytes([1, len(named)])
    for entry in named:
        shared = bindings.crypto_box_beforenm(
            bytes.fromhex(entry["key"]), sender.exchange_private_key
        )
        nonce = os.urandom(24)
        box = bindings.crypto_box_easy_afternm(content_key, nonce, shared)
        raw += bytes.fromhex(entry["kid"]) + nonce + box
    nonce = os.urandom(24)
    sealed = aead_seal(content_key, json.dumps(payload).encode(), associated=raw, nonce=nonce)
    return to_base64url(raw + nonce + sealed)


def new_identity() -> Identity:
    """A key nobody knows yet."""
    identity = Identity(os.urandom(32))
    exchange_public_key(identity.public_key)
    return identity


def bench_on(
    settings: Settings,
    connect_args: dict[str, Any],
    database: Database,
    *,
    embedder: Embedder | None = None,
    language_model: LanguageModel | None = None,
    identity: Identity | None = None,
    clock: Callable[[], datetime] | None = None,
    **changes: Any,
) -> Bench:
    """A relayer on a migrated database; `changes` are settings."""
    # On a slow machine, too, a request has published what it committed when it answers.
    settings = replace(settings, **({"request_timeout_s": 500.0} | changes))
    moment = clock or FakeClock()
    storage = storage_on(settings, connect_args, database, identity or new_identity(), moment)
    services = build_services(
        storage, settings, embedder=embedder, language_model=language_model, clock=moment
    )
    return Bench(settings, storage, services, moment)  # type: ignore[arg-type]  # who gave it moves it


def random_text() -> str:
    """A text nobody has said."""
    return f"The reference of this note is {uuid.uuid4().hex}."


async def access_of(bench: Bench, key: provision.NewKey) -> Access | None:
    return await bench.storage.accounts.access(key.account, key.identity.public_key)
