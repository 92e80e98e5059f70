"""The table of routes: which are guarded, what bodies they take, and how every refusal looks."""

import asyncio
import dataclasses
import json
import os
import re
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
import httpx
import pytest
import pytest_asyncio
from litestar import Litestar
from litestar.types import ASGIApp

from relayer import provision
from relayer.app import build_app
from relayer.checks import PUBLIC
from relayer.clock import to_ms, utc_now
from relayer.database.pool import Database
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.provision import NewKey
from relayer.sealed.grants import issue_grant, issue_revocation, open_grant, sign_join
from relayer.sealed.keys import Identity, Namespace, Root, account_text
from relayer.sealed.primitives import to_base64
from relayer.settings import Limits, Settings
from relayer.storage import Storage, storage_on
from tests.conftest import TestDatabase, database_copy
from tests.signing import client_of, signer_of

Answer = dict[str, Any]

PUBLIC_ROUTES = {
    ("GET", "/config"),
    ("GET", "/health"),
    ("GET", "/metrics"),
    ("GET", "/ready"),
    ("GET", "/schema"),
    ("GET", "/schema/openapi.json"),
    ("GET", "/schema/{path:str}"),  # the framework's own 404
    ("GET", "/v1/relayer"),
    ("GET", "/version"),
    ("POST", "/sui"),
    ("POST", "/sui/sui.rpc.v2.LedgerService/BatchGetObjects"),
}

# A body that each route takes, for a managed account with nothing in it; `relayer` is added.
OUR_BODIES: dict[str, Answer] = {
    "/v1/accounts": {"grants": ["AAAA"]},
    "/v1/grants": {"grant": "AAAA", "join": "AAAA"},
    "/v1/revocations": {"revocation": "AAAA"},
    "/v1/rotations": {"reseal": "all"},
    "/v1/remember": {"text": "Anna prefers tea."},
    "/v1/remember/bulk": {"items": [{"text": "Anna prefers tea."}]},
    "/v1/recall": {"query": "tea"},
    "/v1/analyze": {"text": "I prefer tea to coffee."},
    "/v1/ask": {"question": "tea?"},
    "/v1/restore": {"namespace": "default"},
    "/v1/memories/status": {"ids": ["x"]},
    "/v1/forget": {"ids": ["x"]},
    "/v1/blobs": {"blob_ids": ["x"]},
    "/v1/import": {},
    "/v1/webhooks/{webhook_id:str}/test": {},
    "/v1/consolidate": {"namespace": "default"},
    "/v1/consolidations/{run_id:str}/undo": {},
    "/v1/memories/{memory_id:str}/state": {"pinned": True},
    "/v1/episodes/{episode_id:str}/analyze": {},
}
CHANGES = {
    "/v1/accounts", "/v1/grants", "/v1/revocations", "/v1/rotations",
    "/v1/remember", "/v1/remember/bulk", "/v1/analyze", "/v1/restore", "/v1/forget", "/v1/import",
    "/v1/memories/{memory_id:str}/state", "/v1/episodes/{episode_id:str}/analyze",
    "/v1/webhooks/{webhook_id:str}/test",
    "/v1/consolidate", "/v1/consolidations/{run_id:str}/undo",
}  # fmt: skip
MEMWAL_BODIES: dict[str, Answer] = {
    "/api/remember": {"text": "Anna prefers tea."},
    "/api/remember/bulk": {"items": [{"text": "Anna prefers tea."}]},
    "/api/remember/bulk/status": {"job_ids": ["x"]},
    "/api/remember/manual": {"encrypted_data": "AAAA", "vector": [1.0, 0.0]},
    "/api/recall": {"query": "tea"},
    "/api/recall/manual": {"vector": [1.0, 0.0]},
    "/api/analyze": {"text": "I prefer tea to coffee."},
    "/api/ask": {"question": "tea?"},
    "/api/restore": {"namespace": "default"},
    "/api/embed": {"text": "tea"},
    "/api/forget": {"namespace": "default"},
    "/api/stats": {"namespace": "default"},
}


@pytest_asyncio.fixture
async def client(app: ASGIApp, managed: NewKey) -> httpx.AsyncClient:
    """A client with the founder's key of a managed account."""
    return client_of(app, signer_of(managed))


@dataclass(frozen=True)
class Desk:
    """An application for refusals that leave nothing behind, so that tests may share it."""

    client: httpx.AsyncClient
    named: Answer


@pytest_asyncio.fixture(scope="module")
async def desk(
    postgres: EmbeddedPostgres, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Desk]:
    async with database_copy(postgres, template) as copy:
        folder = tmp_path_factory.mktemp("desk")
        settings = Settings(data_dir=folder, database_url=copy.url, embedder="none")
        database = await Database.connect(copy.connect_args, connections=2)
        storage = storage_on(
            settings, copy.connect_args, database, Identity(os.urandom(32)), utc_now
        )
        key = await provision.create_account(
            storage, label="desk", custody="managed", clock=utc_now
        )
        async with client_of(build_app(storage, settings), signer_of(key)) as client:
            yield Desk(client, {"relayer": storage.identity.public_key.hex()})
        await database.close()


