"""Sessions in which a memory was erased: what was said there until then is captured no more.

It does not own erasing (`tools.py`) or what else is captured of a turn (`conversation.py`).

- Of the turn in which it was erased nothing is captured; later windows begin after that turn.
- Of a turn that ended before, and is handed over late or still waits, nothing is captured, either.
- Where that turn is not among a session's messages any more, such as after a compression, a window
  begins with its own turn.
- Nothing is written down: it is known as long as the process lives, to all gateways that share it.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from memrelay.gateway.conversation import own_words
from memrelay.gateway.events import USER, Context, Message
from memrelay.gateway.guards import agent_of

_SAID_MAX = 64  # messages that are known again
_CUTS_MAX = 8  # of a session: the newest counts, the end of one before it may still come

_Place = tuple[str, str]  # an agent's name, and one of a session


@dataclass(eq=False)
class _Cut:
    """Where a session is cut: after the turn that erased, as far as that is known."""

    at: datetime
    run: str | None
    ended: bool = False
    # By what messages are known again: all that comes after the last of them was said later.
    said: deque[int] = field(default_factory=lambda: deque(maxlen=_SAID_MAX))


@dataclass(eq=False)
class _Session:
    """A session under all the names it has, or had before it was compressed."""

    places: set[_Place] = field(default_factory=set)
    cuts: deque[_Cut] = field(default_factory=lambda: deque(maxlen=_CUTS_MAX))


class Erasures:
    """The sessions; beyond `names_max` names, those not seen for longest are forgotten.

    Threads may share it: whatever is done to the names takes one step of their dictionary.
    """

    def __init__(self, names_max: int = 2000) -> None:
        self._sessions: OrderedDict[_Place, _Session] = OrderedDict()
        self._names_max = names_max

    def note(self, context: Context, at: datetime) -> Callable[[], None]:
        """Note that a memory is erased now, in the turn that is under way in a session.

        Return what takes that back, for when it was not erased.
        """
        cuts, cut = self._session(context).cuts, _Cut(at, context.run_id)
        cuts.append(cut)

        def take_back() -> None:
            with suppress(ValueError):  # newer ones have taken its place
                cuts.remove(cut)

        return take_back

    def erased(self, context: Context) -> bool:
        """Return whether a memory was erased in a session, or in another one under its key."""
        session, _ = self._found(_places(context))
        return session is not None and bool(session.cuts)

    def covers(self, agent: str, names: Sequence[str], said_at: datetime) -> bool:
        """Return whether a session of these names erased a memory after something was said."""
        session, other = self._found([(agent, name) for name in names])
        cuts = [] if session is None or other else session.cuts
        return any(said_at < cut.at for cut in tuple(cuts))

    def go_on(self, before: Context, now: Context) -> None:
        """Note that a session goes on under another name, such as after a compression."""
        self._name(self._session(before), now)

    def fork(self, before: Context, now: Context) -> None:
        """Note that a session begins with what was said in another one until now."""
        session, _ = self._found(_places(before))
        if session is not None:
            cuts = (replace(cut, said=cut.said.copy()) for cut in session.cuts)
            self._name(_Session(cuts=deque(cuts, _CUTS_MAX)), now)

    def since(
        self, messages: Sequence[Message], context: Context, at: datetime, *, began: bool = False
    ) -> Sequence[Message]:
        """Return the messages that may be captured of those that end with a turn's.

        `at` is when that turn ended, or when it `began`.
        """
        session, other = self._found(_places(context))
        if session is None or not session.cuts:
            return messages
        self._seen(session)
        own = [cut for cut in session.cuts if cut.run == context.run_id is not None]
        cut = own[0] if own else session.cuts[-1]
        other_run = other or (context.run_id is not None and cut.run is not None)
        start = _turn_start(messages)
        known = _known(messages[start:])
        if own or not (other_run or cut.ended or began != (at < cut.at)):
            # More of the same turn may come: what was said after some silence, for instance.
            cut.run, cut.ended = cut.run or context.run_id, True
            cut.said.extend(known)
            return ()
        if at < cut.at:
            return messages if other else ()
        if not (other_run or began) and set(known) & set(cut.said):
            return ()
        begin = _after(messages[:start], cut.said)
        if begin is None:
            cut.said.extend(_known(messages[_turn_start(messages[:start]) : start]))
            begin = start
        return messages[begin:]

    def _found(self, places: Sequence[_Place]) -> tuple[_Session | None, bool]:
        """Return a session, and whether only its key is the same, and it may be another one."""
        for number, place in enumerate(places):
            if (session := self._sessions.get(place)) is not None:
                return session, number > 0 and len(session.places) > 1
        return None, False

    def _session(self, context: Context) -> _Session:
        session, other = self._found(_places(context))
        if session is None or other:
            session = _Session()
        self._name(session, context)
        return session

    def _name(self, session: _Session, context: Context) -> None:
        for place in _places(context):
            session.places.add(place)
            self._sessions[place] = session
        self._seen(session)
        while len(self._sessions) > self._names_max:
            place, gone = self._sessions.popitem(last=False)
            gone.places.discard(place)

    def _seen(self, session: _Session) -> None:
        for place in tuple(session.places):
            if self._sessions.get(place) is session:
                with suppress(KeyError):  # another thread's session has just taken its place
                    self._sessions.move_to_end(place)


def _places(context: Context) -> list[_Place]:
    return [(agent_of(context), name) for name in context.session_names or [""]]


def _turn_start(messages: Sequence[Message]) -> int:
    users = (n for n in range(len(messages) - 1, -1, -1) if messages[n].role == USER)
    return next(users, 0)


def _after(messages: Sequence[Message], said: deque[int]) -> int | None:
    """Return where the turns after the last known message begin, None if none is known."""
    start = len(messages)
    for number in range(len(messages) - 1, -1, -1):
        if _hashed(messages[number]) in said:
            return start
        if messages[number].role == USER:
            start = number
    return None


def _known(turn: Sequence[Message]) -> list[int]:
    """Return by what a turn is known again: what was asked, since many answers are alike."""
    spoken = [message for message in turn if own_words(message)]
    asked = [message for message in spoken if message.role == USER]
    return [_hashed(message) for message in asked or spoken]


def _hashed(message: Message) -> int:
    # As it was said, whatever was put around it.
    return hash((message.role, own_words(message)))
