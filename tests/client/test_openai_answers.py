"""Answers of a model, streamed or whole: passed on as they came, captured if they are complete."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pydantic
import pytest
from openai import AsyncOpenAI, OpenAI, Stream

from memrelay.openai import with_memory
from tests.client.openai_scene import (
    AT_ONCE,
    BREAKS,
    CALLS,
    FACT,
    QUESTION,
    TOOL,
    ask,
    memories,
    original,
    original_async,
    profile,
    teach,
    told,
    user,
    wrapped,
)
from tests.openai_server import CHAT_MODEL, OpenAIServer, Step
from tests.thinking import server

__all__ = ["original", "original_async", "profile", "server"]  # fixtures


def test_a_stream_passes_unchanged_and_is_captured_at_its_end(
    server: OpenAIServer, original: OpenAI, profile: Path
) -> None:
    step = Step(content="Noted: " + "tea. " * 9)
    server.script(step, step)
    options: Any = {"stream": True, "stream_options": {"include_usage": True}}
    plain = [chunk.to_dict() for chunk in ask(original, user(FACT), **options)]
    with wrapped(original, profile) as client:
        stream = ask(client, user(FACT), **options)
        assert isinstance(stream, Stream)
        assert stream.response.status_code == 200
        assert [chunk.to_dict() for chunk in stream] == plain
    assert memories(profile) == [FACT]


def test_a_stream_is_not_held_back(server: OpenAIServer, original: OpenAI, profile: Path) -> None:
    server.script(Step(content="Noted, with thanks.", cut=2, hang=True))
    with wrapped(original, profile) as client, ask(client, user(FACT), stream=True) as stream:
        assert [next(stream).choices[0].delta.content for _ in range(2)] == ["", "Noted, w"]
    assert memories(profile) == []


def test_the_stream_helper_remembers_too(
    server: OpenAIServer, original: OpenAI, profile: Path
) -> None:
    teach(profile, "The staging server is in Frankfurt.")
    server.script(Step(content="Noted."))
    asked = f"Where is the staging server? {FACT}"
    with wrapped(original, profile) as client:
        with client.chat.completions.stream(model=CHAT_MODEL, messages=[user(asked)]) as stream:
            assert stream.get_final_completion().choices[0].message.content == "Noted."
        assert "Frankfurt" in told(server)[0]["content"]
    assert FACT in memories(profile)


class Drink(pydantic.BaseModel):
    name: str


@pytest.mark.parametrize("beta", [False, True])
def test_parse_remembers_too(
    server: OpenAIServer, original: OpenAI, profile: Path, beta: bool
) -> None:
    teach(profile)
    server.script(Step(content='{"name": "tea"}'))
    with wrapped(original, profile) as client:
        chat: Any = client.beta.chat if beta else client.chat
        parsed = chat.completions.parse(
            model=CHAT_MODEL, messages=[user(QUESTION)], response_format=Drink
        )
    assert parsed.choices[0].message.parsed == Drink(name="tea")
    assert FACT in told(server)[0]["content"]


def test_a_raw_response_is_recalled_for_and_left_to_the_caller(
    server: OpenAIServer, original: OpenAI, profile: Path
) -> None:
    teach(profile)
    with wrapped(original, profile) as client:
        raw = client.chat.completions.with_raw_response.create(
            model=CHAT_MODEL, messages=[user(QUESTION)]
        )
        assert raw.http_response.status_code == 200
    assert FACT in told(server)[0]["content"]


@pytest.mark.parametrize(
    "step",
    [
        Step(calls=CALLS),
        Step(content="Let me look.", calls=CALLS, finish_reason="stop"),  # so do some servers
        Step(refusal="I will not."),
        Step(content="Well,", finish_reason="content_filter"),
        Step(status=500),
        Step(content="Noted, with thanks.", cut=2),
    ],
    ids=["tools", "tools and stop", "refusal", "filtered", "error", "broken off"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_no_answer_no_capture(
    server: OpenAIServer, original: OpenAI, profile: Path, step: Step, stream: bool
) -> None:
    server.script(step)
    with wrapped(original, profile) as client, suppress(*BREAKS):
        answer = ask(client, user(FACT), stream=stream, tools=[TOOL])
        if stream:
            list(answer)
    assert server.scripted_left == 0
    assert memories(profile) == []


def test_a_stream_that_the_caller_leaves_is_not_captured(original: OpenAI, profile: Path) -> None:
    with wrapped(original, profile) as client, ask(client, user(FACT), stream=True) as stream:
        for chunk in stream:
            if chunk.choices[0].delta.content:
                break
    assert memories(profile) == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("step", "options", "kept"),
    [
        (Step(content="We decided to meet on Monday.", finish_reason="length"), {}, True),
        (Step(content="We decided to meet on Monday."), {}, True),
        (Step(content="We decided to meet on Monday."), {"n": 2}, False),
    ],
    ids=["cut by a limit", "whole", "one of several"],
)
def test_an_answer_is_captured_unless_there_are_several(
    server: OpenAIServer,
    original: OpenAI,
    profile: Path,
    step: Step,
    options: Any,
    kept: bool,
    stream: bool,
) -> None:
    server.script(step)
    with wrapped(original, profile) as client:
        answer = ask(client, user(FACT), stream=stream, **options)
        if stream:
            list(answer)
    found = memories(profile)
    assert FACT in found
    assert any("Monday" in text for text in found) is kept


INCOMPLETE = [
    b"{}",
    b'{"choices": null}',
    b'{"choices": []}',
    b'{"choices": [{}]}',
    b'{"choices": [{"index": 0, "finish_reason": "stop"}]}',
    b'{"choices": [{"index": 0, "finish_reason": "stop", "message": null, "delta": null}]}',
]


@pytest.mark.parametrize("body", INCOMPLETE, ids=bytes.decode)
def test_an_answer_that_lacks_something_is_still_the_callers(
    server: OpenAIServer, original: OpenAI, profile: Path, body: bytes
) -> None:
    server.script(Step(body=body), Step(body=b"data: %b\n\ndata: [DONE]\n\n" % body))
    with wrapped(original, profile) as client:
        assert ask(client, user(FACT)).to_dict() == json.loads(body)
        chunks = list(ask(client, user(FACT), stream=True))
        assert [chunk.to_dict() for chunk in chunks] == [json.loads(body)]
    assert memories(profile) == []


async def test_asynchronous_streams_pass_and_are_captured(
    server: OpenAIServer, original_async: AsyncOpenAI, profile: Path
) -> None:
    server.script(Step(content="Noted, with thanks."), Step(content="Fine, thanks."))
    said = [f"I prefer the number {number} for my shirt." for number in (7, 8, 9)]
    async with with_memory(original_async, profile=profile, settings=AT_ONCE) as client:
        completions = client.chat.completions
        stream = await completions.create(model=CHAT_MODEL, messages=[user(said[0])], stream=True)
        parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(parts) == "Noted, with thanks."
        async with completions.stream(model=CHAT_MODEL, messages=[user(said[1])]) as helper:
            final = await helper.get_final_completion()
        assert final.choices[0].message.content == "Fine, thanks."
        left = await completions.create(model=CHAT_MODEL, messages=[user(said[2])], stream=True)
        async with left:
            await anext(left)
    assert sorted(memories(profile)) == said[:2]
