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
_ERASING_MAX = 1000  # turns that are known again
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
        self._turn = 0  # the number of the one under way
        self._asked = ""  # what began it
        self._erased_in = -1  # the newest turn in which a memory was erased
        self._erased = False  # whether that was in this session
        # What began such turns: a session may be resumed.
        self._erasing: deque[int] = deque(maxlen=_ERASING_MAX)

    def begin(self, text: str) -> None:
        """Note when the user said something: its capture comes later, or much later."""
        with self._lock:
            self._turn, self._asked = self._turn + 1, text
            self._begun[text] = datetime.now(UTC).astimezone(), self._turn
            if len(self._begun) > _TURNS_BEGUN:
                del self._begun[next(iter(self._begun))]

    @property
    def turn(self) -> int:
        """What tells the turn under way from the others of this conversation."""
        return self._turn

    @property
    def erased(self) -> bool:
        """Whether a memory was erased in this session: then not all of it is captured."""
        return self._erased

    def erase(self) -> None:
        """Note that a memory is erased in the turn under way: none of it is captured."""
        with self._lock:
            self._erased_in, self._erased = self._turn, True
            self._erasing.append(hash(Message(USER, self._asked)))
            self._window.clear()

    def end(self, asked: str, answered: str) -> tuple[list[Message], datetime | None, int]:
        """Return the window that a turn completes, when the turn began, and its number.

        The window is empty when all of the turn was captured before, or a memory was erased in it.
        """
        turn = [Message(USER, asked), Message(ASSISTANT, answered)]
        with self._lock:
            began, number = self._begun.pop(asked, (None, self._turn))
            if number == self._turn:  # Hermes need not tell when the next one begins
                self._turn += 1
            new = self._take_new(turn)
            if number <= self._erased_in:
                self._erasing.append(hash(turn[0]))  # many answers are alike
                return [], began, number
            self._window.extend(turn)
            return (list(self._window) if new else []), began, number

    def rest(self, messages: Sequence[Message]) -> list[Message]:
        """Return the newest messages that were not captured yet; now they count as captured."""
        said = [message for message in messages if _is_said(message)]
        with self._lock:
            start = self._after_erased(said)
            self._take_new(said[:start])
            return self._take_new(said[start:][-_REST_MAX:])

    def forget(self) -> None:
        """Begin anew."""
        with self._lock:
            self._window.clear()
            self._captured.clear()
            self._erased = False

    def _after_erased(self, said: Sequence[Message]) -> int:
        """Return where the turns begin that come after the one in which a memory was erased."""
        if self._erased_in == self._turn:
            return len(said)
        known = [n for n, message in enumerate(said) if hash(message) in self._erasing]
        if not known:
            return 0
        later = (n for n in range(known[-1] + 1, len(said)) if said[n].role == USER)
        return next(later, len(said))

    def _take_new(self, messages: Sequence[Message]) -> list[Message]:
        new = [message for message in messages if hash(message) not in self._captured]
        self._captured.update(map(hash, new))
        return new


def _is_said(message: Message) -> bool:
    said = message.role in {USER, ASSISTANT}
    return said and not message.text.lstrip().startswith(_WRITTEN_BY_HERMES)
