"""The openai package with a memory: recall before every chat completion, capture after it.

It does not own what is recalled or kept, or what happens while the relayer is away (`gateway/`).

- The client and the messages that the caller gave stay as they are.
- Memories join the user's message. In a system message, a poisoned memory would speak with the
  developer's authority, and a text that differs each turn would spoil the provider's prompt cache.
- Only a complete answer is captured: none that was refused, broken off, or that calls tools.
- What goes wrong here is a line in the log; the caller's call goes on.
"""

import asyncio
import atexit
import logging
import os
import threading
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from openai import AsyncOpenAI, AsyncStream, BaseModel, OpenAI, Stream
from openai.resources.chat import AsyncChat, AsyncCompletions, Chat, Completions
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import Choice

from memrelay.config import spool_folder
from memrelay.gateway import BlockingGateway, Context, Gateway, GatewaySettings, Injection, Message
from memrelay.gateway.events import ASSISTANT, USER, read_messages
from memrelay.gateway.roster import Roster

C = TypeVar("C", bound=OpenAI | AsyncOpenAI)
G = TypeVar("G", bound=Gateway | BlockingGateway)

log = logging.getLogger("memrelay.openai")

_FINAL = {"stop", "length"}  # how an answer ends that is one
_ASIDE = {"system", "developer"}  # roles that do not answer the user
# Not every server sends what the API promises, and the openai package does not insist.
_INCOMPLETE = (AttributeError, IndexError, TypeError)
_FLUSH_S = 5.0
_TURNS_MAX = 256  # whose memories are kept for the further steps of a tool loop

_session: ContextVar[tuple[str, str | None] | None] = ContextVar("memrelay_session", default=None)
_off: ContextVar[bool] = ContextVar("memrelay_off", default=False)


def with_memory(
    client: C,
    *,
    profile: str | Path | None = None,
    session: str | None = None,
    agent: str | None = None,
    settings: GatewaySettings | None = None,
) -> C:
    """Return a client that remembers; it shares the connections of `client`.

    `session` names the conversation; without it, the result is one conversation. `agent` is whose
    memory it is; without it, the profile's own. Use the result in `with` (or `async with`), or
    call its `close`: that delivers what was captured last, and closes the connections.

    Raises:
        ConfigError: there is no profile, or something in it is malformed.
    """
    spool_path = spool_folder(profile, os.environ)
    roster, chosen = Roster.load(profile), settings or GatewaySettings()
    gateway = Gateway(roster, chosen, source="openai", spool_path=spool_path)
    conversation = (session or uuid.uuid4().hex, agent)
    if isinstance(client, AsyncOpenAI):
        for_each_loop: _Shared[Gateway] = _Shared(gateway, _itself, asyncio.get_running_loop)
        return _attached(client.copy(), _Memory(for_each_loop, conversation))
    keys = frozenset(one.settings for one in roster.clients())
    with _lock:
        shared = _running.setdefault(
            (spool_path, chosen, keys),
            _Shared(gateway, lambda template: BlockingGateway(template, chosen)),
        )
        return _attached(client.copy(), _Memory(shared, conversation))


@contextmanager
def memory_session(session: str, *, agent: str | None = None) -> Iterator[None]:
    """Count the calls within as another conversation, and as one of `agent` if it is given.

    It holds for this thread or task only, so one client can serve many users.
    """
    token = _session.set((session, agent))
    try:
        yield
    finally:
        _session.reset(token)


@contextmanager
def without_memory() -> Iterator[None]:
    """Neither recall nor capture around the calls within, in this thread or task."""
    token = _off.set(True)
    try:
        yield
    finally:
        _off.reset(token)


