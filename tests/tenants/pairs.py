"""Everything of a victim's that a request could name, beside what nobody has; the scene of both.

Not here: asking for them (`scene.py`).
"""

import base64
import os
import re
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from relayer.app import build_app
from relayer.clock import to_ms, utc_now
from relayer.sealed.grants import Role, issue_grant, issue_revocation, sign_join
from relayer.sealed.keys import AccountId, Identity, PublicKey, Root, account_id
from relayer.sealed.primitives import blake2b_256, to_base64, to_base64url
from relayer.settings import Settings
from relayer.storage import storage_on
from relayer.upkeep import provision
from tests.conftest import TestDatabase
from tests.openai_server import API_KEY, CHAT_MODEL
from tests.signing import client_of, signer_of
from tests.tenants.places import Json, routes
from tests.tenants.scene import (
    ELSEWHERE,
    ID,
    LABEL,
    THEIRS,
    VICTIM,
    Asker,
    Pair,
    Scene,
    Watched,
    guarded,
)

STATE: Final = ("id", "revision", "pinned", "review", "stale", "superseded_at", "superseded_by")


def nobodys(value: str) -> str:
    """The same text with every id in it replaced by one that nobody has."""
    value = value.replace(THEIRS, ELSEWHERE)
    value = re.sub(r"0x[0-9a-f]{64}", lambda _: "0x" + os.urandom(32).hex(), value)
    value = re.sub(r"\b[0-9a-f]{64}\b", lambda _: os.urandom(32).hex(), value)
    value = re.sub(ID, lambda m: m[0][:15] + str(uuid.uuid4())[15:], value)
    return re.sub(r"^[A-Za-z0-9_-]{43}$", lambda _: to_base64url(os.urandom(32)), value)


async def pairs_on(scene: Scene) -> dict[str, list[Pair]]:
    """Everything of the victim's that a request could name, beside what nobody has."""
    own, client = scene.victim.own, scene.victim.client
    records = {
        part: (await client.get("/v1/export", params={"part": part})).json()["records"]
        for part in ("account", "grants", "namespaces", "tombstones", "memories", "episodes")
    }
    plain = {
        kind: [Pair(own[kind], nobodys(own[kind]))]
        for kind in ("account", "episode", "run", "webhook", "namespace", "blob", "key")
    }
    plain["memory"] = [Pair(own[k], nobodys(own[k])) for k in ("memory", "erased")]
    plain["idempotency key"] = [Pair(f"{VICTIM} memory", "nobodys memory")]
    memory, account = records["memories"][0], records["account"][0]
    other = _retold(memory)
    turn = records["episodes"][0]
    plain["sealed bytes"] = [Pair(turn["blob"], _retold(turn)["blob"])]
    plain["archived memory"] = [Pair(memory, other)]
    plain["archived episode"] = [Pair(turn, _retold(turn))]
    state = {name: memory[name] for name in STATE} | {"expires_at": memory["given_expires_at"]}
    plain["archived state"] = [Pair(state, state | {"id": nobodys(memory["id"])})]
    plain["archived account"] = [Pair(account, account | {"relayer": os.urandom(32).hex()})]
    stone = next(t for t in records["tombstones"] if t["id"] == own["gone"])
    plain["archived tombstone"] = [
        Pair(stone, stone | {"id": nobodys(stone["id"]), "namespace": ELSEWHERE})
    ]
    names = records["namespaces"][0]
    keys = [k | {"key_id": os.urandom(32).hex()} for k in names["keys"]]
    plain["archived namespace"] = [Pair(names, names | {"name": ELSEWHERE, "keys": keys})]
    return plain | await _signed(scene, records["grants"]) | await _cursors(scene)


