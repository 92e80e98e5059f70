"""The gateway process: hooks and tools for programs of this machine, which hold no keys.

It does not own what happens before and after a turn (`hooks.py`) or how it is found and asked
(`endpoint.py`).

- A connection's first call is `hello` with the token; whatever else comes first ends it.
- Everything is bounded: connections, the length of a line, calls under way, silence.
- No line of the log holds anything of what was asked or answered.
"""

import asyncio
import hmac
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from memrelay import __version__
from memrelay.async_client import MemoryClient
from memrelay.errors import ConfigError, MemrelayError, NotAllowed, NotAuthenticated, NotGranted
from memrelay.gateway.endpoint import LINE_BYTES_MAX, LOOPBACK, Endpoint
from memrelay.gateway.hooks import Gateway
from memrelay.gateway.host_events import Context
from memrelay.gateway.roster import Roster
from memrelay.gateway.settings import GatewaySettings
from memrelay.gateway.tool_answers import ToolAnswer

log = logging.getLogger("memrelay.gateway")

CONNECTIONS_MAX = 64
CALLS_MAX = 32  # under way on one connection; the next line is read when one of them is done
TOOL_CALLS_MAX = 16  # of these: a hook, which a turn waits for, must not stand behind slow tools
HELLO_S = 5.0
IDLE_S = 3600.0
HOOK_MARGIN_S = 0.5  # that a caller waits longer for a hook than the recall's own deadline
_SEND_S = 10.0
_ENDING_S = 5.0
_HEALTH_S = 3.0

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
FAILED = -32000

# How the relayer of a key is: nothing else is worth telling apart to a person.
ANSWERS, REFUSES, AWAY = "answers", "refuses this key", "does not answer"


class Refused(Exception):
    """A call that gets an error for an answer; the message may be shown to anybody."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Server:
    """Answers connections for a gateway; `base` are the settings that a connection may override."""

    def __init__(self, gateway: Gateway, roster: Roster, *, base: Mapping[str, Any]) -> None:
        self.gateway = gateway
        self.token, self.proof = secrets.token_hex(32), secrets.token_hex(32)
        self.base = base
        self._roster = roster
        self._began_s = time.monotonic()
        self._connections: dict[asyncio.Task[None], asyncio.StreamReader] = {}

    async def run(
        self,
        endpoint_file: Path,
        *,
        socket: Path | None,
        port: int | None,
        ready: Callable[[Endpoint], None],
        stop: asyncio.Event,
    ) -> None:
        """Answer on a socket, or on a port of this machine (0: any), until `stop` is set.

        Raises:
            ConfigError: another process listens there, or the address cannot be used.
        """
        listening, endpoint = await self._listen(socket, port)
        endpoint.write(endpoint_file)
        try:
            ready(endpoint)
            await self._tell_health()
            await stop.wait()
        finally:
            for left in (endpoint_file, socket):
                if left is not None:
                    left.unlink(missing_ok=True)
            listening.close()
            await self._end_connections()

    async def _listen(
        self, socket: Path | None, port: int | None
    ) -> tuple[asyncio.Server, Endpoint]:
        connected, limit = self._handle_connection, LINE_BYTES_MAX
        try:
            if socket is None:
                listening = await asyncio.start_server(connected, LOOPBACK, port, limit=limit)
                taken = listening.sockets[0].getsockname()[1]
                return listening, self._endpoint(port=taken)
            endpoint = self._endpoint(socket=str(socket))
            if await asyncio.to_thread(endpoint.answers):
                raise ConfigError(f"Another process listens on {socket}: name another --socket.")
            # Asyncio replaces a socket that it finds there; now nobody answers on it.
            return await asyncio.start_unix_server(connected, socket, limit=limit), endpoint
        except OSError as error:
            raise ConfigError(f"The gateway cannot listen there: {error.strerror}.") from error
        except OverflowError:
            raise ConfigError("A port is from 0 to 65535.") from None

    def _endpoint(self, **place: Any) -> Endpoint:
        return Endpoint(token=self.token, proof=self.proof, **place)

    async def _health(self) -> list[tuple[MemoryClient, str]]:
        """Return the clients, and how the relayer of each is."""
        clients = self._roster.clients()
        states = await asyncio.gather(*map(_state, clients))
        return list(zip(clients, states, strict=True))

    async def _tell_health(self) -> None:
        for client, state in await self._health():
            key = client.settings.masked_key
            if state == ANSWERS:
                log.info("the relayer %s (key %s)", state, key)
            else:
                log.warning("the relayer %s (key %s): turns go on without it", state, key)

    async def _end_connections(self) -> None:
        """Let the calls under way end, for a while."""
        for reader in self._connections.values():
            reader.feed_eof()
        if tasks := list(self._connections):
            _, late = await asyncio.wait(tasks, timeout=_ENDING_S)
            for task in late:
                task.cancel()

    async def status(self) -> dict[str, Any]:
        """Return what runs here: version, settings, and the keys with how their relayers are."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._began_s),
            "connections": len(self._connections),
            "keys": [
                {
                    "key": client.settings.masked_key,
                    "namespace": client.settings.namespace,
                    "url": client.settings.url,
                    "healthy": state == ANSWERS,
                    "state": state,
                }
                for client, state in await self._health()
            ],
            "settings": asdict(GatewaySettings.of(self.base)),
        }

    async def _handle_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = reader
        try:
            if len(self._connections) > CONNECTIONS_MAX:
                log.warning("a connection was refused: there are %d", CONNECTIONS_MAX)
            else:
                await Connection(self, reader, writer).serve()
        finally:
            del self._connections[task]
            writer.close()


