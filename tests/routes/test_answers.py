"""What every answer carries beside its content: headers of a hardened API, and who sees metrics.

Not here: bodies of errors (`test_routes.py`), what answers never hold (`test_secrecy.py`).
"""

import asyncio
import dataclasses
import itertools
import re
import socket
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx
from litestar.types import ASGIApp

from memrelay.sealed.keys import Identity as ClientIdentity
from memrelay.signing import RequestSigner
from relayer.app import build_app
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.conftest import TestDatabase
from tests.processes import RunningRelayer, create_account
from tests.routes_scene import concrete, table
from tests.signing import client_of, signed_headers, signer_of

HARDENED = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
TOKEN = {"metrics_token": "only-the-operator"}


def assert_hardened(answer: httpx.Response) -> None:
    """The headers are there, once each; nobody else's web page is let in, no software named."""
    found = {name: answer.headers.get_list(name) for name in HARDENED}
    assert found == {name: [value] for name, value in HARDENED.items()}
    assert re.fullmatch(r"[0-9a-f-]{36}", answer.headers["x-request-id"])
    names = set(answer.headers)
    assert not {"server", "x-powered-by", "via", "set-cookie"} & names
    assert not {name for name in names if name.startswith("access-control-")}


def from_a_page(method: str) -> dict[str, str]:
    """What a browser sends along for a page of another origin, before it and with it."""
    page = {"origin": "https://page.example", "sec-fetch-site": "cross-site"}
    asked = {
        "access-control-request-method": method,
        "access-control-request-headers": "x-signature, content-type",
        "access-control-request-private-network": "true",
    }
    return page | asked


