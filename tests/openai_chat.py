"""Chat completions as the real API knows them: what a request may hold, and the shape of answers.

It owns no connection (`openai_server.py`).
"""

import json
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

FIELDS = {
    "frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens",
    "messages", "metadata", "modalities", "model", "n", "parallel_tool_calls", "prediction",
    "presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort",
    "response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "stream",
    "stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user",
    "verbosity",
}  # fmt: skip
_MESSAGE_FIELDS = {
    "developer": {"role", "content", "name"},
    "system": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "refusal", "tool_calls", "audio"},
    "tool": {"role", "content", "tool_call_id", "name"},  # the name is of an older API, and taken
}
_BLOCKS: dict[str, dict[str, type]] = {
    "user": {"text": str, "image_url": dict, "input_audio": dict, "file": dict},
    "assistant": {"text": str, "refusal": str},
}
_NAME = re.compile(r"[\w-]{1,64}", re.ASCII)
_CHOICES_MAX = 8
_DELTA_CHARS = 8  # small, so that even short answers come in several deltas


class Refused(Exception):
    """A request that the real API would not accept."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool that the model makes."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str = "call_test"

    def json(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": json.dumps(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True)
class Step:
    """One scripted answer to a chat request; what is not set is as in a normal answer."""

    content: Any = None  # a text, as the real API has it, or what other servers send
    refusal: str | None = None
    calls: tuple[ToolCall, ...] = ()
    output: tuple[dict[str, Any], ...] | None = None  # of a response, in place of all above
    message: dict[str, Any] = field(default_factory=dict)  # more members of the message
    finish_reason: str = ""  # empty: `tool_calls` with calls, otherwise `stop`
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None  # sent instead of a completion
    cut: int | None = None  # close the connection after so many bytes, or events of a stream
    hang: bool = False  # never answer; with `cut`, never go on from there
    held: threading.Event | None = None  # answer when a test has set it
    drop: bool = False  # close the connection without an answer


def check(asked: dict[str, Any], formats: tuple[str, ...], refused: tuple[str, ...] = ()) -> None:
    """Refuse what the real API refuses; `formats` are the kinds of `response_format` it knows.

    `refused` are members, or keywords of a schema, that this server does not take.
    """
    for name in refused:
        named = f"Unsupported parameter: '{name}' is not supported with this model."
        if name == "max_tokens":
            named += " Use 'max_completion_tokens' instead."
        require(f'"{name}":' not in json.dumps(asked), named)
    require(isinstance(asked.get("stream", False), bool), "stream is true or false")
    require("stream_options" not in asked or asked.get("stream"), "stream_options needs stream")
    require(isinstance(asked.get("stream_options", {}), dict), "stream_options is an object")
    require(asked.get("n", 1) in range(1, _CHOICES_MAX + 1), "n is out of range")
    require(not {"max_tokens", "max_completion_tokens"} <= set(asked), "give one maximum only")
    _check_tools(asked)
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused(400, "messages must be a list and not empty")
    unanswered: set[str] = set()
    for message in messages:
        unanswered = _check_message(message, unanswered)
    require(not unanswered, "each tool call must be answered by a tool message")
    _check_format(asked.get("response_format", {"type": "text"}), messages, formats)


def require(holds: object, otherwise: str) -> None:
    if not holds:
        raise Refused(400, otherwise)


def _check_tools(asked: dict[str, Any]) -> None:
    tools = asked.get("tools")
    if tools is None:
        require("tool_choice" not in asked, "tool_choice needs tools")
        require("parallel_tool_calls" not in asked, "parallel_tool_calls needs tools")
        return
    require(isinstance(tools, list) and tools, "tools must be a list and not empty")
    names = [_tool_name(tool) for tool in tools]
    choice = asked.get("tool_choice", "auto")
    if isinstance(choice, dict):
        require(choice.get("type") == "function", "unknown kind of tool_choice")
        require(choice.get("function", {}).get("name") in names, "tool_choice names no tool")
    else:
        require(choice in {"none", "auto", "required"}, "unknown tool_choice")


def _tool_name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or tool.get("type") != "function":
        raise Refused(400, "malformed tool")
    unknown = set(function) - {"name", "description", "parameters", "strict"}
    require(not unknown and set(tool) == {"type", "function"}, "unknown member of a tool")
    name = str(function.get("name"))
    require(_NAME.fullmatch(name), "a tool's name is out of its alphabet")
    require(isinstance(function.get("description", ""), str), "malformed description")
    parameters = function.get("parameters", {"type": "object"})
    require(
        isinstance(parameters, dict) and parameters.get("type") == "object",
        "parameters are the schema of an object",
    )
    if function.get("strict"):
        check_strict(parameters)
    return name


def _check_message(message: Any, unanswered: set[str]) -> set[str]:
    """Return the ids of the tool calls that are unanswered after `message`."""
    role = message.get("role") if isinstance(message, dict) else None
    if role not in _MESSAGE_FIELDS or set(message) - _MESSAGE_FIELDS[role]:
        raise Refused(400, "malformed message")
    calls = message.get("tool_calls")
    empty_ok = calls or message.get("refusal")
    if message.get("content") is not None or not empty_ok:
        _check_content(role, message.get("content"))
    if role == "tool":
        require(message.get("tool_call_id") in unanswered, "no such tool call")
        return unanswered - {message["tool_call_id"]}
    require(not unanswered, "each tool call must be answered by a tool message")
    if calls is None:
        return set()
    require(isinstance(calls, list) and calls, "tool_calls must be a list and not empty")
    return {_call_id(call) for call in calls}


def _check_content(role: str, content: Any) -> None:
    if isinstance(content, str):
        return
    require(isinstance(content, list) and content, "malformed content")
    known = _BLOCKS.get(role, {"text": str})
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        require(kind in known and isinstance(block.get(kind), known[kind]), "malformed block")


def _call_id(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type") != "function":
        raise Refused(400, "malformed tool call")
    require(set(function) == {"name", "arguments"}, "malformed tool call")
    require(isinstance(function["arguments"], str), "arguments are JSON text")
    require(isinstance(call.get("id"), str) and call["id"], "a tool call needs an id")
    return str(call["id"])


def _check_format(wanted: Any, messages: list[dict[str, Any]], formats: tuple[str, ...]) -> None:
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    require(kind in formats, "response_format is not supported")
    if kind == "json_object":
        named = any("json" in text_of(message).lower() for message in messages)
        require(named, "the word json must appear in the messages")
    if kind != "json_schema":
        return
    spec = wanted.get("json_schema")
    if not isinstance(spec, dict) or not _NAME.fullmatch(str(spec.get("name"))):
        raise Refused(400, "json_schema needs a name")
    if spec.get("strict"):
        check_strict(spec.get("schema"))


def check_strict(schema: Any) -> None:
    """Refuse objects that the strict mode refuses: open ones, and ones with optional members."""
    if isinstance(schema, list):
        for part in schema:
            check_strict(part)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object":
        members = set(schema.get("properties", {}))
        require(schema.get("additionalProperties") is False, "additionalProperties must be false")
        require(set(schema.get("required", ())) == members, "required must name every property")
    for part in schema.values():
        check_strict(part)


def text_of(message: dict[str, Any]) -> str:
    """Return a message's text, one block a line."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")


