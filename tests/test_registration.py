"""Who may found an account over HTTP, and what founding refuses."""

import dataclasses
import time
from typing import Any

import httpx
import pytest
from litestar.types import ASGIApp

from relayer.app import Storage, build_app
from relayer.provision import NewKey
from relayer.registration import is_loopback
from relayer.sealed.grants import issue_grant
from relayer.sealed.keys import Identity, Root, account_id, account_text
from relayer.sealed.primitives import to_base64
from relayer.settings import Settings
from tests.signing import Signer, client_of

FOUNDER = Identity(bytes(range(32)))
ROOT = Root(1, bytes(range(32, 64)))
TOKEN = "a-token-of-the-operator"


def grant(
    *,
    founder: Identity = FOUNDER,
    recipient: Identity = FOUNDER,
    serial: int = 1,
    role: Any = "owner",
    issuer: Identity | None = None,
) -> str:
    """A signed grant of the founder's root, base64."""
    signed = issue_grant(
        issuer or founder,
        account=account_id(founder.public_key),
        serial=serial,
        recipient=recipient.public_key,
        role=role,
        keys=[ROOT],
        created_ms=int(time.time() * 1000),
    )
    return to_base64(signed)


def body(storage: Storage, **changes: Any) -> dict[str, Any]:
    """A good body to found a sealed account."""
    relayer = storage.identity.public_key.hex()
    return {"relayer": relayer, "grants": [grant()], "label": "Anna"} | changes


def application(storage: Storage, settings: Settings, **changes: Any) -> ASGIApp:
    return build_app(storage, dataclasses.replace(settings, embedder="none", **changes))


async def founded(
    app: ASGIApp, content: dict[str, Any], signer: Identity = FOUNDER, **headers: str
) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client_of(app, Signer(identity=signer)) as client:
        return await client.post("/v1/accounts", json=content, headers=named)


# Who may


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "localhost:8000"},
        {"host": "127.0.0.1"},
        {"host": "127.8.8.8:1"},
        {"host": "[::1]:8000"},
        {"host": "LOCALHOST"},
    ],
)
async def test_this_machine_founds_without_a_token(
    storage: Storage, settings: Settings, headers: dict[str, str]
) -> None:
    answer = await founded(application(storage, settings), body(storage), **headers)
    assert answer.status_code == 201
    account = account_text(account_id(FOUNDER.public_key))
    made = answer.json()
    assert len(made.pop("receipts")) == 1
    assert made == {
        "account_id": account,
        "public_key": FOUNDER.public_key.hex(),
        "custody": "sealed",
        "relayer_key": storage.identity.public_key.hex(),
        "label": "Anna",
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"forwarded": "for=192.0.2.1"},
        {"x_forwarded_for": "192.0.2.1"},
        {"x_forwarded_host": "localhost"},
        {"x_real_ip": "127.0.0.1"},
        {"via": "1.1 proxy"},
        {"host": "rebound.example:8000"},  # a web page whose name points at this machine
        {"host": "192.0.2.1"},
        {"host": "localhost.example"},
        {"host": ""},
        {"host": "[::1"},
    ],
)
async def test_a_request_from_elsewhere_needs_a_token(
    storage: Storage, settings: Settings, headers: dict[str, str]
) -> None:
    answer = await founded(application(storage, settings), body(storage), **headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "registration.token")


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "0.0.0.0"},
        {"host": "::"},
        {"host": "192.0.2.1"},
        {"host": "relayer.example"},
        {"public_url": "https://memory.example"},
        {"registration": "token"},
    ],
)
async def test_a_relayer_others_can_reach_asks_for_its_token(
    storage: Storage, settings: Settings, changes: dict[str, Any]
) -> None:
    app = application(storage, settings, registration_token=TOKEN, **changes)
    for wrong in ({}, {"token": ""}, {"token": TOKEN + "x"}, {"token": TOKEN[:-1]}):
        answer = await founded(app, body(storage, **wrong))
        assert (answer.status_code, answer.json()["code"]) == (403, "registration.token")
        assert TOKEN not in answer.text
    assert (await founded(app, body(storage, token=TOKEN))).status_code == 201


