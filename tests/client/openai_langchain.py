"""LangChain's `ChatOpenAI` on clients with a memory, as the documentation shows it.

`make test-openai` runs this file, after it has set up LangChain in an environment of its own.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from memrelay.openai import with_memory
from tests.client.openai_scene import (
    AT_ONCE,
    FACT,
    Turns,
    captures,
    original,
    original_async,
    ours,
    profile,
    teach,
)
from tests.openai_server import CHAT_MODEL, OpenAIServer, Step, ToolCall
from tests.thinking import server

__all__ = ["captures", "original", "original_async", "profile", "server"]  # fixtures

BROKEN = "The lamp in the hall is broken."
ASKED = f"Which lamp is broken? {FACT}"
SAID = [("user", ASKED), ("assistant", "In the hall.")]
WAYS: list[dict[str, Any]] = [
    {},
    {"use_responses_api": True},
    {"use_responses_api": True, "use_previous_response_id": True},
]


@tool
def look(place: str) -> str:
    """Look into a room."""
    return f"The {place} is dark."


class Place(BaseModel):
    name: str


@pytest.fixture
def client(original: OpenAI, profile: Path) -> Iterator[OpenAI]:
    teach(profile, BROKEN)
    with with_memory(original, profile=profile, settings=AT_ONCE) as remembering:
        yield remembering


@pytest_asyncio.fixture
async def async_client(original_async: AsyncOpenAI, profile: Path) -> AsyncIterator[AsyncOpenAI]:
    async with with_memory(original_async, profile=profile, settings=AT_ONCE) as remembering:
        yield remembering


@pytest.fixture(params=WAYS, ids=["chat", "responses", "previous"])
def chat(
    request: pytest.FixtureRequest, client: OpenAI, async_client: AsyncOpenAI, captures: Turns
) -> ChatOpenAI:
    return ChatOpenAI(
        model=CHAT_MODEL,
        client=client.chat.completions,
        async_client=async_client.chat.completions,
        root_client=client,
        root_async_client=async_client,
        **request.param,
    )


def are_recalled(server: OpenAIServer, requests: int) -> bool:
    asked = [one for one in server.received if one.path != "/v1/embeddings"]
    return len(asked) == requests and all(BROKEN in str(one.json) for one in asked)


def test_an_answer_is_remembered_whole_and_streamed(
    server: OpenAIServer, chat: ChatOpenAI, captures: Turns, caplog: pytest.LogCaptureFixture
) -> None:
    server.script(*[Step(content="In the hall.")] * 2)
    assert "In the hall." in str(chat.invoke(ASKED).content)
    assert list(chat.stream(ASKED))
    assert are_recalled(server, 2)
    assert captures == [SAID, SAID]
    assert ours(caplog) == []


async def test_an_answer_is_remembered_with_asyncio(
    server: OpenAIServer, chat: ChatOpenAI, captures: Turns
) -> None:
    server.script(*[Step(content="In the hall.")] * 2)
    assert "In the hall." in str((await chat.ainvoke(ASKED)).content)
    assert [chunk async for chunk in chat.astream(ASKED)]
    assert are_recalled(server, 2)
    assert captures == [SAID, SAID]


def test_a_tool_loop_is_captured_once(
    server: OpenAIServer, chat: ChatOpenAI, captures: Turns
) -> None:
    server.script(Step(calls=(ToolCall("look", {"place": "hall"}),)), Step(content="In the hall."))
    bound = chat.bind_tools([look])
    asked = HumanMessage(ASKED)
    calling: Any = bound.invoke([asked])
    result = ToolMessage("dark", tool_call_id=calling.tool_calls[0]["id"])
    bound.invoke([asked, calling, result])
    assert are_recalled(server, 2)
    assert captures == [SAID]


def test_structured_output_is_captured_as_the_model_wrote_it(
    server: OpenAIServer, chat: ChatOpenAI, captures: Turns
) -> None:
    server.script(Step(content='{"name": "hall"}'))
    structured = chat.with_structured_output(Place, method="json_schema")
    assert structured.invoke(ASKED) == Place(name="hall")
    assert are_recalled(server, 1)
    assert captures == [[("user", ASKED), ("assistant", '{"name": "hall"}')]]
