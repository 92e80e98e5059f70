"""The table of routes: which are guarded, and how every answer and every refusal looks.

Not here: what a body may hold (`test_routes_bodies.py`), the controls of a recall
(`test_routes_controls.py`), whose key reaches what (`test_routes_keys.py`).
"""

import asyncio
import dataclasses
import json
import re
import uuid
from datetime import datetime
from typing import Any

import asyncpg
import httpx
import pytest
from litestar.types import ASGIApp

from relayer.app import build_app
from relayer.clock import utc_now
from relayer.http.checks import PUBLIC
from relayer.routes.memwal_mcp import PATHS
from relayer.sealed.keys import account_text
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.conftest import TestDatabase
from tests.framework import handlers
from tests.routes_scene import (
    MEMWAL_BODIES,
    OUR_BODIES,
    Answer,
    Desk,
    assert_error_shape,
    client,
    concrete,
    desk,
    named,
    table,
)
from tests.signing import client_of, signer_of

__all__ = ["client", "desk", "named"]  # fixtures

PUBLIC_ROUTES = {
    ("GET", "/config"),
    ("GET", "/health"),
    ("GET", "/metrics"),
    ("GET", "/ready"),
    ("GET", "/schema"),
    ("GET", "/schema/openapi.json"),
    ("GET", "/v1/relayer"),
    ("GET", "/version"),
    *((method, path) for method in ("GET", "POST", "DELETE") for path in PATHS),
    ("POST", "/sui"),
    ("POST", "/sui/sui.rpc.v2.LedgerService/BatchGetObjects"),
}


# Deny by default


async def test_every_route_is_guarded_unless_it_is_listed_here(app: ASGIApp) -> None:
    routes = table(app)
    assert routes >= PUBLIC_ROUTES
    async with client_of(app) as client:
        for method, path in sorted(routes - PUBLIC_ROUTES):
            answer = await client.request(method, concrete(path))
            assert (answer.status_code, path) == (401, path)
            signed_badly = {"x-nonce": str(uuid.uuid4())}
            answer = await client.request(method, concrete(path), headers=signed_badly)
            assert (answer.status_code, path) == (401, path)
        for method, path in sorted(PUBLIC_ROUTES):
            answer = await client.request(method, concrete(path))
            expected = 501 if path in PATHS else 200
            assert (answer.status_code, path) == (expected, path)


async def test_the_frameworks_own_answers_to_options_are_guarded_too(app: ASGIApp) -> None:
    paths = {path for _, path in table(app)}
    async with client_of(app) as client:
        statuses = {path: (await client.options(concrete(path))).status_code for path in paths}
    whole = {"/metrics"}
    assert statuses == {path: 204 if path in whole else 401 for path in paths}