@dataclass(frozen=True, kw_only=True)
class _Turn:
    """One call of the model, as the caller made it."""

    given: tuple[object, ...]
    messages: tuple[Message, ...]
    context: Context
    place: int  # of the user's last message
    begins: bool  # nothing has answered that message: this is no further step of a tool loop
    several: bool  # alternative answers are asked for

    @property
    def prompt(self) -> str:
        """The text of the user's last message."""
        said = read_messages([_members(self.given[self.place])])
        return said[0].text if said else ""

    def with_memories(self, injection: Injection) -> list[object]:
        """Return the messages for the model; of the user's last one, a copy if it has to change."""
        messages = list(self.given)
        if injection.prepend_context:
            message = _members(messages[self.place])
            content = message.get("content")
            if isinstance(content, str):
                content = f"{injection.prepend_context}\n\n{content}"
            elif isinstance(content, list | tuple):
                content = [{"type": "text", "text": injection.prepend_context}, *content]
            else:
                return messages  # whether that is a message, the server decides
            messages[self.place] = {**message, "content": content}
        return messages

    def after(self, completion: object) -> tuple[Message, ...]:
        """Return what is to be captured after a whole answer."""
        if not isinstance(completion, ChatCompletion):
            return ()  # a raw response is the caller's to read
        try:
            choice = completion.choices[0]
            other = choice.message.refusal or _calls(choice.message)
            return () if other else self.ended(choice.finish_reason, choice.message.content)
        except _INCOMPLETE:
            return ()

    def ended(self, finish_reason: str, text: str | None) -> tuple[Message, ...]:
        """Return what is to be captured once the model has said `text` and nothing else."""
        if finish_reason not in _FINAL:
            return ()
        if self.several or not text:
            return self.messages  # which of several answers counts, only the next turn shows
        return (*self.messages, Message(ASSISTANT, text))


@dataclass(eq=False)
class _Shared(Generic[G]):
    """A gateway, which begins with its first use, and the clients that use it.

    Not every client is closed, and a gateway for each would leave its thread behind. One that
    awaits is bound to an event loop: there is one for each `place` that is a loop, and it ends
    with it.
    """

    template: Gateway
    start: Callable[[Gateway], G]
    place: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None
    begun: dict[asyncio.AbstractEventLoop | None, G] = field(default_factory=dict)
    users: "WeakSet[OpenAI | AsyncOpenAI]" = field(default_factory=WeakSet)
    lock: threading.Lock = field(default_factory=threading.Lock)
    endings: dict[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = field(
        default_factory=dict
    )
    used: bool = False

    def __post_init__(self) -> None:
        _known.add(self)

    @property
    def gateway(self) -> G:
        """The gateway itself."""
        place = self.place()
        with self.lock:  # not sooner: a server that forks after the set-up would lose the thread
            if place not in self.begun:
                self._begin(place)
            return self.begun[place]

    def _begin(self, place: asyncio.AbstractEventLoop | None) -> None:
        for loop in [loop for loop in self.endings if loop.is_closed()]:
            del self.begun[loop], self.endings[loop]
        self.template = self.template.anew() if self.used else self.template
        self.used = True
        self.begun[place] = self.start(self.template)
        if place is not None:
            self.endings[place] = _ending(self.template)
            with suppress(StopIteration):  # it begins without awaiting anything
                anext(self.endings[place]).send(None)

    def forked(self) -> None:
        """Begin anew in a child, and never touch what the parent goes on using."""
        # Were it finalised, its event loop would unregister the connections of the parent's.
        _of_parent.append((self.template, self.begun, self.endings))
        self.begun, self.endings = {}, {}
        self.lock = threading.Lock()  # which a thread of the parent may have held

    def unused(self) -> bool:
        """Return whether all clients are closed; copies may share one connection."""
        return all(user.is_closed() for user in list(self.users))


def _itself(gateway: Gateway) -> Gateway:
    return gateway


async def _ending(gateway: Gateway) -> AsyncGenerator[None, None]:
    """Close a gateway when its event loop ends, which then closes the generators it has begun."""
    try:
        yield
    finally:
        await gateway.close()


_known: "WeakSet[_Shared[Any]]" = WeakSet()
_running: dict[Hashable, _Shared[BlockingGateway]] = {}
_of_parent: list[object] = []
_lock = threading.Lock()


@atexit.register
def _close_all() -> None:
    """Deliver what was captured last: a script may end without a word."""
    for shared in list(_running.values()):
        for begun in shared.begun.values():
            begun.close()


def _begin_anew() -> None:
    _lock.release()
    for shared in list(_known):
        shared.forked()


if hasattr(os, "register_at_fork"):  # the threads of what has begun stay with the parent
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_begin_anew
    )


