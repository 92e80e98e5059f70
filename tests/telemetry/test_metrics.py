"""Each request is counted by route, stages and refusal, and no label says anything of a tenant.

Not here: what is counted beside requests (`test_counts.py`), who may see it (`test_answers.py`),
marked strings of a whole life (`test_secrecy.py`), several workers (`test_workers.py`).
"""

import ast
import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from litestar import get
from litestar.connection import ASGIConnection
from litestar.types import ASGIApp, Scope

from relayer.app import build_app
from relayer.clock import utc_now
from relayer.database import queue
from relayer.errors import NotAuthenticated, NotFound, RelayerError, Unavailable
from relayer.http.middleware import RequestMiddleware
from relayer.http.requests import RequestCounts
from relayer.monitoring.readiness import CHECKS
from relayer.sealed.keys import Identity, account_text
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.telemetry import instruments
from relayer.telemetry.rejections import cause_of
from relayer.upkeep import provision
from relayer.upkeep.provision import NewKey
from tests.signing import client_of, signed_headers, signer_of
from tests.telemetry.reading import counted, grown, scrape

ROOT = Path(__file__).parents[2]
STAGE = "memrelay_stage_duration_seconds_count"
REJECTED = "memrelay_requests_rejected_total"
LOOKUPS = "memrelay_cache_lookups_total"


async def test_a_recall_and_a_remember_are_timed_in_their_stages(
    storage: Storage, settings: Settings, managed: NewKey
) -> None:
    before = counted()
    named = {"relayer": storage.identity.public_key.hex()}
    async with client_of(build_app(storage, settings), signer_of(managed)) as client:
        stored = await client.post("/v1/remember", json=named | {"text": "Anna prefers tea."})
        found = await client.post("/v1/recall", json={"query": "tea"})
        shown = await scrape(client)
    assert (stored.status_code, found.json()["total"]) == (202, 1)
    for stage in instruments.STAGES:
        assert grown(before, STAGE, stage=stage) >= 1, stage
        assert grown(before, "memrelay_stage_duration_seconds_sum", stage=stage) > 0
    assert grown(before, "memrelay_embedding_duration_seconds_count") >= 1
    assert grown(before, "memrelay_embedding_texts_sum") >= 1
    assert grown(before, LOOKUPS, cache="index", result="miss") >= 1, "nobody asked before"
    assert grown(before, "memrelay_requests_total", path="/v1/recall", status_code="200") >= 1
    assert shown.of("memrelay_requests_in_progress", path="/metrics") == 1
    assert shown.of("memrelay_requests_in_progress", path="/v1/recall") == 0
    # Nobody works here: the job waits, and is as old as it is.
    assert shown.of("memrelay_jobs", kind="embed", state="queued") == 1
    assert shown.of("memrelay_jobs") == 1
    assert shown.of("memrelay_oldest_job_age_seconds", kind="embed") > 0
    assert shown.of("memrelay_oldest_job_age_seconds", kind="extract") == 0


