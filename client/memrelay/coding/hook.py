"""A hook's event, from what the host says to what it is answered.

It does not own the forms of hosts (`hosts.py`), or the memory (`memory.py`).

- A prompt that the user did not type is neither recalled for nor kept.
- At the end of a turn, all that the user said in it is kept with the answer: a prompt that was
  interrupted, or sent while the agent worked, has no answer of its own.
- Of a turn in which a memory was erased with the agent's key, nothing is kept.
- Nothing is sent here after an answer: a host ends what its hooks began. That is the work of a
  process that leaves them (`delivery.py`).
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from memrelay.coding.hosts import COMPACT, PROMPT, SESSION_END, SESSION_START, STOP, HookInput
from memrelay.coding.memory import CodingMemory
from memrelay.coding.prompts import SentPrompt
from memrelay.gateway.conversation import clean_query, clean_text
from memrelay.gateway.erasure_mark import has_erased_since
from memrelay.gateway.guards import recall_refusal
from memrelay.gateway.host_events import ASSISTANT, USER, Context, Message
from memrelay.gateway.outage import reason_of

STARTING: Final = "the local relayer is starting"
UNUSABLE: Final = "the agent's profile cannot be used"
ASKING_S_MIN: Final = 0.3  # however long the process took to begin
_ABANDONED_S: Final = 86_400.0  # then the end of a prompt's session will not come any more
Deliver = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class HookAnswer:
    """The answer of a hook: text for the model, and a line for the person."""

    context: str | None = None
    notice: str | None = None


class Hook:
    """The events of one host; `deliver` begins a process that sends what waits."""

    def __init__(
        self,
        memory: CodingMemory,
        deliver: Deliver,
        *,
        clock: Callable[[], float] = time.time,
        elapsed_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._memory = memory
        self._deliver = deliver
        self._clock = clock
        self._elapsed_s = elapsed_s

    def handle(self, event: str, given: HookInput) -> HookAnswer:
        """Return the answer to an event."""
        if event == PROMPT:
            return self._answer_prompt(given)
        if event == STOP:
            self._end_turn(given)
        elif event == SESSION_START:
            self._begin_session()
        elif event == COMPACT:
            self._wake()
        elif event == SESSION_END:
            self._end_session(given)
        return HookAnswer()

    def _begin_session(self) -> None:
        """Open the way for the first prompt, and send what an earlier session left."""
        oldest = self._clock() - _ABANDONED_S
        self._keep_prompts(lambda prompts: [one for one in prompts if one.at < oldest])
        self._wake(always=True)

    def _answer_prompt(self, given: HookInput) -> HookAnswer:
        memory = self._memory
        text = clean_text(given.prompt) if given.is_typed else ""
        if not text:
            return HookAnswer()
        if memory.thresholds.auto_capture:
            memory.prompts.put(
                SentPrompt(
                    session=given.session,
                    turn=given.turn,
                    text=text,
                    folder=given.folder,
                    at=self._clock(),
                )
            )
        query = clean_query(given.prompt)
        context = None
        if recall_refusal(query, Context(), memory.thresholds) is None:
            context = self._recall(query, given.folder)
        return HookAnswer(context=context, notice=tell(memory.outage.take_untold()))

    def _recall(self, query: str, folder: str) -> str | None:
        outage = self._memory.outage
        if outage.is_paused:
            return None
        limit_s = self._memory.thresholds.recall_deadline_s - self._elapsed_s()
        limit_s = max(ASKING_S_MIN, limit_s)
        try:
            found = _within(lambda: self._memory.recall(query, folder, deadline_s=limit_s), limit_s)
        except Exception as error:
            outage.note_failure(STARTING if self._memory.is_starting else reason_of(error))
            self._deliver()  # which waits for longer, and finds out when it is over
            return None
        outage.note_success()
        return found

    def _end_turn(self, given: HookInput) -> None:
        """Keep the turn that has ended: what the user said in this session, and the answer."""

        def choose(prompts: Sequence[SentPrompt]) -> list[SentPrompt]:
            said = [one for one in prompts if one.session == given.session]
            turns = {one.turn for one in said}
            # The end of a turn that nobody's prompt began, while a user's is under way.
            return said if not given.turn or given.turn in turns or "" in turns else []

        if self._keep_prompts(choose, answer=given.answer):
            self._wake()

    def _end_session(self, given: HookInput) -> None:
        """Keep what the user said and nobody answered: it was interrupted, or it failed."""
        self._keep_prompts(lambda prompts: [one for one in prompts if one.session == given.session])
        self._wake()

    def _keep_prompts(
        self,
        choose: Callable[[Sequence[SentPrompt]], Sequence[SentPrompt]],
        *,
        answer: str = "",
    ) -> bool:
        kept = False

        def keep(prompts: Sequence[SentPrompt]) -> None:
            nonlocal kept
            last = prompts[-1]
            said = [one for one in prompts if one.session == last.session]
            others = [one for one in prompts if one.session != last.session]
            messages = [Message(USER, one.text) for one in said]
            if answer:
                messages.append(Message(ASSISTANT, answer))
            if not has_erased_since(self._memory.settings, said[0].at):
                kept |= self._memory.keep(
                    messages, session=last.session, folder=last.folder, at=said[0].moment
                )
            if others:
                keep(others)

        self._memory.prompts.take(choose, keep)
        return kept

    def _wake(self, *, always: bool = False) -> None:
        if not self._memory.outage.is_paused and (always or self._memory.waiting_count):
            self._deliver()


def tell(reason: str | None) -> str | None:
    """Return the line for a person about a failure."""
    if reason is None:
        return None
    if reason == STARTING:
        return f"memrelay: {reason}: this turn goes on without what is remembered."
    return (
        f"memrelay: {reason}: turns go on without memory, and what is said waits on this machine. "
        "`memrelay doctor` says more."
    )


def tell_unusable(host: str) -> str:
    """Return the line for a person where the agent has no profile that can be read."""
    return (
        f"memrelay: {UNUSABLE}: turns go on without memory, and nothing of them is kept. "
        f"`memrelay {host} status` says more."
    )


def _within(work: Callable[[], str | None], limit_s: float) -> str | None:
    """Return what some work returns, or raise what it raises; a name's look-up may hang."""
    done = list[str | None]()
    failed = list[Exception]()

    def run() -> None:
        try:
            done.append(work())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s + 0.05)
    if failed:
        raise failed[0]
    if not done:
        raise TimeoutError
    return done[0]