def completion(model: str, step: Step, choices: int = 1) -> dict[str, Any]:
    """Return the answer of `step` as one object."""
    message: dict[str, Any] = {"role": "assistant", "content": step.content}
    message |= {"refusal": step.refusal, **step.message}
    if step.calls:
        message["tool_calls"] = [call.json() for call in step.calls]
    shared = {"message": message, "finish_reason": _finish_reason(step), "logprobs": None}
    return _envelope("chat.completion", model) | {
        "choices": [{"index": index, **shared} for index in range(choices)],
        "usage": _USAGE,
    }


def chunks(model: str, step: Step, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the answer of `step` as the events of a stream, in the real order."""
    envelope = _envelope("chat.completion.chunk", model)
    counted = asked.get("stream_options", {}).get("include_usage", False)
    envelope |= {"usage": None} if counted else {}
    finished: list[tuple[dict[str, Any], str]] = [({}, _finish_reason(step))]
    for delta, reason in [*((delta, None) for delta in _deltas(step)), *finished]:
        shared = {"delta": delta, "finish_reason": reason, "logprobs": None}
        for index in range(asked.get("n", 1)):
            yield envelope | {"choices": [{"index": index, **shared}]}
    if counted:
        yield envelope | {"choices": [], "usage": _USAGE}


def _deltas(step: Step) -> Iterator[dict[str, Any]]:
    # A model that calls tools without a word sends null as its content, not an empty text.
    yield {"role": "assistant", "content": None if step.content is None else "", "refusal": None}
    for part in parts_of(step.content or ""):
        yield {"content": part}
    for part in parts_of(step.refusal or ""):
        yield {"refusal": part}
    for index, call in enumerate(step.calls):
        whole = call.json()
        arguments = whole["function"]["arguments"]
        opening = whole | {"function": {"name": call.name, "arguments": ""}}
        yield {"tool_calls": [{"index": index, **opening}]}
        for part in parts_of(arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


def parts_of(text: str) -> Sequence[str]:
    return [text[at : at + _DELTA_CHARS] for at in range(0, len(text), _DELTA_CHARS)]


def _finish_reason(step: Step) -> str:
    return step.finish_reason or ("tool_calls" if step.calls else "stop")


def _envelope(kind: str, model: str) -> dict[str, Any]:
    return {"id": "chatcmpl-test", "object": kind, "created": 0, "model": model}


_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