async def test_no_label_is_anything_but_a_word_of_ours(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    """What a client chooses (method, path, namespace, ids) becomes no label, nor what it is."""
    named = {"relayer": storage.identity.public_key.hex()}
    text = {"text": "zqtext", "namespace": "zqnamespace", "tags": ["zqtag"]}
    async with client_of(build_app(storage, lean), signer_of(managed)) as client:
        await client.post("/v1/remember", json=named | text)
        await client.post("/v1/recall", json={"query": "zqtext", "namespace": "zqnamespace"})
        await client.get("/v1/stats?namespace=zqnamespace", headers={"x-request-id": "zqrequest"})
        for method, path in (("ZQ", "/zq"), ("ZQ", "/health"), ("GET", "/zq"), ("PATCH", "/v1/zq")):
            await client.request(method, path)
        answer = await client.get("/metrics")
        shown = await scrape(client)
    mine = (account_text(managed.account)[2:], managed.identity.public_key.hex())
    assert not [word for word in ("zq", "ZQ", *mine) if word in answer.text]
    methods = {*"GET HEAD POST PUT PATCH DELETE OPTIONS other".split()}
    assert shown.labels("memrelay_requests_total", "method") <= methods
    assert shown.labels(STAGE, "stage") == set(get_args(instruments.Stage))
    assert shown.labels(LOOKUPS, "cache") == set(get_args(instruments.Cache))
    assert shown.labels(REJECTED, "cause") == set(get_args(instruments.Rejection))
    assert shown.labels("memrelay_jobs", "kind") == set(queue.KINDS)
    assert shown.labels("memrelay_check_ok", "check") == set(CHECKS)


async def test_a_stranger_makes_few_series(app: ASGIApp) -> None:
    async with client_of(app) as client:
        await client.request("ZQ0", "/health")
        before = len((await scrape(client)).values)
        for n in range(30):
            await client.request(f"ZQ{n}", f"/zq{n}")
            await client.request(f"ZQ{n}", "/health")
        assert len((await scrape(client)).values) - before < 60


# Refusals

Refused = Callable[[httpx.AsyncClient, NewKey, Storage], Awaitable[httpx.Response]]


async def _ask(
    client: httpx.AsyncClient, key: Identity, account: str = "", skew_s: int = 0, **changes: str
) -> httpx.Response:
    at_s = int(utc_now().timestamp()) + skew_s
    signed = signed_headers(key, "GET", "/v1/keys", account=account, timestamp_s=at_s)
    headers = {k.replace("_", "-"): v for k, v in changes.items()}
    return await client.get("/v1/keys", headers=signed | headers)


async def _revoked(client: httpx.AsyncClient, managed: NewKey, storage: Storage) -> httpx.Response:
    other = await provision.add_key(
        storage, account=managed.account, namespaces=[], role="reader", label="x", expires_at=None,
        owner=None, clock=utc_now,
    )  # fmt: skip
    key = other.identity
    await provision.revoke_key(
        storage, account=managed.account, key=key.public_key, owner=None, clock=utc_now
    )
    return await _ask(client, key)


async def _replayed(client: httpx.AsyncClient, managed: NewKey, _: Storage) -> httpx.Response:
    signed = signed_headers(managed.identity, "GET", "/v1/keys")
    assert (await client.get("/v1/keys", headers=signed)).status_code == 200
    return await client.get("/v1/keys", headers=signed)


async def _posted(
    client: httpx.AsyncClient, key: NewKey, body: bytes, path: str = "/v1/recall", **headers: str
) -> httpx.Response:
    signed = signed_headers(key.identity, "POST", path, body)
    named = {k.replace("_", "-"): v for k, v in headers.items()}
    return await client.post(path, content=body, headers=signed | named)


STRANGER = Identity(bytes(31) + b"\1")
REFUSALS: dict[str, tuple[int, Refused]] = {
    "headers": (401, lambda c, k, _: _ask(c, k.identity, x_signature="zz")),
    "clock": (401, lambda c, k, _: _ask(c, k.identity, skew_s=-400)),
    "signature": (401, lambda c, k, _: _ask(c, k.identity, x_signature="00" * 64)),
    "replay": (401, _replayed),
    "unknown_key": (401, lambda c, _, __: _ask(c, STRANGER)),
    "account": (401, lambda c, k, _: _ask(c, k.identity, "0x" + "00" * 32)),
    "grant": (401, _revoked),
    "session": (401, lambda c, k, _: _ask(c, k.identity, x_seal_session="e30=")),
    "no_nonce": (426, lambda c, k, _: _ask(c, k.identity, x_nonce="")),
    "malformed": (400, lambda c, k, _: _posted(c, k, b"{")),
    "media_type": (415, lambda c, k, _: _posted(c, k, b"{}", content_type="text/plain")),
    "body_too_large": (413, lambda c, k, _: _posted(c, k, b" " * (2**21 + 1))),
}


async def test_a_refusal_is_counted_by_its_cause_and_by_no_other(
    app: ASGIApp, storage: Storage, managed: NewKey
) -> None:
    for cause, (status, refused) in REFUSALS.items():
        before = counted(REJECTED)
        async with client_of(app) as client:
            answer = await refused(client, managed, storage)
        assert answer.status_code == status, cause
        assert status != 401 or cause not in answer.text, "the client is not told"
        found = {c: grown(before, REJECTED, cause=c) for c in get_args(instruments.Rejection)}
        assert {c: n for c, n in found.items() if n} == {cause: 1}


async def test_full_windows_closed_doors_and_foreign_rights_are_counted_too(
    storage: Storage, lean: Settings, managed: NewKey, sealed: NewKey
) -> None:
    before = counted()
    few = build_app(storage, dataclasses.replace(lean, requests_per_hour=1, registration="closed"))
    async with client_of(few, signer_of(managed)) as client:
        first = await client.get("/v1/settings")
        full = await client.get("/v1/settings")
        founding = await client.post("/v1/accounts", json={"grants": []})
    async with client_of(build_app(storage, lean), signer_of(sealed)) as client:
        locked = await client.post("/v1/recall", json={"query": "tea"})
    answers = [answer.status_code for answer in (first, full, founding, locked)]
    assert answers == [200, 429, 403, 403]
    for cause in ("rate_limit", "registration", "unlock"):
        assert grown(before, REJECTED, cause=cause) == 1


async def test_a_request_that_is_cut_off_is_no_success() -> None:
    """Its deadline cancels it before it has answered: it took time, and no 200 was sent."""
    counts = RequestCounts()

    async def cut_off(scope: Scope, *_: object) -> None:
        scope["path_template"] = "/of-a-test"
        await counts.begin(ASGIConnection(scope), get("/of-a-test")(cut_off))
        raise asyncio.CancelledError

    def status(of: str) -> dict[str, str]:
        return {"path": "/of-a-test", "status_code": of}

    before = counted()
    around: Any = RequestMiddleware(cut_off, timeout_s=60, stopping=asyncio.Event(), counts=counts)
    scope = {"type": "http", "method": "GET", "headers": []}
    with pytest.raises(asyncio.CancelledError):
        await around(scope, cut_off, cut_off)
    assert grown(before, "memrelay_requests_in_progress", path="/of-a-test") == 0
    assert grown(before, "memrelay_requests_total", **status("503")) == 1
    assert grown(before, "memrelay_requests_total", **status("200")) == 0
    assert grown(before, "memrelay_request_duration_seconds_sum", **status("503")) > 0


def test_every_failed_check_has_a_word_of_its_own() -> None:
    causes = set()
    for path in sorted((ROOT / "relayer").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "NotAuthenticated":
                [cause] = node.args
                assert isinstance(cause, ast.Constant), path
                causes.add(str(cause.value))
    assert len(causes) >= 8
    words = {cause: cause_of(NotAuthenticated(cause)) for cause in causes}
    assert "other" not in words.values()
    assert len(set(words.values())) == len(causes)


def test_what_is_no_refusal_is_none() -> None:
    assert cause_of(NotFound("No such memory.")) is None
    assert cause_of(RelayerError("A bug.")) is None
    assert cause_of(NotAuthenticated("a cause that somebody adds")) == "other"
    assert cause_of(Unavailable("Away.", code="blobs.unavailable")) == "upstream"
    assert cause_of(Unavailable("Away.", code="request.deadline")) == "deadline"
