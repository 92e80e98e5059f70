"""The stand-in for a paid model, asked by the real openai package: streams, tools, strictness."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import APIConnectionError, OpenAI
from openai.types.chat import ChatCompletionFunctionToolParam

from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, Step, ToolCall
from tests.thinking import server

__all__ = ["server"]  # a fixture

TOOL: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object"}},
}
CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
USER = {"role": "user", "content": "hi"}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWERED = {"role": "tool", "tool_call_id": "a", "content": "seen"}


@pytest.fixture
def client(server: OpenAIServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.base_url, api_key=API_KEY, max_retries=0) as opened:
        yield opened


def stream(client: OpenAI, **more: Any) -> list[Any]:
    messages: Any = [USER]
    return list(
        client.chat.completions.create(model=CHAT_MODEL, messages=messages, stream=True, **more)
    )


def test_stream_comes_in_deltas_role_first(server: OpenAIServer, client: OpenAI) -> None:
    server.script(Step(content="Anna prefers green tea."))
    chunks = stream(client)
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant"
    assert len([delta for delta in deltas if delta.content]) > 1
    assert "".join(delta.content or "" for delta in deltas) == "Anna prefers green tea."
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert all(chunk.usage is None for chunk in chunks)


def test_usage_comes_last_when_asked_for(server: OpenAIServer, client: OpenAI) -> None:
    *chunks, last = stream(client, stream_options={"include_usage": True})
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    assert last.usage.total_tokens == 2
    assert not last.choices


def test_tool_calls_are_streamed_and_accumulate(server: OpenAIServer, client: OpenAI) -> None:
    calls = (ToolCall("look", {"where": "in the house"}, "a"), ToolCall("look", id="b"))
    server.script(Step(calls=calls), Step(calls=calls))
    with client.chat.completions.stream(
        model=CHAT_MODEL, messages=[{"role": "user", "content": "hi"}], tools=[TOOL]
    ) as streamed:
        choice = streamed.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    whole = client.chat.completions.create(
        model=CHAT_MODEL, messages=[{"role": "user", "content": "hi"}], tools=[TOOL]
    )
    streamed_calls: list[dict[str, Any]] = [
        call.to_dict() for call in choice.message.tool_calls or []
    ]
    for call in streamed_calls:
        del call["index"]
        call["function"].pop("parsed_arguments", None)
    assert streamed_calls == [call.to_dict() for call in whole.choices[0].message.tool_calls or []]
    assert streamed_calls[0]["function"]["arguments"] == '{"where": "in the house"}'


def test_several_choices_are_told_apart(server: OpenAIServer, client: OpenAI) -> None:
    server.script(Step(content="Tea."))
    chunks = stream(client, n=2)
    for index in (0, 1):
        parts = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == index]
        assert "".join(part.delta.content or "" for part in parts) == "Tea."


def test_stream_that_breaks_off_is_an_error(server: OpenAIServer, client: OpenAI) -> None:
    server.script(Step(content="Anna prefers green tea.", cut=2))
    with pytest.raises(APIConnectionError):
        stream(client)


def test_stream_that_hangs_has_sent_what_came_before(server: OpenAIServer, client: OpenAI) -> None:
    server.script(Step(content="Anna prefers green tea.", cut=2, hang=True))
    with client.chat.completions.create(
        model=CHAT_MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
    ) as events:
        assert [next(events).choices[0].delta.content for _ in range(2)] == ["", "Anna pre"]


@pytest.mark.parametrize(
    ("members", "status"),
    [
        ({"stream_options": {"include_usage": True}}, 400),
        ({"n": 0}, 400),
        ({"max_tokens": 1, "max_completion_tokens": 1}, 400),
        ({"tools": []}, 400),
        ({"tools": [{"type": "function"}]}, 400),
        ({"tools": [{**TOOL, "surprise": 1}]}, 400),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, 400),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {}}}]}, 400),
        ({"tool_choice": "auto"}, 400),
        ({"tools": [TOOL], "tool_choice": "maybe"}, 400),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "b"}}}, 400),
        ({"parallel_tool_calls": True}, 400),
        ({"messages": [USER, ANSWERED]}, 400),
        ({"messages": [USER, CALLING]}, 400),
        ({"messages": [USER, CALLING, USER]}, 400),
        ({"messages": [USER, {**CALLING, "tool_calls": []}]}, 400),
        ({"messages": [USER, {"role": "assistant", "content": None}]}, 400),
        ({"messages": [{"role": "user", "content": []}]}, 400),
        ({"messages": [{"role": "system", "content": [{"type": "image_url"}]}]}, 400),
        ({"messages": [{**USER, "refusal": "no"}]}, 400),
        ({"messages": [USER, CALLING, ANSWERED], "tools": [TOOL]}, 200),
        ({"messages": [USER, CALLING, {**ANSWERED, "name": "look"}], "tools": [TOOL]}, 200),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}, 200),
        ({"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}, 200),
        ({"stream": True, "store": False, "reasoning_effort": "low"}, 200),
    ],
)
def test_server_is_strict(server: OpenAIServer, members: dict[str, Any], status: int) -> None:
    answer = httpx.post(
        f"{server.base_url}/chat/completions",
        json={"model": CHAT_MODEL, "messages": [USER]} | members,
        headers={"authorization": f"Bearer {API_KEY}"},
    )
    assert answer.status_code == status