class Connection:
    """One caller: its settings, and its calls under way."""

    def __init__(
        self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._gateway = server.gateway
        self._slots = asyncio.Semaphore(CALLS_MAX)
        self._tool_calls = 0

    async def serve(self) -> None:
        """Answer calls until the caller goes away."""
        if not await self._greet():
            return
        async with asyncio.TaskGroup() as calls:
            while (line := await self._line(IDLE_S)) is not None:
                await self._slots.acquire()
                calls.create_task(self._answer(line))

    async def _line(self, timeout_s: float) -> bytes | None:
        """Return the next line; None at the end, after too long a silence or too long a line."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._reader.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            log.warning("a connection was ended: a line is longer than %d bytes", LINE_BYTES_MAX)
        except (OSError, asyncio.IncompleteReadError):
            pass
        return None

    async def _greet(self) -> bool:
        line = await self._line(HELLO_S)
        if line is None:
            return False  # somebody only looked whether a gateway is running
        number = None
        try:
            number, method, params = _parse(line)
            token = str(params.get("token")).encode("utf-8", "replace")
            known = hmac.compare_digest(token, self._server.token.encode())
            if method != "hello" or not known:
                raise Refused(INVALID_REQUEST, "A connection begins with hello and the token.")
            await self._send(number, result=self._welcome(params.get("settings") or {}))
            if params.get("plugin", __version__) != __version__:
                log.warning("a plugin has another version: `memrelay openclaw install` renews it")
        except (Refused, ConfigError) as error:
            log.warning("a connection was refused: no valid hello")
            await self._send(number, error=_error(error))
            return False
        return True

    def _welcome(self, given: Any) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise ConfigError("The settings are an object.")
        settings = GatewaySettings.of({**self._server.base, **given})
        self._gateway = self._server.gateway.with_settings(settings)
        return {
            "version": __version__,
            "proof": self._server.proof,
            "hook_deadline_ms": round(1000 * (settings.recall_deadline_s + HOOK_MARGIN_S)),
            "debounce": settings.debounce_s > 0,
        }

    async def _answer(self, line: bytes) -> None:
        number = None
        try:
            number, method, params = _parse(line)
            await self._send(number, result=await self._call(method, params))
        except Refused as refused:
            await self._send(number, error=_error(refused))
        except Exception as error:
            log.error("a call failed (%s)", type(error).__name__)
            await self._send(number, error=_error(Refused(FAILED, "The call failed.")))
        finally:
            self._slots.release()

    async def _call(self, method: str, params: Mapping[str, Any]) -> Any:
        gateway = self._gateway
        event, ctx = params.get("event"), params.get("ctx")
        match method:
            case "before_prompt_build":
                return await gateway.before_prompt_build(event, ctx)
            case "agent_end":
                return await gateway.agent_end(event, ctx)
            case "session_start":
                return await gateway.session_start(event, ctx)
            case "llm_input":
                return await gateway.llm_input(event, ctx)
            case "llm_output":
                return await gateway.llm_output(event, ctx)
            case "tools":
                return [asdict(tool) for tool in gateway.tools]
            case "call_tool":
                return await self._call_tool(params)
            case "status":
                return await self._server.status()
        raise Refused(NO_METHOD, "There is no such method.")

    async def _call_tool(self, params: Mapping[str, Any]) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, Mapping):
            raise Refused(INVALID_PARAMS, "A tool is called with a name and arguments.")
        context = Context.from_json(params.get("ctx"))
        answer = await self._tool_answer(name, arguments, context)
        return {"text": answer.text, "details": dict(answer.details), "is_error": answer.is_error}

    async def _tool_answer(
        self, name: str, arguments: Mapping[str, object], context: Context
    ) -> ToolAnswer:
        if self._tool_calls == TOOL_CALLS_MAX:
            return ToolAnswer.fail("Too many calls of memory tools at once; try again later.")
        self._tool_calls += 1
        try:
            return await self._gateway.call_tool(name, arguments, context)
        finally:
            self._tool_calls -= 1

    async def _send(self, number: Any, **answer: Any) -> None:
        message = {"jsonrpc": "2.0", "id": number, **answer}
        try:
            self._writer.write(json.dumps(message).encode() + b"\n")
            async with asyncio.timeout(_SEND_S):
                await self._writer.drain()
        except OSError:
            # Whoever asked went away, or does not read: then what waits for them would only grow.
            self._writer.transport.abort()


def _parse(line: bytes) -> tuple[Any, str, Mapping[str, Any]]:
    try:
        call = json.loads(line)
    except (ValueError, RecursionError):
        raise Refused(PARSE_ERROR, "A line is one JSON object.") from None
    found = call if isinstance(call, dict) else {}
    method, params = found.get("method"), found.get("params")
    if not isinstance(method, str) or not isinstance(params, dict):
        raise Refused(INVALID_REQUEST, "A call has a method and params.")
    number = found.get("id")
    return (number if isinstance(number, int | str) else None), method, params


def _error(error: Refused | ConfigError) -> dict[str, Any]:
    code = error.code if isinstance(error, Refused) else INVALID_PARAMS
    return {"code": code, "message": str(error)}


async def _state(client: MemoryClient) -> str:
    """Return how the client's relayer is to its key, asked by a signed request: one that asks
    nothing of the key would have a revoked one look well."""
    try:
        async with asyncio.timeout(_HEALTH_S):
            await client.account()
    except (NotAuthenticated, NotAllowed, NotGranted):
        return REFUSES
    except (MemrelayError, TimeoutError):
        return AWAY
    return ANSWERS
