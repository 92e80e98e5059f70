"""Capture by silence, for gateways that do not tell when a turn ends.

It does not own what is kept of a turn (`conversation.py`) or its delivery (`capture.py`).

- A turn is what was asked of a model and what it answered until it fell silent, or was asked anew.
- A turn that was captured so is not captured again when the gateway does tell its end.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memrelay.gateway.events import ASSISTANT, USER, Context, Message
from memrelay.gateway.guards import agent_of

_SESSIONS_MAX = 256
_RUNS_MAX = 8  # of a session, whose end may still be handed over

Capture = Callable[[Sequence[Message], Context], None]


@dataclass
class _Turn:
    """The newest turn of a session."""

    context: Context
    prompt: str
    answers: list[str] = field(default_factory=list)  # those that were not captured yet
    capture: Capture | None = None
    timer: asyncio.TimerHandle | None = None
    captured: bool = False
    ended: bool = False
    # The session's runs before this one that were captured so.
    earlier: deque[str | None] = field(default_factory=lambda: deque(maxlen=_RUNS_MAX))

    def flush(self) -> None:
        """Capture what was answered since the last time."""
        answers = self.answers
        self.forget()
        if answers and self.capture is not None:
            asked = [Message(USER, self.prompt)] if self.prompt else []
            self.capture([*asked, *(Message(ASSISTANT, text) for text in answers)], self.context)
            self.captured = True

    def forget(self) -> None:
        """Give up what was answered since the last time."""
        if self.timer is not None:
            self.timer.cancel()
        self.answers = []


class Debounce:
    """The newest turn of each of many sessions."""

    def __init__(self) -> None:
        self._turns: OrderedDict[tuple[str, str], _Turn] = OrderedDict()

    def asked(self, event: object, context: Context) -> None:
        """Note that a model is asked: the turn before is over by that, and captured."""
        found, context = _read(event, context)
        turn = self._turns.get(_place(context))
        if turn is None or not _same_run(turn, context):
            self._begin(found, context)

    def answered(
        self, event: object, context: Context, *, silence_s: float, capture: Capture
    ) -> None:
        """Note an answer; after `silence_s` without another one, the turn is captured."""
        found, context = _read(event, context)
        turn = self._turns.get(_place(context)) or self._begin(found, context)
        if _other_run(turn, context) and context.run_id in turn.earlier:
            turn.earlier.remove(context.run_id)  # its end captures all of it, with this
            return
        if turn.ended:
            if _same_run(turn, context):
                return  # it was captured as a whole
            turn = self._begin(found, context)
        texts = found.get("assistantTexts")
        listed = texts if isinstance(texts, list) else []
        turn.answers += [text for text in listed if isinstance(text, str) and text.strip()]
        turn.capture = capture
        if turn.timer is not None:
            turn.timer.cancel()
        turn.timer = asyncio.get_running_loop().call_later(silence_s, turn.flush)

    def ended(self, context: Context) -> bool:
        """Note that a turn has ended; return whether it was captured already.

        An end that is handed over late may be that of an earlier run than the newest turn's.
        """
        turn = self._turns.get(_place(context))
        if turn is None:
            return False
        if _other_run(turn, context):
            return context.run_id in turn.earlier
        if turn.ended:
            return False
        if turn.captured:
            turn.flush()  # what was answered since
        else:
            turn.forget()
        turn.ended = True
        return turn.captured

    def flush(self) -> None:
        """Capture every turn that waits for silence."""
        for turn in self._turns.values():
            turn.flush()

    def _begin(self, found: Mapping[str, Any], context: Context) -> _Turn:
        place = _place(context)
        prompt = found.get("prompt")
        turn = _Turn(context=context, prompt=prompt if isinstance(prompt, str) else "")
        before = self._turns.pop(place, None)
        if before is not None:
            before.flush()
            turn.earlier = before.earlier
            if before.captured:
                turn.earlier.append(before.context.run_id)
        self._turns[place] = turn
        while len(self._turns) > _SESSIONS_MAX:
            self._turns.popitem(last=False)[1].flush()
        return turn


def _read(event: object, context: Context) -> tuple[Mapping[str, Any], Context]:
    """Return an event's members, and the context with the session and run that it names."""
    found = event if isinstance(event, Mapping) else {}
    named = Context.from_json(found)
    return found, replace(
        context,
        session_id=context.session_id or named.session_id,
        run_id=context.run_id or named.run_id,
    )


def _place(context: Context) -> tuple[str, str]:
    # Without names of sessions, the turns of two agents would be one.
    return agent_of(context), session_of(context)


def session_of(context: Context) -> str:
    """Return what tells one session from another."""
    return context.session_id or context.session_key or ""


def _same_run(turn: _Turn, context: Context) -> bool:
    return context.run_id is not None and context.run_id == turn.context.run_id


def _other_run(turn: _Turn, context: Context) -> bool:
    known = context.run_id is not None and turn.context.run_id is not None
    return known and not _same_run(turn, context)
