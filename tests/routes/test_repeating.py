"""Every request that changes something, sent twice, signed anew: one effect, one receipt."""

import dataclasses
import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import pytest_asyncio
from litestar.types import ASGIApp

from relayer.app import build_app
from relayer.clock import to_ms, utc_now
from relayer.sealed.grants import issue_grant, issue_revocation, open_grant, sign_join
from relayer.sealed.keys import account_text
from relayer.sealed.primitives import to_base64
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.framework import handlers
from tests.services import new_identity
from tests.signing import client_of, signer_of

Answer = dict[str, Any]
NOTHING_SAID = "ok"
SAID = "I prefer tea to coffee."


@dataclass
class Desk:
    """An account with one memory of each sort that the requests below are about."""

    client: httpx.AsyncClient
    storage: Storage
    key: NewKey
    names: Answer = field(default_factory=dict)

    async def send(self, method: str, path: str, body: Answer | None = None) -> httpx.Response:
        relayer = self.storage.identity.public_key.hex()
        if method == "DELETE":
            return await self.client.request(
                method, path, params={"relayer": relayer} | (body or {})
            )
        return await self.client.request(method, path, json={"relayer": relayer} | (body or {}))

    async def receipts(self) -> int:
        row = await self.storage.database.fetchrow("SELECT receipt_seq FROM accounts")
        assert row is not None
        return int(row["receipt_seq"])

    async def remember(self, text: str, namespace: str = "default") -> str:
        answer = await self.send("POST", "/v1/remember", {"text": text, "namespace": namespace})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])


@pytest_asyncio.fixture
async def desk(app: ASGIApp, storage: Storage, managed: NewKey) -> Desk:
    return Desk(client_of(app, signer_of(managed)), storage, managed)


# Path → what is sent; {id} is a memory's. The second member tells what the second answer says.
REPEATED: dict[str, tuple[str, str, Answer, Answer]] = {
    "POST /v1/remember": (
        "POST", "/v1/remember", {"text": SAID, "idempotency_key": "k"}, {"duplicate": True}),
    "POST /v1/remember/bulk": (
        "POST", "/v1/remember/bulk",
        {"items": [{"text": SAID, "idempotency_key": "k"}, {"text": " "}]}, {"total": 2}),
    "POST /v1/analyze": (
        "POST", "/v1/analyze", {"text": SAID, "idempotency_key": "k"}, {"fact_count": 1}),
    "POST /v1/analyze of nothing": (
        "POST", "/v1/analyze", {"text": NOTHING_SAID, "idempotency_key": "k"}, {"fact_count": 0}),
    "POST /v1/restore": ("POST", "/v1/restore", {"namespace": "default"}, {"restored": 0}),
    "PATCH /v1/settings": ("PATCH", "/v1/settings", {"keep_turns": True}, {}),
    "PATCH /v1/memories/{memory_id:str}": (
        "PATCH", "/v1/memories/{id}", {"text": "I prefer cocoa.", "idempotency_key": "k"}, {}),
    "PATCH /v1/memories/{memory_id:str} without a key": (
        "PATCH", "/v1/memories/{id}", {"text": "I prefer cocoa."}, {"unchanged": True}),
    "POST /v1/memories/{memory_id:str}/state": (
        "POST", "/v1/memories/{id}/state", {"pinned": True}, {"receipt": None}),
    "DELETE /v1/memories/{memory_id:str}": (
        "DELETE", "/v1/memories/{id}", {}, {"erased": True, "already": True, "receipt": None}),
    "POST /v1/forget": ("POST", "/v1/forget", {"ids": ["{id}"]}, {"erased": 0}),
    "POST /v1/forget what fits": (
        "POST", "/v1/forget", {"namespace": "default", "kind": "fact"}, {"erased": 0}),
    "PUT /v1/namespaces/{name:path}": (
        "PUT", "/v1/namespaces/default", {"ttl_s": 3600}, {"changed": 0}),
    "DELETE /v1/namespaces/{name:path}": ("DELETE", "/v1/namespaces/default", {}, {"erased": 0}),
    "PUT /v1/webhooks/{webhook_id:str}": (
        "PUT", f"/v1/webhooks/{uuid.UUID(int=1)}",
        {"url": "https://hook.example/", "events": ["memory.written"]}, {"active": True}),
    "DELETE /v1/webhooks/{webhook_id:str}": (
        "DELETE", f"/v1/webhooks/{uuid.UUID(int=1)}", {}, {"removed": False}),
    "POST /v1/consolidate": (
        "POST", "/v1/consolidate", {"namespace": "default"}, {"state": "queued"}),
}  # fmt: skip
# What a repeated one is told: that its serial is taken, or that its key is nobody's any more.
REFUSED = {
    "POST /v1/accounts": 409,
    "POST /v1/grants": 409,
    "POST /v1/revocations": 409,
    "DELETE /v1/accounts/{account_id:str}": 401,
}
# Shown where these are tested: rotations, moving, kept turns, runs, and a test that is no change.
ELSEWHERE = {
    "POST /v1/rotations", "POST /v1/import", "POST /v1/episodes/{episode_id:str}/analyze",
    "POST /v1/webhooks/{webhook_id:str}/test", "POST /v1/consolidations/{run_id:str}/undo",
}  # fmt: skip
READING = {
    "POST /v1/recall", "POST /v1/ask", "POST /v1/memories/status", "POST /v1/blobs",
    "POST /v1/counts",
}  # fmt: skip