def _retold(record: Json) -> Json:
    """A stored row and its envelope as if they were of a memory that nobody has."""
    blob = base64.b64decode(record["blob"])
    new_id = nobodys(record["id"])
    blob = blob[:48] + uuid.UUID(new_id).bytes + blob[64:]
    named = {"id": new_id, "blob": to_base64(blob), "blob_id": to_base64url(blake2b_256(blob))}
    return record | named | {"namespace": ELSEWHERE, "writer": os.urandom(32).hex()}


async def _signed(scene: Scene, grants: Sequence[Json]) -> dict[str, list[Pair]]:
    """Signed objects of the victim's account, and as good ones of an account nobody founded."""
    nobody, friend = Identity(os.urandom(32)), Identity(os.urandom(32))

    def objects(owner: Identity, account: AccountId) -> dict[str, bytes]:
        now_ms, root = to_ms(utc_now()), Root(1, os.urandom(32))

        def given(serial: int, role: Role, recipient: PublicKey) -> bytes:
            return issue_grant(
                owner,
                account=account,
                serial=serial,
                recipient=recipient,
                role=role,
                keys=[root],
                created_ms=now_ms,
            )

        return {
            "first": given(1, "owner", owner.public_key),
            "grant": given(3, "writer", friend.public_key),
            "revocation": issue_revocation(
                owner,
                account=account,
                serial=3,
                recipient=friend.public_key,
                created_ms=now_ms,
            ),
            "join": sign_join(
                friend,
                account=account,
                issuer=owner.public_key,
                relayer=scene.storage.identity.public_key,
            ),
        }

    theirs = objects(scene.victim.key.identity, scene.victim.key.account)
    absent = objects(nobody, account_id(nobody.public_key))
    pairs = {kind: [Pair(to_base64(theirs[kind]), to_base64(absent[kind]))] for kind in theirs}
    pairs["archived grant"] = [Pair(grants[0], grants[0] | {"object": pairs["first"][0].absent})]
    return pairs


async def _cursors(scene: Scene) -> dict[str, list[Pair]]:
    """The cursors that the victim is given, and such that nobody is; a number names nothing."""
    found: dict[str, list[Pair]] = {"cursor": [Pair("1", "1")]}
    for route in scene.routes:
        if not any(p.kind == "cursor" for p in route.places) or "{" in route.path.replace(
            "{owner}", ""
        ):
            continue
        path = route.path.replace("{owner}", scene.victim.own["account"])
        query: dict[str, int | str] = {"limit": 1, "namespace": THEIRS}
        if route.path == "/v1/export":
            query = {"part": "memories"}
        answer = (await scene.victim.client.get(path, params=query)).json()
        given = answer.get("next_cursor") or answer.get("next")
        if given:
            found[f"cursor {route.path}"] = [Pair(given, nobodys(given))]
    run = "cursor /v1/consolidations/{run_id}"
    return found | {run: [Pair(scene.victim.own["run"], str(uuid.uuid4()))]}


@asynccontextmanager
async def scene_on(copy: TestDatabase, folder: Path, llm_url: str) -> AsyncIterator[Scene]:
    """A relayer in this process, and a victim who has something of everything."""
    settings = Settings(
        data_dir=folder,
        database_url=copy.url,
        embedder="none",
        llm_model=CHAT_MODEL,
        openai_base_url=llm_url,
        openai_api_key=API_KEY,
        index_memory_bytes=0,  # one's own recalls fill it, in the background
    )
    database = await Watched.connect(copy.connect_args, connections=4)
    assert isinstance(database, Watched)
    database.statements = []
    storage = storage_on(settings, copy.connect_args, database, Identity(os.urandom(32)), utc_now)
    app = build_app(storage, settings)
    document = guarded(app)
    key = await provision.create_account(storage, label=LABEL, custody="managed", clock=utc_now)
    victim = Asker(key, client_of(app, signer_of(key)), THEIRS)
    named = storage.identity.public_key.hex()
    scene = Scene(app, storage, database, routes(document), named, victim)
    await scene.furnish(victim, VICTIM)
    scene.pairs |= await pairs_on(scene)
    yield scene
    await database.close()
