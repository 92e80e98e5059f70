"""Accounts that have something of everything, and requests that name it in every possible place.

Not here: where requests name things (`places.py`), what of the victim's (`pairs.py`), and what is
asserted (`test_matrix.py`).

- Two strangers with the same history ask the same questions in the same order: one names what is
  somebody's, the other what is nobody's. What they are told must not differ.
"""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import httpx
from asyncpg.connection import LoggedQuery
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from relayer.clock import utc_now
from relayer.database.pool import Connection, Database
from relayer.http.checks import PUBLIC
from relayer.http.openapi import document
from relayer.sealed.grants import Role
from relayer.sealed.keys import (
    Namespace,
    account_text,
)
from relayer.storage import Storage
from relayer.upkeep import provision
from relayer.upkeep.provision import NewKey
from tests.framework import framework, handlers
from tests.signing import client_of, signer_of
from tests.tenants.places import Json, Place, Route

VICTIM: Final = "zqvictim"  # in everything the victim says, and nowhere else
LABEL: Final = "zqlabel"  # which keys of the account may see
THEIRS, ELSEWHERE = "team zqvictim", "team nobodys"
SIDE: Final = "side"

# What a request needs beside the thing it names; `{n}` makes no two texts alike.
_PLAIN: Final[Json] = {
    "text": "I prefer tea number {n}.",
    "question": "tea?",
    "query": "tea",
    "vector": [1.0, 0.0],
    "url": "https://hooks.example/in",
    "events": ["memory.written"],
    "items": [{"text": "I prefer coffee number {n}."}],
    "part": "memories",
    "ttl_s": 86_400,
    "bounds": ["2026-05-04T00:00:00Z"],
}
_ALONG: Final[Mapping[tuple[str, str], Json]] = {
    ("PATCH", "/v1/memories/{memory_id}"): {"text": "I prefer water number {n}."},
    ("POST", "/v1/memories/{memory_id}/state"): {"pinned": True},
    ("POST", "/api/remember/manual"): {"encrypted_data": "AAAA"},
    ("PATCH", "/v1/settings"): {"redact": False},
    ("PUT", "/v1/namespaces/{name}"): {"ttl_s": 86_400},
    ("POST", "/v1/rotations"): {"reseal": "none"},
    ("GET", "/v1/events"): {"follow": "false", "after": 0},
}


# Of the loop: between two statements of one task no connection is in use, and what was sent is told
# in the next turn.
_QUIET_TURNS: Final = 20
# What asyncpg asks a connection about types that it has not met there.
_THE_DRIVERS: Final = re.compile(r"pg_catalog\.|_(?:setting|config)\('jit'")


class Watched(Database):
    """A database that remembers the text of every statement that was sent to it."""

    statements: list[str]

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One connection, listened to until it is given back."""

        def note(query: LoggedQuery) -> None:
            self.statements.append(query.query)

        async with super().connection() as connection:
            with connection.query_logger(note):
                yield connection

    async def settled(self) -> list[str]:
        """What was sent, when nothing more is under way; checks send theirs at the same time."""
        quiet = 0
        while quiet < _QUIET_TURNS:
            busy = self.load().in_use
            await asyncio.sleep(0.001 if busy else 0)
            quiet = 0 if busy else quiet + 1
        sent = (" ".join(statement.split()) for statement in self.statements)
        return sorted(statement for statement in sent if not _THE_DRIVERS.search(statement))


@dataclass(frozen=True)
class Pair:
    """Something of the victim's, and something of the same form that nobody has."""

    foreign: Any
    absent: Any


@dataclass
class Asker:
    """Somebody with a key, and what is their own, by kind."""

    key: NewKey
    client: httpx.AsyncClient
    namespace: str
    own: dict[str, Any] = field(default_factory=dict)
    asked: int = 0


@dataclass(frozen=True)
class Heard:
    """An answer as far as two of them may be compared, and what it cost the database."""

    status: int
    body: str
    headers: Sequence[str]
    statements: Sequence[str]


