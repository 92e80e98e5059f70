"""The relayer that refuses, and the accounts and keys that ask it.

Not here: processes (`tests/processes.py`), formulas (`tests/reference.py`), the cases.
"""

import base64
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from nacl import bindings

from tests import reference as ref
from tests.processes import RunningRelayer
from tests.refusals.case import Signed, message
from tests.refusals.wire import Reply, exchange

TEXT = "The gate code of the old mill was given to nobody."
Members = dict[str, Any]


@dataclass(frozen=True)
class Key:
    """A public key: all that others know of somebody."""

    public: bytes

    @property
    def hex(self) -> str:
        """As JSON names it."""
        return self.public.hex()

    @property
    def exchange_public(self) -> bytes:
        """What boxes are made to."""
        return bindings.crypto_sign_ed25519_pk_to_curve25519(self.public)


@dataclass
class Account:
    """An account with the keys of those who ask in its name."""

    founder: ref.Signer = field(default_factory=lambda: ref.Signer(os.urandom(32)))
    root: ref.Root = field(default_factory=lambda: ref.Root(os.urandom(32)))
    serial: int = 0

    @property
    def id(self) -> bytes:
        """Its 32 bytes."""
        return ref.account_of(self.founder.public)

    @property
    def text(self) -> str:
        """Its id as headers and JSON have it."""
        return ref.account_text(self.id)

    def namespace(self, name: str = "team") -> ref.NamespaceKey:
        """The key of one of its namespaces."""
        return self.root.namespace(self.id, name)

    def grant(self, recipient: ref.Signer | Key, role: str, **changes: Any) -> Members:
        """The members of its next grant: of the root, or of the keys that are named."""
        named: Members = {
            "issuer": self.founder.public,
            "recipient": recipient,
            "keys": [self.root],
            "account": self.id,
            "serial": self.serial + 1,
            "role": role,
            "created": now_ms(),
            "ephemeral": os.urandom(32),
        }
        given = named | changes
        return ref.grant_members(
            given.pop("issuer"), given.pop("recipient"), given.pop("keys"), **given
        )


class World:
    """One relayer with a managed account, a sealed one, and a stranger's."""

    def __init__(self, relayer: RunningRelayer) -> None:
        url = urlsplit(relayer.url)
        self.host, self.port = str(url.hostname), int(url.port or 0)
        self.managed, self.sealed, self.foreign = Account(), Account(), Account()
        self.reader, self.agent, self.other = somebody(), somebody(), somebody()
        self.relayer = Key(b"")
        self.unlock_keys: list[bytes] = []
        self.memory_id = self.foreign_id = ""

    @classmethod
    async def of(cls, relayer: RunningRelayer) -> "World":
        """A world whose accounts have keys and a memory each."""
        world = cls(relayer)
        await world._settle()
        return world

    async def _settle(self) -> None:
        statement = (await self.send(message("GET", "/v1/relayer"))).json()["statement"]
        payload = json.loads(base64.b64decode(statement)[:-64])
        self.relayer = Key(bytes.fromhex(payload["relayer"]))
        self.unlock_keys = [bytes.fromhex(k["key"]) for k in payload["unlock_keys"]]
        for account in (self.managed, self.foreign):
            await self._found(account, account.grant(self.relayer, "custodian", serial=2))
        await self._found(self.sealed)
        team = [self.managed.namespace()]
        await self._join(self.managed, self.reader, "reader", team)
        sealed_team = [self.sealed.namespace()]
        await self._join(self.sealed, self.agent, "writer", sealed_team)
        await self._join(self.sealed, self.other, "reader", [self.sealed.namespace("other")])
        self.memory_id = await self._remember(self.managed)
        self.foreign_id = await self._remember(self.foreign)

    async def _found(self, account: Account, *more: Members) -> None:
        own = account.grant(account.founder, "owner")
        grants = [self.object("grant", m, account.founder) for m in (own, *more)]
        await self._passed(self.change("/v1/accounts", {"grants": grants}, account.founder))
        account.serial = len(grants)

    async def _join(
        self, account: Account, key: ref.Signer, role: str, keys: Sequence[ref.NamespaceKey]
    ) -> None:
        body = self.joining(account, account.grant(key, role, keys=keys), key)
        await self._passed(self.change("/v1/grants", body, account.founder))
        account.serial += 1

    async def _remember(self, account: Account) -> str:
        body = {"text": TEXT, "namespace": "team", "tags": ["mill"], "source": "gatehouse"}
        answer = await self._passed(self.change("/v1/remember", body, account.founder))
        return str(answer["id"])

    async def _passed(self, request: Signed) -> Any:
        reply = await self.send(request.sent())
        assert reply.status < 300, reply.raw
        return reply.json()

    async def send(self, raw: bytes) -> Reply:
        """The relayer's answer to these bytes."""
        return await exchange(self.host, self.port, raw)

    def asked(
        self,
        target: str = "/v1/recall",
        body: Members | bytes | None = None,
        signer: ref.Signer | None = None,
        method: str = "POST",
        **members: Any,
    ) -> Signed:
        """A signed request, of the managed account's founder unless another signer is named."""
        if body is None:
            body = {"query": "mill", "namespace": "team"} if target == "/v1/recall" else b""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        signer = signer or self.managed.founder
        return Signed(signer=signer, method=method, target=target, body=raw, **members)

    def got(self, target: str, signer: ref.Signer | None = None, **members: Any) -> Signed:
        """A signed GET."""
        return self.asked(target, b"", signer, "GET", **members)

    def change(
        self, target: str, body: Members, signer: ref.Signer | None = None, method: str = "POST"
    ) -> Signed:
        """A signed request whose body names this relayer."""
        return self.asked(target, {"relayer": self.relayer.hex} | body, signer, method)

    def object(self, kind: str, members: Members, signer: ref.Signer) -> str:
        """A signed object in base64."""
        return ref.b64(signer.signed(kind, ref.compact(members)))

    def joining(
        self,
        account: Account,
        members: Members,
        recipient: ref.Signer,
        *,
        issuer: ref.Signer | None = None,
        said: Members | None = None,
    ) -> Members:
        """The body that adds a key: its grant, and its own word that it joins."""
        issuer = issuer or account.founder
        join = {
            "v": 1,
            "account": account.text,
            "issuer": issuer.hex,
            "recipient": recipient.hex,
            "relayer": self.relayer.hex,
        }
        return {
            "grant": self.object("grant", members, issuer),
            "join": self.object("join", join | (said or {}), recipient),
        }


def somebody() -> ref.Signer:
    """A key that nobody knows yet."""
    return ref.Signer(os.urandom(32))


def now_ms() -> int:
    """The time in milliseconds."""
    return int(time.time() * 1000)
