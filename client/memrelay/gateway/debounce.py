"""Capture by silence, for gateways that do not tell when a turn ends.

It does not own what is kept of a turn (`conversation.py`) or its delivery (`capture.py`).

- A turn is what was asked of a model and what it answered until it fell silent, or was asked anew.
- A turn that was captured so is not captured again when the gateway does tell its end.
- An answer counts for its own run, however late it comes: never for the newest turn of the session.
- A turn is captured as of its question, also where its answer comes after another turn.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from memrelay.gateway.guards import agent_of
from memrelay.gateway.host_events import ASSISTANT, USER, Context, Message

_SESSIONS_MAX = 256
_TURNS_MAX = 9  # of a session: the newest, and those whose answers or end may still come


class Capture(Protocol):
    """The function that captures a turn."""

    def __call__(
        self, messages: Sequence[Message], context: Context, *, occurred_at: datetime | None
    ) -> None:
        """Capture a turn that was asked then, if that is known."""


@dataclass
class _Turn:
    """The state of a run; without names of runs, of a question."""

    context: Context
    prompt: str
    asked_at: datetime | None
    answers: list[str] = field(default_factory=list)  # those that were not captured yet
    capture: Capture | None = None
    timer: asyncio.TimerHandle | None = None
    captured: bool = False  # by silence, or by the next question
    ended: bool = False

    def flush(self) -> None:
        """Capture what was answered since the last time."""
        answers = self.answers
        self.forget()
        if answers and self.capture is not None:
            asked = [Message(USER, self.prompt)] if self.prompt else []
            answered = [Message(ASSISTANT, text) for text in answers]
            self.capture([*asked, *answered], self.context, occurred_at=self.asked_at)
            self.captured = True

    def forget(self) -> None:
        """Give up what was answered since the last time."""
        if self.timer is not None:
            self.timer.cancel()
        self.answers = []


class Debounce:
    """The newest turns of each of many sessions."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._turns: OrderedDict[tuple[str, str], deque[_Turn]] = OrderedDict()

    def note_prompt(self, event: object, context: Context) -> None:
        """Note that a model is asked: the turn before is over by that, and captured."""
        found, context = _read(event, context)
        turn = self._turn(context)
        if turn is None or turn.ended or not _same_run(turn, context):
            self._begin(found, context, self._now())

    def note_answer(
        self, event: object, context: Context, *, silence_s: float, capture: Capture
    ) -> None:
        """Note an answer; after `silence_s` without another one, the turn is captured."""
        found, context = _read(event, context)
        turn = self._turn(context)
        if turn is None or (turn.ended and not _same_run(turn, context)):
            turn = self._begin(found, context, None)
        elif turn.ended and not turn.captured:
            return  # whoever handed over its end has captured all of it
        texts = found.get("assistantTexts")
        listed = texts if isinstance(texts, list) else []
        turn.answers += [text for text in listed if isinstance(text, str) and text.strip()]
        turn.capture = capture
        if turn.timer is not None:
            turn.timer.cancel()
        turn.timer = asyncio.get_running_loop().call_later(silence_s, turn.flush)

    def note_end(self, context: Context) -> bool:
        """Note that a turn has ended; return whether it was captured already.

        If it was not, the caller is to capture all of it; that holds for an earlier turn whose
        late answers still wait, too. What else was answered since is captured here.
        """
        turn = self._turn(context)
        if turn is None:
            return False
        newest = turn is self._turns[_place(context)][-1]
        if turn.ended:
            return not newest  # the newest may be another one, whose question nobody told
        turn.ended = True
        if turn.captured and (newest or not turn.answers):
            turn.flush()
        else:
            turn.forget()
            turn.captured = False
            turn.prompt = ""  # whoever captures all of it has that, too
        return turn.captured

    def flush(self) -> None:
        """Capture every turn that waits for silence."""
        for turns in self._turns.values():
            _flush(turns)

    def _turn(self, context: Context) -> _Turn | None:
        """Return the turn of a run; without a name on either side, the newest."""
        turns = self._turns.get(_place(context), ())
        return next((turn for turn in reversed(turns) if not _other_run(turn, context)), None)

    def _begin(
        self, found: Mapping[str, Any], context: Context, asked_at: datetime | None
    ) -> _Turn:
        place = _place(context)
        prompt = found.get("prompt")
        asked = prompt if isinstance(prompt, str) else ""
        turn = _Turn(context=context, prompt=asked, asked_at=asked_at)
        turns = self._turns.pop(place, deque())
        if turns:
            turns[-1].flush()
        turns.append(turn)
        if len(turns) > _TURNS_MAX:
            turns.popleft().flush()
        self._turns[place] = turns
        while len(self._turns) > _SESSIONS_MAX:
            _flush(self._turns.popitem(last=False)[1])
        return turn


def _flush(turns: Iterable[_Turn]) -> None:
    for turn in turns:
        turn.flush()


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
