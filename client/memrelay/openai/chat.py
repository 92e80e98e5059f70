"""Chat completions: where the user's words are in a request, and which answers are complete.

It owns no connection and no memory (`attachment.py`, `memory.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from memrelay.gateway import Context, Message
from memrelay.gateway.host_events import ASSISTANT, read_messages
from memrelay.openai.turns import INSTRUCTION_ROLES, Turn, last_of_user, members, with_block

PATH = "/chat/completions"
_COMPLETE = {"stop", "length"}  # how an answer ends that is one


class ChatTurn(Turn):
    """One call for a chat completion."""

    def __init__(self, messages: Sequence[object], context: Context, *, choices: object) -> None:
        conversation = [members(message) for message in messages]
        self.context = context
        self._messages = read_messages(conversation)
        self._has_alternatives = isinstance(choices, int) and choices > 1
        self._place = place = last_of_user(conversation)
        self.has_user = place >= 0
        last = read_messages(conversation[place : place + 1])
        self.prompt = last[0].text if last else ""
        later = {message.get("role") for message in conversation[place + 1 :]}
        self.is_first_step = later <= INSTRUCTION_ROLES
        self._text = ""
        self._is_refused = False

    @classmethod
    def of(cls, body: Mapping[str, Any], context: Context) -> Self | None:
        """Return the turn of a request; None if it has no list of messages."""
        messages = body.get("messages")
        if not isinstance(messages, list | tuple):
            return None  # the server refuses it
        return cls(messages, context, choices=body.get("n"))

    def with_memories(self, body: Mapping[str, Any], block: str) -> dict[str, Any]:
        """Return the messages; of the user's last one, a copy that begins with the memories."""
        messages = with_block(body["messages"], self._place, {"type": "text", "text": block})
        return {} if messages is None else {"messages": messages}

    def hear_whole(self, answer: Mapping[str, Any]) -> tuple[Message, ...]:
        """Return what is to be captured after a whole completion."""
        choice = answer["choices"][0]
        message = choice["message"]
        if message.get("refusal") or _has_calls(message):
            return ()
        return self._complete(choice["finish_reason"], message.get("content"))

    def hear(self, event: object) -> tuple[Message, ...]:
        """Put the answer together while it passes; return what is to be captured at its end."""
        for choice in members(event).get("choices") or []:
            delta = choice["delta"]
            self._text += delta.get("content") or ""
            self._is_refused |= bool(delta.get("refusal")) or _has_calls(delta)
            if choice.get("finish_reason") and not self._is_refused:
                return self._complete(choice["finish_reason"], self._text)
        return ()

    def _complete(self, finish_reason: object, text: str | None) -> tuple[Message, ...]:
        if finish_reason not in _COMPLETE:
            return ()
        if self._has_alternatives or not text:
            return self._messages  # which of several answers counts, only the next turn shows
        return (*self._messages, Message(ASSISTANT, text))


def _has_calls(message: Mapping[str, Any]) -> bool:
    return bool(message.get("tool_calls") or message.get("function_call"))