async def test_without_a_token_to_ask_for_nobody_passes(
    storage: Storage, settings: Settings
) -> None:
    app = application(storage, settings, host="0.0.0.0")
    for token in ("", "anything"):
        answer = await founded(app, body(storage, token=token))
        assert (answer.status_code, answer.json()["code"]) == (403, "registration.token")


@pytest.mark.parametrize(
    ("mode", "status", "code"),
    [("open", 201, None), ("closed", 403, "registration.closed")],
)
async def test_open_and_closed_mean_it(
    storage: Storage, settings: Settings, mode: Any, status: int, code: str | None
) -> None:
    app = application(
        storage, settings, registration=mode, host="0.0.0.0", registration_token=TOKEN
    )
    answer = await founded(app, body(storage), x_forwarded_for="192.0.2.1")
    assert (answer.status_code, answer.json().get("code")) == (status, code)


async def test_no_token_opens_a_closed_relayer(storage: Storage, settings: Settings) -> None:
    app = application(storage, settings, registration="closed", registration_token=TOKEN)
    answer = await founded(app, body(storage, token=TOKEN))
    assert (answer.status_code, answer.json()["code"]) == (403, "registration.closed")


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.255.255.255", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("2130706433", False),
        ("", False),
    ],
)
def test_loopback_is_this_machine_only(host: str, local: bool) -> None:
    assert is_loopback(host) is local


# What founding refuses


async def test_founding_with_the_relayer_as_custodian_makes_a_managed_account(
    storage: Storage, settings: Settings
) -> None:
    grants = [grant(), grant(recipient=storage.identity, serial=2, role="custodian")]
    answer = await founded(application(storage, settings), body(storage, grants=grants))
    assert (answer.status_code, answer.json()["custody"]) == (201, "managed")
    assert len(answer.json()["receipts"]) == 2


async def test_an_account_is_founded_once(storage: Storage, settings: Settings) -> None:
    app = application(storage, settings)
    assert (await founded(app, body(storage))).status_code == 201
    again = await founded(app, body(storage))
    assert (again.status_code, again.json()["code"]) == (409, "account.exists")


async def test_a_key_of_an_account_founds_no_other(
    storage: Storage, settings: Settings, managed: NewKey
) -> None:
    answer = await founded(
        application(storage, settings),
        body(storage, grants=[grant(founder=managed.identity, recipient=managed.identity)]),
        managed.identity,
    )
    assert (answer.status_code, answer.json()["code"]) == (409, "account.exists")


async def test_founding_for_another_relayer_is_worthless_here(
    storage: Storage, settings: Settings
) -> None:
    answer = await founded(application(storage, settings), body(storage, relayer="ab" * 32))
    assert (answer.status_code, answer.json()["code"]) == (400, "relayer.other")


OTHER = Identity(bytes(31) + b"\1")


@pytest.mark.parametrize(
    "grants",
    [
        [],
        ["not base64"],
        ["AAAA"],
        [grant(serial=2)],
        [grant(), grant()],
        [grant(role="writer")],
        [grant(recipient=OTHER)],
        [grant(founder=OTHER, recipient=OTHER)],
        [grant(issuer=OTHER)],
        [grant(), grant(recipient=OTHER, serial=2, role="reader")],
        [grant(), grant(recipient=OTHER, serial=2, role="custodian")],
        [grant(), grant(serial=2), grant(serial=3), grant(serial=4), grant(serial=5)],
    ],
)
async def test_grants_that_found_nothing_are_refused(
    storage: Storage, settings: Settings, grants: list[str]
) -> None:
    app = application(storage, settings)
    answer = await founded(app, body(storage, grants=grants))
    assert answer.status_code == 400
    assert answer.json()["code"] in ("grant.invalid", "request.invalid")
    assert (await founded(app, body(storage))).status_code == 201