async def test_every_route_answers_hardened_and_to_no_other_origin(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    """Unsigned, signed and preflight requests of every route, and of paths that there are not."""
    app = build_app(storage, lean)
    asked = {*table(app), ("GET", "/nothing"), ("GET", "/v1/nothing"), ("PATCH", "/health")}
    async with client_of(app) as anybody, client_of(app, signer_of(managed)) as owner:
        for method, path in sorted(asked):
            if (method, path) in {("GET", "/v1/events"), ("DELETE", "/v1/accounts/{account_id}")}:
                continue  # a stream is asked for below
            page = from_a_page(method)
            for client in (anybody, owner):
                assert_hardened(await client.request(method, concrete(path), headers=page))
            preflight = await anybody.options(concrete(path), headers=page)
            assert_hardened(preflight)
            refused = {204} if path == "/metrics" else {401, 404, 405}
            assert preflight.status_code in refused, path


async def test_a_request_past_its_deadline_is_answered_hardened(
    storage: Storage, lean: Settings, managed: NewKey, fresh_database: TestDatabase
) -> None:
    app = build_app(storage, dataclasses.replace(lean, request_timeout_s=1))
    blocker = await asyncpg.connect(**fresh_database.connect_args)
    try:
        async with blocker.transaction(), client_of(app, signer_of(managed)) as client:
            await blocker.execute("LOCK TABLE nonces IN ACCESS EXCLUSIVE MODE")
            late = await client.get("/v1/keys")
    finally:
        await blocker.close()
    assert (late.status_code, late.json()["code"]) == (503, "request.deadline")
    assert_hardened(late)


async def test_every_answer_of_a_relayer_that_stops_closes_its_connection(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    """From the moment on that it is asked to; a client would meet a closed one otherwise."""
    stopping = asyncio.Event()
    app = build_app(storage, lean, stopping=stopping)
    asked = [("GET", "/health"), ("GET", "/v1/keys"), ("GET", "/nothing"), ("PATCH", "/health")]
    async with client_of(app) as anybody, client_of(app, signer_of(managed)) as owner:
        for closes in ([], ["close"]):
            for client, (method, path) in itertools.product((anybody, owner), asked):
                answer = await client.request(method, path)
                assert answer.headers.get_list("connection") == closes, (method, path)
            stopping.set()


async def test_a_bug_is_answered_hardened(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    await storage.database.execute("ALTER TABLE namespaces RENAME TO hidden")
    async with client_of(build_app(storage, lean), signer_of(managed)) as client:
        answer = await client.get("/v1/namespaces")
    assert answer.status_code == 500
    assert_hardened(answer)


def test_an_empty_query_is_not_signed(relayer: RunningRelayer) -> None:
    """The client leaves it out, and the relayer cannot see it."""
    account = create_account(relayer, "managed")
    identity = ClientIdentity(bytes.fromhex(account["private_key"]))
    signer = RequestSigner(identity, account_id=account["account_id"])
    for target in ("/v1/keys", "/v1/keys?", "/v1/memories?namespace=a"):
        assert httpx.get(relayer.url + target, auth=signer).status_code == 200, target
    literally = signed_headers(identity, "GET", "/v1/keys?", account=account["account_id"])
    assert httpx.get(f"{relayer.url}/v1/keys?", headers=literally).status_code == 401


def test_a_real_server_adds_nothing_and_streams_are_hardened_too(relayer: RunningRelayer) -> None:
    account = create_account(relayer, "managed")
    identity = ClientIdentity(bytes.fromhex(account["private_key"]))
    signed = signed_headers(identity, "GET", "/v1/events", account=account["account_id"])
    with httpx.stream("GET", f"{relayer.url}/v1/events", headers=signed) as stream:
        assert stream.status_code == 200
        assert_hardened(stream)
    for path in ("/health", "/nothing", "/v1/keys", "/metrics", "/schema/openapi.json"):
        for method in ("GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND"):
            assert_hardened(httpx.request(method, relayer.url + path))
    assert_hardened(httpx.post(f"{relayer.url}/v1/recall", content=b"x" * (2**21 + 1)))
    assert "server" not in raw_answer(relayer, b"GET / HTTP/1.1\r\nbad header\r\n\r\n").lower()


async def test_methods_are_told_to_who_signs(app: ASGIApp, managed: NewKey) -> None:
    """No page of another origin gets an answer to its preflight, of a public route either."""
    paths = {"/v1/keys": 401, "/v1/accounts": 401, "/health": 401, "/nothing": 404}
    async with client_of(app) as nobody, client_of(app, signer_of(managed)) as client:
        for path, status in paths.items():
            asked = {"origin": "https://a.example", "access-control-request-method": "GET"}
            refused = await nobody.options(path, headers=asked)
            told = await client.options(path)
            assert (refused.status_code, told.status_code) == (
                status,
                404 if status == 404 else 204,
            )
            assert not [name for name in refused.headers if name.startswith("access-control-")]
            assert_hardened(told)
            assert status == 404 or "OPTIONS" in told.headers["allow"]
        other = await client.put("/v1/keys")
    assert (other.status_code, other.json()["code"]) == (405, "request.method")
    assert "GET" in other.headers["allow"]


def raw_answer(relayer: RunningRelayer, request: bytes) -> str:
    """What the server says to bytes that need not be HTTP."""
    where = urlsplit(relayer.url)
    assert where.hostname is not None
    with socket.create_connection((where.hostname, where.port or 80), timeout=30) as plain:
        plain.sendall(request)
        plain.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: plain.recv(4096), b"")).decode("latin-1")


# Metrics


METRICS: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({}, {}, True),
    ({}, {"host": "localhost:8000"}, True),
    ({}, {"host": "memory.example"}, False),
    ({}, {"x-forwarded-for": "127.0.0.1"}, False),
    ({}, {"via": "1.1 proxy"}, False),
    ({}, {"authorization": "Bearer "}, True),
    ({"host": "0.0.0.0"}, {}, False),
    ({"host": "0.0.0.0"}, {"authorization": "Bearer "}, False),
    ({"host": "::"}, {}, False),
    ({"public_url": "https://memory.example"}, {}, False),
    ({"public_url": "http://127.0.0.1:8000"}, {}, True),
    (TOKEN, {}, False),
    (TOKEN, {"authorization": "Bearer only-the-operator"}, True),
    (TOKEN | {"host": "0.0.0.0"}, {"authorization": "Bearer only-the-operator"}, True),
    (TOKEN, {"authorization": "Bearer only-the-operato"}, False),
    (TOKEN, {"authorization": "bearer only-the-operator"}, False),
    (TOKEN, {"authorization": "only-the-operator"}, False),
    (TOKEN, {"authorization": "Bearer only-the-opérator".encode()}, False),
]


async def test_metrics_are_for_this_machine_or_for_a_token(
    storage: Storage, lean: Settings
) -> None:
    for changes, headers, seen in METRICS:
        app = build_app(storage, dataclasses.replace(lean, **changes))
        async with client_of(app) as client:
            answer = await client.get("/metrics", headers=headers)
        assert_hardened(answer)
        assert (answer.status_code == 200) == seen, (changes, headers)
        if seen:
            assert "memrelay_requests_in_progress" in answer.text
        else:
            assert (answer.status_code, answer.json()["code"]) == (403, "metrics.token")


async def test_metrics_do_not_name_paths_that_there_are_not(
    storage: Storage, lean: Settings
) -> None:
    """Else a stranger could fill the memory of relayer and metrics' keeper with names."""
    async with client_of(build_app(storage, lean)) as client:
        await client.get("/zq-no-such-path/zq-at-all")
        await client.get("/v1/memories/zq-no-such-id")
        await client.request("ZQNOSUCH", "/health")
        text = (await client.get("/metrics")).text
    assert "zq-no" not in text
    assert "ZQNOSUCH" not in text
