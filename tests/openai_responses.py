"""The Responses API as the real one is: what a request may hold, the shape of answers and events.

It owns no connection (`openai_server.py`). What it keeps are the responses and conversations of a
server, for requests that go on from them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from tests.openai_chat import Refused, Step, check_strict, parts_of, require

TEXT, FLAG, NUMBER, LIST, OBJECT = str, bool, (int, float), list, dict
FIELDS: dict[str, Any] = {
    "background": FLAG, "context_management": LIST, "conversation": (str, dict), "include": LIST,
    "input": (str, list), "instructions": TEXT, "max_output_tokens": NUMBER,
    "max_tool_calls": NUMBER, "metadata": OBJECT, "model": TEXT, "parallel_tool_calls": FLAG,
    "previous_response_id": TEXT, "prompt": OBJECT, "prompt_cache_key": TEXT,
    "prompt_cache_options": OBJECT, "prompt_cache_retention": TEXT, "reasoning": OBJECT,
    "safety_identifier": TEXT, "service_tier": TEXT, "store": FLAG, "stream": FLAG,
    "stream_options": OBJECT, "temperature": NUMBER, "text": OBJECT, "tool_choice": (str, dict),
    "tools": LIST, "top_logprobs": NUMBER, "top_p": NUMBER, "truncation": TEXT, "user": TEXT,
}  # fmt: skip
_MESSAGE = {"type", "role", "content", "id", "status", "phase"}
_PARTS: dict[str, dict[str, set[str]]] = {
    "user": {
        "input_text": {"text"},
        "input_image": {"image_url", "file_id", "detail"},
        "input_file": {"file_data", "file_id", "file_url", "filename"},
    },
    "assistant": {"output_text": {"text", "annotations", "logprobs"}, "refusal": {"refusal"}},
}
_ITEMS = {
    "function_call": {"call_id", "name", "arguments", "id", "status"},
    "function_call_output": {"call_id", "output", "id", "status"},
    "custom_tool_call": {"call_id", "name", "input", "id", "status"},
    "custom_tool_call_output": {"call_id", "output", "id", "status"},
    "reasoning": {"id", "summary", "content", "encrypted_content", "status"},
    "item_reference": {"id"},
    "web_search_call": {"id", "status", "action"},
    "configuration_update": {"reasoning", "text"},
    "compaction": {"id", "encrypted_content"},
}
_CALL_ID = re.compile(r"\S{1,64}")
USAGE = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 1,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 2,
}


class ResponsesApi:
    """The responses and conversations that a server keeps."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._stored: dict[str, dict[str, Any]] = {}
        self._open_calls: dict[str, set[str]] = {}  # of a response or a conversation

    def new_conversation(self) -> dict[str, Any]:
        """Return a conversation to which responses can belong."""
        name = f"conv_{next(self._numbers)}"
        self._open_calls[name] = set()
        return {"id": name, "object": "conversation", "created_at": 0, "metadata": {}}

    def retrieve(self, response_id: str) -> dict[str, Any]:
        """Return a response that was stored, finished by now."""
        if response_id not in self._stored:
            raise Refused(404, "no such response")
        return self._stored[response_id]

    def check(self, asked: dict[str, Any], model: str) -> None:
        """Refuse what the real API refuses."""
        for name, value in asked.items():
            require(name in FIELDS, f"unknown parameter: {name}")
            right = value is None or isinstance(value, FIELDS[name])
            require(right and (FIELDS[name] is FLAG or value is not True), f"wrong type: {name}")
        if asked.get("model") != model and not asked.get("prompt"):
            raise Refused(404, "unknown model")
        sources = [asked.get(name) for name in ("input", "prompt", *_STATES)]
        require(any(source is not None for source in sources), "input is missing")
        require(asked.get("store") is not False or not asked.get("background"), "store is needed")
        _check_text(asked.get("text") or {})
        for tool in asked.get("tools") or []:
            _check_tool(tool)
        given = asked.get("input") or []
        self._check_items([given] if isinstance(given, str) else given, self._waiting(asked))

    def _waiting(self, asked: Mapping[str, Any]) -> set[str]:
        """Return the calls that wait for an answer in what a request goes on from."""
        states = [
            name for name in (asked.get("previous_response_id"), _conversation(asked)) if name
        ]
        require(len(states) <= 1, "previous_response_id and conversation exclude each other")
        for state in states:
            if state not in self._open_calls:
                raise Refused(400, f"not found: {state}")
        return set(self._open_calls[states[0]]) if states else set()

    def _check_items(self, items: Sequence[Any], waiting: set[str]) -> None:
        for item in items:
            if isinstance(item, str):
                continue
            require(isinstance(item, dict), "an item is an object")
            kind = item.get("type") or ("message" if "role" in item else "item_reference")
            if kind == "message":
                _check_message(item)
                continue
            require(kind in _ITEMS, f"unknown type of an item: {kind}")
            require(set(item) <= {"type", *_ITEMS[kind]}, f"unknown member of a {kind}")
            if kind.endswith("_call_output"):
                require(isinstance(item.get("output"), str | list), "output is missing")
                require(item.get("call_id") in waiting, "no such tool call")
                waiting.discard(item["call_id"])
            elif "call_id" in _ITEMS[kind]:
                require(_CALL_ID.fullmatch(str(item.get("call_id"))), "a call needs an id")
                waiting.add(item["call_id"])
        require(not waiting, "no tool output found for a function call")

    def respond(self, asked: Mapping[str, Any], step: Step) -> dict[str, Any]:
        """Return the response of `step`, kept unless it must not be; in the background, queued."""
        name = f"resp_{next(self._numbers)}"
        response = _response(name, asked, step)
        if asked.get("store") is not False:
            self._stored[name] = response
            calls = {item["call_id"] for item in response["output"] if "call_id" in item}
            for state in (name, _conversation(asked)):
                if state:
                    self._open_calls[state] = calls
        if asked.get("background") and not asked.get("stream"):
            return {**response, "status": "queued", "output": [], "usage": None}
        return response


