"""What was said in a session of Hermes, as far as it was heard, so that it is captured once.

It does not own what is worth capturing (`gateway/`) or when (`provider.py`). A turn goes with those
before it: "yes, the second one" says something only then.
"""

import threading
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime

from memrelay.gateway.events import ASSISTANT, USER, Message

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
        self._begun: dict[str, datetime] = {}

    def begin(self, text: str) -> None:
        """Note when the user said something: its capture comes later, or much later."""
        with self._lock:
            self._begun[text] = datetime.now(UTC)
            if len(self._begun) > _TURNS_BEGUN:
                del self._begun[next(iter(self._begun))]

    def end(self, asked: str, answered: str) -> tuple[list[Message], datetime | None]:
        """Return the window that a turn completes, and when the turn began.

        The window is empty when all of the turn was captured before.
        """
        turn = [Message(USER, asked), Message(ASSISTANT, answered)]
        with self._lock:
            began = self._begun.pop(asked, None)
            new = self._take_new(turn)
            self._window.extend(turn)
            return (list(self._window) if new else []), began

    def rest(self, messages: Sequence[Message]) -> list[Message]:
        """Return the newest messages that were not captured yet; now they count as captured."""
        said = [message for message in messages if _is_said(message)]
        with self._lock:
            return self._take_new(said[-_REST_MAX:])

    def forget(self) -> None:
        """Begin anew."""
        with self._lock:
            self._window.clear()
            self._captured.clear()

    def _take_new(self, messages: Sequence[Message]) -> list[Message]:
        new = [message for message in messages if hash(message) not in self._captured]
        self._captured.update(map(hash, new))
        return new


def _is_said(message: Message) -> bool:
    said = message.role in {USER, ASSISTANT}
    return said and not message.text.lstrip().startswith(_WRITTEN_BY_HERMES)
