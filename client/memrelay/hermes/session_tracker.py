"""Tracks what was said in a session of Hermes, so that each turn is captured once.

It does not own what is worth capturing (`gateway/`), when (`provider.py`), or that a memory was
erased (`gateway/erasures.py`). A turn goes with those before it: "yes, the second one" says
something only then.
"""

import threading
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import uuid4

from memrelay.gateway.host_events import ASSISTANT, USER, Message

_WINDOW = 50  # messages, the most that the gateway's settings allow
_REST_MAX = 100  # messages captured before one compression: a few of them are a request
_TURNS_BEGUN = 8
# How Hermes begins what it writes itself into a conversation, in the user's name.
_WRITTEN_BY_HERMES = (
    "[CONTEXT COMPACTION",
    "[CONTEXT SUMMARY]",
    "[IMPORTANT: The user has invoked",
)


class Conversation:
    """The conversation of one session; may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._window: deque[Message] = deque(maxlen=_WINDOW)
        self._captured: set[int] = set()
        self._begun: dict[str, tuple[datetime, int]] = {}
        self._name = uuid4().hex  # Hermes makes several of these for one session
        self._turn = 0  # the number of the one under way

    def begin(self, text: str) -> None:
        """Note when the user said something: its capture comes later, or much later."""
        with self._lock:
            self._turn += 1
            self._begun.pop(text, None)  # the newest comes last
            self._begun[text] = datetime.now(UTC).astimezone(), self._turn
            if len(self._begun) > _TURNS_BEGUN:
                del self._begun[next(iter(self._begun))]

    @property
    def run(self) -> str:
        """The name that tells the turn under way from all others."""
        return self._run(self._turn)

    @property
    def prompts(self) -> list[Message]:
        """The user's messages that began the turn under way, if Hermes told them."""
        with self._lock:
            begun = list(self._begun.items())[-1:]
            return [Message(USER, text) for text, (_, number) in begun if number == self._turn]

    def end(self, asked: str, answered: str) -> tuple[list[Message], datetime | None, str]:
        """Return the window that a turn completes, when the turn began, and what tells it apart.

        The window is empty when all of the turn was captured before.
        """
        turn = [Message(USER, asked), Message(ASSISTANT, answered)]
        with self._lock:
            began, number = self._begun.pop(asked, (None, self._turn))
            if number == self._turn:  # Hermes need not tell when the next one begins
                self._turn += 1
            self._window.extend(turn)
            new = self._take_new(turn)
            return (list(self._window) if new else []), began, self._run(number)

    def rest(self, messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
        """Return what was said, and the newest of that which was not captured yet, but is now."""
        said = [message for message in messages if _is_said(message)]
        with self._lock:
            return said, self._take_new(said)[-_REST_MAX:]

    def forget(self) -> None:
        """Begin anew."""
        with self._lock:
            self._window.clear()
            self._captured.clear()

    def _run(self, number: int) -> str:
        return f"{self._name}:{number}"

    def _take_new(self, messages: Sequence[Message]) -> list[Message]:
        new = [message for message in messages if hash(message) not in self._captured]
        self._captured.update(map(hash, new))
        return new


def _is_said(message: Message) -> bool:
    said = message.role in {USER, ASSISTANT}
    return said and not message.text.lstrip().startswith(_WRITTEN_BY_HERMES)
