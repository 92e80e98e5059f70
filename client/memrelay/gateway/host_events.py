"""Reads a gateway's events leniently from their JSON, and writes what it gets back.

It does not own what the texts mean (`conversation.py`). A member of an unexpected type counts as
absent: a new version of a gateway must not break a turn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

USER, ASSISTANT = "user", "assistant"


@dataclass(frozen=True, kw_only=True)
class Context:
    """The place of a call to a hook or a tool: its agent, its session, and the reason."""

    agent_id: str | None = None
    session_key: str | None = None
    session_id: str | None = None
    run_id: str | None = None
    trigger: str | None = None
    origin: str | None = None  # of the input: `external_user`, `inter_session`, `internal_system`
    goal: str | None = None  # what the agent is about, from a gateway that says so in its `ctx`

    @property
    def session_names(self) -> tuple[str, ...]:
        """The names of its session, the id first; not every gateway tells both everywhere."""
        return tuple(encodable(name) for name in (self.session_id, self.session_key) if name)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the context of a gateway's `ctx`."""
        found = value if isinstance(value, Mapping) else {}
        return cls(
            agent_id=_text(found.get("agentId")),
            session_key=_text(found.get("sessionKey")),
            session_id=_text(found.get("sessionId")),
            run_id=_text(found.get("runId")),
            trigger=_text(found.get("trigger")),
            origin=_kind(found.get("inputProvenance")),
            goal=_text(found.get("goal")),
        )


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; `role` is `user`, `assistant` or another word.

    `origin` is where an input came from, as in a context, if its gateway tells that of each.
    `speaker` is who said it in a group; it is empty where that is the user.
    """

    role: str
    text: str
    origin: str | None = None
    speaker: str = ""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A turn that is about to begin."""

    prompt: str

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the event of `before_prompt_build`.

        What the user wrote counts more than the prompt, which may hold history. An empty text
        there means that the user wrote nothing, such as with an image.
        """
        found = value if isinstance(value, Mapping) else {}
        written = found.get("currentUserMessage")
        prompt = _text(written if isinstance(written, str) else found.get("prompt"))
        return cls(prompt=prompt or "")


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A turn that has ended, with the messages of its session so far."""

    messages: tuple[Message, ...]
    success: bool = True
    ended_ms: int | None = None  # Unix, as the gateway's own clock said

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the event of `agent_end`; only a plain `true` is a success."""
        found = value if isinstance(value, Mapping) else {}
        ended = found.get("endedAt")
        return cls(
            messages=read_messages(found.get("messages")),
            success=found.get("success") is True,
            ended_ms=ended if type(ended) is int else None,
        )


@dataclass(frozen=True, kw_only=True)
class Injection:
    """The text that a hook adds to a turn: before the user's prompt and after the system prompt."""

    prepend_context: str | None = None
    append_system_context: str | None = None

    def to_json(self) -> dict[str, str]:
        """Return the members that OpenClaw reads, without those that are empty."""
        members = {
            "prependContext": self.prepend_context,
            "appendSystemContext": self.append_system_context,
        }
        return {name: text for name, text in members.items() if text}


def encodable(text: str) -> str:
    """Return a text without lone surrogates, which JSON can carry and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()


def read_messages(value: object) -> tuple[Message, ...]:
    """Return the messages of a list whose contents are texts or lists of blocks.

    Of blocks, the texts count, one a line; messages without any text are left out.
    """
    found = []
    for entry in value if isinstance(value, list) else []:
        if isinstance(entry, Mapping):
            text = _content(entry.get("content"))
            if text.strip():
                role, origin = _text(entry.get("role")) or "", _kind(entry.get("provenance"))
                found.append(Message(role, text, origin))
    return tuple(found)


def _content(value: Any) -> str:
    if isinstance(value, str):
        return encodable(value)
    blocks = value if isinstance(value, list) else []
    texts = [
        encodable(block["text"])
        for block in blocks
        if isinstance(block, Mapping)
        and block.get("type", "text") == "text"
        and isinstance(block.get("text"), str)
    ]
    return "\n".join(texts)


def _kind(provenance: object) -> str | None:
    return _text(provenance.get("kind")) if isinstance(provenance, Mapping) else None


def _text(value: object) -> str | None:
    return encodable(value) if isinstance(value, str) and value else None