@pytest.fixture
def named(storage: Storage) -> Answer:
    """What names the relayer in a change."""
    return {"relayer": storage.identity.public_key.hex()}


def framework(app: ASGIApp) -> Litestar:
    """The application inside its surroundings."""
    while not isinstance(app, Litestar):
        app = app._app  # type: ignore[union-attr]
    return app


def table(app: ASGIApp) -> set[tuple[str, str]]:
    """Method and path of every route; OPTIONS tells only which methods there are."""
    found = set()
    for route in framework(app).routes:
        for handler in route.route_handlers:  # type: ignore[union-attr]
            methods = getattr(handler, "http_methods", {"?"})
            found |= {(method, route.path) for method in methods if method != "OPTIONS"}
    return found


def concrete(path: str) -> str:
    return re.sub(r"\{[^}]+\}", "x", path)


# Deny by default


async def test_every_route_is_guarded_unless_it_is_listed_here(app: ASGIApp) -> None:
    routes = table(app)
    assert routes >= PUBLIC_ROUTES
    async with client_of(app) as client:
        for method, path in sorted(routes - PUBLIC_ROUTES):
            answer = await client.request(method, concrete(path))
            assert (answer.status_code, path) == (426, path)
            signed_badly = {"x-nonce": str(uuid.uuid4())}
            answer = await client.request(method, concrete(path), headers=signed_badly)
            assert (answer.status_code, path) == (401, path)
        for method, path in sorted(PUBLIC_ROUTES):
            answer = await client.request(method, concrete(path))
            assert (answer.status_code, path) == (404 if "{" in path else 200, path)


async def test_the_frameworks_own_answers_to_options_are_guarded_too(app: ASGIApp) -> None:
    paths = {path for _, path in table(app)}
    async with client_of(app) as client:
        statuses = {path: (await client.options(concrete(path))).status_code for path in paths}
    whole = {"/metrics", "/schema", "/schema/openapi.json", "/schema/{path:str}"}
    assert statuses == {path: 204 if path in whole else 426 for path in paths}


def test_only_listed_routes_carry_the_option_that_makes_them_public(app: ASGIApp) -> None:
    public = {
        (method, route.path)
        for route in framework(app).routes
        for handler in route.route_handlers  # type: ignore[union-attr]
        for method in handler.http_methods  # type: ignore[union-attr]
        if handler.opt.get(PUBLIC) and method != "OPTIONS"
    }
    assert public == PUBLIC_ROUTES


def test_the_tables_of_bodies_are_complete(app: ASGIApp) -> None:
    posts = {path for method, path in table(app) - PUBLIC_ROUTES if method == "POST"}
    assert posts == OUR_BODIES.keys() | MEMWAL_BODIES.keys()


# Bodies


@pytest.mark.parametrize("path", OUR_BODIES)
async def test_our_bodies_refuse_members_they_do_not_know(desk: Desk, path: str) -> None:
    body = OUR_BODIES[path] | (desk.named if path in CHANGES else {})
    taken = await desk.client.post(path, json=body)
    refused = await desk.client.post(path, json=body | {"nobody_knows_me": 1})
    assert "malformed" not in taken.json().get("message", "")
    assert refused.status_code == 400
    message = "The request is malformed: a member is unknown in the body."
    assert refused.json()["message"] == message


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("/v1/remember/bulk", {"items": [{"text": "a", "nobody": 1}]}, "items[0]"),
        ("/v1/remember/bulk", {"items": [{"text": "a", "relayer": "b"}]}, "items[0]"),
        ("/v1/recall", {"query": "a", "scoring_weights": {"nobody": 1}}, "scoring_weights"),
    ],
)
async def test_nor_do_the_objects_inside_them(
    desk: Desk, path: str, body: Answer, place: str
) -> None:
    answer = await desk.client.post(path, json=body | (desk.named if path in CHANGES else {}))
    assert answer.status_code == 400
    assert answer.json()["message"] == f"The request is malformed: a member is unknown in {place}."


@pytest.mark.parametrize("path", MEMWAL_BODIES)
async def test_memwals_bodies_tolerate_members_they_do_not_know(desk: Desk, path: str) -> None:
    body = MEMWAL_BODIES[path] | {"nobody_knows_me": [{"a": None}], "sort": "recent"}
    if path == "/api/remember/bulk":
        body["items"] = [{"text": "Anna prefers tea.", "nobody": 1}]
    if path == "/api/recall":
        body["scoring_weights"] = {"nobody": 1, "recency": 0.5}
    answer = await desk.client.post(path, json=body)
    no_model, no_embedder = "llm.not_configured", "embedder.unavailable"
    expected = {"/api/ask": no_model, "/api/embed": no_embedder}.get(path)
    assert answer.json().get("code") == expected


