"""Who may found an account over HTTP, and what founding refuses."""

import dataclasses
import functools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
import pytest_asyncio
from litestar.types import ASGIApp

from relayer.app import build_app
from relayer.clock import utc_now
from relayer.database.pool import Database
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.sealed.grants import issue_grant
from relayer.sealed.keys import Identity, Root, account_id, account_text
from relayer.sealed.primitives import to_base64
from relayer.settings import Settings, is_loopback
from relayer.storage import Storage, storage_on
from relayer.upkeep import provision
from tests.conftest import database_copy
from tests.signing import Signer, client_of

ROOT = Root(1, bytes(range(32, 64)))
TOKEN = "a-token-of-the-operator"


@pytest_asyncio.fixture(scope="module")
async def shared(
    postgres: EmbeddedPostgres, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Storage, Settings]]:
    async with database_copy(postgres, template) as copy:
        folder = tmp_path_factory.mktemp("registration")
        settings = Settings(data_dir=folder, database_url=copy.url, embedder="none")
        database = await Database.connect(copy.connect_args, connections=2)
        relayer = Identity(os.urandom(32))
        yield storage_on(settings, copy.connect_args, database, relayer, utc_now), settings
        await database.close()


@pytest.fixture
def storage(shared: tuple[Storage, Settings]) -> Storage:
    """Storage that the tests share: each founds with a key of its own."""
    return shared[0]


@pytest.fixture
def founder() -> Identity:
    """A key that has no account yet."""
    return Identity(os.urandom(32))


def grant(
    founder: Identity,
    *,
    recipient: Identity | None = None,
    serial: int = 1,
    role: Any = "owner",
    issuer: Identity | None = None,
) -> str:
    """A signed grant of the founder's root, base64."""
    signed = issue_grant(
        issuer or founder,
        account=account_id(founder.public_key),
        serial=serial,
        recipient=(recipient or founder).public_key,
        role=role,
        keys=[ROOT],
        created_ms=int(time.time() * 1000),
    )
    return to_base64(signed)


Found = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture(scope="module")
def built(shared: tuple[Storage, Settings]) -> Callable[..., ASGIApp]:
    """Gives the application of changed settings, built once: it remembers no request."""
    storage, settings = shared

    @functools.cache
    def of(**changes: Any) -> ASGIApp:
        return build_app(storage, dataclasses.replace(settings, **changes))

    return of


@pytest.fixture
def found(built: Callable[..., ASGIApp], storage: Storage, founder: Identity) -> Found:
    """Founds a sealed account: `changes` of the settings, of the body, of the headers."""

    async def post(
        changes: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        signer: Identity = founder,
        **body: Any,
    ) -> httpx.Response:
        app = built(**changes or {})
        relayer = storage.identity.public_key.hex()
        good = {"relayer": relayer, "grants": [grant(signer)], "label": "Anna"}
        async with client_of(app, Signer(identity=signer)) as client:
            return await client.post("/v1/accounts", json=good | body, headers=headers)

    return post


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
    ids=str,
)
async def test_this_machine_founds_without_a_token(
    found: Found, storage: Storage, founder: Identity, headers: dict[str, str]
) -> None:
    answer = await found(headers=headers)
    assert answer.status_code == 201
    made = answer.json()
    assert len(made.pop("receipts")) == 1
    assert made == {
        "account_id": account_text(account_id(founder.public_key)),
        "public_key": founder.public_key.hex(),
        "custody": "sealed",
        "relayer_key": storage.identity.public_key.hex(),
        "label": "Anna",
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"forwarded": "for=192.0.2.1"},
        {"x-forwarded-for": "192.0.2.1"},
        {"x-forwarded-host": "localhost"},
        {"x-real-ip": "127.0.0.1"},
        {"via": "1.1 proxy"},
        {"host": "rebound.example:8000"},  # a web page whose name points at this machine
        {"host": "192.0.2.1"},
        {"host": "localhost.example"},
        {"host": ""},
        {"host": "[::1"},
    ],
    ids=str,
)
async def test_a_request_from_elsewhere_needs_a_token(
    found: Found, headers: dict[str, str]
) -> None:
    answer = await found(headers=headers)
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
    ids=str,
)
async def test_a_relayer_others_can_reach_asks_for_its_token(
    found: Found, changes: dict[str, Any]
) -> None:
    changes = changes | {"registration_token": TOKEN}
    for wrong in ({}, {"token": ""}, {"token": TOKEN + "x"}, {"token": TOKEN[:-1]}):
        answer = await found(changes, **wrong)
        assert (answer.status_code, answer.json()["code"]) == (403, "registration.token")
        assert TOKEN not in answer.text
    assert (await found(changes, token=TOKEN)).status_code == 201


