"""The Responses API: where the user's words are in a request, and which answers are complete.

It owns no connection and no memory (`attachment.py`, `memory.py`).

- Memories follow the caller's own instructions, which hold for one response only.
- A request may hold only what is new since another response or in a conversation of the server.
  What was said before that is kept here, so that a further step of a tool loop belongs to its
  turn, and a window of capture reaches back as it does for chat completions.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memrelay.gateway import Context, Message
from memrelay.gateway.conversation import CONVERSATION_BYTES_MAX
from memrelay.gateway.host_events import ASSISTANT, USER, read_messages
from memrelay.openai.turns import (
    INSTRUCTION_ROLES,
    BoundedMap,
    Turn,
    last_of_user,
    members,
    with_block,
)

PATH = "/responses"
RETRIEVAL = re.compile(r"/responses/([^/?]+)")
_MESSAGES_MAX = 50  # of a thread: no window of capture is longer
_TEXTS = {"input_text", "output_text", "text"}
_NO_ANSWERS = {"configuration_update", "compaction_trigger"}  # items that answer nobody
_FIRST_EVENTS = {"response.created", "response.queued", "response.in_progress"}
_LAST_EVENTS = {"response.completed", "response.incomplete"}


@dataclass(frozen=True)
class Thread:
    """A conversation up to a response, and the user's last words in it."""

    messages: tuple[Message, ...]
    prompt: str


class Responses:
    """The calls for responses of one client, and the threads that they may go on from."""

    def __init__(self) -> None:
        self._threads: BoundedMap[tuple[Context, str], Thread] = BoundedMap()

    def turn(self, body: Mapping[str, Any], context: Context) -> "ResponsesTurn | None":
        """Return the turn of a request; None if it has no list of items."""
        items = _items(body)
        if items is None:
            return None  # the server refuses it
        return ResponsesTurn(self, body, items, self._thread(body, context), context)

    def keep(self, context: Context, ids: Iterable[object], thread: Thread) -> None:
        """Keep a thread by the ids of its last response and of its conversation."""
        for one in ids:
            if isinstance(one, str):
                self._threads.put((context, one), thread)

    def _thread(self, body: Mapping[str, Any], context: Context) -> Thread | None:
        for one in (body.get("previous_response_id"), _conversation_id(body)):
            if isinstance(one, str) and (thread := self._threads.get((context, one))):
                return thread
        return None


class ResponsesTurn(Turn):
    """One call for a response; `thread` is what it goes on from, if that is known."""

    def __init__(
        self,
        api: Responses,
        body: Mapping[str, Any],
        items: Sequence[object],
        thread: Thread | None,
        context: Context,
    ) -> None:
        conversation = [members(item) for item in items]
        earlier = thread or Thread((), "")
        self.context = context
        self._api = api
        self._conversation_id = _conversation_id(body)
        self._is_background = bool(body.get("background"))
        self._messages = _newest((*earlier.messages, *_messages_of(conversation)))
        self._place = place = last_of_user(conversation)
        self.has_user = place >= 0 or thread is not None
        last = _messages_of(conversation[place : place + 1])
        self.prompt = "".join(message.text for message in last) if place >= 0 else earlier.prompt
        self.is_first_step = place >= 0 and not any(map(_is_answer, conversation[place + 1 :]))
        self._output: dict[int, Any] = {}

    def with_memories(self, body: Mapping[str, Any], block: str) -> dict[str, Any]:
        """Return the instructions, with the memories behind the caller's own."""
        own = body.get("instructions")
        # Instructions would replace those of a prompt that the server keeps.
        if body.get("prompt") is None and (own is None or isinstance(own, str)):
            return {"instructions": f"{own}\n\n{block}" if own else block}
        if self._place < 0:
            return {}
        items = with_block(_items(body) or (), self._place, {"type": "input_text", "text": block})
        return {} if items is None else {"input": items}

    def hear_whole(self, answer: Mapping[str, Any]) -> tuple[Message, ...]:
        """Return what is to be captured after a response."""
        return self._end(answer, answer["output"])

    def hear(self, event: object) -> tuple[Message, ...]:
        """Take in an event of a stream; the last one has the response once more, whole."""
        kind = event.get("type") if isinstance(event, Mapping) else getattr(event, "type", None)
        if kind == "response.output_item.done":
            item = members(event)
            self._output[item["output_index"]] = item["item"]
        elif kind in _FIRST_EVENTS and self._is_background:
            self._end(members(event)["response"], ())
        elif kind in _LAST_EVENTS:
            response = members(event)["response"]
            # Some servers leave out there what they have sent item by item.
            items = response.get("output") or [one for _, one in sorted(self._output.items())]
            return self._end(response, items)
        return ()

    def _end(self, response: Mapping[str, Any], items: Sequence[object]) -> tuple[Message, ...]:
        if response.get("status") in {"queued", "in_progress"}:
            self.pending_id = response["id"] if self._is_background else None
            return ()
        output = [members(item) for item in items]
        answer = _messages_of([item for item in output if item.get("phase") != "commentary"])
        is_complete = _is_complete(response) and not _has_calls(output) and not _refuses(output)
        messages = (*self._messages, *answer) if is_complete else self._messages
        ids = (response.get("id"), self._conversation_id, _conversation_id(response))
        self._api.keep(self.context, ids, Thread(_newest(messages), self.prompt))
        return messages if is_complete else ()