MALFORMED = [
    (b"", "The request is malformed: data."),
    (b"null", "The request is malformed: a value is out of range or of the wrong type"),
    (b"[]", "The request is malformed: a value is out of range or of the wrong type"),
    (b"{", "The request body is not valid JSON."),
    (b'{"query":"CANARY"} x', "The request body is not valid JSON."),
    (b"\xef\xbb\xbf" + b'{"query":"CANARY"}', "The request body is not valid JSON."),
    (b'{"query":"CANARY\xff"}', "The request body is not valid JSON."),
    (b'{"query":"CANARY\\ud800"}', "The request body is not valid JSON."),
    (b'{"query":"CANARY\\udc00\\ud800"}', "The request body is not valid JSON."),
    (b'{"query":"CANARY\n"}', "The request body is not valid JSON."),
    (b'{"query":"CANARY","query":"CANARY"}', "The request body is not valid JSON."),
    (b'{"query":"CANARY","scoring_weights":{"recency":1,"recency":1}}', "The request body is not"),
    (b'{"query":"CANARY","min_relevance":NaN}', "The request body is not valid JSON."),
    (b'{"query":"CANARY","min_relevance":Infinity}', "The request body is not valid JSON."),
    (b'{"query":"CANARY","min_relevance":1e999}', "The request is malformed"),
    (b'{"query":"CANARY","limit":' + b"9" * 5_000 + b"}", "The request "),
    (b'{"query":"CANARY","limit":"3"}', "The request is malformed: a value is out of range or of "),
    (b'{"query":"CANARY","limit":3.5}', "The request is malformed: a value is out of range or of "),
    (
        b'{"query":"CANARY","limit":0}',
        "The request is malformed: a value is out of range or of the",
    ),
    (b'{"query":"CANARY","limit":101}', "The request is malformed: a value is out of range or of"),
    (b'{"query":"CANARY","explain":"true"}', "The request is malformed: a value is out of range"),
    (b'{"query":"CANARY","after":1700000000}', "The request is malformed: a value is out of range"),
    (b'{"query":"CANARY","after":"2026-05-04T09:30:00"}', "The request is malformed: a value is"),
    (b'{"query":"CANARY","after":"CANARY"}', "The request is malformed: a value is out of range"),
    (b'{"query":"CANARY","kinds":["CANARY"]}', "The request is malformed: a value is out of range"),
    (b'{"query":"CANARY","mode":"CANARY"}', "The request is malformed: a value is out of range or"),
    (b'{"query":["CANARY"]}', "The request is malformed: a value is out of range or of the wrong"),
    (
        b'{"query":"CANARY","CANARY":1}',
        "The request is malformed: a member is unknown in the body.",
    ),
    (b'{"CANARY":1}', "The request is malformed: "),
    (b'{"query":"CANARY","metadata":{"CANARY":5}}', "The request is malformed: a value is out of "),
    (b'{"limit":5}', "The request is malformed: query is missing in the body."),
    (b'{"query":"  "}', "query is empty."),
    (b'{"query":"CANARY","namespace":""}', "a namespace"),
    (b'{"query":"CANARY","namespace":"CANARY\\u0000"}', "a namespace"),
    (b"[" * 100_000, "The request "),
    (b'{"query":"CANARY","a":' + b"[" * 100_000, "The request "),
    (b'{"a":' * 100_000, "The request "),
]


@pytest.mark.parametrize(("body", "message"), MALFORMED, ids=range(len(MALFORMED)))
async def test_a_malformed_body_is_refused_and_never_echoed(
    desk: Desk, body: bytes, message: str
) -> None:
    answer = await desk.client.post("/v1/recall", content=body)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(message)
    assert "CANARY" not in answer.text
    assert_error_shape(answer)