class _Memory(Generic[G]):
    """A gateway, and what all calls of one client have in common."""

    def __init__(self, shared: _Shared[G], conversation: tuple[str, str | None]) -> None:
        self.shared = shared
        self._conversation = conversation
        self._injections: dict[tuple[Context, str], Injection] = {}

    @property
    def gateway(self) -> G:
        """The gateway."""
        return self.shared.gateway

    def turn(self, given: list[Any], options: Mapping[str, Any]) -> _Turn | None:
        """Return the turn of a call; None if there is nothing to do around it."""
        members = [_members(message) for message in given]
        roles = [message.get("role") for message in members]
        if USER not in roles:
            return None
        place = len(roles) - 1 - roles[::-1].index(USER)
        count = options.get("n")
        return _Turn(
            given=tuple(given),
            messages=read_messages(members),
            context=self._context(),
            place=place,
            begins=all(role in _ASIDE for role in roles[place + 1 :]),
            several=isinstance(count, int) and count > 1,
        )

    def _context(self) -> Context:
        session, agent = _session.get() or self._conversation
        return Context(agent_id=agent or self._conversation[1], session_id=session)

    def keep(self, turn: _Turn, injection: Injection) -> Injection:
        """Return `injection`, and keep it for the further steps of this turn."""
        with self.shared.lock:
            self._injections.pop((turn.context, turn.prompt), None)
            self._injections[turn.context, turn.prompt] = injection
            if len(self._injections) > _TURNS_MAX:
                del self._injections[next(iter(self._injections))]
        return injection

    def kept(self, turn: _Turn) -> Injection:
        """Return what the first step of this turn was given."""
        return self._injections.get((turn.context, turn.prompt), Injection())

    def capture(self, turn: _Turn, messages: tuple[Message, ...]) -> None:
        """Capture in the background what a call leaves to be captured, if anything."""
        if messages:
            self.gateway.capture(messages, turn.context)


class _Listener:
    """Puts the answer of a stream together while it passes, and captures it at its end."""

    def __init__(self, memory: _Memory[Any], turn: _Turn) -> None:
        self._memory = memory
        self._turn = turn
        self._text = ""
        self._done = False

    def hear(self, chunk: ChatCompletionChunk) -> None:
        """Take in an event."""
        try:
            for choice in chunk.choices:
                self._take(choice)
        except _INCOMPLETE:
            self._done = True

    def _take(self, choice: Choice) -> None:
        self._text += choice.delta.content or ""
        self._done |= bool(choice.delta.refusal or _calls(choice.delta))
        if choice.finish_reason and not self._done:
            self._done = True  # some servers repeat the end in the event with the usage
            with _going_on("capture"):
                self._memory.capture(self._turn, self._turn.ended(choice.finish_reason, self._text))


class _Stream(Stream[ChatCompletionChunk]):
    def __init__(self, source: Stream[ChatCompletionChunk], listener: _Listener) -> None:
        self.response = source.response
        self._source = source
        self._listener = listener

    def __next__(self) -> ChatCompletionChunk:
        chunk = next(self._source)
        self._listener.hear(chunk)
        return chunk

    def __iter__(self) -> Iterator[ChatCompletionChunk]:
        return self

    def close(self) -> None:
        self._source.close()


class _AsyncStream(AsyncStream[ChatCompletionChunk]):
    def __init__(self, source: AsyncStream[ChatCompletionChunk], listener: _Listener) -> None:
        self.response = source.response
        self._source = source
        self._listener = listener

    async def __anext__(self) -> ChatCompletionChunk:
        chunk = await anext(self._source)
        self._listener.hear(chunk)
        return chunk

    def __aiter__(self) -> AsyncIterator[ChatCompletionChunk]:
        return self

    async def close(self) -> None:
        await self._source.close()