@dataclass
class Scene:
    """One relayer, its routes that want a signature, and who is there."""

    app: ASGIApp
    storage: Storage
    database: Watched
    routes: Sequence[Route]
    relayer: str
    victim: Asker
    pairs: dict[str, list[Pair]] = field(default_factory=dict)

    def pairs_of(self, place: Place) -> list[Pair]:
        """What a place can name of the victim's.

        Raises:
            KeyError: the scene has nothing of that kind; `furnish` or `pairs.py` must make it.
        """
        if place.kind == "cursor":
            return self.pairs.get(f"cursor {place.path}") or self.pairs["cursor"]
        return self.pairs[place.kind]

    async def account(self, custody: Any = "managed") -> Asker:
        """A new account's founder, who owns something of everything."""
        key = await provision.create_account(
            self.storage, label="somebody", custody=custody, clock=utc_now
        )
        asker = Asker(key, client_of(self.app, signer_of(key)), "default")
        await self.furnish(asker, "I")
        return asker

    async def member(
        self, *namespaces: str, role: Role = "writer", expires_at: datetime | None = None
    ) -> Asker:
        """Another key of the victim's account."""
        key = await provision.add_key(
            self.storage,
            account=self.victim.key.account,
            namespaces=[Namespace(n) for n in namespaces],
            role=role,
            label=role,
            expires_at=expires_at,
            owner=None,
            clock=utc_now,
        )
        name = namespaces[0] if namespaces else self.victim.namespace
        return Asker(key, client_of(self.app, signer_of(key)), name, dict(self.victim.own))

    async def furnish(self, asker: Asker, says: str) -> None:
        """Give an account a memory, an erased one, a turn, a run, a webhook, all in one place."""
        client, place = asker.client, {"namespace": asker.namespace, "relayer": self.relayer}
        named = {"relayer": self.relayer}
        await client.patch("/v1/settings", json=named | {"keep_turns": True})
        for name, does in (("memory", "keep bees"), ("erased", "sell honey"), ("gone", "paint")):
            body = place | {"text": f"{says} {does}.", "idempotency_key": f"{says} {name}"}
            asker.own[name] = (await client.post("/v1/remember", json=body)).json()["id"]
        for name in ("erased", "gone"):
            await client.delete(f"/v1/memories/{asker.own[name]}", params=named)
        turn = await client.post("/v1/analyze", json=place | {"text": f"user: {says} like plums."})
        asker.own["episode"] = turn.json()["turn_id"]
        asker.own["run"] = (await client.post("/v1/consolidate", json=place)).json()["id"]
        asker.own["webhook"] = str(uuid.uuid4())
        hook = {"url": f"https://{says.lower()}.example/in", "events": ["memory.written"]}
        made = await client.put(f"/v1/webhooks/{asker.own['webhook']}", json=named | hook)
        assert made.status_code == 200, made.text
        stored = (await client.get("/v1/inventory")).json()["items"]
        asker.own["blob"] = stored[0]["blob_id"]
        asker.own["namespace"] = asker.namespace
        asker.own["account"] = account_text(asker.key.account)
        asker.own["key"] = asker.key.identity.public_key.hex()

    async def ask(
        self, asker: Asker, route: Route, place: Place | None = None, value: Any = None
    ) -> Heard:
        """Send a request that names `value` in `place`, and else only what the route needs."""
        asker.asked += 1
        path, query, body = self._request(asker, route, place, value)
        await self.database.settled()  # what was asked before is no part of this
        self.database.statements = []
        answer = await asker.client.request(
            route.method, path, params=query, json=body if route.takes_body else None
        )
        named = [value] if isinstance(value, str) else []
        return Heard(
            answer.status_code,
            masked(answer.text, [*named, *asker.own.values()]),
            sorted(answer.headers),
            await self.database.settled(),
        )

    def _request(
        self, asker: Asker, route: Route, place: Place | None, value: Any
    ) -> tuple[str, Json, Json]:
        parts: dict[str, Json] = {"path": {}, "query": {}, "body": {}}
        for where, name, listed in route.required:
            own = self._needed(asker, route, name)
            parts[where][name] = [own] if listed and not isinstance(own, list) else own
        if route.names_relayer:
            parts["query" if not route.takes_body else "body"]["relayer"] = self.relayer
        along = _ALONG.get((route.method, route.path), {})
        parts["body" if route.takes_body else "query"] |= along
        names = {p.name for p in route.places}
        if "namespace" in names and (place is None or place.name not in ("ids", "namespaces")):
            parts["body" if route.takes_body else "query"]["namespace"] = asker.namespace
        if place is not None:
            _put(parts[place.where], place.name, [value] if place.listed else value)
            if place.name == "superseded_by":
                parts["body"].pop("pinned", None)
        path = route.path
        for name, filled in parts["path"].items():
            path = path.replace("{" + name + "}", quote(str(filled), safe=""))
        return path, parts["query"], _numbered(parts["body"], asker.asked)

    def _needed(self, asker: Asker, route: Route, name: str) -> Any:
        if name == "relayer":
            return self.relayer
        kinds = {p.name: p.kind for p in route.places}
        if name in _PLAIN:
            return _PLAIN[name]
        kind = kinds.get(name, name)
        if kind in asker.own:
            return asker.own[kind]
        if kind in self.pairs:
            return self.pairs[kind][0].absent
        raise KeyError(f"{route.path} needs {name!r}: say in tests/tenants/scene.py what to send")


