"""Recalls that an account counts: by every route that recalls, and shown as far as a key reads."""

from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from litestar.types import ASGIApp

from relayer.app import build_app
from relayer.clock import utc_now
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.lifespan import living
from tests.openai_server import API_KEY, CHAT_MODEL, openai_server
from tests.routes_scene import Answer, client, key_of, named, remember
from tests.signing import client_of, signer_of

__all__ = ["client", "named"]  # fixtures

ALL = {"bounds": ["2026-05-04T00:00:00Z"]}


async def choose(client: httpx.AsyncClient, named: Answer, *, count_recalls: bool) -> None:
    answer = await client.patch("/v1/settings", json={"count_recalls": count_recalls, **named})
    assert answer.json()["settings"]["count_recalls"] is count_recalls


async def ask(client: httpx.AsyncClient, path: str, **body: Any) -> Answer:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: Answer = answer.json()
    return found


async def recall(client: httpx.AsyncClient, query: str, **members: Any) -> None:
    found = await ask(client, "/v1/recall", query=query, mode="keyword", **members)
    assert found["results"]


async def read(client: httpx.AsyncClient, memory: str) -> tuple[int | None, str | None]:
    found = (await client.get(f"/v1/memories/{memory}")).json()
    return found.get("recall_count"), found.get("last_recalled_on")


async def count(client: httpx.AsyncClient, **members: Any) -> Answer:
    return await ask(client, "/v1/counts", **ALL, **members)


async def list_unused(client: httpx.AsyncClient, **members: Any) -> list[str]:
    answer = await client.get("/v1/memories", params={"never_recalled": True, **members})
    assert answer.status_code == 200, answer.text
    return [one["text"] for one in answer.json()["memories"]]


async def test_nothing_is_counted_until_an_owner_chooses(
    storage: Storage, client: httpx.AsyncClient, named: Answer
) -> None:
    tea = await remember(client, named, "Anna prefers tea.")
    await recall(client, "tea")
    await storage.recall_counts.store()
    assert await read(client, tea) == (None, None)
    assert (await count(client))["recalls"] is None
    refused = await client.get("/v1/memories", params={"never_recalled": True})
    assert (refused.status_code, refused.json()["code"]) == (400, "recalls.not_counted")
    assert await storage.database.fetch("SELECT 1 FROM memory_recalls") == []


async def test_what_recalls_showed_is_counted_and_what_none_showed_is_told(
    client: httpx.AsyncClient, named: Answer, managed: NewKey
) -> None:
    await choose(client, named, count_recalls=True)
    today = utc_now().date().isoformat()
    tea = await remember(client, named, "Anna prefers tea.", kind="preference")
    ship = await remember(client, named, "The ship sails at six.")
    await remember(client, named, "The bakery closes at noon.", tags=["shops"])
    await recall(client, "tea")
    await recall(client, "ship")
    assert await read(client, ship) == (1, today)
    assert await list_unused(client) == ["The bakery closes at noon."]
    await recall(client, "Anna's tea")
    assert await read(client, tea) == (2, today)
    found = await count(client)
    assert found["recalls"] == {
        "since": today,
        "never_recalled_count": 1,
        "most": [
            {"id": one, "namespace": "default", "recall_count": times, "last_recalled_on": today}
            for one, times in ((tea, 2), (ship, 1))
        ],
    }
    assert found["kinds"] == [
        {"kind": "fact", "memory_count": 2, "never_recalled_count": 1},
        {"kind": "preference", "memory_count": 1, "never_recalled_count": 0},
    ]
    [writer] = found["writers"]
    assert (writer["memory_count"], writer["never_recalled_count"]) == (3, 1)
    assert await list_unused(client, tag="shops") == ["The bakery closes at noon."]
    assert await list_unused(client, kind="preference") == []


async def test_a_look_at_the_past_counts_nothing(client: httpx.AsyncClient, named: Answer) -> None:
    await choose(client, named, count_recalls=True)
    tea = await remember(client, named, "Anna prefers tea.")
    await recall(client, "tea", as_of=utc_now().isoformat())
    assert await read(client, tea) == (0, None)


async def test_memwals_routes_count_and_what_a_sort_cut_off_does_not(
    client: httpx.AsyncClient, named: Answer
) -> None:
    await choose(client, named, count_recalls=True)
    old = await remember(client, named, "Anna prefers green tea.")
    new = await remember(client, named, "Bob prefers black tea.")
    await ask(client, "/api/recall", query="tea")
    found = await ask(client, "/api/recall", query="tea", limit=1, sort="recent")
    assert [one["text"] for one in found["results"]] == ["Bob prefers black tea."]
    assert [(await read(client, one))[0] for one in (old, new)] == [1, 2]