_STATES = ("previous_response_id", "conversation")


def _conversation(asked: Mapping[str, Any]) -> str | None:
    named = asked.get("conversation")
    return named.get("id") if isinstance(named, dict) else named


def _check_text(text: dict[str, Any]) -> None:
    require(set(text) <= {"format", "verbosity"}, "unknown member of text")
    wanted = text.get("format", {"type": "text"})
    require(wanted.get("type") in {"text", "json_object", "json_schema"}, "unknown format")
    if wanted["type"] == "json_schema":
        require(set(wanted) <= {"type", "name", "schema", "strict", "description"}, "bad format")
        require(wanted.get("name"), "json_schema needs a name")
        if wanted.get("strict"):
            check_strict(wanted.get("schema"))


def _check_tool(tool: Any) -> None:
    require(isinstance(tool, dict) and isinstance(tool.get("type"), str), "malformed tool")
    if tool["type"] == "function":
        known = {"type", "name", "description", "parameters", "strict"}
        require(set(tool) <= known and tool.get("name"), "unknown member of a tool")


def _check_message(item: dict[str, Any]) -> None:
    require(set(item) <= _MESSAGE, "unknown member of a message")
    role = item.get("role")
    content: Any = item.get("content")
    require(role in {"user", "assistant", "system", "developer"}, "unknown role")
    if isinstance(content, str):
        return
    require(isinstance(content, list), "content is a text or a list")
    known = _PARTS["assistant" if role == "assistant" else "user"]
    for part in content:
        kind: Any = part.get("type") if isinstance(part, dict) else None
        require(kind in known, f"a part of a message of {role} is not of type {kind}")
        require(set(part) <= {"type", *known[kind]}, f"unknown member of {kind}")
        require(kind != "input_text" or isinstance(part.get("text"), str), "text is missing")