async def test_no_route_is_copied_for_its_guards(
    app: ASGIApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The framework would copy it for each guard of each request."""
    copied: list[Any] = []
    monkeypatch.setattr("litestar.handlers.base.copy", copied.append)
    async with client_of(app) as client:
        assert (await client.get("/v1/keys")).status_code == 401
    assert not copied


def test_only_listed_routes_carry_the_option_that_makes_them_public(app: ASGIApp) -> None:
    public = {
        (method, path)
        for method, path, handler in handlers(app)
        if handler.opt.get(PUBLIC) and method != "OPTIONS"
    }
    assert public == PUBLIC_ROUTES


def test_the_tables_of_bodies_are_complete(app: ASGIApp) -> None:
    posts = {path for method, path in table(app) - PUBLIC_ROUTES if method == "POST"}
    assert posts == OUR_BODIES.keys() | MEMWAL_BODIES.keys()


# Errors


async def test_every_kind_of_error_has_one_shape(app: ASGIApp, client: httpx.AsyncClient) -> None:
    async with client_of(app) as unsigned:
        answers = [
            await unsigned.get("/v1/keys"),
            await unsigned.get("/v1/keys", headers={"x-nonce": "x"}),
            await client.get("/nothing"),
            await client.get("/schema/swagger"),
            await client.get("/schema/redoc"),
            await client.get("/schema/openapi.yaml"),
            await client.get("/schema/a/b"),
            await client.get("/v1/nothing"),
            await client.get("/api/remember/nothing"),
            await client.put("/v1/keys"),
            await client.get("/v1/recall"),
            await client.post("/v1/recall", content=b"{"),
            await client.post("/v1/ask", json={"question": "tea?"}),
        ]
    assert [a.status_code for a in answers] == [401, 401, *[404] * 7, 405, 405, 400, 501]
    for answer in answers:
        assert_error_shape(answer)
    assert len({a.headers["x-request-id"] for a in answers}) == len(answers)


async def test_a_wrong_method_is_told_the_right_ones(desk: Desk) -> None:
    answer = await desk.client.put("/v1/memories/x")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"DELETE", "GET", "OPTIONS", "PATCH"}


@pytest.mark.parametrize("path", ["/health", "/v1/keys", "/v1/nothing", "/sui", "/metrics"])
async def test_every_answer_forbids_sniffing_caching_and_framing(desk: Desk, path: str) -> None:
    headers = (await desk.client.get(path)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert "server" not in headers
    assert "access-control-allow-origin" not in headers


async def test_a_request_past_its_deadline_answers_503(
    storage: Storage, lean: Settings, managed: NewKey, fresh_database: TestDatabase
) -> None:
    app = build_app(storage, dataclasses.replace(lean, request_timeout_s=1))
    blocker = await asyncpg.connect(**fresh_database.connect_args)
    try:
        async with blocker.transaction(), client_of(app, signer_of(managed)) as client:
            await blocker.execute("LOCK TABLE nonces IN ACCESS EXCLUSIVE MODE")
            late = await client.get("/v1/keys")
            health = await client.get("/health")
    finally:
        await blocker.close()
    assert (late.status_code, late.json()["code"]) == (503, "request.deadline")
    assert int(late.headers["retry-after"]) >= 1
    assert_error_shape(late)
    assert health.status_code == 200
    async with client_of(app, signer_of(managed)) as client:
        assert (await client.get("/v1/keys")).status_code == 200


async def test_a_bug_is_told_as_nothing_but_that(
    app: ASGIApp, storage: Storage, client: httpx.AsyncClient
) -> None:
    await storage.database.execute("ALTER TABLE namespaces RENAME TO hidden")
    answer = await client.get("/v1/namespaces")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "namespaces" not in answer.text
    assert_error_shape(answer)


# Idempotency keys


@pytest.mark.parametrize(
    ("path", "extra"), [("/v1/remember", True), ("/v1/analyze", True), ("/api/remember", False)]
)
async def test_an_idempotency_key_with_another_text_is_a_conflict(
    client: httpx.AsyncClient, named: Answer, path: str, extra: bool
) -> None:
    """capability 1.23: one run may repeat its capture and nothing is stored twice."""
    base = {"idempotency_key": "run-1"} | (named if extra else {})
    first = await client.post(path, json=base | {"text": "I prefer tea to coffee."})
    again = await client.post(path, json=base | {"text": "I prefer tea to coffee."})
    other = await client.post(path, json=base | {"text": "I prefer coffee to tea."})
    assert [first.status_code, again.status_code, other.status_code] == [202, 202, 409]
    assert_error_shape(other)
    stats = await client.get("/v1/stats")
    assert stats.json()["memory_count"] == 1


# Answers


async def test_times_are_utc_with_milliseconds(client: httpx.AsyncClient, named: Answer) -> None:
    """Nothing finer is kept: what is shown is what was sealed, and the same again."""
    body = {"text": "Tea.", "event_time": "2026-05-04T11:30:00.123987+02:00"} | named
    stored = (await client.post("/v1/remember", json=body)).json()
    memory = (await client.get(f"/v1/memories/{stored['id']}")).json()
    assert memory["event_time"] == "2026-05-04T09:30:00.123Z"
    shown = body | {"event_time": memory["event_time"]}
    again = (await client.post("/v1/remember", json=shown)).json()
    assert (again["id"], again["duplicate"]) == (stored["id"], True)
    for text in (memory["created_at"], (await client.get("/v1/stats")).json()["updated_at"]):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
        assert abs((datetime.fromisoformat(text) - utc_now()).total_seconds()) < 60


async def test_pages_of_memories_follow_their_cursor(
    client: httpx.AsyncClient, named: Answer
) -> None:
    items = [{"text": f"Tea number {n}."} for n in range(5)]
    await client.post("/v1/remember/bulk", json={"items": items} | named)
    texts, params = [], {"limit": "2"}
    for _ in range(3):
        page = (await client.get("/v1/memories", params=params)).json()
        texts += [m["text"] for m in page["memories"]]
        params["cursor"] = page["next_cursor"] or ""
    assert texts == [f"Tea number {n}." for n in (4, 3, 2, 1, 0)]
    assert params["cursor"] == ""


async def test_the_floor_of_a_recall_is_the_callers(
    client: httpx.AsyncClient, named: Answer
) -> None:
    """capability 0.12: memories below a given relevance are dropped, by default none.
    capability 1.13: the threshold is the caller's.
    """
    items = [{"text": "Anna prefers green tea."}, {"text": "The tea shop in town closes at six."}]
    await client.post("/v1/remember/bulk", json={"items": items} | named)
    found = []
    for floor in (0.0, 0.3, 0.95):
        body = {"query": "green tea anna", "min_relevance": floor}
        found.append((await client.post("/v1/recall", json=body)).json()["results"])
    assert [[r["text"] for r in results] for results in found] == [
        [items[0]["text"], items[1]["text"]],
        [items[0]["text"]],
        [],
    ]


async def test_the_openapi_document_is_served(app: ASGIApp) -> None:
    async with client_of(app) as client:
        document = (await client.get("/schema/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    described = {
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
    }
    plain = {(method, re.sub(r":\w+\}", "}", path)) for method, path in table(app)}
    assert described == plain
    taken = document["paths"]["/v1/remember"]["post"]["requestBody"]["content"]
    name = taken["application/json"]["schema"]["$ref"].rpartition("/")[2]
    remember = document["components"]["schemas"][name]
    assert set(remember["required"]) == {"text", "relayer"}
    assert remember["additionalProperties"] is False


@pytest.mark.parametrize(
    ("changes", "headers", "url"),
    [
        ({}, {}, "http://127.0.0.1:8000/sui"),
        ({}, {"host": "memory.example"}, "http://memory.example/sui"),
        ({}, {"x-forwarded-proto": "https", "x-forwarded-host": "a"}, "http://127.0.0.1:8000/sui"),
        ({"public_url": "https://a.example/m/"}, {"host": "b"}, "https://a.example/m/sui"),
        (
            {"trusted_proxies": "10.0.0.1, 127.0.0.1"},
            {"x-forwarded-proto": "https", "x-forwarded-host": "a.example:8443"},
            "https://a.example:8443/sui",
        ),
        (
            {"trusted_proxies": "127.0.0.1"},
            {"x-forwarded-proto": "https, http", "x-forwarded-host": "a.example, 10.0.0.2"},
            "https://a.example/sui",
        ),
        ({"trusted_proxies": "127.0.0.1"}, {"host": "a.example"}, "http://a.example/sui"),
        (
            {"trusted_proxies": "10.0.0.1"},
            {"x-forwarded-host": "a.example"},
            "http://127.0.0.1:8000/sui",
        ),
    ],
)
async def test_the_relayers_url_is_the_one_its_clients_reach(
    storage: Storage, lean: Settings, changes: dict[str, str], headers: dict[str, str], url: str
) -> None:
    app = build_app(storage, dataclasses.replace(lean, **changes))  # type: ignore[arg-type]
    async with client_of(app) as client:
        config = (await client.get("/config", headers=headers)).json()
    assert (config["suiRpcUrl"], config["network"]) == (url, "local")


async def test_metrics_tell_routes_and_nothing_about_tenants(
    app: ASGIApp, client: httpx.AsyncClient, managed: NewKey
) -> None:
    account = account_text(managed.account)
    await client.get(f"/v1/accounts/{account}")
    async with client_of(app) as unsigned:
        text = (await unsigned.get("/metrics")).text
    assert 'path="/v1/accounts/{account_id}"' in text
    assert account not in text


async def test_requests_at_once_do_not_mix(client: httpx.AsyncClient, named: Answer) -> None:
    answers = await asyncio.gather(
        *(client.post("/v1/remember", json={"text": f"Tea {n}."} | named) for n in range(10))
    )
    ids = [a.json()["id"] for a in answers]
    texts = [(await client.get(f"/v1/memories/{i}")).json()["text"] for i in ids]
    assert texts == [f"Tea {n}." for n in range(10)]
    receipts = (await client.get("/v1/receipts")).json()
    assert receipts["seq"] == len(receipts["receipts"]) == 12
    assert json.dumps(receipts).count("Tea") == 0
