"""Sessions in which a memory was erased: what was said there until then is captured no more.

It does not own erasing (`tools.py`) or what else is captured of a turn (`conversation.py`).

- Of the turn in which it was erased nothing is captured; later windows begin after that turn.
- Of a turn that ended before, and is handed over late, nothing is captured, either.
- Where that turn is not among a session's messages any more, such as after a compression, a window
  begins with its own turn.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from memrelay.gateway.conversation import own_words
from memrelay.gateway.events import USER, Context, Message
from memrelay.gateway.guards import agent_of

_SAID_MAX = 64  # messages of a turn that are known again


@dataclass
class _Cut:
    """Where a session is cut: after what was `said` in the turn that erased, once it is known.

    Where that is not among the messages any more, after the turn `before` the one that was captured
    first; where nothing was before that, from where that one `began`.
    """

    at: datetime
    run: str | None
    said: frozenset[int] | None = None
    before: frozenset[int] = frozenset()
    began: int | None = None


class Erasures:
    """The sessions; beyond `sessions_max`, the one not seen for longest is forgotten."""

    def __init__(self, sessions_max: int = 1000) -> None:
        self._cuts: OrderedDict[tuple[str, str], _Cut] = OrderedDict()
        self._sessions_max = sessions_max

    def note(self, context: Context, at: datetime) -> None:
        """Note that a memory is erased now, in the turn that is under way in a session."""
        cut = _Cut(at, context.run_id)
        for place in _places(context):
            self._cuts[place] = cut
            self._cuts.move_to_end(place)
        while len(self._cuts) > self._sessions_max:
            self._cuts.popitem(last=False)

    def since(
        self, messages: Sequence[Message], context: Context, at: datetime
    ) -> Sequence[Message]:
        """Return the messages that may be captured of those that end with a turn's of then."""
        places = [place for place in _places(context) if place in self._cuts]
        if not places or not messages:
            return messages
        self._cuts.move_to_end(places[0])
        cut = self._cuts[places[0]]
        run = context.run_id
        same = run == cut.run is not None
        other = run is not None and cut.run is not None and run != cut.run
        if at < cut.at and not same:
            return ()
        if same or (cut.said is None and not other):
            # More of the same turn may come: what was said after some silence, for instance.
            cut.run = run or cut.run
            cut.said = _known(messages[_turn_start(messages) :]) | (cut.said or frozenset())
            return ()
        start = _after(messages, cut.before | (cut.said or frozenset()))
        if start is None:
            began = (n for n, one in enumerate(messages) if _hashed(one) == cut.began)
            start = max(began, default=_turn_start(messages))
            before = _known(messages[_turn_start(messages[:start]) : start])
            if before:
                cut.before = before
            else:  # a new session, or a turn that its gateway hands over by itself
                cut.began = _hashed(messages[start])
        return messages[start:]


def _places(context: Context) -> list[tuple[str, str]]:
    # Not every gateway tells both to its tools and to its hooks.
    names = [name for name in (context.session_id, context.session_key) if name]
    return [(agent_of(context), name) for name in names or [""]]


def _turn_start(messages: Sequence[Message]) -> int:
    users = (n for n in range(len(messages) - 1, -1, -1) if messages[n].role == USER)
    return next(users, 0)


def _after(messages: Sequence[Message], said: frozenset[int]) -> int | None:
    """Return where the turns after the last known message begin, None if none is known."""
    start = len(messages)
    for number in range(len(messages) - 1, -1, -1):
        if _hashed(messages[number]) in said:
            return start
        if messages[number].role == USER:
            start = number
    return None


def _known(turn: Sequence[Message]) -> frozenset[int]:
    """Return by what a turn is known again: what was asked, since many answers are alike."""
    spoken = [message for message in turn if own_words(message)]
    asked = [message for message in spoken if message.role == USER]
    return frozenset(map(_hashed, asked or spoken[-_SAID_MAX:]))


def _hashed(message: Message) -> int:
    # As it was said, whatever was put around it.
    return hash((message.role, own_words(message)))
