"""Runs that do not count, such as a heartbeat's: what was said in them is not captured later.

It does not own which runs these are (`guards.py`), nor which messages tell that of themselves
(`conversation.spoken`).

- A later window of a session holds the messages of all its runs, and these have no names: those of
  a skipped run are known by a keyed hash of their words, as often as they were said in it.
- What a run that counts has said itself always counts, though a skipped run said the same.
- Nothing is written down: it is known as long as the process lives. Of a run before that, only
  messages are known that tell where they came from, by their origin or by how they begin.
"""

import secrets
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b

from memrelay.gateway.conversation import own_words
from memrelay.gateway.guards import agent_of
from memrelay.gateway.host_events import USER, Context, Message

_RUNS_MAX = 128  # of a session: the heartbeats of two days and a half
_ANSWERS_MAX = 64  # of a run, the last ones
_LOOKED_AT_MAX = 1024  # of a session's last messages; a window holds 50 with words
_HASHES_MAX = 8192  # a window repeats the one before it

_Place = tuple[str, str]  # an agent's name, and one of a session


@dataclass(eq=False)
class _Run:
    """A skipped run: what it was asked, and what it answered."""

    run_id: str | None
    asked: list[bytes] = field(default_factory=list)
    answered: list[bytes] = field(default_factory=list)
    ended: bool = False


class SkippedRuns:
    """The skipped runs of many sessions; beyond `names_max` names, the oldest are forgotten.

    Threads may share it: whatever is done to the names takes one step of their dictionary, and
    runs are copied in one before they are gone through.
    """

    def __init__(self, names_max: int = 1000) -> None:
        self._sessions: OrderedDict[_Place, deque[_Run]] = OrderedDict()
        self._names_max = names_max
        self._key = secrets.token_bytes(32)
        self._hashes: dict[bytes, bytes | None] = {}  # of words, by the hash of the whole message

    def begin(self, prompt: str, context: Context) -> None:
        """Note that a run begins that does not count: its end may never be told."""
        asked = self._hash_messages([Message(USER, prompt)])
        under_way = (run for run in self._runs(context) if not run.ended)
        if asked and not any(run.asked == asked for run in under_way):
            self._add(_Run(context.run_id, asked), context)

    def end(self, messages: Sequence[Message], context: Context, *, failed: bool = False) -> None:
        """Note that a run has ended that does not count, with these messages of its session.

        It said what was answered to the prompt that it began with, or else the last turn. What a
        person said meanwhile and the gateway put into the run is theirs, unless theirs `failed`.
        """
        run = self._run(context, begun=not failed)
        start = self._start(messages, () if failed else run.asked)
        users = (n for n in range(start + 1, len(messages)) if messages[n].role == USER)
        turn = messages[start : next(users, len(messages))]
        run.ended = True
        if turn and (failed or turn[0].origin != "external_user"):
            run.asked = _merge(run.asked, self._hash_messages([m for m in turn if m.role == USER]))
            answers = self._hash_messages([m for m in turn if m.role != USER][-_ANSWERS_MAX:])
            run.answered = _merge(run.answered, answers)[-_ANSWERS_MAX:]

    def count(self, context: Context) -> None:
        """Note that a run counts after all, such as one that failed and was tried once more."""
        for run in self._runs(context):
            if run.run_id == context.run_id is not None:
                run.asked, run.answered = [], []

    def without(self, messages: Sequence[Message], context: Context) -> Sequence[Message]:
        """Return messages without those of skipped runs; the last turn is of a run that counts."""
        runs = self._runs(context)
        if not runs:
            return messages
        asked = Counter(word for run in runs for word in run.asked)
        answered = Counter(word for run in runs for word in run.answered)
        last = _turn_start(messages)
        first = max(0, last - _LOOKED_AT_MAX)
        kept, skips = list(messages[:first]), False
        for message in messages[first:last]:
            hashed = self._hash_messages([message])
            known = asked if message.role == USER else answered
            found = any(known[word] > 0 for word in hashed)
            known.subtract(hashed if found else ())
            skips = found if message.role == USER else skips
            if not (found or skips):
                kept.append(message)
        return [*kept, *messages[last:]]

    def _run(self, context: Context, *, begun: bool) -> _Run:
        """Return the run that ends now; if it has no name, the one that was `begun` last."""
        for run in reversed(self._runs(context)):
            named = run.run_id is not None and context.run_id is not None
            if run.run_id == context.run_id if named else begun and not run.ended:
                return run
        run = _Run(context.run_id)
        self._add(run, context)
        return run

    def _start(self, messages: Sequence[Message], asked: Sequence[bytes]) -> int:
        """Return where the turn begins that was asked so, or else where the last one does."""
        last = _turn_start(messages)
        for number in range(last, max(-1, last - _LOOKED_AT_MAX), -1):
            message = messages[number] if asked else None
            if (
                message is not None
                and message.role == USER
                and self._hash_messages([message]) == asked
            ):
                return number
        return last

    def _runs(self, context: Context) -> list[_Run]:
        """Return the runs of a session under all its names, the oldest first."""
        # Its key comes last, and has those of the sessions before it, too.
        places = reversed(_places(context))
        runs = (run for place in places for run in tuple(self._sessions.get(place, ())))
        return list(dict.fromkeys(runs))

    def _add(self, run: _Run, context: Context) -> None:
        for place in _places(context):
            self._sessions.setdefault(place, deque(maxlen=_RUNS_MAX)).append(run)
            with suppress(KeyError):  # another thread has just forgotten it
                self._sessions.move_to_end(place)
        while len(self._sessions) > self._names_max:
            self._sessions.popitem(last=False)

    def _hash_messages(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the hash of each message that has words, as they were said."""
        return [hashed for message in messages if (hashed := self._hash(message)) is not None]

    def _hash(self, message: Message) -> bytes | None:
        whole = self._mac(message.role, message.text)
        with suppress(KeyError):
            return self._hashes[whole]
        words = own_words(message)
        if len(self._hashes) >= _HASHES_MAX:
            self._hashes.clear()
        hashed = self._hashes[whole] = self._mac(message.role, words) if words else None
        return hashed

    def _mac(self, role: str, text: str) -> bytes:
        data = f"{role}:{text}".encode("utf-8", "replace")
        return blake2b(data, key=self._key, digest_size=16).digest()


def _merge(known: list[bytes], told: list[bytes]) -> list[bytes]:
    """Return what is known of a run, and what is new of what was told of it once more."""
    return [*known, *(hashed for hashed in told if hashed not in known)]


def _places(context: Context) -> list[_Place]:
    return [(agent_of(context), name) for name in context.session_names or [""]]


def _turn_start(messages: Sequence[Message]) -> int:
    users = (n for n in range(len(messages) - 1, -1, -1) if messages[n].role == USER)
    return next(users, 0)
