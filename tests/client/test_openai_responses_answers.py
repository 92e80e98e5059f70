"""Responses of a model, streamed or whole: passed on as they came, captured if complete."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pydantic
import pytest
from openai import AsyncOpenAI, OpenAI, Stream

from memrelay.openai import with_memory, without_memory
from tests.client.openai_scene import (
    AT_ONCE,
    BREAKS,
    CALLS,
    FACT,
    QUESTION,
    Turns,
    captures,
    memories,
    original,
    original_async,
    ours,
    profile,
    request_body,
    respond,
    teach,
    wrapped,
)
from tests.openai_responses import events, message
from tests.openai_server import CHAT_MODEL, OpenAIServer, Step
from tests.thinking import server

__all__ = ["captures", "original", "original_async", "profile", "server"]  # fixtures

SAID = ("user", FACT)
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
SHELL = {"type": "shell_call", "id": "sh_1", "call_id": "call_sh", "action": {"commands": ["ls"]}}
SHELL_RESULT = {"type": "shell_call_output", "id": "so_1", "call_id": "call_sh", "output": []}
CUSTOM = {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_c", "name": "x", "input": ""}
PATCH = {"type": "apply_patch_call", "id": "ap_1", "call_id": "call_p", "status": "completed"}
APPROVAL = {"type": "mcp_approval_request", "id": "mr_1", "name": "x", "arguments": "{}"}
REFUSAL = {**message(""), "content": [{"type": "refusal", "refusal": "I will not."}]}


def run(client: OpenAI, asked: Any, *, stream: bool, **more: Any) -> None:
    """Ask for a response and read it to its end."""
    answer = respond(client, asked, stream=stream, **more)
    if stream:
        list(answer)


@pytest.mark.parametrize(
    "step",
    [
        Step(calls=CALLS),
        Step(content="Let me look.", calls=CALLS),
        Step(output=(REASONING, CUSTOM)),
        Step(output=(message("Let me look."), SHELL)),
        Step(output=(PATCH, message("Done."))),
        Step(output=(APPROVAL,)),
        Step(refusal="I will not."),
        Step(output=(message("Well."), REFUSAL)),
        Step(content="Well,", finish_reason="content_filter"),
        Step(content="Well,", finish_reason="failed"),
        Step(status=500),
        Step(content="Noted, with thanks.", cut=5),
    ],
    ids="calls text_calls custom shell patch approval refusal refusal_after filtered failed error "
    "broken_off".split(),
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_no_answer_no_capture(
    server: OpenAIServer,
    original: OpenAI,
    profile: Path,
    captures: Turns,
    step: Step,
    stream: bool,
) -> None:
    server.script(step)
    with wrapped(original, profile) as client, suppress(*BREAKS):
        run(client, FACT, stream=stream)
    assert server.scripted_left == 0
    assert captures == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("step", "answers"),
    [
        (Step(content="Noted."), ["Noted."]),
        (Step(content="Noted, and", finish_reason="length"), ["Noted, and"]),
        (Step(output=(REASONING, SEARCH, message("Noted."))), ["Noted."]),
        (Step(output=(SHELL, SHELL_RESULT, message("Noted."))), ["Noted."]),
        (Step(output=(message("First."), message("Then."))), ["First.", "Then."]),
        (
            Step(
                output=(
                    message("I look.", phase="commentary"),
                    message("So.", phase="final_answer"),
                )
            ),
            ["So."],
        ),
        (Step(output=({"type": "image_generation_call", "id": "ig_1", "result": "AA"},)), []),
    ],
    ids="whole cut_by_a_limit hosted_tool hosted_shell two_messages commentary picture".split(),
)
def test_a_complete_answer_is_captured(
    server: OpenAIServer,
    original: OpenAI,
    profile: Path,
    captures: Turns,
    step: Step,
    answers: list[str],
    stream: bool,
) -> None:
    server.script(step)
    with wrapped(original, profile) as client:
        run(client, FACT, stream=stream, store=False)
    assert captures == [[SAID, *(("assistant", text) for text in answers)]]


def test_a_stream_passes_unchanged_and_is_captured_at_its_end(
    server: OpenAIServer, original: OpenAI, profile: Path
) -> None:
    server.script(*[Step(output=(REASONING, message("Noted: " + "tea. " * 9)))] * 2)

    def plain(stream: Any) -> list[Any]:
        return [{**event.to_dict(), "response": None} for event in stream]

    expected = plain(respond(original, FACT, stream=True))
    with wrapped(original, profile) as client:
        stream = respond(client, FACT, stream=True)
        assert isinstance(stream, Stream)
        assert stream.response.status_code == 200
        assert plain(stream) == expected
    assert memories(profile) == [FACT]


def test_a_stream_is_not_held_back(
    server: OpenAIServer, original: OpenAI, profile: Path, captures: Turns
) -> None:
    server.script(Step(content="Noted, with thanks.", cut=5, hang=True))
    with wrapped(original, profile) as client, respond(client, FACT, stream=True) as stream:
        assert [next(stream).type for _ in range(5)][-1] == "response.output_text.delta"
    assert captures == []


def test_a_stream_that_the_caller_leaves_is_not_captured(
    original: OpenAI, profile: Path, captures: Turns
) -> None:
    with wrapped(original, profile) as client:
        with respond(client, FACT, stream=True) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    break
        with client.responses.stream(model=CHAT_MODEL, input=FACT) as helper:
            next(iter(helper))
    assert captures == []


def test_an_end_without_its_output_is_put_together_from_the_items(
    server: OpenAIServer, original: OpenAI, profile: Path, captures: Turns
) -> None:
    """So end some servers of this API."""
    whole = server.responses.respond({}, Step(output=(REASONING, message("Noted."))))
    told = [json.dumps(event) for event in events(whole, is_whole=False)]
    server.script(Step(body="".join(f"data: {one}\n\n" for one in told).encode()))
    with wrapped(original, profile) as client:
        run(client, FACT, stream=True)
    assert captures == [[SAID, ("assistant", "Noted.")]]


def test_the_stream_helper_remembers_too(
    server: OpenAIServer, original: OpenAI, profile: Path
) -> None:
    teach(profile, "The staging server is in Frankfurt.")
    server.script(Step(content="Noted."))
    asked = f"Where is the staging server? {FACT}"
    with wrapped(original, profile) as client:
        with client.responses.stream(model=CHAT_MODEL, input=asked) as stream:
            assert stream.get_final_response().output_text == "Noted."
        assert "Frankfurt" in request_body(server)["instructions"]
    assert FACT in memories(profile)


class Drink(pydantic.BaseModel):
    name: str


def test_parse_remembers_too(
    server: OpenAIServer, original: OpenAI, profile: Path, captures: Turns
) -> None:
    teach(profile)
    server.script(*[Step(content='{"name": "tea"}')] * 2)
    with wrapped(original, profile) as client:
        parsed = client.responses.parse(model=CHAT_MODEL, input=QUESTION, text_format=Drink)
        assert parsed.output_parsed == Drink(name="tea")
        assert FACT in request_body(server)["instructions"]
        helper = client.responses.stream(model=CHAT_MODEL, input=QUESTION, text_format=Drink)
        with helper as stream:
            assert stream.get_final_response().output_parsed == Drink(name="tea")
    assert captures == [[("user", QUESTION), ("assistant", '{"name": "tea"}')]] * 2


def test_an_answer_in_the_background_is_captured_when_it_is_retrieved(
    server: OpenAIServer, original: OpenAI, profile: Path, captures: Turns
) -> None:
    server.script(*[Step(content="Noted.")] * 3)
    expected = [[SAID, ("assistant", "Noted.")]]
    with wrapped(original, profile) as client:
        begun = [respond(client, FACT, background=True).id for _ in range(3)]
        assert captures == []
        for _ in range(2):
            assert client.responses.retrieve(begun[0]).output_text == "Noted."
        assert captures == expected
        list(client.responses.retrieve(begun[1], stream=True))
        assert captures == expected * 2
        with without_memory():
            client.responses.retrieve(begun[2])
        assert captures == expected * 2
        with client.responses.stream(response_id=begun[2]) as stream:
            stream.until_done()
    assert captures == expected * 3


def test_a_stream_in_the_background_that_broke_is_captured_when_it_is_retrieved(
    server: OpenAIServer, original: OpenAI, profile: Path, captures: Turns
) -> None:
    server.script(Step(content="Noted.", cut=4))
    with wrapped(original, profile) as client:
        with respond(client, FACT, background=True, stream=True) as stream:
            begun = next(stream).response.id
            with suppress(*BREAKS):
                list(stream)
        assert captures == []
        client.responses.retrieve(begun)
    assert captures == [[SAID, ("assistant", "Noted.")]]


BROKEN = [b"{}", b'{"output": null}']


@pytest.mark.parametrize("body", BROKEN, ids=bytes.decode)
def test_an_answer_that_lacks_something_is_still_the_callers(
    server: OpenAIServer,
    original: OpenAI,
    profile: Path,
    caplog: pytest.LogCaptureFixture,
    body: bytes,
) -> None:
    end = b'data: {"type": "response.completed"}\n\n'
    server.script(Step(body=body), Step(body=end), Step(body=end))
    with wrapped(original, profile) as client:
        assert respond(client, "Hello there.").to_dict() == json.loads(body)
        for _ in range(2):
            (last,) = respond(client, "Hello there.", stream=True)
            assert last.type == "response.completed"
    assert memories(profile) == []
    assert ours(caplog) == ["an answer of an unknown form is not captured (said once)"]


async def test_asynchronous_answers_pass_and_are_captured(
    server: OpenAIServer, original_async: AsyncOpenAI, profile: Path, captures: Turns
) -> None:
    server.script(*[Step(content=f"{number}.") for number in range(4)])
    asked: Any = {"model": CHAT_MODEL, "input": FACT}
    async with with_memory(original_async, profile=profile, settings=AT_ONCE) as client:
        stream = await client.responses.create(**asked, stream=True)
        assert [event.type async for event in stream][-1] == "response.completed"
        async with client.responses.stream(**asked) as helper:
            assert (await helper.get_final_response()).output_text == "1."
        begun = await client.responses.create(**asked, background=True)
        await client.responses.retrieve(begun.id)
        left = await client.responses.create(**asked, stream=True)
        async with left:
            await anext(left)
    assert captures == [[SAID, ("assistant", f"{number}.")] for number in range(3)]


async def test_a_task_that_is_cancelled_in_a_stream_captures_nothing(
    server: OpenAIServer, original_async: AsyncOpenAI, profile: Path, captures: Turns
) -> None:
    server.script(Step(content="Noted, with thanks.", cut=5, hang=True))
    heard = asyncio.Event()

    async def listen() -> None:
        async with await client.responses.create(model=CHAT_MODEL, input=FACT, stream=True) as all_:
            async for event in all_:
                if event.type == "response.output_text.delta":
                    heard.set()

    async with with_memory(original_async, profile=profile, settings=AT_ONCE) as client:
        task = asyncio.create_task(listen())
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert captures == []