def _put(members: Json, dotted: str, value: Any) -> None:
    """Set a member, inside the first entry of a list or an object where it lies deeper."""
    head, _, rest = dotted.partition(".")
    if not rest:
        members[head] = value
        return
    inner = members.setdefault(head, {})
    if isinstance(inner, list):
        inner = [dict(inner[0])]
        members[head] = inner
        _put(inner[0], rest, value)
    else:
        _put(inner, rest, value)


def _numbered(value: Any, n: int) -> Any:
    if isinstance(value, dict):
        return {k: _numbered(v, n) for k, v in value.items()}
    if isinstance(value, list):
        return [_numbered(v, n) for v in value]
    return value.replace("{n}", str(n)) if isinstance(value, str) else value


ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FORMS: Final = (
    (re.compile(r'"(vectors|postings|fingerprint)":("[^"]*"|\[[^\]]*\])'), "KEYED"),
    (re.compile(r"0x[0-9a-f]{64}"), "ACCOUNT"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "KEY"),
    (ID, "ID"),
    (re.compile(r'"[a-z_]+_left":[0-9]+'), "LEFT"),  # a minute of the clock may end in between
    (re.compile(r"\b20\d\d-\d\d-\d\dT[0-9:.]+(?:Z|\+00:00)"), "TIME"),
    (re.compile(r'"[A-Za-z0-9_-]{43}"'), '"BLOB"'),
    (re.compile(r'"[A-Za-z0-9+/]{22,}={0,2}"'), '"SIGNED"'),
    (re.compile(r"(?<=^place: )\d+-[0-9a-f]{16}$", re.M), "PLACE"),
    (re.compile(r"whsec_[A-Za-z0-9+/=]+"), "SECRET"),
    (re.compile(r"\b\d{13,18}\b"), "MOMENT"),
)


def masked(text: str, named: Sequence[str]) -> str:
    """An answer without what was asked for and what is drawn anew for each request."""
    for value in (*named, THEIRS, ELSEWHERE):  # both strangers have made a namespace so called
        if len(value) > 8:  # shorter ones are words and numbers, the same for both
            text = text.replace(value, "NAMED")
    for form, word in _FORMS:
        text = form.sub(word, text)
    return text.replace("NAMED", "ID").replace("ACCOUNT", "ID").replace("BLOB", "ID")


def described_handlers(app: ASGIApp) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    """Yield method, path and handler of every route, the path as the document writes it."""
    for method, path, handler in handlers(app):
        yield method, re.sub(r":\w+\}", "}", path), handler


def guarded(app: ASGIApp) -> Json:
    """The OpenAPI document of an application without the routes that everybody may ask."""
    whole = document(framework(app).routes)
    public = {(m, path) for m, path, handler in described_handlers(app) if handler.opt.get(PUBLIC)}
    paths = {
        path: {
            m: described for m, described in operations.items() if (m.upper(), path) not in public
        }
        for path, operations in whole["paths"].items()
    }
    return whole | {"paths": paths}


def hence(seconds: float) -> datetime:
    """A moment from now."""
    return utc_now() + timedelta(seconds=seconds)
