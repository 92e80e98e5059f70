"""Nobody is told anything of what is somebody else's: every route, every id, every wrong key.

Not here: which ids there are (`places.py`), the requests (`scene.py`), time (`__main__.py`).
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from relayer.clock import to_ms, utc_now
from relayer.http.checks import FOUNDING
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.sealed.keys import AccountId, Identity, NamespaceKey, account_id, account_text
from relayer.upkeep import provision
from tests.conftest import database_copy
from tests.memwal_session import session
from tests.openai_server import openai_server
from tests.signing import Signer, client_of, signer_of
from tests.tenants.lending import UNLOCK, header, key_of
from tests.tenants.pairs import scene_on
from tests.tenants.places import Place, Route, Unknown, routes
from tests.tenants.scene import (
    LABEL,
    SIDE,
    THEIRS,
    VICTIM,
    Asker,
    Heard,
    Scene,
    described_handlers,
    hence,
)

# MemWal's routes that only read; every other one of them, and each that names its relayer, changes.
MEMWAL_READS = {"recall", "recall/manual", "ask", "embed", "stats", "remember/bulk/status"}
CLOSING_ROUTE = "/v1/accounts/{account_id}"  # also tells of it
FOUNDING_ROUTE = "/v1/accounts"  # signed by a key that has no account: nothing to be foreign to


@pytest_asyncio.fixture(scope="module")
async def scene(
    postgres: EmbeddedPostgres, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    with openai_server() as model:
        async with (
            database_copy(postgres, template) as copy,
            scene_on(copy, tmp_path_factory.mktemp("tenants"), model.base_url) as scene,
        ):
            yield scene


def every_place(scene: Scene) -> list[tuple[Route, Place]]:
    return [(route, place) for route in scene.routes for place in route.places]


async def rows_of_victim(scene: Scene, *, shared: bool = True) -> dict[str, list[str]]:
    """Everything stored of the victim's; without `shared`, what lies in its namespace alone."""
    return await rows_of(scene, scene.victim.key.account, shared=shared)


async def rows_of(scene: Scene, account: AccountId, *, shared: bool = True) -> dict[str, list[str]]:
    """Everything stored of an account."""
    column = "account_id" if shared else "namespace_id"
    found = await scene.storage.database.fetch(
        "SELECT table_name FROM information_schema.columns WHERE table_schema = 'public'"
        " AND column_name = $1 AND table_name <> 'request_windows' ORDER BY 1",
        column,
    )
    where = "account_id = $1"
    if not shared:
        where += " AND namespace_id = (SELECT namespace_id FROM namespaces WHERE account_id = $1"
        where += f" AND name = '{THEIRS}')"
    statement = "SELECT to_jsonb(t)::text AS row FROM {} t WHERE {} ORDER BY 1"
    places = [(name, where) for (name,) in found]
    if shared:
        places.append(("key_owner", "whole_id = $1"))
    return {
        name: [
            r["row"]
            for r in await scene.storage.database.fetch(statement.format(name, where), account)
        ]
        for name, where in places
    }


async def test_one_strangers_answers_do_not_differ_from_anothers(scene: Scene) -> None:
    """capability 0.33: a stranger's valid key learns nothing of an account, not that it is there.

    Two strangers with the same history: one names what is the victim's, the other what is
    nobody's. Status, body, names of headers and the statements sent to the database are the same.
    """
    before = await rows_of_victim(scene)
    one, other = await scene.account(), await scene.account()
    differing, told = [], []
    for route, place in every_place(scene):
        for pair in scene.pairs_of(place):
            foreign = await scene.ask(one, route, place, pair.foreign)
            absent = await scene.ask(other, route, place, pair.absent)
            if foreign != absent:
                differing.append((str(place), foreign, absent))
            if VICTIM in foreign.body or LABEL in foreign.body:
                told.append((str(place), foreign))
    assert not differing, explained(differing)
    assert not told
    assert await rows_of_victim(scene) == before


