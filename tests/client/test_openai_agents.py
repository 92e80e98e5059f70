"""The real openai-agents on a client with a memory, as its users set it up.

Not with releases of the openai package before 3, which openai-agents does not take.
"""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import agents
import pytest
import pytest_asyncio
from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool
from agents.models import _openai_shared as shared
from openai import AsyncOpenAI
from pydantic import BaseModel

from memrelay.openai import memory_session, with_memory, without_memory
from tests.client.openai_scene import (
    AT_ONCE,
    FACT,
    Turns,
    captures,
    memories,
    original_async,
    ours,
    profile,
    request_body,
    teach,
)
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, Step, ToolCall
from tests.thinking import server

__all__ = ["captures", "original_async", "profile", "server"]  # fixtures

ASKED = f"Which lamp is broken? {FACT}"
BROKEN = "The lamp in the hall is broken."
STEPS = (Step(calls=(ToolCall("look", {"place": "hall"}),)), Step(content="The one in the hall."))
HANDOFF = Step(calls=(ToolCall("transfer_to_expert", id="call_1"),))
SAID = [("user", ASKED), ("assistant", "The one in the hall.")]
WAYS = ["responses", "chat_completions"]


@function_tool
def look(place: str) -> str:
    """Look into a room."""
    return f"The {place} is dark."


def agent(name: str = "helper", **more: Any) -> Agent[Any]:
    told = {"instructions": f"You are {name}.", "model": CHAT_MODEL, "tools": [look]}
    return Agent(name=name, **{**told, **more})


