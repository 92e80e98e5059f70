"""The request signature of the client (SPEC.md §5)."""

import hashlib
import json
from uuid import UUID

import httpx
import pytest
from nacl.signing import VerifyKey

from memrelay import MemoryClient, SyncMemoryClient
from memrelay.errors import ConfigError, ServerError
from memrelay.signing import RequestSigner, make_signed_text

ACCOUNT = "0x" + "ab" * 32
SENT = {
    "accept": "application/json",
    "accept-encoding": "identity",
    "content-type": "application/json",
}


def signed(example, request, **options):
    signer = RequestSigner(example.agent, clock=lambda: 1_700_000_000.9, **options)
    return next(signer.sync_auth_flow(request))


def verify(example, request, target, body=b"", account=""):
    headers = request.headers
    digest = hashlib.sha256(body).hexdigest()
    when, nonce = headers["x-timestamp"], headers["x-nonce"]
    text = f"{when}.{request.method}.{target}.{digest}.{nonce}.{account}"
    key = VerifyKey(bytes.fromhex(headers["x-public-key"]))
    key.verify(text.encode(), bytes.fromhex(headers["x-signature"]))
    assert headers["x-public-key"] == example.agent.public_key.hex()


def test_the_signed_text_is_the_specifications():
    text = make_signed_text(
        timestamp_s=1, method="GET", target="/a?b=c", body=b"", nonce="n", account_id=ACCOUNT
    )
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert text.decode() == f"1.GET./a?b=c.{empty}.n.{ACCOUNT}"


def test_a_body_is_signed_as_it_is_sent(example):
    body = '{"text":"Füße"}'.encode()
    request = signed(
        example,
        httpx.Request("POST", "https://host/v1/remember", content=body),
        account_id=ACCOUNT,
    )
    verify(example, request, "/v1/remember", body, ACCOUNT)
    assert request.headers["x-timestamp"] == "1700000000"
    assert request.headers["x-account-id"] == ACCOUNT


def test_without_an_account_the_last_field_is_empty(example):
    request = signed(example, httpx.Request("GET", "https://host/v1/keys"))
    verify(example, request, "/v1/keys")
    assert "x-account-id" not in request.headers


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://host/v1/list?namespace=a%20b&limit=1", "/v1/list?namespace=a%20b&limit=1"),
        ("https://host/v1/list?namespace=a+b", "/v1/list?namespace=a+b"),
        ("https://host/v1/list?name=%C3%A9", "/v1/list?name=%C3%A9"),
        ("https://host/v1/list?", "/v1/list"),
        ("https://host/v1/list?#f", "/v1/list"),
        ("https://host/v1/list??", "/v1/list??"),
        ("https://host/v1/list?a?", "/v1/list?a?"),
    ],
)
def test_path_and_query_are_signed_as_they_are_sent(example, url, target):
    verify(example, signed(example, httpx.Request("GET", url)), target)


@pytest.mark.parametrize("prefix", ["/memory", "/memory/"])
def test_the_prefix_of_a_public_url_is_not_signed(example, prefix):
    request = httpx.Request("GET", "https://host/memory/v1/keys?a=1")
    verify(example, signed(example, request, path_prefix=prefix), "/v1/keys?a=1")


def test_a_request_outside_the_prefix_is_not_signed(example):
    for path in ("/memorial/v1/keys", "/v1/keys", "/memory"):
        with pytest.raises(ConfigError):
            signed(example, httpx.Request("GET", f"https://host{path}"), path_prefix="/memory")


def test_every_send_has_a_nonce_and_signature_of_its_own(example):
    request = httpx.Request("GET", "https://host/v1/keys")
    seen = set()
    for _ in range(3):
        sent = signed(example, request)
        assert UUID(sent.headers["x-nonce"]).version == 4
        seen.add((sent.headers["x-nonce"], sent.headers["x-signature"]))
    assert len(seen) == 3


def recorder(seen, *statuses):
    waiting = list(statuses)

    def answer(request):
        seen.append(request)
        return httpx.Response(waiting.pop(0) if waiting else 200, json={})

    return httpx.MockTransport(answer)


def test_a_blocking_client_signs(example):
    seen: list[httpx.Request] = []
    signer = RequestSigner(example.agent, account_id=ACCOUNT)
    with httpx.Client(transport=recorder(seen), auth=signer) as client:
        client.post("https://host/v1/recall", json={"query": "tea"})
    verify(example, seen[0], "/v1/recall", seen[0].content, ACCOUNT)


async def test_an_asynchronous_client_signs(example):
    seen: list[httpx.Request] = []
    signer = RequestSigner(example.agent, account_id=ACCOUNT)
    async with httpx.AsyncClient(transport=recorder(seen), auth=signer) as client:
        await client.post("https://host/v1/recall", json={"query": "tea"})
    verify(example, seen[0], "/v1/recall", seen[0].content, ACCOUNT)


def options(example):
    return {
        "url": "https://host:8443/memory/",
        "account_id": ACCOUNT,
        "private_key": example.agent.seed_hex(),
        "custody": "managed",
    }


async def both(example, ask, *statuses):
    """The requests that each of the two clients sends for an operation."""
    seen: list[httpx.Request] = []
    blocking: list[httpx.Request] = []
    async with MemoryClient(transport=recorder(seen, *statuses), **options(example)) as client:
        with pytest.raises(ServerError):
            await ask(client)
    with (
        SyncMemoryClient(transport=recorder(blocking, *statuses), **options(example)) as client,
        pytest.raises(ServerError),
    ):
        ask(client)
    return seen, blocking


async def test_the_clients_sign_what_they_send(example):
    for seen in await both(example, lambda client: client.recall("Füße", namespace="über")):
        [request] = seen
        assert str(request.url) == "https://host:8443/memory/v1/recall"
        verify(example, request, "/v1/recall", request.content, ACCOUNT)
        assert json.loads(request.content)["query"] == "Füße"
        assert {name: request.headers[name] for name in SENT} == SENT


async def test_the_clients_sign_a_path_as_it_is_sent(example):
    for seen in await both(example, lambda client: client.stats(namespace="a b/é")):
        target = "/v1/stats?namespace=a+b%2F%C3%A9"
        assert [request.url.raw_path.decode() for request in seen] == ["/memory" + target]
        verify(example, seen[0], target, b"", ACCOUNT)
        assert "content-type" not in seen[0].headers


async def test_the_clients_sign_anew_what_they_repeat(example):
    for seen in await both(example, lambda client: client.recall("tea"), 429):
        first, second = seen
        for request in seen:
            verify(example, request, "/v1/recall", request.content, ACCOUNT)
        assert first.headers["x-nonce"] != second.headers["x-nonce"]


def test_the_clients_sign_nothing_that_is_public(example):
    seen: list[httpx.Request] = []
    with SyncMemoryClient(transport=recorder(seen), **options(example)) as client:
        assert client.health() == {}
    assert "x-signature" not in seen[0].headers
    assert "x-account-id" not in seen[0].headers
