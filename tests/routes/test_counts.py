"""POST /v1/counts: memories in recall by period, writer and kind, of what a key may read."""

from datetime import timedelta
from typing import Any

import httpx
import pytest
from litestar.types import ASGIApp

from relayer.clock import rfc3339, utc_now
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.routes_scene import Answer, client, key_of, named, remember
from tests.signing import client_of, signer_of

__all__ = ["client", "named"]  # fixtures

LONG_AGO, YESTERDAY = "2026-05-04T00:00:00Z", rfc3339(utc_now() - timedelta(days=1))
TOMORROW = rfc3339(utc_now() + timedelta(days=1))


async def count(client: httpx.AsyncClient, *bounds: str, **members: Any) -> Answer:
    body = {"bounds": bounds or [LONG_AGO], **members}
    answer = await client.post("/v1/counts", json=body)
    assert answer.status_code == 200, answer.text
    found: Answer = answer.json()
    return found


async def test_memories_are_counted_by_period_writer_and_kind(
    client: httpx.AsyncClient, named: Answer, managed: NewKey
) -> None:
    assert await count(client) == {
        "memory_count": 0,
        "repeated_count": 0,
        "counted_since": None,
        "periods": [0],
        "writers": [],
        "kinds": [],
        "recalls": None,
    }
    await remember(client, named, "Anna prefers tea.", kind="preference")
    for _ in range(2):
        await remember(client, named, "The bakery closes at noon.")
    edited = await remember(client, named, "The harbour opens at six.", namespace="work")
    body = {"text": "The harbour opens at seven."} | named
    assert (await client.patch(f"/v1/memories/{edited}", json=body)).is_success
    found = await count(client, LONG_AGO, YESTERDAY, TOMORROW)
    assert (found["memory_count"], found["repeated_count"]) == (3, 1)
    assert found["periods"] == [0, 3, 0]
    assert found["kinds"] == [
        {"kind": "fact", "memory_count": 2},
        {"kind": "preference", "memory_count": 1},
    ]
    key = managed.identity.public_key.hex()
    assert found["writers"] == [{"writer": key, "writer_label": "managed", "memory_count": 3}]
    assert (await count(client, namespaces=["work"]))["memory_count"] == 1
    assert (await count(client, namespaces=["work", "nowhere"]))["memory_count"] == 1
    assert (await count(client, TOMORROW))["periods"] == [0]


async def test_what_is_out_of_recall_is_not_counted(
    client: httpx.AsyncClient, named: Answer
) -> None:
    await remember(client, named, "Anna prefers tea.")
    rejected = await remember(client, named, "The moon is a cheese.")
    body = {"review": "rejected"} | named
    assert (await client.post(f"/v1/memories/{rejected}/state", json=body)).is_success
    assert (await count(client))["memory_count"] == 1


async def test_the_newest_are_counted_and_what_is_left_out_is_said(
    client: httpx.AsyncClient, named: Answer
) -> None:
    for day in range(3):
        await remember(client, named, f"Note {day}.")
    assert (await count(client, limit=3))["counted_since"] is None
    found = await count(client, limit=2)
    second = (await client.get("/v1/memories", params={"limit": 2})).json()["memories"][1]
    assert (found["memory_count"], found["counted_since"]) == (2, second["created_at"])


async def test_a_key_counts_what_it_may_read_alone(
    app: ASGIApp, storage: Storage, client: httpx.AsyncClient, named: Answer, managed: NewKey
) -> None:
    await remember(client, named, "Anna prefers tea.")
    await remember(client, named, "Bob prefers coffee.", namespace="bob")
    agent = await key_of(storage, managed, "reader", "bob")
    async with client_of(app, signer_of(agent)) as bob:
        assert (await count(bob))["memory_count"] == 1
        for names in (["default"], ["bob", "default"], ["nowhere"]):
            refused = await bob.post("/v1/counts", json={"bounds": [LONG_AGO], "namespaces": names})
            assert refused.status_code == 403, refused.text


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"bounds": []},
        {"bounds": ["2026-05-04"]},
        {"bounds": [YESTERDAY, LONG_AGO]},
        {"bounds": [LONG_AGO, LONG_AGO]},
        {"bounds": ["0001-01-01T00:00:00Z", LONG_AGO]},
        {"bounds": [LONG_AGO, "9999-12-31T23:00:00-12:00"]},
        {"bounds": [LONG_AGO], "namespaces": []},
        {"bounds": [LONG_AGO], "namespaces": ["a", "a"]},
        {"bounds": [LONG_AGO], "limit": 0},
    ],
)
async def test_bodies_out_of_bounds_are_refused(client: httpx.AsyncClient, body: Answer) -> None:
    answer = await client.post("/v1/counts", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "request.invalid")
