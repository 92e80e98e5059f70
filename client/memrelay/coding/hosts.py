"""The coding agents that have hooks: the names of their events, and the form of their JSON.

It does not own what a hook does (`hook.py`) or how one is installed (`hook_files.py`). The forms
are those of Claude Code 2.1.332, Codex 0.171.0 and Gemini CLI 0.61.0, seen by running them.

- A member of an unexpected type counts as absent: a new version of a host must not break a turn.
- What a hook prints is JSON in all three. Gemini shows plain text to nobody.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from memrelay.gateway.host_events import encodable

SESSION_START, PROMPT, STOP = "session-start", "prompt", "stop"
COMPACT, SESSION_END = "compact", "session-end"
EVENTS: Final = (SESSION_START, PROMPT, STOP, COMPACT, SESSION_END)
# A background sub-agent that ends comes as a prompt that nobody has typed.
_NOT_TYPED: Final = ("<task-notification>",)


@dataclass(frozen=True, kw_only=True)
class HostEvent:
    """An event as its host calls it, and after how long the host ends the hook, in its own unit."""

    name: str
    timeout: int


@dataclass(frozen=True, kw_only=True)
class Host:
    """A coding agent; `source` is what its memories are from, `events` are by our names."""

    name: str
    title: str
    source: str
    events: Mapping[str, HostEvent]

    def read(self, data: bytes) -> "HookInput":
        """Return what the host tells a hook; nothing of it is missing, it may be empty.

        Raises:
            ValueError: it is no JSON object.
        """
        try:
            found = json.loads(data)
        except RecursionError as error:
            raise ValueError("The input is nested too deeply.") from error
        if not isinstance(found, dict):
            raise ValueError("The input is no JSON object.")
        return HookInput(
            session=_text(found, "session_id"),
            turn=_text(found, "prompt_id") or _text(found, "turn_id"),
            folder=_text(found, "cwd"),
            prompt=_text(found, "prompt"),
            answer=_text(found, "last_assistant_message") or _text(found, "prompt_response"),
            trigger=_text(found, "trigger"),
            is_delegated=bool(_text(found, "agent_id")),
        )

    def write(self, event: str, *, context: str | None, notice: str | None) -> str:
        """Return what a hook prints: text for the model, a line for the person, or nothing."""
        answer: dict[str, Any] = {}
        if context:
            answer["hookSpecificOutput"] = {
                "hookEventName": self.events[event].name,
                "additionalContext": context,
            }
        if notice:
            answer["systemMessage"] = notice
        return json.dumps(answer) if answer else ""


@dataclass(frozen=True, kw_only=True)
class HookInput:
    """The input of a hook from its host; texts are empty where it says nothing."""

    session: str
    turn: str
    folder: str
    prompt: str
    answer: str
    trigger: str
    is_delegated: bool  # within a sub-agent

    @property
    def is_typed(self) -> bool:
        """Return whether a person wrote the prompt, as far as it tells by its beginning."""
        return not self.is_delegated and not self.prompt.lstrip().startswith(_NOT_TYPED)


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    return encodable(value) if isinstance(value, str) else ""


# Codex asks for new trust when a timeout changes, and it allows the end of a session 3 seconds.
_SECONDS: Final = {
    SESSION_START: HostEvent(name="SessionStart", timeout=5),
    PROMPT: HostEvent(name="UserPromptSubmit", timeout=5),
    STOP: HostEvent(name="Stop", timeout=10),
    COMPACT: HostEvent(name="PreCompact", timeout=5),
    SESSION_END: HostEvent(name="SessionEnd", timeout=3),
}
HOSTS: Final = {
    host.name: host
    for host in (
        Host(name="claude", title="Claude Code", source="claude-code", events=_SECONDS),
        Host(name="codex", title="Codex", source="codex", events=_SECONDS),
        Host(
            name="gemini",
            title="Gemini CLI",
            source="gemini-cli",
            events={  # its PreCompress comes before every request, compressed or not
                SESSION_START: HostEvent(name="SessionStart", timeout=5000),
                PROMPT: HostEvent(name="BeforeAgent", timeout=5000),
                STOP: HostEvent(name="AfterAgent", timeout=10_000),
                SESSION_END: HostEvent(name="SessionEnd", timeout=3000),
            },
        ),
    )
}
