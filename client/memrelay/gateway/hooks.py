"""Runs before and after every turn of an agent: recall, capture, and the tools between.

It does not own any rule about texts (`guards.py`, `conversation.py`, `filters.py`, `framing.py`),
the delivery of captured turns (`capture.py`) or what the tools do (`tools.py`).

- No hook raises, and none waits for the relayer beyond its deadline.
- A turn is durable when `agent_end` returns; it is captured after that, by itself.
"""

import asyncio
import copy
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from memrelay.gateway.capture import Captures
from memrelay.gateway.captured_turn import CapturedTurn
from memrelay.gateway.conversation import (
    capturable,
    clean_line,
    clean_query,
    iterate_own_words,
    number_messages,
)
from memrelay.gateway.debounce import Debounce, session_of
from memrelay.gateway.erasures import Erasures
from memrelay.gateway.framing import (
    Outcome,
    cold_start,
    frame_memories,
    memory_chars_max,
    namespace_instruction,
)
from memrelay.gateway.guards import (
    SKIPPED,
    TRIVIAL,
    agent_of,
    capture_refusal,
    recall_refusal,
    run_refusal,
)
from memrelay.gateway.host_events import Context, Injection, Message, Prompt, Turn, encodable
from memrelay.gateway.outage import RECALL, Outages
from memrelay.gateway.roster import Binding, RecallResult, Roster
from memrelay.gateway.schemas import Tool
from memrelay.gateway.sessions import Session, Sessions
from memrelay.gateway.settings import GatewaySettings
from memrelay.gateway.skipped import SkippedRuns
from memrelay.gateway.spool import Spool
from memrelay.gateway.tool_answers import ToolAnswer
from memrelay.gateway.tools import Tools
from memrelay.models import Memory

log = logging.getLogger("memrelay.gateway")

LATE_MS_MAX = 7 * 86_400_000  # that a turn may have waited for being handed over
GOAL_CHARS_MAX = 1000  # in UTF-8 within what the relayer takes


