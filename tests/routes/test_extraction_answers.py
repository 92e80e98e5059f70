"""Over HTTP: who found the facts, what a turn that waits is told of it, and what usage counts."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import pytest_asyncio

from relayer.app import build_app
from relayer.clock import utc_now
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey, add_key
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, openai_server
from tests.routes_scene import Answer, client, named
from tests.services import TEAM
from tests.signing import client_of, signer_of
from tests.talking import AWAY, TALK, facts

__all__ = ["client", "named"]  # fixtures

MEMWAL = {"job_ids", "facts", "fact_count", "status", "owner"}


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with openai_server() as running:
        yield running


@pytest_asyncio.fixture
async def thinking(
    storage: Storage, lean: Settings, managed: NewKey, server: OpenAIServer
) -> AsyncIterator[httpx.AsyncClient]:
    """The founder's client of a relayer that has a language model."""
    settings = replace(
        lean, llm_model=CHAT_MODEL, openai_base_url=server.base_url, openai_api_key=API_KEY
    )
    async with client_of(build_app(storage, settings), signer_of(managed)) as asking:
        yield asking


async def post(client: httpx.AsyncClient, path: str, named: Answer, **body: Any) -> Answer:
    answer = await client.post(path, json=body | named)
    assert answer.status_code in (200, 202), answer.text
    found: Answer = answer.json()
    return found


async def extraction(client: httpx.AsyncClient) -> Answer:
    found: Answer = (await client.get("/v1/usage")).json()["extraction"]
    return found


async def test_rules(client: httpx.AsyncClient, named: Answer) -> None:
    told = await post(client, "/v1/analyze", named, text=TALK)
    assert (told["extractor"], told["failure"]) == ("rules", None)
    await post(client, "/v1/analyze", named, text="ok, thanks, bye")
    assert await extraction(client) == {
        "extractor": "rules",
        "with_facts": 1,
        "without_facts": 1,
        "waiting": 0,
        "failed": 0,
        "failure": None,
    }


async def test_memwals_route_has_one_more_member(client: httpx.AsyncClient) -> None:
    told = await post(client, "/api/analyze", {}, text=TALK)
    assert set(told) == MEMWAL | {"extractor"}
    assert told["extractor"] == "rules"


async def test_a_model_and_a_turn_that_waits_for_it(
    thinking: httpx.AsyncClient, named: Answer, server: OpenAIServer
) -> None:
    server.script(facts("Anna prefers window seats."), *[AWAY] * 2)
    told = await post(thinking, "/v1/analyze", named, text=TALK)
    assert told["extractor"] == "model"
    waits = await post(thinking, "/v1/analyze", named, text="1. We keep the old boat.")
    assert (waits["status"], waits["extractor"]) == ("pending", None)
    assert waits["failure"]
    told = await post(thinking, "/api/analyze", {}, text="1. We sold the old barn.")
    assert told["extractor"] is None
    turn = (await thinking.get(f"/v1/episodes/{waits['episode_id']}")).json()
    [_, listed] = (await thinking.get("/v1/episodes")).json()["episodes"]
    for shown in (turn, listed):
        assert (shown["state"], shown["extractor"]) == ("pending", None)
        assert shown["failure"] == waits["failure"]
    [state] = (await post(thinking, "/v1/memories/status", {}, ids=[waits["episode_id"]]))[
        "results"
    ]
    assert state == {"id": waits["episode_id"], "status": "pending"}
    assert await extraction(thinking) == {
        "extractor": "model",
        "with_facts": 1,
        "without_facts": 0,
        "waiting": 2,
        "failed": 2,
        "failure": waits["failure"],
    }


async def test_whoever_polls_is_told_who_found_the_facts(
    client: httpx.AsyncClient, named: Answer, storage: Storage
) -> None:
    """Of turns alone: a memory that somebody gave was found by nobody."""
    told = await post(client, "/v1/analyze", named, text=TALK)
    memory = told["facts"][0]["id"]
    await client.patch("/v1/settings", json={"keep_turns": True} | named)
    turn = (await post(client, "/v1/analyze", named, text="1. We keep the old boat."))["turn_id"]
    found = await post(client, "/v1/memories/status", {}, ids=[memory, turn, "x"])
    states = {one["id"]: one for one in found["results"]}
    assert states[turn] == {"id": turn, "status": "kept", "extractor": "rules"}
    assert "extractor" not in states[memory]
    assert states["x"] == {"id": "x", "status": "not_found"}


async def test_a_key_of_namespaces_is_told_nothing_of_the_others(
    client: httpx.AsyncClient, named: Answer, storage: Storage, app: Any, managed: NewKey
) -> None:
    key = await add_key(
        storage,
        account=managed.account,
        namespaces=[TEAM],
        role="writer",
        label="agent",
        expires_at=None,
        owner=managed.identity,
        clock=utc_now,
    )
    async with client_of(app, signer_of(key)) as agent:
        before = await extraction(agent)
        assert before == {"extractor": "rules", "waiting": 0, "failed": 0, "failure": None}
        await post(client, "/v1/analyze", named, text=TALK)
        assert await extraction(agent) == before


async def test_a_stranger_is_told_nothing(app: Any) -> None:
    async with client_of(app) as stranger:
        assert (await stranger.get("/v1/usage")).status_code == 401
        assert "rules" not in (await stranger.get("/health")).text
