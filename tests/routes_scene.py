"""The application that tests of routes ask: its table, a body for each route, keys of any role."""

import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio
from litestar.types import ASGIApp

from relayer.app import build_app
from relayer.clock import utc_now
from relayer.database.pool import Database
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.sealed.keys import Identity, Namespace
from relayer.settings import Settings
from relayer.storage import Storage, storage_on
from relayer.upkeep import provision
from relayer.upkeep.provision import NewKey
from tests.conftest import database_copy
from tests.framework import handlers
from tests.signing import client_of, signer_of

Answer = dict[str, Any]


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
    "/v1/counts": {"bounds": ["2026-05-04T00:00:00Z"]},
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
        # Long texts of several tests together would use up one account's window.
        settings = Settings(
            data_dir=folder, database_url=copy.url, embedder="none", rate_limit="off"
        )
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


def table(app: ASGIApp) -> set[tuple[str, str]]:
    """Method and path of every route; OPTIONS tells only which methods there are."""
    return {(method, path) for method, path, _ in handlers(app) if method != "OPTIONS"}


def concrete(path: str) -> str:
    return re.sub(r"\{[^}]+\}", "x", path)


def assert_error_shape(answer: httpx.Response) -> None:
    error = answer.json()
    assert set(error) == {"error", "message", "code", "request_id"}
    assert error["error"] == error["message"] != ""
    assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)*", error["code"])
    assert error["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/json"


async def remember(client: httpx.AsyncClient, named: Answer, text: str, **members: Any) -> str:
    """Store a memory, and return its id."""
    answer = await client.post("/v1/remember", json={"text": text, **members, **named})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


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
