"""A client of the openai package whose requests to models go through a memory.

It does not own what happens to a request there (`memory.py`), or to its answer (`streams.py`).

All resources of a client send by its `post` and ask again by its `get`. What stands there sees
every call: `create`, `parse`, `stream`, and those of a wrapper for raw responses.
"""

import os
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from openai import AsyncOpenAI, OpenAI

from memrelay.config import spool_folder
from memrelay.gateway import BlockingGateway, Gateway, GatewaySettings
from memrelay.gateway.roster import Roster
from memrelay.openai.bypasses import warn_of_bypass, watch_websockets
from memrelay.openai.memory import Listener, Memory, fail_open, with_memories
from memrelay.openai.sessions import without_memory
from memrelay.openai.shared_gateway import leave, share_blocking_gateway, share_gateway_of_each_loop
from memrelay.openai.streams import pass_on

C = TypeVar("C", bound=OpenAI | AsyncOpenAI)

_FLUSH_S = 5.0


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
    copy = _plain_copy(client)
    if isinstance(copy, AsyncOpenAI):
        memory: Memory[Any] = Memory(share_gateway_of_each_loop(gateway, copy), conversation)
    else:
        key = (spool_path, chosen, frozenset(one.settings for one in roster.clients()))
        memory = Memory(share_blocking_gateway(gateway, chosen, key, copy), conversation)
    return _attach(copy, memory)


def _plain_copy(client: C, **options: Any) -> C:
    """Return a copy without memory."""
    copy: Callable[..., C] = type(client).copy
    with without_memory():  # copying reads where WebSockets go to
        return copy(client, **options)


def _attach(client: C, memory: Memory[Any]) -> C:
    """Return the same client, whose requests now go through `memory`, as do its copies'."""

    def copy_with_memory(**options: Any) -> C:
        return _attach(_plain_copy(client, **options), memory)

    # An instance's own members come before the methods of its class.
    memory.shared.users.add(client)
    own = vars(client)
    own.update(copy=copy_with_memory, with_options=copy_with_memory)
    if isinstance(client, AsyncOpenAI):
        own.update(
            post=_post_async(client, memory, client.post),
            get=_get_async(memory, client.get),
            close=_close_async(memory, client.close),
        )
    else:
        own.update(
            post=_post(client, memory, client.post),
            get=_get(memory, client.get),
            close=_close(memory, client.close),
        )
    watch_websockets(client, memory)
    return client


def _post(
    client: OpenAI, memory: Memory[BlockingGateway], send: Callable[..., Any]
) -> Callable[..., Any]:
    def post(path: str, **request: Any) -> Any:
        turn = None
        with fail_open("recall"):
            warn_of_bypass(memory, path)
            turn = None if client.is_closed() else memory.turn(path, request)
            if turn is not None:
                injection = memory.injection_of(turn)
                if turn.is_first_step:
                    recalled = memory.gateway.recall(turn.prompt, turn.context)
                    injection = memory.keep_injection(turn, recalled)
                request = with_memories(request, turn, injection)
        answer = send(path, **request)
        return answer if turn is None else pass_on(answer, Listener(memory, turn))

    return post


def _post_async(
    client: AsyncOpenAI, memory: Memory[Gateway], send: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    async def post(path: str, **request: Any) -> Any:
        turn = None
        with fail_open("recall"):
            warn_of_bypass(memory, path)
            turn = None if client.is_closed() else memory.turn(path, request)
            if turn is not None:
                injection = memory.injection_of(turn)
                if turn.is_first_step:
                    recalled = await memory.gateway.recall(turn.prompt, turn.context)
                    injection = memory.keep_injection(turn, recalled)
                request = with_memories(request, turn, injection)
        answer = await send(path, **request)
        return answer if turn is None else pass_on(answer, Listener(memory, turn))

    return post


def _get(memory: Memory[Any], send: Callable[..., Any]) -> Callable[..., Any]:
    def get(path: str, **request: Any) -> Any:
        answer, listener = send(path, **request), memory.listener(path)
        return answer if listener is None else pass_on(answer, listener)

    return get


def _get_async(
    memory: Memory[Any], send: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    async def get(path: str, **request: Any) -> Any:
        answer, listener = await send(path, **request), memory.listener(path)
        return answer if listener is None else pass_on(answer, listener)

    return get


def _close(memory: Memory[BlockingGateway], close: Callable[[], None]) -> Callable[[], None]:
    def close_with_memory() -> None:
        close()
        is_last = leave(memory.shared)
        for gateway in list(memory.shared.gateways.values()):
            gateway.close() if is_last else gateway.flush(_FLUSH_S)

    return close_with_memory


def _close_async(
    memory: Memory[Gateway], close: Callable[[], Awaitable[None]]
) -> Callable[[], Awaitable[None]]:
    async def close_with_memory() -> None:
        await close()
        if memory.shared.is_unused():
            await memory.gateway.close()
        else:
            await memory.gateway.flush(_FLUSH_S)

    return close_with_memory