def test_every_changing_route_is_in_one_of_these_tables(app: ASGIApp) -> None:
    routes = {
        f"{method} {path}"
        for method, path, _ in handlers(app)
        if method in {"POST", "PUT", "PATCH", "DELETE"} and path.startswith("/v1/")
    }
    known = {name.split(" without ")[0].split(" of ")[0].split(" what ")[0] for name in REPEATED}
    assert routes - READING - ELSEWHERE == known | REFUSED.keys()


@pytest.mark.parametrize("name", sorted(REPEATED))
async def test_what_is_sent_twice_happens_once(desk: Desk, name: str) -> None:
    method, path, body, second = REPEATED[name]
    memory = await desk.remember("A memory that is there.")
    body = {k: [memory] if v == ["{id}"] else v for k, v in body.items()}
    one = await desk.send(method, path.format(id=memory), body)
    assert one.status_code in {200, 202}, one.text
    receipts, rows = await desk.receipts(), await stored(desk)
    two = await desk.send(method, path.format(id=memory), body)
    assert two.status_code == one.status_code
    assert await desk.receipts() == receipts, "no second receipt"
    assert await stored(desk) == rows, "no second effect"
    answer = two.json()
    assert {k: answer[k] for k in second} == second
    for ids in ("id", "episode_id", "revision"):
        assert one.json().get(ids) == answer.get(ids)
    for many in ("results", "facts"):
        assert [i.get("id") for i in one.json().get(many, [])] == [
            i.get("id") for i in answer.get(many, [])
        ]


async def stored(desk: Desk) -> list[tuple[Any, ...]]:
    """What is stored of memories and webhooks: ids, revisions, states."""
    found = await desk.storage.database.fetch(
        "SELECT memory_id::text, revision, pinned, seen_count, expires_at FROM memories ORDER BY 1"
    )
    hooks = await desk.storage.database.fetch("SELECT webhook_id::text FROM webhooks")
    return [tuple(r) for r in [*found, *hooks]]


async def test_a_text_without_a_key_is_stored_once_and_counts_as_said_twice(desk: Desk) -> None:
    memory = await desk.remember(SAID)
    receipts = await desk.receipts()
    assert await desk.remember(SAID) == memory
    assert await desk.receipts() == receipts
    [shown] = (await desk.client.get("/v1/memories")).json()["memories"]
    assert (shown["id"], shown["seen_count"]) == (memory, 2)


async def test_an_idempotency_key_stands_for_one_text(desk: Desk) -> None:
    for path in ("/v1/remember", "/v1/analyze"):
        first = {"text": SAID, "idempotency_key": path}
        assert (await desk.send("POST", path, first)).status_code == 202
        again = await desk.send("POST", path, first | {"text": "I prefer cocoa to tea."})
        assert (again.status_code, again.json()["code"]) == (409, "idempotency.conflict")
    nothing = {"text": NOTHING_SAID, "idempotency_key": "nothing"}
    assert (await desk.send("POST", "/v1/analyze", nothing)).status_code == 202
    again = await desk.send("POST", "/v1/analyze", nothing | {"text": SAID})
    assert (again.status_code, again.json()["code"]) == (409, "idempotency.conflict")


