"""Carries out the tools that a model may call: search, get, store, forget, transcript.

It does not own how they are described (`schemas.py`) or what they answer (`tool_answers.py`).

- Arguments come from a model, and memories from anywhere: the first are checked one by one, the
  second are escaped, marked as data and left out when they look like instructions.
- An agent reaches its own namespace and those that were granted to its key by name, no other. That
  is so for the owner's key too, which could open every agent's.
- Nothing raises: what goes wrong is told to the model in plain words.
- What is to be stored is not lost with a relayer that is slow or away: it waits with the turns.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from uuid import UUID, uuid4

from memrelay.errors import (
    Invalid,
    MemrelayError,
    NotAllowed,
    NotGranted,
    ServerError,
)
from memrelay.gateway.arguments import NO_NAMESPACE, as_name, as_text, is_placeholder
from memrelay.gateway.capture import Captures, send_turn
from memrelay.gateway.captured_turn import CapturedTurn
from memrelay.gateway.erasures import Erasures
from memrelay.gateway.filters import looks_injected
from memrelay.gateway.framing import (
    NOTHING_FOUND,
    WORDS_ONLY,
    frame_memories,
    presentable,
    quote_lines,
)
from memrelay.gateway.host_events import Context, encodable
from memrelay.gateway.outage import AWAY, reason_of
from memrelay.gateway.roster import Binding
from memrelay.gateway.schemas import (
    FORGET,
    GET,
    SEARCH,
    SEARCH_RESULTS,
    SEARCH_RESULTS_MAX,
    STORE,
    STORE_CHARS_MAX,
    STORE_CHARS_MIN,
    TRANSCRIPT,
    TRANSCRIPT_LINES,
    TRANSCRIPT_LINES_MAX,
    Tool,
)
from memrelay.gateway.settings import GatewaySettings
from memrelay.gateway.tool_answers import ToolAnswer, details_of, explain, report_stored
from memrelay.gateway.transcripts import Transcripts
from memrelay.models import Forgotten, Memory
from memrelay.operations.reads import MIN_RELEVANCE
from memrelay.sealed.keys import normalise_namespace

DEADLINE_S = 10.0
QUERY_CHARS_MAX = 4_000
FOUND_CHARS_MAX, SHOWN_CHARS_MAX = 2_000, 20_000  # of one memory, in a search and by itself
_SHOWN = GatewaySettings(memory_details=True, injection_tokens_max=0)  # bounded by these

_TOO_LONG = "request.deadline"
_NO_MEMORY = "This agent has no memory."

Arguments = Mapping[str, object]


class Unusable(Exception):
    """An argument that cannot be used; the message is for the model."""


class Tools:
    """The tools of a gateway; `transcripts` is the folder of its agents, if it can be read."""

    def __init__(
        self,
        captures: Captures,
        erasures: Erasures,
        *,
        source: str,
        now: Callable[[], datetime],
        transcripts: Path | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._captures = captures
        self._erasures = erasures
        self._deadline_s = deadline_s
        self._source = source
        self._now = now
        self._transcripts = Transcripts(transcripts) if transcripts else None
        self._work: dict[str, Callable[[Binding, Arguments], Awaitable[ToolAnswer]]] = {
            SEARCH.name: self._search,
            GET.name: self._get,
        }
        self.offered: tuple[Tool, ...] = (SEARCH, GET, STORE, FORGET)
        if self._transcripts is not None:
            self.offered += (TRANSCRIPT,)
            self._work[TRANSCRIPT.name] = self._transcript

    async def call(
        self, name: str, arguments: Arguments, binding: Binding | None, context: Context
    ) -> ToolAnswer:
        """Return what a tool answers for the agent of a binding, within the deadline.

        `context` tells the session that it is called in.
        """
        tool = next((tool for tool in self.offered if tool.name == name), None)
        if tool is None:
            return ToolAnswer.fail("There is no such memory tool.")
        if binding is None:
            return ToolAnswer.fail(_NO_MEMORY)
        unknown = set(arguments) - set(tool.parameters["properties"])
        if unknown:
            expected = ", ".join(tool.parameters["properties"])
            return ToolAnswer.fail(f"{name} takes {expected}, nothing else.")
        try:
            if tool is STORE:
                return await self._store(binding, arguments)  # whose wish outlives the deadline
            async with asyncio.timeout(self._deadline_s):
                if await binding.is_taken():
                    return ToolAnswer.fail(_NO_MEMORY)
                if tool is FORGET:
                    return await self._forget(binding, arguments, context)
                return await self._work[name](binding, arguments)
        except Unusable as error:
            return ToolAnswer.fail(str(error))
        except (MemrelayError, TimeoutError) as error:
            return ToolAnswer.fail(explain(error))

    async def _search(self, binding: Binding, arguments: Arguments) -> ToolAnswer:
        query = _text(as_text(arguments.get("query")), "query", chars_max=QUERY_CHARS_MAX)
        limit = _number(arguments, "limit", SEARCH_RESULTS, SEARCH_RESULTS_MAX)
        if arguments.get("namespace") is None:
            namespaces = (binding.namespace, *await binding.list_shared())
        else:
            namespaces = (await _namespace(binding, arguments),)
        found = await binding.recall(
            query,
            namespaces=namespaces,
            limit=limit,
            min_relevance=MIN_RELEVANCE,
            chars_max=FOUND_CHARS_MAX,
        )
        details = {
            "count": len(found.memories),
            "memories": [details_of(memory, binding.reader) for memory in found.memories],
            "degraded": found.degraded,
        }
        text = _frame_memories(found.memories, binding) or NOTHING_FOUND
        if found.degraded:
            text = f"{text}\n{WORDS_ONLY}"
        return ToolAnswer(text=text, details=details)

    async def _get(self, binding: Binding, arguments: Arguments) -> ToolAnswer:
        shown = presentable([await _own(binding, _id(arguments))], chars_max=SHOWN_CHARS_MAX)
        if not shown:
            return ToolAnswer.fail("This memory is not shown: it looks like an instruction.")
        [memory] = shown
        return ToolAnswer(
            text=_frame_memories([memory], binding) or "",
            details=details_of(memory, binding.reader),
        )

    async def _store(self, binding: Binding, arguments: Arguments) -> ToolAnswer:
        given = as_text(arguments.get("text"))
        text = _text(given, "text", chars_min=STORE_CHARS_MIN, chars_max=STORE_CHARS_MAX)
        if looks_injected(text):
            return ToolAnswer.fail("This is not stored: it looks like an instruction.")
        wish = None
        try:
            async with asyncio.timeout(self._deadline_s):
                namespace = await _namespace(binding, arguments)
                wish = self._wish(binding, namespace, text)
                if await binding.is_taken():
                    return ToolAnswer.fail(_NO_MEMORY)
                return report_stored(await send_turn(binding.client, wish))
        except (MemrelayError, TimeoutError) as error:
            if wish is None or reason_of(error) != AWAY:
                raise
        await self._captures.add(binding.client, wish)
        return ToolAnswer(
            text="Taken: it will be stored as soon as the memory can be reached.",
            details={"fact_count": 0, "status": "waiting"},
        )

    def _wish(self, binding: Binding, namespace: str, text: str) -> CapturedTurn:
        turn = CapturedTurn.of(
            replace(binding, namespace=namespace),
            text=text,
            session="tool",
            source=self._source,
            occurred_at=self._now(),
        )
        # Whoever asks again, after forgetting it for instance, wants it stored again.
        again = str(uuid4())
        return replace(turn, wish=True, borrowed=binding.borrows, idempotency_key=again)

    async def _forget(self, binding: Binding, arguments: Arguments, context: Context) -> ToolAnswer:
        forgotten = await self._forget_memory(binding, await _own(binding, _id(arguments)), context)
        if not forgotten.erased:
            return ToolAnswer.fail("The relayer did not erase it.")
        pending = " One outside copy is still being erased." if forgotten.pending else ""
        return ToolAnswer(
            text=f"Erased for good, with a receipt.{pending}",
            details={"id": forgotten.id, "erased": True, "pending": forgotten.pending},
        )

    async def _forget_memory(self, binding: Binding, memory: Memory, context: Context) -> Forgotten:
        """Erase a memory, and let nothing store anew what its session said until then.

        That goes for the end of this turn, and for what waits, which goes on waiting meanwhile.
        """
        take_back = self._erasures.note(context, self._now())
        done = True  # as far as anybody knows, where the answer is lost
        try:
            forgotten = await binding.client.forget(memory.id)
            done = forgotten.erased
        except ServerError as error:
            done = not await _stands(binding, memory, error)
            raise
        finally:
            if done:
                await self._captures.drop(binding.client)
            else:
                take_back()
                self._captures.wake(binding.client)
        return forgotten

    async def _transcript(self, binding: Binding, arguments: Arguments) -> ToolAnswer:
        assert self._transcripts is not None
        lines = _number(arguments, "lines", TRANSCRIPT_LINES, TRANSCRIPT_LINES_MAX)
        session = arguments.get("session_id")
        if session is None:
            memory = await _own(binding, _id(arguments))
            session = (memory.source or "").rpartition(":")[2]
        if not isinstance(session, str) or not session:
            raise Unusable("Give session_id, or the id of a memory that came from a session.")
        said = await asyncio.to_thread(self._transcripts.read, binding.agent, session, lines)
        if said is None:
            return ToolAnswer.fail("There is no readable transcript of that session.")
        return ToolAnswer(
            text=quote_lines((message.role, message.text) for message in said),
            details={"session_id": session, "count": len(said)},
        )


def _frame_memories(memories: Sequence[Memory], binding: Binding) -> str | None:
    return frame_memories(memories, _SHOWN, binding.reader, shows_source=True)


async def _namespace(binding: Binding, arguments: Arguments) -> str:
    if arguments.get("namespace") is None:
        return binding.namespace
    named = _text(as_name(arguments["namespace"]), "namespace", chars_max=128, chars_min=0)
    if is_placeholder(named):
        raise Unusable(f"namespace: {NO_NAMESPACE}.")
    try:
        name = normalise_namespace(named)
    except Invalid as error:
        raise Unusable(str(error)) from None
    if not await binding.may_use(name):
        raise NotGranted("another agent's namespace")
    return name


async def _stands(binding: Binding, memory: Memory, error: ServerError) -> bool:
    """Return whether a memory was surely not erased: the relayer says so, and still has it."""
    # Behind a proxy, or past the deadline, it may be erased in a moment.
    if error.code.startswith("http.") or error.code == _TOO_LONG:
        return False
    try:
        await binding.client.get(memory.id, namespace=memory.namespace)
    except MemrelayError:
        return False
    return True


async def _own(binding: Binding, memory_id: str) -> Memory:
    """Return a memory of a namespace that the agent may use, as if there were no others."""
    try:
        namespace = None if await binding.list_shared() else binding.namespace
        memory = await binding.client.get(memory_id, namespace=namespace)
    except (NotAllowed, NotGranted):
        raise Unusable("There is no memory with that id.") from None
    if not await binding.may_use(memory.namespace):
        raise Unusable("There is no memory with that id.")
    return memory


def _text(value: object, name: str, *, chars_max: int, chars_min: int = 1) -> str:
    text = encodable(value).strip() if isinstance(value, str) else None
    if text is None or not chars_min <= len(text) <= chars_max:
        raise Unusable(f"{name} is a text of {chars_min} to {chars_max} characters.")
    return text


def _id(arguments: Arguments) -> str:
    try:
        return str(UUID(_text(arguments.get("id"), "id", chars_max=64)))
    except ValueError:
        raise Unusable("id is that of a memory, as memory_search shows it.") from None


def _number(arguments: Arguments, name: str, default: int, high: int) -> int:
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
        raise Unusable(f"{name} is a whole number from 1 to {high}.")
    return value