def explained(differing: Sequence[tuple[str, Heard, Heard]]) -> str:
    """Which places tell something, and what."""
    lines = []
    for place, foreign, absent in differing:
        for name in ("status", "body", "headers", "statements"):
            one, other = str(getattr(foreign, name)), str(getattr(absent, name))
            if one != other:
                same = next(
                    (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0
                )
                at = max(0, same - 40)
                lines.append(f"{place}: {name}\n  {one[at : at + 160]}\n  {other[at : at + 160]}")
    return "\n".join(lines)


async def test_a_key_of_another_namespace_learns_no_more(scene: Scene) -> None:
    """capability 0.34: the same account, another namespace: nothing of it is there."""
    narrow = await scene.member(SIDE)
    stored = {"namespace": SIDE, "relayer": scene.relayer, "text": "I sweep the yard."}
    own = (await narrow.client.post("/v1/remember", json=stored)).json()["id"]
    narrow.own |= {"memory": own, "namespace": SIDE, "key": narrow.key.identity.public_key.hex()}
    before = await rows_of_victim(scene, shared=False)
    differing = []
    for route, place in every_place(scene):
        if place.kind == "account" or route.path == FOUNDING_ROUTE:
            continue  # the account is its own
        for pair in scene.pairs_of(place):
            foreign = await scene.ask(narrow, route, place, pair.foreign)
            absent = await scene.ask(narrow, route, place, pair.absent)
            if settled(foreign) != settled(absent):
                differing.append((str(place), foreign, absent))
    assert not differing, explained(differing)
    assert await rows_of_victim(scene, shared=False) == before


async def test_usage_is_that_of_ones_own_namespaces(scene: Scene) -> None:
    narrow = await scene.member("counted")
    stored = {"namespace": "counted", "relayer": scene.relayer, "text": "I count the stairs."}
    await narrow.client.post("/v1/remember", json=stored)

    async def used() -> dict[str, Any]:
        answer: dict[str, Any] = (await narrow.client.get("/v1/usage")).json()
        del answer["requests"]
        return answer

    before = await used()
    assert (before["memory_count"], set(before) & {"grant_count", "storage_bytes_max"}) == (
        1,
        set(),
    )
    stored |= {"namespace": scene.victim.namespace, "text": "I sweep the yard again."}
    assert (await scene.victim.client.post("/v1/remember", json=stored)).status_code == 202
    assert await used() == before


def settled(heard: Heard) -> tuple[Any, ...]:
    """An answer without numbers that count up from one request to the next."""
    return (heard.status, heard.body if heard.status >= 300 else "", heard.headers)


@pytest.mark.parametrize("who", ["stranger", "of another namespace"])
async def test_no_route_shows_what_was_not_asked_for(scene: Scene, who: str) -> None:
    """What a key may ask without naming anything holds nothing of the victim's."""
    asker = await scene.member(SIDE) if who == "of another namespace" else await scene.account()
    asker.own |= {"namespace": asker.namespace}
    reading = [r for r in scene.routes if not r.names_relayer]
    answers = {f"{r.method} {r.path}": await scene.ask(asker, r) for r in reading}
    assert not {name: h.body for name, h in answers.items() if VICTIM in h.body}
    allowed = [name for name, heard in answers.items() if heard.status < 300]
    assert len(allowed) > 15, "the question was answered"


async def test_a_reader_changes_nothing(scene: Scene) -> None:
    """Every route that changes something answers 403 to a key that may only read there."""
    reader = await scene.member(THEIRS, role="reader")
    before = await rows_of_victim(scene)
    answers = {}
    for route in scene.routes:
        if changes(route) and route.path != FOUNDING_ROUTE:
            heard = await scene.ask(reader, route, *_named(route, scene))
            answers[f"{route.method} {route.path}"] = heard.status
    assert {name: status for name, status in answers.items() if status != 403} == {}
    assert len(answers) > 20
    assert await rows_of_victim(scene) == before


def changes(route: Route) -> bool:
    memwal = route.path.removeprefix("/api/")
    by_memwal = route.method == "POST" and memwal != route.path and memwal not in MEMWAL_READS
    return route.names_relayer or by_memwal


def _named(route: Route, scene: Scene) -> tuple[Place | None, Any]:
    """A real thing of the victim's where a request need not name one."""
    for place in route.places:
        if place.name == "ids":
            return place, scene.victim.own["memory"]
    return None, None


async def outsiders(scene: Scene) -> dict[str, Asker]:
    """Keys that open nothing: the victim's own account is what they name."""
    expired = await scene.member(THEIRS, expires_at=hence(1))
    revoked = await scene.member()
    await provision.revoke_key(
        scene.storage,
        account=scene.victim.key.account,
        key=revoked.key.identity.public_key,
        owner=None,
        clock=utc_now,
    )
    stranger = await scene.account()
    unknown = Identity(bytes(range(32)))
    victim = account_text(scene.victim.key.account)
    absent = account_text(account_id(Identity(bytes(reversed(range(32)))).public_key))

    def naming(identity: Identity, account: str) -> Asker:
        client = client_of(scene.app, Signer(identity=identity, account=account))
        return Asker(scene.victim.key, client, THEIRS, dict(scene.victim.own))

    while (await scene.ask(expired, scene.routes[0])).status != 401:
        await asyncio.sleep(0.05)  # until its second is over
    return {
        "expired": expired,
        "revoked": revoked,
        "stranger, naming the account": naming(stranger.key.identity, victim),
        "stranger, naming no account": naming(stranger.key.identity, absent),
        "unknown, naming the account": naming(unknown, victim),
        "unknown, naming no account": naming(unknown, absent),
    }


async def test_keys_that_open_nothing_are_told_one_thing(scene: Scene) -> None:
    """Expired, revoked, unknown and misnamed: the same 401 on every route, and nothing happens."""
    asking = await outsiders(scene)
    before = await rows_of_victim(scene)
    answers = set()
    for route in scene.routes:
        if route.path == FOUNDING_ROUTE:
            continue
        heard = await asyncio.gather(*(scene.ask(a, route) for a in asking.values()))
        answers |= {(h.status, h.body, tuple(h.headers)) for h in heard}
    assert len(answers) == 1
    [(status, body, _)] = answers
    assert (status, json.loads(body)["code"]) == (401, "auth.rejected")
    assert await rows_of_victim(scene) == before


# Sealed accounts


async def sealed(scene: Scene, says: str, namespace: str) -> Asker:
    """A sealed account's founder, who lends the key of one namespace and owns things there."""
    key = await provision.create_account(
        scene.storage,
        label=LABEL if says == VICTIM else "somebody",
        custody="sealed",
        clock=utc_now,
    )
    asker = Asker(key, client_of(scene.app, signer_of(key)), namespace)
    lend(scene, asker, [await key_of(scene.storage, asker, namespace)])
    await scene.furnish(asker, says)
    return asker


def lend(
    scene: Scene, asker: Asker, keys: Sequence[NamespaceKey], account: AccountId | None = None
) -> None:
    """Send these keys along from now on, as if they were of this account, or one's own."""
    whose = account or asker.key.account
    asker.client.headers[UNLOCK] = header(scene.storage, asker.key.identity, whose, keys)


async def test_keys_that_a_stranger_lends_open_nothing_of_others(scene: Scene) -> None:
    """capability 0.33: not even a namespace's right key opens it to who has no grant for it.

    Two sealed strangers with the same history: one names what is a sealed victim's and lends its
    key, the other what is nobody's, with a key that is nobody's.
    """
    victim = await sealed(scene, VICTIM, THEIRS)
    one, other = [await sealed(scene, "I", "default") for _ in range(2)]
    stolen = await key_of(scene.storage, victim, THEIRS)
    lend(scene, one, [await key_of(scene.storage, one, "default"), stolen])
    made_up = NamespaceKey(stolen.namespace, stolen.epoch, os.urandom(32))
    lend(scene, other, [await key_of(scene.storage, other, "default"), made_up])
    before = await rows_of(scene, victim.key.account)
    differing, told, compared = [], [], set()
    for route, place in every_place(scene):
        if place.kind not in ("memory", "episode", "run", "webhook", "blob", "namespace"):
            continue
        foreign = await scene.ask(one, route, place, victim.own[place.kind])
        # A namespace is named alike: what differs is whose key is lent for it.
        nobodys = THEIRS if place.kind == "namespace" else scene.pairs[place.kind][0].absent
        absent = await scene.ask(other, route, place, nobodys)
        compared.add(foreign.status)
        # Whoever lends a key lets work go on in the background, whose statements are heard, too.
        if replace(foreign, statements=()) != replace(absent, statements=()):
            differing.append((str(place), foreign, absent))
        if VICTIM in foreign.body or LABEL in foreign.body:
            told.append((str(place), foreign))
    assert not differing, explained(differing)
    assert not told
    assert compared >= {200, 404}
    assert await rows_of(scene, victim.key.account) == before


async def test_a_header_for_somebody_elses_account_is_nobodys(scene: Scene) -> None:
    """Lent in the victim's name, or in that of an account that there is not: the same refusal."""
    victim = await sealed(scene, VICTIM, THEIRS)
    keys = [await key_of(scene.storage, victim, THEIRS)]
    answers = []
    for account in (victim.key.account, account_id(Identity(os.urandom(32)).public_key)):
        stranger = await sealed(scene, "I", "default")
        lend(scene, stranger, keys, account)
        heard = [
            await scene.ask(stranger, route)
            for route in scene.routes
            if route.path not in (FOUNDING_ROUTE, CLOSING_ROUTE)
        ]
        answers.append([(h.status, h.body, h.headers) for h in heard])
    assert answers[0] == answers[1]
    assert sum("unlock_rejected" in body for _, body, _ in answers[0]) > 10


async def test_a_session_of_somebody_else_is_refused_everywhere(scene: Scene) -> None:
    """A well signed request with MemWal's session header of another key: 401, and no more."""
    one, other = await scene.account(), await sealed(scene, "I", "default")
    answers = set()
    for stranger, whose in ((one, scene.victim.key.identity), (other, one.key.identity)):
        sent = session(whose, creationTimeMs=to_ms(utc_now()))
        stranger.client.headers["x-seal-session"] = sent
        for route in scene.routes:
            if route.path != FOUNDING_ROUTE:
                heard = await scene.ask(stranger, route)
                answers.add((heard.status, heard.body, tuple(heard.headers)))
    [(status, body, _)] = answers
    assert (status, json.loads(body)["code"]) == (401, "auth.rejected")


async def test_what_is_named_is_real(scene: Scene) -> None:
    """The other way round: to its owner, each kind of thing answers otherwise than nothing does.

    Else the matrix would compare nothing with nothing.
    """
    proven = set()
    for route, place in every_place(scene):
        if changes(route) and route.path not in ("/v1/import", "/v1/grants", "/v1/revocations"):
            continue
        for pair in scene.pairs_of(place):
            absent = await scene.ask(scene.victim, route, place, pair.absent)
            found = await scene.ask(scene.victim, route, place, pair.foreign)
            if (absent.status, absent.body) != (found.status, found.body):
                proven.add(place.kind)
    assert {"account", "memory", "episode", "run", "namespace", "blob", "key"} <= proven
    assert {"archived memory", "archived episode", "archived state", "archived grant"} <= proven


def test_an_id_that_the_matrix_does_not_know_fails_it() -> None:
    parameter = {"name": "secret_id", "in": "query", "schema": {"type": "string"}}
    document = {"paths": {"/v1/new": {"get": {"parameters": [parameter]}}}}
    with pytest.raises(Unknown, match=r"/v1/new takes 'secret_id': say in tests/tenants/places"):
        routes(document)


def test_only_one_route_founds(scene: Scene) -> None:
    founding = {path for _, path, h in described_handlers(scene.app) if h.opt.get(FOUNDING)}
    assert founding == {FOUNDING_ROUTE}