@pytest_asyncio.fixture(params=WAYS)
async def client(
    request: pytest.FixtureRequest,
    original_async: AsyncOpenAI,
    profile: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[AsyncOpenAI]:
    """A client that remembers, as the one of all agents, by the API that is their default."""
    for name in ("_default_openai_client", "_use_responses_by_default"):
        monkeypatch.setattr(shared, name, getattr(shared, name))  # afterwards as before
    async with with_memory(original_async, profile=profile, settings=AT_ONCE) as remembering:
        agents.set_default_openai_client(remembering, use_for_tracing=False)
        agents.set_default_openai_api(request.param)
        yield remembering


async def run(first: Agent[Any], asked: Any, *, stream: bool, **more: Any) -> Any:
    # A configuration keeps the default client that it has met first.
    options = {"run_config": RunConfig(tracing_disabled=True), **more}
    if not stream:
        return (await Runner.run(first, asked, **options)).final_output
    running = Runner.run_streamed(first, asked, **options)
    assert [event async for event in running.stream_events()]
    return running.final_output


def prompts(server: OpenAIServer) -> list[tuple[str, str]]:
    """What each request told the model: its instructions, and the user's message."""
    found = []
    for one in server.received:
        body = one.json
        if "messages" in body:
            system, asked = body["messages"][:2]
            found.append((system["content"], asked["content"]))
        else:
            found.append((body["instructions"], str(body["input"][0].get("content"))))
    return found


@pytest.mark.parametrize("stream", [False, True], ids=["run", "streamed"])
@pytest.mark.usefixtures("client")
async def test_a_run_with_a_tool_recalls_once_and_is_captured_once(
    server: OpenAIServer,
    profile: Path,
    captures: Turns,
    caplog: pytest.LogCaptureFixture,
    stream: bool,
) -> None:
    teach(profile, BROKEN)
    server.script(*STEPS)
    assert await run(agent(), ASKED, stream=stream) == "The one in the hall."
    first, second = prompts(server)
    assert first == second
    assert BROKEN in "".join(first)
    assert first[0].startswith("You are helper.")
    assert captures == [SAID]
    assert ours(caplog) == []


@pytest.mark.parametrize("stream", [False, True], ids=["run", "streamed"])
@pytest.mark.usefixtures("client")
async def test_a_handoff_takes_the_memories_along(
    server: OpenAIServer, profile: Path, captures: Turns, stream: bool
) -> None:
    teach(profile, BROKEN)
    server.script(HANDOFF, *STEPS)
    clerk = agent("clerk", handoffs=[agent("expert")])
    assert await run(clerk, ASKED, stream=stream) == "The one in the hall."
    told = prompts(server)
    assert ["You are clerk." in told[0][0], "You are expert." in told[1][0]] == [True, True]
    assert all(BROKEN in "".join(one) for one in told)
    assert captures == [SAID]


@pytest.mark.parametrize("stream", [False, True], ids=["run", "streamed"])
@pytest.mark.usefixtures("client")
async def test_what_is_said_in_one_run_is_known_in_the_next(
    server: OpenAIServer, profile: Path, client: AsyncOpenAI, stream: bool
) -> None:
    await run(agent(), FACT, stream=stream)
    await client.close()
    assert memories(profile) == [FACT]
    again = AsyncOpenAI(base_url=server.base_url, api_key=API_KEY)
    async with with_memory(again, profile=profile, settings=AT_ONCE) as other:
        agents.set_default_openai_client(other, use_for_tracing=False)
        await run(agent(), "What do I prefer to drink in the morning?", stream=stream)
    assert FACT in "".join(prompts(server)[-1])


class Place(BaseModel):
    name: str


@pytest.mark.usefixtures("client")
async def test_an_answer_of_a_type_is_captured_as_the_model_wrote_it(
    server: OpenAIServer, captures: Turns
) -> None:
    server.script(Step(content='{"name": "hall"}'))
    assert await run(agent(output_type=Place), ASKED, stream=False) == Place(name="hall")
    assert captures == [[("user", ASKED), ("assistant", '{"name": "hall"}')]]


@pytest.mark.usefixtures("client")
async def test_a_session_of_the_agents_is_one_window_of_capture(
    server: OpenAIServer, captures: Turns
) -> None:
    session = SQLiteSession("one")
    server.script(Step(content="Hello."), *STEPS)
    await run(agent(), "Hi there.", stream=False, session=session)
    await run(agent(), ASKED, stream=True, session=session)
    begun = [("user", "Hi there."), ("assistant", "Hello.")]
    assert captures == [begun, [*begun, *SAID]]


@pytest.mark.usefixtures("client")
async def test_whose_memory_it_is_holds_for_a_whole_run(
    server: OpenAIServer, profile: Path, client: AsyncOpenAI
) -> None:
    server.script(*STEPS)
    with memory_session("ticket-4711", agent="anna"):
        await run(agent(), ASKED, stream=True)
    with without_memory():
        await run(agent(), "I prefer the number 7 for my shirt.", stream=False)
    await client.close()
    assert memories(profile) == []
    assert FACT in str(memories(profile, "anna"))


@pytest.mark.parametrize("client", ["responses"], indirect=True)
@pytest.mark.parametrize("stream", [False, True], ids=["run", "streamed"])
@pytest.mark.parametrize("kept", ["response", "conversation"])
async def test_a_run_whose_history_the_server_keeps_is_remembered_whole(
    server: OpenAIServer,
    profile: Path,
    client: AsyncOpenAI,
    captures: Turns,
    kept: str,
    stream: bool,
) -> None:
    """Its second request has nothing but the tool's result."""
    teach(profile, BROKEN)
    more: dict[str, Any] = {"auto_previous_response_id": True}
    if kept == "conversation":
        more = {"conversation_id": (await client.conversations.create()).id}
        server.clear()
    server.script(*STEPS)
    await run(agent(), ASKED, stream=stream, **more)
    (first, _), (second, _) = prompts(server)
    assert first == second
    assert BROKEN in first
    assert [item["type"] for item in request_body(server)["input"]] == ["function_call_output"]
    assert captures == [SAID]


@pytest.mark.usefixtures("client")
async def test_a_streamed_run_that_is_cancelled_is_not_captured(
    server: OpenAIServer, captures: Turns
) -> None:
    server.script(Step(content="The one in the hall. " * 9, cut=5, hang=True))
    config = RunConfig(tracing_disabled=True)
    running = Runner.run_streamed(agent(), ASKED, run_config=config)
    async for event in running.stream_events():
        if event.type == "raw_response_event" and "delta" in event.data.type:
            running.cancel()
    assert captures == []


@pytest.mark.parametrize("client", WAYS, indirect=True)
@pytest.mark.usefixtures("client")
async def test_a_history_that_is_told_by_a_model_is_said_to_go_without_memory(
    server: OpenAIServer, caplog: pytest.LogCaptureFixture, captures: Turns
) -> None:
    nested = RunConfig(tracing_disabled=True, nest_handoff_history=True)
    server.script(HANDOFF, Step(content="In the hall."))
    clerk = agent("clerk", handoffs=[agent("expert")])
    await run(clerk, ASKED, stream=False, run_config=nested)
    assert captures == []
    assert len(ours(caplog)) == 1


@pytest.mark.parametrize("client", ["responses"], indirect=True)
@pytest.mark.usefixtures("client")
async def test_a_websocket_of_the_agents_is_said_once(
    server: OpenAIServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = "_default_openai_responses_transport"
    monkeypatch.setattr(shared, transport, getattr(shared, transport))
    agents.set_default_openai_responses_transport("websocket")
    for _ in range(2):
        with pytest.raises(Exception, match="HTTP"):  # the stand-in serves none
            await run(agent(), ASKED, stream=False)
    assert [line.partition(" (")[0] for line in ours(caplog)] == ["what goes over a WebSocket"]


WITHOUT_ASYNCIO = """
import sys
import agents
from openai import AsyncOpenAI
from memrelay.openai import with_memory

url, key, model, profile, *said = sys.argv[1:]
client = with_memory(AsyncOpenAI(base_url=url, api_key=key), profile=profile)
agents.set_default_openai_client(client, use_for_tracing=False)
agents.set_tracing_disabled(True)
helper = agents.Agent(name="helper", model=model)
for text in said:
    agents.Runner.run_sync(helper, text)
"""


def test_runs_without_asyncio_are_remembered(server: OpenAIServer, profile: Path) -> None:
    """Each of them closes what its event loop has begun, and the next one goes on in that loop."""
    said = [f"I prefer the number {number} for my shirt." for number in (7, 8, 9)]
    question = "Which number do I prefer for my shirt?"
    given = [server.base_url, API_KEY, CHAT_MODEL, str(profile), *said, question]
    run = [sys.executable, "-c", WITHOUT_ASYNCIO, *given]
    ran = subprocess.run(run, check=True, timeout=60, capture_output=True, text=True)
    assert ran.stderr == ""
    assert sorted(memories(profile)) == said
    assert all(text in request_body(server)["instructions"] for text in said)