@pytest.mark.parametrize(
    "body", [b"\xff", b"[" * 100_000, b'{"query":NaN}', b'{"query":"\\ud800"}', b'{"query":1}']
)
async def test_memwals_routes_refuse_what_is_not_json_too(desk: Desk, body: bytes) -> None:
    answer = await desk.client.post("/api/recall", content=body)
    assert answer.status_code == 400
    assert_error_shape(answer)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/remember", {"text": "a" * (Limits.text_bytes_max + 1)}),
        ("/v1/remember", {"text": "é" * (Limits.text_bytes_max // 2 + 1)}),
        ("/v1/analyze", {"text": "a" * (Limits.analyze_bytes_max + 1)}),
        ("/v1/recall", {"query": "a" * (Limits.query_bytes_max + 1)}),
        ("/v1/recall", {"query": "a", "metadata": {"a": "b" * Limits.metadata_bytes_max}}),
        ("/v1/recall", {"query": "a" * Limits.body_bytes_max}),
        ("/v1/recall", {"query": "a", "goal": "é" * (Limits.goal_bytes_max // 2 + 1)}),
        ("/v1/ask", {"question": "a" * (Limits.query_bytes_max + 1)}),
        ("/api/remember", {"text": "a" * (Limits.text_bytes_max + 1)}),
        ("/api/analyze", {"text": "a" * (Limits.analyze_bytes_max + 1)}),
        ("/api/recall", {"query": "a" * (Limits.query_bytes_max + 1)}),
        ("/api/remember", {"text": "a" * Limits.body_bytes_max}),
    ],
    ids=str,
)
async def test_what_is_too_large_answers_413(desk: Desk, path: str, body: Answer) -> None:
    answer = await desk.client.post(path, json=body | (desk.named if path in CHANGES else {}))
    assert (answer.status_code, answer.json()["code"]) == (413, "request.too_large")
    assert_error_shape(answer)


async def test_a_body_too_large_is_refused_before_its_signature_is_looked_at(
    app: ASGIApp,
) -> None:
    async with client_of(app) as client:
        answer = await client.post("/v1/recall", content=b"a" * (Limits.body_bytes_max + 1))
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        {"items": []},
        {"items": [{"text": "a"}] * 21},
        {"items": [{"text": "a", "tags": ["x"] * 33}]},
        {"items": [{"text": "a", "tags": [""]}]},
        {"items": [{"text": "a", "importance": "huge"}]},
    ],
    ids=str,
)
async def test_what_is_out_of_range_answers_400(desk: Desk, body: Answer) -> None:
    answer = await desk.client.post("/v1/remember/bulk", json=body | desk.named)
    assert answer.status_code == 400
    assert_error_shape(answer)


@pytest.mark.parametrize(
    "item",
    [
        {"text": "a", "metadata": {str(n): "x" for n in range(65)}},
        {"text": "a", "expires_at": "2020-01-01T00:00:00Z"},
        {"text": "a", "namespace": "a" * 129},
        {"text": " \n"},
    ],
    ids=str,
)
async def test_what_one_item_says_out_of_range_is_refused_alone(desk: Desk, item: Answer) -> None:
    answer = await desk.client.post("/v1/remember", json=item | desk.named)
    assert answer.status_code == 400
    body = {"items": [item, {"text": "Another one is fine."}]}
    bulk = await desk.client.post("/v1/remember/bulk", json=body | desk.named)
    assert bulk.status_code == 202
    refused, stored = bulk.json()["results"]
    assert (refused["status"], refused["code"]) == ("rejected", answer.json()["code"])
    assert stored["status"] == "uploaded"


TWO_WEIGHTS = {"vector_weight": 1, "text_weight": 1}
KEY = "ab" * 32
NARROWING: list[tuple[Answer, str]] = [
    ({"namespace": 7}, ""),
    ({"namespaces": []}, ""),
    ({"namespaces": "team"}, ""),
    ({"namespaces": [f"n{n}" for n in range(17)]}, ""),
    ({"namespaces": ["team", " team "]}, "namespaces has a name twice."),
    ({"namespaces": ["team", ""]}, "a namespace"),
    ({"namespace": "team", "namespaces": ["team"]}, "namespace and namespaces exclude each other."),
    ({"kinds": []}, ""),
    ({"kinds": ["thought"]}, ""),
    ({"kinds": "fact"}, ""),
    ({"tags": [""]}, ""),
    ({"tags": ["a" * 129]}, ""),
    ({"tags": ["a"] * 33}, ""),
    ({"after": "2026-05-04"}, ""),
    ({"after": "0001-01-01T00:00:00Z"}, "after is out of range."),
    ({"before": "yesterday"}, ""),
    ({"before": "9999-12-31T00:00:00Z"}, "before is out of range."),
    (
        {"after": "2026-05-04T00:00:00Z", "before": "2026-05-04T02:00:00+02:00"},
        "before is not later than after.",
    ),
    ({"as_of": 1_700_000_000}, ""),
    ({"as_of": "2026-05-04T09:30:00"}, ""),
    ({"as_of": "2126-05-04T09:30:00Z"}, "as_of is in the future."),
]
CONTROLS: list[tuple[Answer, str]] = [
    ({"limit": 0}, ""),
    ({"limit": 101}, ""),
    ({"mode": "semantic"}, ""),
    ({"mode": None}, ""),
    ({"mode": "keyword_first", "min_primary_results": -1}, ""),
    ({"mode": "keyword_first", "min_primary_results": 101}, ""),
    ({"mode": "keyword_first", "min_primary_results": 1.5}, ""),
    ({"min_primary_results": 2}, "min_primary_results is for the mode keyword_first."),
    ({"vector_weight": 1}, "vector_weight and text_weight are given together."),
    ({"text_weight": 0.3}, "vector_weight and text_weight are given together."),
    ({"vector_weight": 0, "text_weight": 0}, "vector_weight and text_weight are not both 0."),
    ({"vector_weight": -1, "text_weight": 1}, ""),
    ({"vector_weight": 1, "text_weight": 100.1}, ""),
    ({"vector_weight": "1", "text_weight": 1}, ""),
    (TWO_WEIGHTS | {"mode": "keyword"}, "vector_weight and text_weight are for the mode hybrid."),
    (TWO_WEIGHTS | {"mode": "keyword_first"}, "vector_weight and text_weight are for the mode"),
    ({"goal": " "}, "goal is empty."),
    ({"goal": ["tea"]}, ""),
    ({"aliases": {"": ["tea"]}}, ""),
    ({"aliases": {"k8s": []}}, ""),
    ({"aliases": {"k8s": "kubernetes"}}, ""),
    ({"aliases": {"k8s": [""]}}, ""),
    ({"aliases": {"k8s": ["a"] * 17}}, ""),
    ({"aliases": {"k8s": ["a" * 129]}}, ""),
    ({"aliases": {"a" * 129: ["tea"]}}, ""),
    ({"aliases": {str(n): ["tea"] for n in range(65)}}, ""),
    ({"source": ""}, ""),
    ({"source": "a" * 513}, ""),
    ({"metadata": {"a": 1}}, ""),
    ({"metadata": {str(n): "a" for n in range(65)}}, "metadata has too many entries"),
    ({"writers": []}, ""),
    ({"writers": [KEY.upper()]}, ""),
    ({"writers": ["0x" + KEY]}, ""),
    ({"writers": [KEY] * 65}, ""),
    ({"min_relevance": 1.1}, ""),
    ({"min_relevance": -0.1}, ""),
    ({"scoring_weights": {"recency": -1}}, ""),
    ({"scoring_weights": {"importance": 101}}, ""),
    ({"scoring_weights": {"recency_half_life_days": 0}}, ""),
    ({"max_tokens": 0}, ""),
    ({"max_tokens": 100_001}, ""),
    ({"max_tokens": 1.5}, ""),
    ({"explain": 1}, ""),
]
REFUSED = [("/v1/recall", *case) for case in NARROWING + CONTROLS]
REFUSED += [("/v1/ask", *case) for case in [*NARROWING, *CONTROLS[:2]]]


@pytest.mark.parametrize(("path", "members", "message"), REFUSED, ids=range(len(REFUSED)))
async def test_a_control_out_of_its_bounds_answers_400(
    desk: Desk, path: str, members: Answer, message: str
) -> None:
    answer = await desk.client.post(path, json=OUR_BODIES[path] | members)
    namespace = "namespace." if message == "a namespace" else "request."
    assert (answer.status_code, answer.json()["code"]) == (400, f"{namespace}invalid")
    expected = message or "The request is malformed: a value is out of range or of the wrong type"
    assert answer.json()["message"].startswith(expected)


@pytest.mark.parametrize("control", ["min_relevance", "goal", "mode", "max_tokens", "explain"])
async def test_a_question_takes_what_narrows_and_nothing_else(desk: Desk, control: str) -> None:
    answer = await desk.client.post("/v1/ask", json=OUR_BODIES["/v1/ask"] | {control: 1})
    assert answer.json()["message"].endswith("a member is unknown in the body.")


async def test_a_reader_of_one_namespace_gets_nothing_of_two(
    app: ASGIApp, storage: Storage, managed: NewKey, client: httpx.AsyncClient, named: Answer
) -> None:
    for name in ("team", "secret"):
        body = {"text": "Anna prefers tea.", "namespace": name}
        await client.post("/v1/remember", json=body | named)
    reader = await key_of(storage, managed, "reader", "team")
    async with client_of(app, signer_of(reader)) as asking:
        allowed = await asking.post("/v1/recall", json={"query": "tea", "namespaces": ["team"]})
        both = {"query": "tea", "namespaces": ["team", "secret"]}
        refused = await asking.post("/v1/recall", json=both)
    assert (allowed.status_code, len(allowed.json()["results"])) == (200, 1)
    assert (refused.status_code, refused.json()["code"]) == (403, "auth.not_allowed")
    assert_error_shape(refused)


FULL: Answer = {
    "namespaces": [f"n{n}" for n in range(16)], "limit": 100, "goal": "g" * 4096,
    "kinds": ["fact"] * 9, "tags": ["a" * 128] * 32, "source": "a" * 512, "metadata": {"a": "b"},
    "writers": [KEY] * 64, "after": "1970-01-01T00:00:00Z", "before": "2970-01-01T00:00:00+02:00",
    "as_of": "2026-01-01T00:00:00Z", "min_relevance": 1, "max_tokens": 100_000, "explain": True,
    "aliases": {f"{n:0128}": ["a" * 128] * 16 for n in range(64)},
    "scoring_weights": {
        "semantic": 0, "recency": 100, "recency_half_life_days": 0.5, "importance": 100,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "members",
    [
        {"mode": "keyword_first", "min_primary_results": 100},
        {"mode": "keyword_first", "min_primary_results": 0},
        {"vector_weight": 0, "text_weight": 100},
        {"vector_weight": 0.7, "text_weight": 0.3, "mode": "hybrid"},
        {"mode": "vector"},
    ],
    ids=str,
)
async def test_every_control_is_taken_at_its_bounds(desk: Desk, members: Answer) -> None:
    answer = await desk.client.post("/v1/recall", json=OUR_BODIES["/v1/recall"] | FULL | members)
    assert (answer.status_code, answer.json()["results"]) == (200, [])


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=201", "limit=x", "cursor=-1", "cursor=x", "cursor=1.5", "cursor=%C2%B2",
     "kind=nothing", "namespace=", "namespace=%00", "namespace=" + "a" * 129,
     "cursor=" + "9" * 19],
)  # fmt: skip
async def test_a_malformed_query_answers_400(desk: Desk, query: str) -> None:
    answer = await desk.client.get(f"/v1/memories?{query}")
    assert answer.status_code == 400
    assert_error_shape(answer)


@pytest.mark.parametrize("query", ["", "?relayer="])
async def test_a_delete_must_name_its_relayer(desk: Desk, query: str) -> None:
    answer = await desk.client.delete(f"/v1/memories/{uuid.uuid4()}{query}")
    assert answer.status_code == 400


@pytest.mark.parametrize("path", sorted(CHANGES))
async def test_a_change_signed_for_another_relayer_is_worthless_here(desk: Desk, path: str) -> None:
    unnamed = await desk.client.post(path, json=OUR_BODIES[path])
    other = await desk.client.post(path, json=OUR_BODIES[path] | {"relayer": "ab" * 32})
    assert unnamed.json()["message"].endswith("relayer is missing in the body.")
    assert (other.status_code, other.json()["code"]) == (400, "relayer.other")


async def test_removing_a_webhook_names_its_relayer(client: httpx.AsyncClient) -> None:
    path = f"/v1/webhooks/{uuid.uuid4()}"
    answer = await client.delete(path, params={"relayer": "ab" * 32})
    assert (answer.status_code, answer.json()["code"]) == (400, "relayer.other")


async def test_an_erasure_signed_for_another_relayer_is_worthless_here(
    client: httpx.AsyncClient, named: Answer
) -> None:
    stored = await client.post("/v1/remember", json={"text": "Anna prefers tea."} | named)
    path = f"/v1/memories/{stored.json()['id']}"
    answer = await client.delete(path, params={"relayer": "ab" * 32})
    assert (answer.status_code, answer.json()["code"]) == (400, "relayer.other")
    assert (await client.get(path)).status_code == 200


# Errors


def assert_error_shape(answer: httpx.Response) -> None:
    error = answer.json()
    assert set(error) == {"error", "message", "code", "request_id"}
    assert error["error"] == error["message"] != ""
    assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)*", error["code"])
    assert error["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/json"


async def test_every_kind_of_error_has_one_shape(app: ASGIApp, client: httpx.AsyncClient) -> None:
    async with client_of(app) as unsigned:
        answers = [
            await unsigned.get("/v1/keys"),
            await unsigned.get("/v1/keys", headers={"x-nonce": "x"}),
            await client.get("/nothing"),
            await client.get("/v1/nothing"),
            await client.get("/api/remember/nothing"),
            await client.put("/v1/keys"),
            await client.get("/v1/recall"),
            await client.post("/v1/recall", content=b"{"),
            await client.post("/v1/ask", json={"question": "tea?"}),
        ]
    assert [a.status_code for a in answers] == [426, 401, 404, 404, 404, 405, 405, 400, 503]
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


# Whose is it


async def key_of(storage: Storage, account: NewKey, role: Any, *namespaces: str) -> NewKey:
    return await provision.add_key(
        storage,
        account=account.account,
        namespaces=[Namespace(n) for n in namespaces],
        role=role,
        label=role,
        expires_at=None,
        owner=None,
        clock=utc_now,
    )


async def test_what_is_somebody_elses_is_not_found(
    app: ASGIApp, storage: Storage, client: httpx.AsyncClient, named: Answer, managed: NewKey
) -> None:
    """Ids of another account, absent ids and nonsense answer alike."""
    other = await provision.create_account(storage, label="other", custody="managed", clock=utc_now)
    stored = await client.post("/v1/remember", json={"text": "Anna prefers tea."} | named)
    ids = [stored.json()["id"], str(uuid.uuid4()), "nonsense", stored.json()["id"].upper() + "x"]
    accounts = [account_text(managed.account), "0x" + "00" * 32, "nonsense"]
    async with client_of(app, signer_of(other)) as foreign:
        answers = [
            *[await foreign.get(f"/v1/memories/{i}") for i in ids],
            *[await foreign.delete(f"/v1/memories/{i}", params=named) for i in ids],
            *[await foreign.get(f"/api/remember/{i}") for i in ids],
            *[await foreign.get(f"/v1/accounts/{a}") for a in accounts],
            *[await foreign.get(f"/v1/owners/{a}/namespaces") for a in accounts],
        ]
        states = await foreign.post("/v1/memories/status", json={"ids": ids})
        jobs = await foreign.post("/api/remember/bulk/status", json={"job_ids": ids})
    assert {a.status_code for a in answers} == {404}
    assert {a.json()["code"] for a in answers} == {"not_found"}
    assert len({a.json()["message"] for a in answers[:8]}) == 1
    assert states.json() == {"results": [{"id": i, "status": "not_found"} for i in ids]}
    assert jobs.json() == {"results": [{"job_id": i, "status": "not_found"} for i in ids]}
    assert (await client.get(f"/v1/memories/{ids[0]}")).status_code == 200


async def test_another_namespace_of_ones_own_account_is_not_found_either(
    app: ASGIApp, storage: Storage, client: httpx.AsyncClient, named: Answer, managed: NewKey
) -> None:
    """capability 0.33: what is recalled and captured stays in its namespace.
    capability 0.34: every route filters by the namespace.
    """
    body = {"text": "Anna prefers tea.", "namespace": "anna"} | named
    stored = (await client.post("/v1/remember", json=body)).json()["id"]
    agent = await key_of(storage, managed, "writer", "bob")
    async with client_of(app, signer_of(agent)) as bob:
        assert (await bob.get(f"/v1/memories/{stored}")).status_code == 404
        assert (await bob.delete(f"/v1/memories/{stored}", params=named)).status_code == 404
        assert (await bob.get(f"/api/remember/{stored}")).status_code == 404
        states = await bob.post("/v1/memories/status", json={"ids": [stored]})
        recalled = await bob.post("/v1/recall", json={"query": "tea", "namespace": "bob"})
        listed = await bob.get("/v1/namespaces")
    assert states.json()["results"][0]["status"] == "not_found"
    assert recalled.json()["results"] == []
    assert listed.json()["namespaces"] == []


async def test_a_key_without_the_namespace_is_not_allowed(
    app: ASGIApp, storage: Storage, named: Answer, managed: NewKey
) -> None:
    """capability 0.34: the server filters by the key's own grant, whatever the request names."""
    agent = await key_of(storage, managed, "writer", "bob")
    asked: list[tuple[str, Answer]] = [
        ("/v1/remember", {"text": "a"} | named),
        ("/v1/recall", {"query": "a"}),
        ("/v1/analyze", {"text": "I prefer tea."} | named),
        ("/v1/restore", named),
        ("/api/remember", {"text": "a"}),
        ("/api/remember/bulk", {"items": [{"text": "a"}, {"text": "b", "namespace": "anna"}]}),
        ("/api/recall", {"query": "a"}),
        ("/api/analyze", {"text": "I prefer tea."}),
        ("/api/restore", {}),
        ("/api/remember/manual", {"encrypted_data": "AAAA", "vector": [1.0]}),
        ("/api/recall/manual", {"vector": [1.0]}),
        ("/api/forget", {}),
        ("/api/stats", {}),
    ]
    async with client_of(app, signer_of(agent)) as bob:
        for path, body in asked:
            answer = await bob.post(path, json=body | {"namespace": "anna"})
            assert (answer.status_code, path) == (403, path)
            assert answer.json()["code"] in ("auth.not_allowed", "unlock_required")
        assert (await bob.get("/v1/memories", params={"namespace": "anna"})).status_code == 403
        assert (await bob.get("/v1/stats", params={"namespace": "anna"})).status_code == 403
        assert (await bob.get("/v1/receipts")).status_code == 403


async def test_a_reader_reads(
    app: ASGIApp, storage: Storage, client: httpx.AsyncClient, named: Answer, managed: NewKey
) -> None:
    stored = (await client.post("/v1/remember", json={"text": "Anna prefers tea."} | named)).json()
    agent = await key_of(storage, managed, "reader", "default")
    async with client_of(app, signer_of(agent)) as reader:
        allowed = [
            await reader.get(f"/v1/memories/{stored['id']}"),
            await reader.post("/v1/recall", json={"query": "tea"}),
            await reader.get("/v1/memories"),
            await reader.get("/v1/stats"),
            await reader.get("/v1/keys"),
            await reader.get("/v1/grants"),
            await reader.get("/v1/usage"),
        ]
        refused = [
            await reader.delete(f"/v1/memories/{stored['id']}", params=named),
            await reader.post("/v1/remember", json={"text": "a"} | named),
            await reader.post("/v1/analyze", json={"text": "I prefer tea."} | named),
            await reader.post("/v1/restore", json=named),
            await reader.post("/api/forget", json={}),
        ]
    assert [a.status_code for a in allowed] == [200] * len(allowed)
    assert [a.status_code for a in refused] == [403] * len(refused)
    assert [len(a.json()["results"]) for a in allowed[1:2]] == [1]
    assert (await client.get(f"/v1/memories/{stored['id']}")).status_code == 200


@pytest.mark.parametrize("role", ["writer", "reader"])
async def test_only_owners_give_and_take_keys(
    app: ASGIApp, storage: Storage, named: Answer, managed: NewKey, role: str
) -> None:
    agent = await key_of(storage, managed, role)
    async with client_of(app, signer_of(agent)) as client:
        for path in ("/v1/grants", "/v1/revocations", "/v1/rotations"):
            answer = await client.post(path, json=OUR_BODIES[path] | named)
            assert (answer.status_code, answer.json()["code"]) == (403, "auth.not_allowed")
        keys = (await client.get("/v1/keys")).json()["keys"]
    assert [k["public_key"] for k in keys] == [agent.identity.public_key.hex()]


async def test_an_owner_gives_and_takes_a_key_over_http(
    app: ASGIApp, storage: Storage, client: httpx.AsyncClient, named: Answer, managed: NewKey
) -> None:
    agent = NewKey(managed.account, Identity(os.urandom(32)), "managed")
    recipient, now_ms = agent.identity.public_key, to_ms(utc_now())
    own = await storage.accounts.chain(managed.account)
    [root] = open_grant(own.grants[managed.identity.public_key][0], managed.identity)
    assert isinstance(root, Root)
    signed = issue_grant(
        managed.identity,
        account=managed.account,
        serial=3,
        recipient=recipient,
        role="writer",
        keys=[root.namespace_key(managed.account, Namespace("agent"))],
        created_ms=now_ms,
    )
    join = sign_join(
        agent.identity,
        account=managed.account,
        issuer=managed.identity.public_key,
        relayer=storage.identity.public_key,
    )
    revocation = issue_revocation(
        managed.identity,
        account=managed.account,
        serial=4,
        recipient=recipient,
        created_ms=now_ms,
    )
    body = {"grant": to_base64(signed), "join": to_base64(join), "label": "agent"} | named
    taking = {"revocation": to_base64(revocation)} | named
    async with client_of(app, signer_of(agent)) as added:
        before = await added.get("/v1/keys")
        given = await client.post("/v1/grants", json=body)
        again = await client.post("/v1/grants", json=body)
        during = await added.get("/v1/keys")
        taken = await client.post("/v1/revocations", json=taking)
        after = await added.get("/v1/keys")
    assert [a.status_code for a in (before, during, after)] == [401, 200, 401]
    assert (given.status_code, given.json()["serial"]) == (201, 3)
    assert (again.status_code, again.json()["code"]) == (409, "grant.serial")
    assert (taken.status_code, taken.json()["serial"]) == (201, 4)
    assert during.json()["keys"][0]["namespaces"] == ["agent"]
    listed = (await client.get("/v1/grants")).json()
    assert [g["kind"] for g in listed["grants"]] == ["grant", "grant", "grant", "revoke"]


async def test_a_sealed_account_asks_for_the_unlock_header(
    app: ASGIApp, named: Answer, sealed: NewKey
) -> None:
    async with client_of(app, signer_of(sealed)) as client:
        missing = await client.post("/v1/recall", json={"query": "tea"})
        wrong = await client.post(
            "/v1/recall", json={"query": "tea"}, headers={"x-memrelay-unlock": "AQ"}
        )
        memwal = await client.post("/api/remember", json={"text": "tea"})
    assert (missing.status_code, missing.json()["code"]) == (403, "unlock_required")
    assert (wrong.status_code, wrong.json()["code"]) == (403, "unlock_rejected")
    assert (memwal.status_code, memwal.json()["code"]) == (403, "unlock_required")


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
    body = {"text": "Tea.", "event_time": "2026-05-04T11:30:00.123456+02:00"} | named
    stored = (await client.post("/v1/remember", json=body)).json()
    memory = (await client.get(f"/v1/memories/{stored['id']}")).json()
    assert memory["event_time"] == "2026-05-04T09:30:00.123Z"
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