def _items(body: Mapping[str, Any]) -> Sequence[object] | None:
    """Return the items of a request's input; None if that is no input."""
    items = body.get("input", ())
    if isinstance(items, str):
        return [{"role": USER, "content": items}]
    return items if isinstance(items, list | tuple) else None


def _newest(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the last messages of a conversation, cut to what any window of capture takes."""
    newest, chars = list[Message](), 0
    for message in reversed(messages[-_MESSAGES_MAX:]):
        newest.append(replace(message, text=message.text[:CONVERSATION_BYTES_MAX]))
        chars += len(newest[-1].text)
        if chars >= CONVERSATION_BYTES_MAX:
            break
    return tuple(newest[::-1])


def _conversation_id(body: Mapping[str, Any]) -> object:
    """Return the id of the conversation that a request or a response belongs to, if any."""
    conversation = body.get("conversation")
    return conversation.get("id") if isinstance(conversation, Mapping) else conversation


def _messages_of(items: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Return what people and the model say in items; refusals and other parts are left out."""
    return read_messages(
        [{"role": item["role"], "content": _content(item)} for item in items if "role" in item]
    )


def _content(item: Mapping[str, Any]) -> object:
    content = item.get("content")
    if not isinstance(content, list | tuple):
        return content
    parts = [part for part in map(members, content) if part.get("type") in _TEXTS]
    return [{"type": "text", "text": part.get("text")} for part in parts]


def _is_answer(item: Mapping[str, Any]) -> bool:
    """Return whether an item after the user's message makes the call a further step."""
    return item.get("role") not in INSTRUCTION_ROLES and item.get("type") not in _NO_ANSWERS


def _is_complete(response: Mapping[str, Any]) -> bool:
    if response.get("status") == "completed":
        return True
    details = response.get("incomplete_details") or {}
    return response.get("status") == "incomplete" and details.get("reason") == "max_output_tokens"


def _has_calls(output: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether anything waits for the caller: a call without its result, or a question.

    The server's own tools have no `call_id`, or give their result beside the call.
    """
    calls, results = set[object](), set[object]()
    for item in output:
        kind = str(item.get("type"))
        if kind == "mcp_approval_request":
            return True
        if item.get("call_id") is not None:
            (results if kind.endswith("_output") else calls).add(item["call_id"])
    return bool(calls - results)


def _refuses(output: Iterable[Mapping[str, Any]]) -> bool:
    return any(
        members(part).get("type") == "refusal"
        for item in output
        if item.get("role") == ASSISTANT
        for part in item.get("content") or ()
    )