async def test_grants_go_by_serial(desk: Desk) -> None:
    chain = await desk.storage.accounts.chain(desk.key.account)
    founder, agent = desk.key.identity, new_identity()
    keys = open_grant(chain.grants[founder.public_key][0], founder)
    common: Answer = {"account": desk.key.account, "created_ms": to_ms(utc_now())}
    grant = issue_grant(
        founder, serial=chain.serial + 1, recipient=agent.public_key, role="owner", keys=keys,
        **common,
    )  # fmt: skip
    join = sign_join(
        agent, account=desk.key.account, issuer=founder.public_key,
        relayer=desk.storage.identity.public_key,
    )  # fmt: skip
    revocation = issue_revocation(
        founder, serial=chain.serial + 2, recipient=agent.public_key, **common
    )
    for path, body in (
        ("/v1/grants", {"grant": to_base64(grant), "join": to_base64(join)}),
        ("/v1/revocations", {"revocation": to_base64(revocation)}),
    ):
        assert (await desk.send("POST", path, body)).status_code == 201
        receipts = await desk.receipts()
        again = await desk.send("POST", path, body)
        assert (again.status_code, again.json()["code"]) == (409, "grant.serial")
        assert await desk.receipts() == receipts


async def test_an_account_is_founded_and_closed_once(desk: Desk, storage: Storage) -> None:
    account = account_text(desk.key.account)
    grant = (await storage.database.fetch("SELECT object FROM grants ORDER BY serial LIMIT 1"))[0]
    founded = await desk.send("POST", "/v1/accounts", {"grants": [to_base64(grant["object"])]})
    assert founded.status_code == 409
    path, confirmed = f"/v1/accounts/{account}", {"confirm": account}
    assert (await desk.send("DELETE", path, confirmed)).status_code == 200
    receipts = await desk.receipts()
    assert (await desk.send("DELETE", path, confirmed)).status_code == 401
    assert await desk.receipts() == receipts


class TestBulk:
    async def test_what_is_out_of_range_is_refused_alone(self, desk: Desk) -> None:
        """The others are stored; each result stands where its item stood."""
        items = [
            {"text": "One is fine."},
            {"text": "  "},
            {"text": "a" * (64 * 1024 + 1)},
            {"text": "Expired.", "expires_at": "2001-01-01T00:00:00Z"},
            {"text": "Nowhere.", "namespace": ""},
            {"text": "Too much.", "metadata": {"a": "b" * 9_000}},
            {"text": "Two is fine."},
        ]
        answer = await desk.send("POST", "/v1/remember/bulk", {"items": items})
        assert answer.status_code == 202
        results = answer.json()["results"]
        assert [r["status"] for r in results] == ["uploaded", *["rejected"] * 5, "uploaded"]
        assert [r.get("code") for r in results[1:6]] == [
            "request.invalid", "request.too_large", "request.invalid", "namespace.invalid",
            "request.too_large",
        ]  # fmt: skip
        assert all(r["id"] is None and r["message"] for r in results[1:6])
        shown = (await desk.client.get("/v1/memories")).json()["memories"]
        assert {m["text"] for m in shown} == {"One is fine.", "Two is fine."}

    async def test_all_refused_is_stored_nowhere(self, desk: Desk) -> None:
        receipts = await desk.receipts()
        answer = await desk.send("POST", "/v1/remember/bulk", {"items": [{"text": " "}] * 3})
        assert [r["status"] for r in answer.json()["results"]] == ["rejected"] * 3
        assert await desk.receipts() == receipts

    @pytest.mark.parametrize("item", [{"text": 1}, {"text": "a", "nobody": 1}, {}, "a"])
    async def test_what_is_no_item_refuses_the_request(self, desk: Desk, item: Any) -> None:
        answer = await desk.send("POST", "/v1/remember/bulk", {"items": [{"text": "Fine."}, item]})
        assert answer.status_code == 400
        assert (await desk.client.get("/v1/memories")).json()["memories"] == []

    async def test_a_full_account_takes_all_or_nothing(
        self, storage: Storage, settings: Settings, managed: NewKey
    ) -> None:
        small = dataclasses.replace(settings, embedder="none", storage_bytes_max=600)
        desk = Desk(client_of(build_app(storage, small), signer_of(managed)), storage, managed)
        items = [{"text": f"{n} " + "word " * 30} for n in range(5)]
        answer = await desk.send("POST", "/v1/remember/bulk", {"items": items})
        assert (answer.status_code, answer.json()["code"]) == (402, "quota.exceeded")
        assert (await desk.client.get("/v1/memories")).json()["memories"] == []
