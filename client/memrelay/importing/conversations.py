"""Conversations of other programs, and the parts of them that a relayer is sent.

It does not own the formats (`chatgpt.py`, `claude.py`, `gemini.py`, `session_logs.py`) or the
sending (`analyzing.py`).

- Only what the user said and what was answered counts. What was injected into it is left out, as
  when a gateway captures.
- A part is of one day, so that "yesterday" in it has one meaning, and of no more messages than a
  model keeps apart. It begins with the user where that is possible.
- Nothing is cut off: a message that is too long for one part goes on in the next.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Final, Literal

from memrelay.gateway.conversation import number_messages, own_words
from memrelay.gateway.host_events import USER, Message, encodable

Role = Literal["user", "assistant"]

MESSAGES_MIN: Final = 10  # from here on, a part ends before the user speaks again
MESSAGES_MAX: Final = 20
PART_BYTES_MAX: Final = 56_000  # numbers and roles come on top; a relayer reads 64 KiB
MESSAGE_BYTES_MAX: Final = 24_000
_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "model": "assistant",
    "gemini": "assistant",
    "ai": "assistant",
    "bot": "assistant",
}
_LINE_BYTES: Final = 4  # the indentation and end of a line within a message


@dataclass(frozen=True, slots=True)
class Utterance:
    """One message: who said it, what, and when, as far as that is known."""

    role: Role
    text: str
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation, and where in its file it stood; `id` is what its program calls it."""

    place: str
    id: str
    messages: tuple[Utterance, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Some messages of a conversation as a relayer reads them, and when the last was said.

    `identity` tells the part from an equal one that was said at another time.
    """

    text: str
    messages: int
    time: datetime | None
    identity: str


def role_of(name: object) -> Role | None:
    """Return who speaks by the name of a role in any program; None for tools and systems."""
    return _ROLES.get(name.lower()) if isinstance(name, str) else None


def parts(conversation: Conversation, zone: tzinfo | None) -> Iterator[Part]:
    """Yield the parts of a conversation in which the user speaks, in order.

    A day is one of `zone`, None for this machine's.
    """
    group: list[Utterance] = []
    size = 0
    for one in _own_words(conversation.messages):
        cost = sum(map(_cost, one.text.split("\n")))
        if group and _ends(group, one, size + cost, zone):
            yield from _part(group, conversation.id, zone)
            group, size = [], 0
        group.append(one)
        size += cost
    yield from _part(group, conversation.id, zone)


def _own_words(messages: Sequence[Utterance]) -> Iterator[Utterance]:
    """Yield what people wrote of messages, each with a time if one before it had any."""
    time = next((said.time for said in messages if said.time is not None), None)
    for said in messages:
        time = said.time or time
        text = own_words(Message(said.role, encodable(said.text)))
        yield from (replace(said, text=piece, time=time) for piece in _pieces(text))


def _cost(line: str) -> int:
    """Return how many bytes a line takes in a part, with what stands before it."""
    return len(line.encode()) + _LINE_BYTES


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces that fit, each of whole lines where that is possible."""
    lines: list[str] = []
    size = 0
    for line in text.split("\n"):
        for part in _cut(line):
            cost = _cost(part)
            if lines and size + cost > MESSAGE_BYTES_MAX:
                yield "\n".join(lines).strip()
                lines, size = [], 0
            lines.append(part)
            size += cost
    if rest := "\n".join(lines).strip():
        yield rest


def _cut(line: str) -> Iterator[str]:
    """Yield a line in pieces that fit, none of which ends within a character."""
    data = line.encode()
    while len(data) > MESSAGE_BYTES_MAX - _LINE_BYTES:
        end = MESSAGE_BYTES_MAX - _LINE_BYTES
        while data[end] & 0xC0 == 0x80:
            end -= 1
        yield data[:end].decode()
        data = data[end:]
    yield data.decode()


def _ends(group: Sequence[Utterance], said: Utterance, size: int, zone: tzinfo | None) -> bool:
    """Return whether a part ends before a message."""
    if len(group) == MESSAGES_MAX or size > PART_BYTES_MAX:
        return True
    if len(group) >= MESSAGES_MIN and said.role == USER:
        return True
    return _day(group[-1], zone) != _day(said, zone)


def _day(said: Utterance, zone: tzinfo | None) -> object:
    return said.time and said.time.astimezone(zone).date()


def _part(group: Sequence[Utterance], id: str, zone: tzinfo | None) -> Iterator[Part]:
    if not any(said.role == USER for said in group):
        return
    time = group[-1].time
    first = group[0].time
    identity = id if first is None else first.astimezone(UTC).isoformat()
    text = number_messages([Message(said.role, said.text) for said in group])
    yield Part(text, len(group), time and time.astimezone(zone), identity)