async def test_without_a_token_to_ask_for_nobody_passes(found: Found) -> None:
    for token in ("", "anything"):
        answer = await found({"host": "0.0.0.0"}, token=token)
        assert (answer.status_code, answer.json()["code"]) == (403, "registration.token")


@pytest.mark.parametrize(
    ("mode", "status", "code"),
    [("open", 201, None), ("closed", 403, "registration.closed")],
)
async def test_open_and_closed_mean_it(
    found: Found, mode: str, status: int, code: str | None
) -> None:
    changes = {"registration": mode, "host": "0.0.0.0", "registration_token": TOKEN}
    answer = await found(changes, {"x-forwarded-for": "192.0.2.1"})
    assert (answer.status_code, answer.json().get("code")) == (status, code)


async def test_no_token_opens_a_closed_relayer(found: Found) -> None:
    changes = {"registration": "closed", "registration_token": TOKEN}
    answer = await found(changes, token=TOKEN)
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


async def test_the_relayer_as_custodian_makes_the_account_managed(
    found: Found, storage: Storage, founder: Identity
) -> None:
    custodian = grant(founder, recipient=storage.identity, serial=2, role="custodian")
    answer = await found(grants=[grant(founder), custodian])
    assert (answer.status_code, answer.json()["custody"]) == (201, "managed")
    assert len(answer.json()["receipts"]) == 2


async def test_an_account_is_founded_once(found: Found) -> None:
    assert (await found()).status_code == 201
    again = await found()
    assert (again.status_code, again.json()["code"]) == (409, "account.exists")


async def test_a_member_of_an_account_founds_no_other(found: Found, storage: Storage) -> None:
    owner = await provision.create_account(storage, label="", custody="managed", clock=utc_now)
    member = await provision.add_key(
        storage,
        account=owner.account,
        namespaces=[],
        role="writer",
        label="",
        expires_at=None,
        owner=None,
        clock=utc_now,
    )
    answer = await found(signer=member.identity)
    assert (answer.status_code, answer.json()["code"]) == (409, "key.taken")


async def test_founding_for_another_relayer_is_worthless_here(found: Found) -> None:
    answer = await found(relayer="ab" * 32)
    assert (answer.status_code, answer.json()["code"]) == (400, "relayer.other")


OTHER = Identity(bytes(31) + b"\1")


@pytest.mark.parametrize(
    "given",
    [
        lambda f: [],
        lambda f: ["not base64"],
        lambda f: ["AAAA"],
        lambda f: [grant(f, serial=2)],
        lambda f: [grant(f), grant(f)],
        lambda f: [grant(f, role="writer")],
        lambda f: [grant(f, recipient=OTHER)],
        lambda f: [grant(OTHER)],
        lambda f: [grant(f, issuer=OTHER)],
        lambda f: [grant(f), grant(f, recipient=OTHER, serial=2, role="reader")],
        lambda f: [grant(f), grant(f, recipient=OTHER, serial=2, role="custodian")],
        lambda f: [grant(f, serial=n) for n in range(1, 6)],
    ],
)
async def test_grants_that_found_nothing_are_refused(
    found: Found, founder: Identity, given: Callable[[Identity], list[str]]
) -> None:
    answer = await found(grants=given(founder))
    assert answer.status_code == 400
    assert answer.json()["code"] in ("grant.invalid", "request.invalid")
    assert (await found()).status_code == 201
