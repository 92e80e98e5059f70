"""Sessions in which a memory was erased: what was said there until then is captured no more.

It does not own erasing (`tools.py`) or what else is captured of a turn (`conversation.py`).

- Of the turn in which it was erased nothing is captured; later windows begin after that turn.
- Of a turn that ended before, and is handed over late or still waits, nothing is captured, either.
- Where that turn is not among a session's messages any more, such as after a compression, a window
  begins with its own turn.
- A session that only has its key in common with another may have begun as a fork of that: it has
  the other's cuts as of then. What ended before them, or waits, is its own.
- Nothing is written down: it is known as long as the process lives, to all gateways that share it.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from memrelay.gateway.conversation import own_words
from memrelay.gateway.guards import agent_of
from memrelay.gateway.host_events import USER, Context, Message

_SAID_MAX = 64  # messages that are known again
_CUTS_MAX = 8  # of a session: the newest counts, the end of one before it may still come

_Place = tuple[str, str]  # an agent's name, and one of a session


@dataclass(eq=False)
class _Cut:
    """The place where a session is cut: after the turn that erased, as far as that is known."""

    at: datetime
    run: str | None
    here: bool = True  # and not in a session that this one may have begun with
    ended: bool = False
    # By what messages are known again: all that comes after the last of them was said later.
    said: deque[int] = field(default_factory=lambda: deque(maxlen=_SAID_MAX))


@dataclass(eq=False)
class _Session:
    """A session under all the names it has, or had before it was compressed."""

    places: dict[_Place, None] = field(default_factory=dict)  # those told first come first
    cuts: deque[_Cut] = field(default_factory=lambda: deque(maxlen=_CUTS_MAX))

    def fork(self) -> "_Session":
        """Return a session that begins with what was said in this one, with cuts of its own."""
        cuts = (replace(cut, here=False, said=cut.said.copy()) for cut in tuple(self.cuts))
        return _Session(cuts=deque(cuts, _CUTS_MAX))


class Erasures:
    """The sessions; beyond `names_max` names, those not seen for longest are forgotten.

    Threads may share it: whatever is done to the names takes one step of their dictionary, and
    cuts are copied in one before they are gone through.
    """

    def __init__(self, names_max: int = 2000) -> None:
        self._sessions: OrderedDict[_Place, _Session] = OrderedDict()
        self._names_max = names_max

    def note(self, context: Context, at: datetime) -> Callable[[], None]:
        """Note that a memory is erased now, in the turn that is under way in a session.

        Return what takes that back, for when it was not erased.
        """
        cuts, cut = self._name_session(context).cuts, _Cut(at, context.run_id)
        cuts.append(cut)

        def take_back() -> None:
            with suppress(ValueError):  # newer ones have taken its place
                cuts.remove(cut)

        return take_back

    def has_erased(self, context: Context) -> bool:
        """Return whether a memory was erased in a session, or in another one under its key."""
        return bool(self._find_session(_places(context)).cuts)

    def covers(self, agent: str, names: Sequence[str], said_at: datetime) -> bool:
        """Return whether a session of these names erased a memory after something was said."""
        cuts = self._find_session([(agent, name) for name in names]).cuts
        return any(cut.here and said_at < cut.at for cut in tuple(cuts))

    def go_on(self, before: Context, now: Context) -> None:
        """Note that a session goes on under another name, such as after a compression."""
        self._name(self._name_session(before), _places(now))

    def fork(self, before: Context, now: Context) -> None:
        """Note that a session begins with what was said in another one until now."""
        self._name(self._find_session(_places(before)).fork(), _places(now))

    def since(
        self, messages: Sequence[Message], context: Context, at: datetime, *, began: bool = False
    ) -> Sequence[Message]:
        """Return the messages that may be captured of those that end with a turn's.

        `at` is when that turn ended, or when it `began`.
        """
        places, run = _places(context), context.run_id
        session = self._find_session(places)
        own = [cut for cut in tuple(session.cuts) if cut.run == run is not None]
        cuts = own or [cut for cut in tuple(session.cuts) if cut.here or cut.at <= at]
        if not cuts:
            return messages
        if not session.places:  # a fork; the key may be told alone, and stays with the other
            self._name(session, places[:1])
        self._note_use(session)
        cut = cuts[-1]
        other_run = not cut.here or (run is not None and cut.run is not None)
        # Without runs, each question to the model seems to begin a turn.
        later = began and run is not None and at >= cut.at
        earlier = not began and at < cut.at
        start = _turn_start(messages)
        known = _fingerprint(messages[start:])
        if own or not (other_run or cut.ended or later or earlier):
            # More of the same turn may come: what was said after some silence, for instance.
            cut.run, cut.ended = cut.run or run, True
            cut.said.extend(known)
            return ()
        if at < cut.at or (not (other_run or later) and set(known) & set(cut.said)):
            return ()
        begin = _after(messages[:start], cut.said)
        if begin is None:
            cut.said.extend(_fingerprint(messages[_turn_start(messages[:start]) : start]))
            begin = start
        return messages[begin:]

    def _find_session(self, places: Sequence[_Place]) -> _Session:
        """Return a session; one of which only the key is known may be another one, or a fork."""
        for number, place in enumerate(places):
            if (session := self._sessions.get(place)) is not None:
                return session.fork() if number > 0 and len(session.places) > 1 else session
        return _Session()

    def _name_session(self, context: Context) -> _Session:
        """Return a session that is known by all its names from now on."""
        places = _places(context)
        # Another thread may have named it meanwhile.
        session = self._sessions.setdefault(places[0], self._find_session(places))
        self._name(session, places)
        return session

    def _name(self, session: _Session, places: Sequence[_Place]) -> None:
        for place in reversed(places):  # its id is the last one to be forgotten
            session.places[place] = None
            self._sessions[place] = session
        self._note_use(session)
        while len(self._sessions) > self._names_max:
            place, gone = self._sessions.popitem(last=False)
            gone.places.pop(place, None)

    def _note_use(self, session: _Session) -> None:
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
        if _hash(messages[number]) in said:
            return start
        if messages[number].role == USER:
            start = number
    return None


def _fingerprint(turn: Sequence[Message]) -> list[int]:
    """Return by what a turn is known again: what was asked, since many answers are alike."""
    spoken = [message for message in turn if own_words(message)]
    asked = [message for message in spoken if message.role == USER]
    return [_hash(message) for message in asked or spoken]


def _hash(message: Message) -> int:
    # As it was said, whatever was put around it.
    return hash((message.role, own_words(message)))