async def test_an_answer_counts_what_its_model_was_given(
    storage: Storage, lean: Settings, client: httpx.AsyncClient, named: Answer, managed: NewKey
) -> None:
    await choose(client, named, count_recalls=True)
    tea = await remember(client, named, "Anna prefers green tea.")
    with openai_server() as server:
        settings = replace(
            lean, llm_model=CHAT_MODEL, openai_base_url=server.base_url, openai_api_key=API_KEY
        )
        async with (
            living(build_app(storage, settings)) as app,
            client_of(app, signer_of(managed)) as asking,
        ):
            await ask(asking, "/v1/ask", question="Which tea?")
            await ask(asking, "/api/ask", question="Which tea?")
            await ask(asking, "/v1/ask", question="Which tea?", as_of=utc_now().isoformat())
    assert (await read(client, tea))[0] == 2


async def test_a_recall_by_a_clients_own_vector_counts(
    storage: Storage, client: httpx.AsyncClient, named: Answer
) -> None:
    await choose(client, named, count_recalls=True)
    vector = np.ones(4).tolist()
    body = {"encrypted_data": "c2VhbGVkIGJ5IGEgY2xpZW50", "vector": vector}
    assert (await client.post("/api/remember/manual", json=body)).is_success
    for _ in range(2):
        found = await ask(client, "/api/recall/manual", vector=vector)
        assert found["total"] == 1
    [most] = (await count(client))["recalls"]["most"]
    assert most["recall_count"] == 2


async def test_a_key_sees_the_counts_of_what_it_may_read(
    app: ASGIApp, storage: Storage, client: httpx.AsyncClient, named: Answer, managed: NewKey
) -> None:
    await choose(client, named, count_recalls=True)
    tea = await remember(client, named, "Anna prefers tea.")
    coffee = await remember(client, named, "Bob prefers coffee.", namespace="bob")
    await recall(client, "tea")
    agent = await key_of(storage, managed, "reader", "bob")
    async with client_of(app, signer_of(agent)) as bob:
        assert (await count(bob))["recalls"]["most"] == []
        await recall(bob, "coffee", namespace="bob")
        [most] = (await count(bob))["recalls"]["most"]
        assert (most["id"], most["recall_count"]) == (coffee, 1)
        assert await read(bob, coffee) == (1, most["last_recalled_on"])
        assert (await bob.get(f"/v1/memories/{tea}")).status_code == 404
        refused = await bob.patch("/v1/settings", json={"count_recalls": False, **named})
        assert refused.status_code == 403
    assert len((await count(client))["recalls"]["most"]) == 2
    [only] = (await count(client, namespaces=["bob"]))["recalls"]["most"]
    assert only["id"] == coffee


@pytest.mark.parametrize("stored", [False, True])
async def test_switching_it_off_deletes_what_was_counted(
    storage: Storage, client: httpx.AsyncClient, named: Answer, *, stored: bool
) -> None:
    await choose(client, named, count_recalls=True)
    tea = await remember(client, named, "Anna prefers tea.")
    await recall(client, "tea")
    if stored:
        await storage.recall_counts.store()
    await choose(client, named, count_recalls=False)
    await storage.recall_counts.store()
    assert await storage.database.fetch("SELECT 1 FROM memory_recalls") == []
    [row] = await storage.database.fetch("SELECT recalls_since FROM accounts")
    assert row["recalls_since"] is None
    await choose(client, named, count_recalls=True)
    assert await read(client, tea) == (0, None)


async def test_an_edit_keeps_the_count_and_erasing_deletes_it(
    storage: Storage, client: httpx.AsyncClient, named: Answer
) -> None:
    await choose(client, named, count_recalls=True)
    tea = await remember(client, named, "Anna prefers tea.")
    await recall(client, "tea")
    await storage.recall_counts.store()
    body = {"text": "Anna prefers black tea."} | named
    assert (await client.patch(f"/v1/memories/{tea}", json=body)).is_success
    await recall(client, "tea")
    assert (await read(client, tea))[0] == 2
    assert (await client.delete(f"/v1/memories/{tea}", params=named)).is_success
    assert await storage.database.fetch("SELECT 1 FROM memory_recalls") == []
    await storage.recall_counts.store()
    assert await storage.database.fetch("SELECT 1 FROM memory_recalls") == []
