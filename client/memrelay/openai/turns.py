"""One call of the model as the memory sees it, whichever API it is made by.

It does not own the form of an API's requests and answers (`chat.py`, `responses.py`), nor when
anything is recalled or captured (`memory.py`).
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from openai import BaseModel

from memrelay.gateway import Context, Message
from memrelay.gateway.host_events import USER

K = TypeVar("K")
V = TypeVar("V")

INSTRUCTION_ROLES = {"system", "developer"}  # that do not answer the user
ENTRIES_MAX = 256  # of each table of what further calls need
# Not every server sends what the API promises, and the openai package does not insist.
MALFORMED = (AttributeError, LookupError, TypeError)


class Turn(ABC):
    """One call of the model, from its request to the end of its answer.

    `prompt` is the text of the user's last message. It may be empty, and where not `has_user`,
    there is no such message. In the first step of a turn nothing has answered that message;
    further ones are those of a tool loop. `pending_id` names an answer that is asked for later.
    """

    context: Context
    prompt: str
    has_user: bool
    is_first_step: bool
    pending_id: str | None = None

    @abstractmethod
    def with_memories(self, body: Mapping[str, Any], block: str) -> dict[str, Any]:
        """Return the members of the request's body that change when memories join it."""

    @abstractmethod
    def hear_whole(self, answer: Mapping[str, Any]) -> tuple[Message, ...]:
        """Return what is to be captured after a whole answer, nothing if that is not complete.

        Raises:
            AttributeError, LookupError or TypeError: it has not the form of an answer.
        """

    @abstractmethod
    def hear(self, event: object) -> tuple[Message, ...]:
        """Take in an event of a stream; return what is to be captured, which its end tells.

        Raises:
            AttributeError, LookupError or TypeError: it has not the form of an event.
        """


class BoundedMap(Generic[K, V]):
    """The newest entries of a table, `ENTRIES_MAX` at most."""

    def __init__(self) -> None:
        # Each step is atomic: a lock could be held by another thread at the moment of a fork.
        self._entries: OrderedDict[K, V] = OrderedDict()

    def put(self, key: K, value: V) -> None:
        """Keep an entry, as the newest."""
        self._entries.pop(key, None)
        self._entries[key] = value
        if len(self._entries) > ENTRIES_MAX:
            self._entries.popitem(last=False)

    def get(self, key: K) -> V | None:
        """Return an entry; None if there is none any more."""
        return self._entries.get(key)


def members(value: object) -> dict[str, Any]:
    """Return the members of what the openai package parsed, or of a plain mapping."""
    if isinstance(value, BaseModel):
        return value.to_dict(warnings=False)
    return dict(value) if isinstance(value, Mapping) else {}


def last_of_user(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return the place of the user's last message; -1 if there is none."""
    places = (at for at in range(len(messages) - 1, -1, -1) if messages[at].get("role") == USER)
    return next(places, -1)


def with_block(
    messages: Sequence[object], place: int, part: Mapping[str, str]
) -> list[object] | None:
    """Return messages, the one at `place` as a copy that begins with the text of a part.

    None if that one has no content to which a text can be joined: the server judges it.
    """
    message = members(messages[place])
    content = message.get("content")
    if isinstance(content, str):
        content = f"{part['text']}\n\n{content}"
    elif isinstance(content, list | tuple):
        content = [part, *content]
    else:
        return None
    return [*messages[:place], {**message, "content": content}, *messages[place + 1 :]]