def _response(name: str, asked: Mapping[str, Any], step: Step) -> dict[str, Any]:
    status, details, error = "completed", None, None
    if step.finish_reason in {"length", "content_filter"}:
        reason = {"length": "max_output_tokens"}.get(step.finish_reason, step.finish_reason)
        status, details = "incomplete", {"reason": reason}
    elif step.finish_reason == "failed":
        status, error = "failed", {"code": "server_error", "message": "It went wrong."}
    conversation = _conversation(asked)
    return {
        "id": name, "object": "response", "created_at": 0, "status": status, "error": error,
        "incomplete_details": details, "background": bool(asked.get("background")),
        "instructions": asked.get("instructions"), "max_output_tokens": None, "metadata": {},
        "model": asked.get("model") or "test-chat", "output": list(output_of(name, step)),
        "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto",
        "previous_response_id": asked.get("previous_response_id"), "top_p": 1.0,
        "conversation": conversation and {"id": conversation}, "truncation": "disabled",
        "tools": asked.get("tools") or [], "text": {"format": {"type": "text"}}, "usage": USAGE,
    }  # fmt: skip


def output_of(name: str, step: Step) -> Iterator[dict[str, Any]]:
    """Yield the output items of a step: those that it names, or its text and its calls."""
    if step.output is not None:
        yield from step.output
        return
    if step.content is not None:
        yield message(step.content, name=f"msg_{name}")
    if step.refusal is not None:
        refused = {"type": "refusal", "refusal": step.refusal}
        yield {**message("", name=f"msg_{name}"), "content": [refused]}
    for call in step.calls:
        function = call.json()["function"]
        yield {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id} | {
            **function,
            "status": "completed",
        }


def message(text: str, *, name: str = "msg_test", **more: Any) -> dict[str, Any]:
    """Return an output item of one text."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    whole = {"type": "message", "id": name, "status": "completed", "role": "assistant"}
    return {**whole, "content": [part], **more}


def events(response: dict[str, Any], *, is_whole: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream, in the real order; the last may come without its output."""
    numbers = count()
    under_way = {**response, "status": "in_progress", "output": [], "usage": None, "error": None}
    under_way["incomplete_details"] = None
    end = response if is_whole else {**response, "output": []}
    for kind, members in [
        ("created", {"response": under_way}),
        ("in_progress", {"response": under_way}),
        *(one for index, item in enumerate(response["output"]) for one in _of_item(index, item)),
        (response["status"], {"response": end}),
    ]:
        yield {"type": f"response.{kind}", "sequence_number": next(numbers), **members}


def _of_item(index: int, item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    place = {"output_index": index, "item_id": item.get("id")}
    empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {}
    empty |= {"arguments": ""} if item["type"] == "function_call" else {}
    begun = {**item, **empty, "status": "in_progress"}
    yield "output_item.added", {"output_index": index, "item": begun}
    for number, part in enumerate(item.get("content", ()) if item["type"] == "message" else ()):
        yield from _of_part({**place, "content_index": number}, part)
    if item["type"] == "function_call":
        for piece in parts_of(item["arguments"]):
            yield "function_call_arguments.delta", {**place, "delta": piece}
        whole = {"arguments": item["arguments"], "name": item["name"]}
        yield "function_call_arguments.done", {**place, **whole}
    yield "output_item.done", {"output_index": index, "item": item}


def _of_part(place: dict[str, Any], part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    kind, name = part["type"], "text" if part["type"] == "output_text" else "refusal"
    logs: dict[str, list[Any]] = {"logprobs": []} if name == "text" else {}
    yield "content_part.added", {**place, "part": {**part, name: ""}}
    for piece in parts_of(part[name]):
        yield f"{kind}.delta", {**place, "delta": piece, **logs}
    yield f"{kind}.done", {**place, name: part[name], **logs}
    yield "content_part.done", {**place, "part": part}
