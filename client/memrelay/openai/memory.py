"""The memory of one client: what its calls have in common, and who hears their answers.

It does not own the gateway's life (`shared_gateway.py`), the form of requests and answers
(`chat.py`, `responses.py`), or how the openai package is reached (`attachment.py`, `streams.py`).
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic

from memrelay.gateway import Context, Injection, Message
from memrelay.openai import chat, responses
from memrelay.openai.sessions import current_session, is_off
from memrelay.openai.shared_gateway import G, SharedGateway
from memrelay.openai.turns import MALFORMED, BoundedMap, Turn, members

log = logging.getLogger("memrelay.openai")

NO_WORDS = "a call without words of a user that this client knows goes without memory"
UNKNOWN_FORM = "an answer of an unknown form is not captured"


class Memory(Generic[G]):
    """A gateway, and what all calls of one client have in common."""

    def __init__(self, shared: SharedGateway[G], conversation: tuple[str, str | None]) -> None:
        self.shared = shared
        self._conversation = conversation
        self._injections: BoundedMap[tuple[Context, str], Injection] = BoundedMap()
        self._pending: BoundedMap[str, Listener] = BoundedMap()
        self._warnings = set[str]()
        self._apis: dict[str, Callable[[Mapping[str, Any], Context], Turn | None]] = {
            chat.PATH: chat.ChatTurn.of,
            responses.PATH: responses.Responses().turn,
        }

    @property
    def gateway(self) -> G:
        """The gateway."""
        return self.shared.gateway

    def turn(self, path: str, request: Mapping[str, Any]) -> Turn | None:
        """Return the turn of a request; None if there is nothing to do around it."""
        api, body = self._apis.get(path.partition("?")[0]), request.get("body")
        if api is None or is_off() or not isinstance(body, Mapping):
            return None
        turn = api(_merge_extra_body(request), self._context())
        if turn is not None and not turn.has_user:
            self.warn_once(NO_WORDS)
            return None
        return turn

    def _context(self) -> Context:
        session, agent = current_session() or self._conversation
        return Context(agent_id=agent or self._conversation[1], session_id=session)

    def keep_injection(self, turn: Turn, injection: Injection) -> Injection:
        """Return `injection`, and keep it for the further steps of this turn."""
        self._injections.put((turn.context, turn.prompt), injection)
        return injection

    def injection_of(self, turn: Turn) -> Injection:
        """Return what the first step of this turn was given."""
        return self._injections.get((turn.context, turn.prompt)) or Injection()

    def capture(self, turn: Turn, messages: tuple[Message, ...]) -> None:
        """Capture the messages of a turn in the background."""
        self.gateway.capture(messages, turn.context)

    def await_answer(self, answer_id: str, listener: "Listener") -> None:
        """Let `listener` hear an answer that is asked for by its id later."""
        self._pending.put(answer_id, listener)

    def listener(self, path: str) -> "Listener | None":
        """Return who waits for the answer that is asked for at a path."""
        match = responses.RETRIEVAL.fullmatch(str(path).partition("?")[0])
        return self._pending.get(match[1]) if match and not is_off() else None

    def warn_once(self, what: str) -> None:
        """Say once that something goes without memory, unless that is wanted."""
        if what not in self._warnings and not is_off():
            self._warnings.add(what)
            log.warning("%s (said once)", what)


def with_memories(request: Mapping[str, Any], turn: Turn, injection: Injection) -> dict[str, Any]:
    """Return a request with memories in it; the given one stays as it is."""
    block = injection.prepend_context
    if not block:
        return dict(request)
    changes = turn.with_memories(_merge_extra_body(request), block)
    changed = {**request, "body": {**request["body"], **changes}}
    if extra := _extra(request):
        others = {name: value for name, value in extra.items() if name not in changes}
        changed["options"] = {**request["options"], "extra_json": others}
    return changed


def _merge_extra_body(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a request as it is sent: the openai package puts `extra_body` over it."""
    return {**request["body"], **_extra(request)}


def _extra(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return request.get("options", {}).get("extra_json") or {}


class Listener:
    """Hears the answer of a turn, whole or event by event, and captures it at its end, once."""

    def __init__(self, memory: Memory[Any], turn: Turn) -> None:
        self._memory = memory
        self._turn = turn
        self._is_done = False

    def hear(self, event: object) -> None:
        """Take in an event of a stream."""
        self._take(self._turn.hear, event)

    def hear_whole(self, answer: object) -> None:
        """Take in a whole answer."""
        self._take(lambda whole: self._turn.hear_whole(members(whole)), answer)

    def _take(self, read: Callable[[object], tuple[Message, ...]], heard: object) -> None:
        if self._is_done:
            return
        with fail_open("capture"):
            try:
                messages = read(heard)
            except MALFORMED:
                self._is_done = True
                self._memory.warn_once(UNKNOWN_FORM)
                return
            if self._turn.pending_id is not None:
                self._memory.await_answer(self._turn.pending_id, self)
            if messages:
                self._is_done = True
                self._memory.capture(self._turn, messages)

    def miss(self, what: str) -> None:
        """Say once that an answer could not be heard."""
        if not self._is_done:
            self._memory.warn_once(what)


@contextmanager
def fail_open(what: str) -> Iterator[None]:
    """Let the caller's call go on without what fails within."""
    try:
        yield
    except Exception as error:
        log.warning("%s failed (%s): the call goes on without it", what, type(error).__name__)