class Gateway:
    """The memory of the agents of one gateway; use it in `async with`, or call `close`.

    `source` names the gateway in what is captured. Without `spool_path`, what could not be
    delivered is lost with the process. `transcripts` is the folder of the gateway's agents. What
    `erasures` and the `skipped` runs know may outlive the gateway.
    """

    def __init__(
        self,
        roster: Roster,
        settings: GatewaySettings | None = None,
        *,
        source: str = "gateway",
        spool_path: Path | None = None,
        transcripts: Path | None = None,
        erasures: Erasures | None = None,
        skipped: SkippedRuns | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._roster = roster
        self._settings = settings or GatewaySettings()
        self._source = source
        self._clock = clock
        self._outages = Outages(monotonic)
        spool = Spool(
            spool_path,
            bytes_max=self._settings.spool_bytes_max,
            turns_max=self._settings.spool_turns_max,
        )
        self._erasures = erasures or Erasures()
        self._skipped = skipped or SkippedRuns()
        self._captures = Captures(
            spool,
            self._outages,
            retry_s=self._settings.capture_retry_s,
            own=roster.own,
            erasures=self._erasures,
        )
        self._debounce = Debounce(self._now)
        self._transcripts = transcripts
        self._tools = self._tools_of(self._captures)
        self._sessions = Sessions()
        self._tasks: set[asyncio.Task[None]] = set()

    def with_settings(self, settings: GatewaySettings) -> "Gateway":
        """Return this gateway with other settings; spool, connections and sessions are shared.

        The bounds of the spool and the pause before a retry stay those of the first one.
        """
        other = copy.copy(self)
        other._settings = settings
        return other

    def anew(self) -> "Gateway":
        """Return this gateway for another event loop or a forked process.

        Neither connections nor tasks outlive theirs, so those are not shared.
        """
        other = copy.copy(self)
        other._roster = self._roster.anew()
        other._captures = self._captures.anew(other._roster.own)
        other._tools = self._tools_of(other._captures)
        other._debounce = Debounce(other._now)
        other._tasks = set()
        return other

    def _tools_of(self, captures: Captures) -> Tools:
        return Tools(
            captures,
            self._erasures,
            source=self._source,
            transcripts=self._transcripts,
            now=self._now,
        )

    # Before a turn.

    async def before_prompt_build(self, event: object, ctx: object) -> dict[str, str]:
        """Return what a turn that begins is to be given, as members of OpenClaw's result."""
        injection = await self.recall(Prompt.from_json(event).prompt, Context.from_json(ctx))
        return injection.to_json()

    async def recall(self, prompt: str, context: Context) -> Injection:
        """Return the memories that fit a prompt, framed; never raises, never waits for long."""
        try:
            if run_refusal(context, self._settings):
                self._skipped.begin(prompt, context)
            binding = self._roster.bind(context)
            query = encodable(clean_query(prompt))
            refusal = recall_refusal(query, context, self._settings)
            if binding is None or refusal not in {None, TRIVIAL}:
                return Injection()
            session = (binding.agent, session_of(context))
            opening = self._settings.cold_start and not self._sessions.has_begun(session)
            if refusal == TRIVIAL and not opening:
                return Injection()
            return await self._recall(
                binding,
                None if refusal else query,
                goal=encodable(clean_line(context.goal or ""))[:GOAL_CHARS_MAX] or None,
                opens=session if opening else None,
            )
        except Exception as error:
            log.warning("recall failed (%s): the turn goes on without it", type(error).__name__)
            return Injection()

    async def _recall(
        self, binding: Binding, query: str | None, *, goal: str | None, opens: Session | None
    ) -> Injection:
        settings = self._settings
        place = (binding.key, binding.agent, RECALL)
        if self._outages.is_paused(*place, settings.outage_pause_s):
            return _make_injection(binding, "failed")
        began_s = self._outages.now_s()
        try:
            async with asyncio.timeout(settings.recall_deadline_s):
                if await binding.is_taken():
                    return Injection()
                first, found = await asyncio.gather(
                    self._first(binding, opens is not None),
                    self._find_memories(binding, query, goal),
                )
        except Exception as error:
            self._outages.note_failure(*place, error, began_s=began_s)
            return _make_injection(binding, "failed")
        self._outages.note_success(*place)
        if opens is not None:
            self._sessions.begin(opens)
        self._captures.wake(binding.client)
        block = frame_memories(found.memories, settings, binding.reader)
        beginning = first and cold_start(*first, settings, binding.reader, beside=block)
        parts = [part for part in (beginning, block) if part]
        outcome: Outcome = "found" if block else "none"
        # Not of turns without memories alone: without an embedder all are searched by words only,
        # and a prompt that differs from turn to turn is in no provider's cache.
        return _make_injection(
            binding, "words_only" if found.degraded else outcome, "\n\n".join(parts)
        )

    async def _find_memories(
        self, binding: Binding, query: str | None, goal: str | None
    ) -> RecallResult:
        """Return the memories that fit a query, best first, over all of the agent's places."""
        if query is None:
            return RecallResult()
        settings = self._settings
        shared = await binding.list_shared() if settings.recall_shared else ()
        return await binding.recall(
            query,
            namespaces=(binding.namespace, *shared),
            limit=settings.recall_results_max,
            min_relevance=settings.relevance_min,
            chars_max=memory_chars_max(settings),
            goal=goal,
            tokens_max=settings.recall_tokens_max or None,
        )

    async def _first(self, binding: Binding, opening: bool) -> tuple[list[Memory], int] | None:
        """Return what the first turn of a session is given on top, and how many there are."""
        if not opening:
            return None
        limit = self._settings.cold_start_memories
        pinned, newest, size = await asyncio.gather(
            binding.client.list(namespace=binding.namespace, limit=limit, pinned=True),
            binding.client.list(namespace=binding.namespace, limit=limit),
            binding.client.stats(namespace=binding.namespace),
        )
        first = {memory.id: memory for memory in (*pinned.memories, *newest.memories)}
        return list(first.values()), size.memory_count

    async def session_start(self, event: object, ctx: object) -> None:
        """Note that a session begins, so that its first turn gets the cold-start context."""
        del event  # all that matters is in the context
        context = Context.from_json(ctx)
        self._sessions.forget((agent_of(context), session_of(context)))

    # After a turn.

    async def agent_end(self, event: object, ctx: object) -> None:
        """Capture a turn that has ended; it is durable when this returns, and delivered later."""
        turn, context = Turn.from_json(event), Context.from_json(ctx)
        counts = self._counts(turn, context)
        if self._debounce.note_end(context) and counts:
            await self._settle()  # what was answered since the silence is being kept
        else:
            await self._capture(turn, context, self._estimate_end(turn), counts=counts)

    def remembers(self, context: Context) -> bool:
        """Return whether turns of such a call are captured, as far as is known without asking."""
        if not self._settings.auto_capture or run_refusal(context, self._settings):
            return False
        binding = self._roster.bind(context)
        return binding is not None and self._captures.takes(binding)

    def capture(
        self,
        messages: Sequence[Message],
        context: Context,
        *,
        occurred_at: datetime | None = None,
        new: Collection[Message] | None = None,
    ) -> None:
        """Capture the messages of a turn, in the background; needs a running event loop.

        `occurred_at` is when the turn began; without, it ends now. With `new`, the messages are
        those of a whole session, and the new ones among them are captured, however many these are.
        """
        turn = Turn(messages=tuple(messages), success=True)
        began, at = occurred_at is not None, occurred_at or self._now()
        counts = self._counts(turn, context)  # known before the next turn is handed over
        self._spawn(self._capture(turn, context, at, counts=counts, began=began, new=new))

    async def _capture(
        self,
        turn: Turn,
        context: Context,
        occurred_at: datetime,
        *,
        counts: bool,
        began: bool = False,
        new: Collection[Message] | None = None,
    ) -> None:
        try:
            messages = self._erasures.since(turn.messages, context, occurred_at, began=began)
            if not counts:
                return
            binding = self._roster.bind(context)
            messages = self._skipped.without(messages, context)
            turn = replace(turn, messages=tuple(messages))
            if binding is None or capture_refusal(turn, context, self._settings) is not None:
                return
            if not self._captures.takes(binding):
                return
            if new is not None:
                said = [message for message, _ in iterate_own_words(messages, self._settings)]
                messages = [message for message in reversed(said) if message in new]
            size = len(messages) if new is None else self._settings.capture_messages_max
            for start in range(0, len(messages), size):
                await self._keep(messages[start : start + size], binding, context, occurred_at)
        except Exception as error:
            log.warning("a turn was not captured (%s)", type(error).__name__)

    def skip(self, messages: Sequence[Message], context: Context, *, failed: bool = False) -> None:
        """Note that a run has ended that does not count: its messages are not captured later."""
        try:
            self._skipped.end(messages, context, failed=failed)
        except Exception as error:
            log.warning("a skipped run may be captured later (%s)", type(error).__name__)

    def _counts(self, turn: Turn, context: Context) -> bool:
        """Return whether a turn is of a run that counts; if not, it is known by that later."""
        refusal = capture_refusal(turn, context, self._settings)
        if refusal in SKIPPED:
            self.skip(turn.messages, context, failed=refusal == "failed")
            log.debug("a run was skipped (%s)", refusal)
        elif refusal is None:
            self._skipped.count(context)
        return refusal not in SKIPPED

    async def _keep(
        self, window: Sequence[Message], binding: Binding, context: Context, occurred_at: datetime
    ) -> None:
        messages = capturable(window, self._settings)
        if messages:
            captured = CapturedTurn.of(
                binding,
                text=number_messages(messages),
                session=session_of(context),
                source=self._source,
                occurred_at=occurred_at,
                names=context.session_names,
            )
            await self._captures.add(binding.client, captured)

    async def llm_input(self, event: object, ctx: object) -> None:
        """Note what a model is asked; with a debounce, the turn before it is captured first."""
        if self._settings.debounce_s:
            self._debounce.note_prompt(event, Context.from_json(ctx))

    async def llm_output(self, event: object, ctx: object) -> None:
        """Note what a model answers; with a debounce, the turn is captured after some silence."""
        if self._settings.debounce_s:
            self._debounce.note_answer(
                event,
                Context.from_json(ctx),
                silence_s=self._settings.debounce_s,
                capture=self.capture,
            )

    # Between.

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that a model may call."""
        return self._tools.offered

    async def call_tool(
        self, name: str, arguments: Mapping[str, object], context: Context
    ) -> ToolAnswer:
        """Return what a tool answers; what goes wrong is an answer as well."""
        try:
            binding = self._roster.bind(context)
            return await self._tools.call(name, arguments, binding, context)
        except Exception as error:
            log.warning("a tool failed (%s)", type(error).__name__)
            return ToolAnswer.fail("The memory tool failed; go on without it.")

    async def flush(self, timeout_s: float) -> bool:
        """Deliver what waits, for so long at most; return whether nothing is left."""
        self._debounce.flush()
        try:
            async with asyncio.timeout(timeout_s):
                await self._settle()
                for client in self._roster.clients():
                    self._captures.wake(client)
                return await self._captures.flush()
        except TimeoutError:
            return False

    async def close(self, timeout_s: float = 5.0) -> None:
        """Deliver what waits, for so long at most, and close the connections."""
        await self.flush(timeout_s)
        await self._settle()
        await self._captures.close()
        await self._roster.close()

    async def __aenter__(self) -> Self:
        for client in self._roster.clients():
            self._captures.wake(client)  # what an earlier process left behind
        self._captures.tell_strangers()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _settle(self) -> None:
        """Wait until all that was handed over is kept, which takes the disk's time only."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # the loop itself keeps no strong reference
        task.add_done_callback(self._tasks.discard)

    def _estimate_end(self, turn: Turn) -> datetime:
        """Return when a turn ended, if that can be: it may be handed over late."""
        now = self._now()
        now_ms = round(1000 * now.timestamp())
        if turn.ended_ms is None or not now_ms - LATE_MS_MAX <= turn.ended_ms <= now_ms:
            return now
        return _here(turn.ended_ms / 1000)

    def _now(self) -> datetime:
        return _here(self._clock())


def _here(unix_s: float) -> datetime:
    # In the machine's time zone: "today" is a day of the user's.
    return datetime.fromtimestamp(unix_s, UTC).astimezone()


def _make_injection(binding: Binding, outcome: Outcome, context: str = "") -> Injection:
    return Injection(
        prepend_context=context or None,
        append_system_context=namespace_instruction(binding.namespace, outcome=outcome),
    )
