"""Raw responses, by either wrapper and either API: recalled for, captured when they are parsed."""

from pathlib import Path
from typing import Any

import pydantic
import pytest
from openai import AsyncOpenAI, OpenAI

from memrelay.openai import with_memory
from tests.client.openai_scene import (
    AT_ONCE,
    FACT,
    QUESTION,
    TAG,
    Turns,
    captures,
    original,
    original_async,
    ours,
    profile,
    request_body,
    teach,
    user,
    wrapped,
)
from tests.openai_server import CHAT_MODEL, OpenAIServer, Step
from tests.thinking import server

__all__ = ["captures", "original", "original_async", "profile", "server"]  # fixtures

SAID = [("user", FACT), ("assistant", "Noted.")]
APIS = ["chat", "responses"]
UNPARSED = (
    "of raw responses, only what `parse()` returns is captured: one was read otherwise (said once)"
)


def resource(client: Any, api: str) -> Any:
    return client.chat.completions if api == "chat" else client.responses


def asking(api: str, words: str, **more: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {"messages": [user(words)]} if api == "chat" else {"input": words}
    return {"model": CHAT_MODEL, **asked, **more}


@pytest.fixture(autouse=True)
def answers(server: OpenAIServer) -> None:
    server.script(*[Step(content="Noted.")] * 4)


@pytest.mark.parametrize("api", APIS)
def test_a_raw_response_is_captured_before_it_is_parsed(
    server: OpenAIServer, original: OpenAI, profile: Path, captures: Turns, api: str
) -> None:
    teach(profile)
    with wrapped(original, profile) as client:
        raw = resource(client, api).with_raw_response.create(**asking(api, QUESTION))
        assert TAG in str(request_body(server))
        assert captures == [[("user", QUESTION), ("assistant", "Noted.")]]
        assert raw.http_response.status_code == 200
        assert raw.parse() is raw.parse()
        assert len(captures) == 1


@pytest.mark.parametrize("api", APIS)
def test_the_wrapper_of_the_whole_client_is_one_of_them(
    original: OpenAI, profile: Path, captures: Turns, api: str
) -> None:
    with wrapped(original, profile) as client:
        resource(client.with_raw_response, api).create(**asking(api, FACT))
        with resource(client.with_streaming_response, api).create(**asking(api, FACT)) as raw:
            raw.parse()
    assert captures == [SAID, SAID]


@pytest.mark.parametrize("api", APIS)
def test_a_raw_stream_is_captured_at_the_end_of_what_it_is_parsed_to(
    original: OpenAI,
    profile: Path,
    captures: Turns,
    caplog: pytest.LogCaptureFixture,
    api: str,
) -> None:
    asked = asking(api, FACT, stream=True)
    with wrapped(original, profile) as client:
        stream = resource(client, api).with_raw_response.create(**asked).parse()
        assert captures == []
        assert list(stream)
        assert captures == [SAID]
        with resource(client, api).with_streaming_response.create(**asked) as raw:
            assert list(raw.parse())
    assert captures == [SAID, SAID]
    assert ours(caplog) == []


@pytest.mark.parametrize("api", APIS)
def test_what_nobody_parses_is_said_once(
    original: OpenAI,
    profile: Path,
    captures: Turns,
    caplog: pytest.LogCaptureFixture,
    api: str,
) -> None:
    with wrapped(original, profile) as client:
        streaming = resource(client, api).with_streaming_response
        for _ in range(2):
            with streaming.create(**asking(api, FACT)) as raw:
                assert raw.json()
        raw = resource(client, api).with_raw_response.create(**asking(api, FACT, stream=True))
        assert list(raw.http_response.iter_lines())
    assert captures == []
    assert ours(caplog) == [UNPARSED]


class Drink(pydantic.BaseModel):
    name: str


def test_what_cannot_be_parsed_fails_where_the_caller_parses_it(
    original: OpenAI, profile: Path, captures: Turns
) -> None:
    with wrapped(original, profile) as client:
        raw = client.responses.with_raw_response.parse(
            model=CHAT_MODEL, input=FACT, text_format=Drink
        )
        with pytest.raises(pydantic.ValidationError):
            raw.parse()
    assert captures == []


def test_a_request_of_ones_own_form_is_remembered_as_well(
    server: OpenAIServer, original: OpenAI, profile: Path, captures: Turns
) -> None:
    """The openai package documents `post` for what it has no method for."""
    teach(profile)
    with wrapped(original, profile) as client:
        for path, api in (("/responses", "responses"), ("/chat/completions", "chat")):
            assert client.post(path, body=asking(api, QUESTION), cast_to=object)
            assert TAG in str(request_body(server))
    assert captures == [[("user", QUESTION), ("assistant", "Noted.")]] * 2


@pytest.mark.parametrize("api", APIS)
async def test_asynchronous_raw_responses_are_captured(
    original_async: AsyncOpenAI, profile: Path, captures: Turns, api: str
) -> None:
    async with with_memory(original_async, profile=profile, settings=AT_ONCE) as client:
        one = resource(client, api)
        await one.with_raw_response.create(**asking(api, FACT))
        raw = await one.with_raw_response.create(**asking(api, FACT, stream=True))
        assert [event async for event in raw.parse()]
        async with one.with_streaming_response.create(**asking(api, FACT)) as whole:
            await whole.parse()
        async with one.with_streaming_response.create(**asking(api, FACT, stream=True)) as streamed:
            assert [event async for event in await streamed.parse()]
    assert captures == [SAID] * 4


@pytest.mark.parametrize("api", APIS)
async def test_what_nobody_parses_is_said_once_with_asyncio_too(
    original_async: AsyncOpenAI,
    profile: Path,
    captures: Turns,
    caplog: pytest.LogCaptureFixture,
    api: str,
) -> None:
    async with with_memory(original_async, profile=profile, settings=AT_ONCE) as client:
        one = resource(client, api)
        async with one.with_streaming_response.create(**asking(api, FACT)) as raw:
            assert await raw.json()
        raw = await one.with_raw_response.create(**asking(api, FACT, stream=True))
        assert [line async for line in raw.http_response.aiter_lines()]
    assert captures == []
    assert ours(caplog) == [UNPARSED]