class _Completions(Completions):
    def __init__(self, client: OpenAI, memory: _Memory[BlockingGateway]) -> None:
        super().__init__(client)
        self._memory = memory

    def create(self, **options: Any) -> Any:
        return self._remembering(super().create, options)

    def parse(self, **options: Any) -> Any:
        return self._remembering(super().parse, options)

    def _remembering(self, call: Callable[..., Any], options: dict[str, Any]) -> Any:
        memory, turn = self._memory, None
        given = None if self._client.is_closed() else _listed(options)
        with _going_on("recall"):
            turn = None if given is None else memory.turn(given, options)
            if turn is not None:
                injection = memory.kept(turn)
                if turn.begins:
                    found = memory.gateway.recall(turn.prompt, turn.context)
                    injection = memory.keep(turn, found)
                options = {**options, "messages": turn.with_memories(injection)}
        answer = call(**options)
        if turn is None:
            return answer
        if isinstance(answer, Stream):
            return _Stream(answer, _Listener(memory, turn))
        with _going_on("capture"):
            memory.capture(turn, turn.after(answer))
        return answer


class _AsyncCompletions(AsyncCompletions):
    def __init__(self, client: AsyncOpenAI, memory: _Memory[Gateway]) -> None:
        super().__init__(client)
        self._memory = memory

    async def create(self, **options: Any) -> Any:
        return await self._remembering(super().create, options)

    async def parse(self, **options: Any) -> Any:
        return await self._remembering(super().parse, options)

    async def _remembering(self, call: Callable[..., Any], options: dict[str, Any]) -> Any:
        memory, turn = self._memory, None
        given = None if self._client.is_closed() else _listed(options)
        with _going_on("recall"):
            turn = None if given is None else memory.turn(given, options)
            if turn is not None:
                injection = memory.kept(turn)
                if turn.begins:
                    found = await memory.gateway.recall(turn.prompt, turn.context)
                    injection = memory.keep(turn, found)
                options = {**options, "messages": turn.with_memories(injection)}
        answer = await call(**options)
        if turn is None:
            return answer
        if isinstance(answer, AsyncStream):
            return _AsyncStream(answer, _Listener(memory, turn))
        with _going_on("capture"):
            memory.capture(turn, turn.after(answer))
        return answer


def _attached(client: C, memory: _Memory[Any]) -> C:
    """Return the same client, whose chat completions now go through `memory`, as do its copies'."""
    copy = client.copy

    def copied(**options: Any) -> Any:
        return _attached(copy(**options), memory)

    # An instance's own members come before the cached properties and the methods of its class.
    memory.shared.users.add(client)
    own = vars(client)
    own.update(copy=copied, with_options=copied)
    if isinstance(client, AsyncOpenAI):
        own.update(chat=AsyncChat(client), close=_closing_async(memory, client.close))
        vars(client.chat)["completions"] = _AsyncCompletions(client, memory)
    else:
        own.update(chat=Chat(client), close=_closing(memory, client.close))
        vars(client.chat)["completions"] = _Completions(client, memory)
    vars(client.beta)["chat"] = client.chat
    return client


def _closing(memory: _Memory[BlockingGateway], close: Callable[[], None]) -> Callable[[], None]:
    def closed() -> None:
        close()
        shared = memory.shared
        with _lock:
            last = shared.unused()
            for key in [key for key, value in _running.items() if last and value is shared]:
                del _running[key]
        for begun in list(shared.begun.values()):
            begun.close() if last else begun.flush(_FLUSH_S)

    return closed


def _closing_async(
    memory: _Memory[Gateway], close: Callable[[], Awaitable[None]]
) -> Callable[[], Awaitable[None]]:
    async def closed() -> None:
        await close()
        if memory.shared.unused():
            await memory.gateway.close()
        else:
            await memory.gateway.flush(_FLUSH_S)

    return closed


@contextmanager
def _going_on(what: str) -> Iterator[None]:
    """Let the caller's call go on without what fails within."""
    try:
        yield
    except Exception as error:
        log.warning("%s failed (%s): the call goes on without it", what, type(error).__name__)


def _listed(options: dict[str, Any]) -> list[Any] | None:
    """Return the messages of a call; None if it is to be left alone."""
    given = options.get("messages")
    if _off.get() or isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        return None  # what is no list of messages, the call itself refuses
    # An iterator can be read once only, so the call gets the list as well.
    listed = options["messages"] = list(given)
    return listed


def _members(message: object) -> dict[str, Any]:
    """Return a message's members; the openai package takes its own answers as messages, too."""
    if isinstance(message, BaseModel):
        return message.to_dict()
    return dict(message) if isinstance(message, Mapping) else {}


def _calls(message: Any) -> bool:
    return bool(message.tool_calls or message.function_call)
