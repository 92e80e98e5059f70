"""`deep` in a recall over HTTP: what the answer tells of further looks, and what it counts.

Not here: what is looked for (`memories/test_deep_recall.py`), bounds (`test_routes_controls.py`).
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import httpx
import pytest
import pytest_asyncio
from litestar.types import ASGIApp

from relayer.app import build_app
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.lifespan import living
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, Step
from tests.routes_scene import client
from tests.signing import client_of, signer_of
from tests.thinking import server

__all__ = ["client", "server"]  # fixtures

PETS = ("Anna wants more pets.", "Rex the terrier came home.")
ASKED = {"query": "Which pets does Anna have?", "deep": True}
PLAN = Step(content='{"looks": ["terrier"]}')


@pytest_asyncio.fixture
async def asking(
    storage: Storage, lean: Settings, managed: NewKey, server: OpenAIServer
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a relayer with a model, which knows of pets."""
    settings = replace(
        lean, llm_model=CHAT_MODEL, openai_base_url=server.base_url, openai_api_key=API_KEY
    )
    async with (
        living(build_app(storage, settings)) as app,
        client_of(app, signer_of(managed)) as own,
    ):
        named = storage.identity.public_key.hex()
        for text in PETS:
            await own.post("/v1/remember", json={"text": text, "relayer": named})
        yield own


async def recalled(client: httpx.AsyncClient, **members: Any) -> dict[str, Any]:
    answer = await client.post("/v1/recall", json=ASKED | members)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_the_answer_tells_how_many_looks_were_taken(
    asking: httpx.AsyncClient, server: OpenAIServer
) -> None:
    server.script(PLAN)
    answer = await recalled(asking)
    assert [result["text"] for result in answer["results"]] == list(PETS)
    assert answer["deep"] == {"looks": 1, "degraded": None}


async def test_explained_it_names_each_look_and_what_it_found(
    asking: httpx.AsyncClient, server: OpenAIServer
) -> None:
    server.script(PLAN)
    answer = await recalled(asking, explain=True)
    assert answer["deep"] == {"looks": 1, "degraded": None, "texts": ["terrier"]}
    assert [result["explain"]["look"] for result in answer["results"]] == [0, 1]


async def test_what_was_not_asked_deeply_asks_no_model(
    asking: httpx.AsyncClient, server: OpenAIServer
) -> None:
    answer = await recalled(asking, deep=False, explain=True)
    assert [result["text"] for result in answer["results"]] == [PETS[0]]
    assert "deep" not in answer
    assert "look" not in answer["results"][0]["explain"]
    assert server.received == []


async def test_without_a_model_the_answer_says_so(client: httpx.AsyncClient) -> None:
    assert (await recalled(client))["deep"] == {"looks": 0, "degraded": "no model"}


async def test_an_answer_may_rest_on_further_looks(
    asking: httpx.AsyncClient, server: OpenAIServer
) -> None:
    server.script(PLAN, Step(content="Rex [2]."))
    answer = (await asking.post("/v1/ask", json={"question": ASKED["query"], "deep": True})).json()
    assert [found["text"] for found in answer["memories"]] == list(PETS)
    assert answer["cited"] == [answer["memories"][1]["id"]]
    assert answer["deep"] == {"looks": 1, "degraded": None}
    answer = (await asking.post("/v1/ask", json={"question": ASKED["query"]})).json()
    assert "deep" not in answer


async def test_neither_log_nor_error_has_a_look(
    asking: httpx.AsyncClient, server: OpenAIServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.script(PLAN, Step(content='{"looks": "terrier"}'))
    with caplog.at_level("DEBUG", logger="relayer"):
        await recalled(asking)
        assert (await recalled(asking))["deep"]["degraded"] == "unusable plan"
    logged = " ".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert "unusable plan" in logged
    assert "terrier" not in logged
    assert "pets" not in logged


async def test_it_counts_five_times_and_only_where_it_is_deep(
    app: ASGIApp, managed: NewKey
) -> None:
    async with client_of(app, signer_of(managed)) as client:
        left = []
        for path, body in (
            ("recall", b'{"query":"tea"}'),
            ("recall", b'{"query":"tea","deep":true}'),
            ("recall", b'{"query":"tea","\\u0064eep":true}'),
            ("recall", b'{"query":"tea","deep":false}'),
            ("recall", b'{"query":"tea","deep":1}'),
            ("ask", b'{"question":"tea"}'),
            ("ask", b'{"question":"tea","deep":true}'),
        ):
            answer = await client.post(f"/v1/{path}", content=body)
            left.append(int(answer.headers["ratelimit-remaining"]))
    assert [before - after for before, after in pairwise(left)] == [5, 5, 1, 1, 2, 5]


@pytest.mark.parametrize("body", [b"", b"[", b'{"a":' * 100_000, b'{"query":"\\ud800"}', b"\xff"])
async def test_a_body_that_cannot_be_weighed_is_refused_as_malformed(
    client: httpx.AsyncClient, body: bytes
) -> None:
    assert (await client.post("/v1/recall", content=body)).status_code == 400
