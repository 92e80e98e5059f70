"""The gateway for callers without asyncio: the same methods, blocking, from any thread.

It does not own what they do (`hooks.py`). One event loop in a daemon thread carries them out.

- A hook waits a little longer than its own deadline and then goes on without an answer.
- What was handed over is on disk before the interpreter ends, also where nobody calls `close`.
- A process that was forked begins anew with its first call. What a request imports is imported
  before: a module that another thread imports at the moment of a fork is locked there for ever.
"""

import asyncio
import atexit
import logging
import os
import ssl
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

from memrelay.errors import ConfigError
from memrelay.gateway.erasures import Erasures
from memrelay.gateway.hooks import Gateway
from memrelay.gateway.host_events import Context, Injection, Message
from memrelay.gateway.roster import Roster
from memrelay.gateway.schemas import Tool
from memrelay.gateway.settings import GatewaySettings
from memrelay.gateway.skipped import SkippedRuns
from memrelay.gateway.tool_answers import ToolAnswer
from memrelay.gateway.tools import DEADLINE_S
from memrelay.transport import httpx

log = logging.getLogger("memrelay.gateway")

T = TypeVar("T")

_GRACE_S = 2.0  # the loop may be busy with others
_BEGIN_S = 10.0  # until a loop has begun; a hook waits no longer for one that does not


class BlockingGateway:
    """The memory of the agents of one gateway, thread-safe; use it in `with`, or call `close`."""

    def __init__(self, gateway: Gateway, settings: GatewaySettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()  # of beginning anew
        self._begin(gateway)
        _open.add(self)

    def _begin(self, gateway: Gateway) -> None:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="memrelay-gateway", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            loop.close()
            raise
        # Only now: where nothing was left for it, the next call begins it.
        self._gateway, self._pid, self._loop, self._thread = gateway, os.getpid(), loop, thread
        self._wait(_begin_gateway(gateway), _BEGIN_S)

    def _ensure_running(self) -> Gateway:
        """Return the gateway of this process: after a fork, the thread stayed with the parent.

        Raises:
            RuntimeError: it is closed, or no thread can be begun; OSError: no loop can be;
                ConfigError: its profile cannot be used any more.
        """
        with self._lock:
            if self._loop.is_closed():
                raise RuntimeError("The gateway is closed.")
            if self._pid != os.getpid():
                parents = self._loop
                self._begin(self._gateway.anew())
                _inherited.append(parents)
            return self._gateway

    @classmethod
    def start(
        cls,
        roster: Roster,
        settings: GatewaySettings | None = None,
        *,
        source: str = "gateway",
        spool_path: Path | None = None,
        transcripts: Path | None = None,
        erasures: Erasures | None = None,
        skipped: SkippedRuns | None = None,
    ) -> Self:
        """Return a running gateway; the arguments are those of `Gateway`.

        Raises:
            ConfigError: the spool's folder cannot be used.
        """
        chosen = settings or GatewaySettings()
        gateway = Gateway(
            roster,
            chosen,
            source=source,
            spool_path=spool_path,
            transcripts=transcripts,
            erasures=erasures,
            skipped=skipped,
        )
        return cls(gateway, chosen)

    def recall(self, prompt: str, context: Context) -> Injection:
        """Return the memories that fit a prompt, framed; never raises, never waits for long."""
        limit_s = self._settings.recall_deadline_s + _GRACE_S
        return self._hook(lambda gateway: gateway.recall(prompt, context), Injection(), limit_s)

    def remembers(self, context: Context) -> bool:
        """Return whether turns of such a call are captured, as far as is known without asking."""
        return self._gateway.remembers(context)

    def skip(self, messages: Sequence[Message], context: Context) -> None:
        """Note that a run has ended that does not count: its messages are not captured later."""
        self._gateway.skip(messages, context)

    def capture(
        self,
        messages: Sequence[Message],
        context: Context,
        *,
        occurred_at: datetime | None = None,
        new: Collection[Message] | None = None,
    ) -> None:
        """Capture the messages of a turn, or the new ones of a session, in the background."""

        def begin(gateway: Gateway) -> None:
            gateway.capture(messages, context, occurred_at=occurred_at, new=new)

        try:
            gateway = self._ensure_running()
            self._loop.call_soon_threadsafe(begin, gateway)
        except (RuntimeError, OSError, ConfigError) as error:
            log.warning("a turn was not captured: the gateway does not run (%s)", error)
        except Exception as error:
            log.warning("a turn was not captured (%s)", type(error).__name__)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that a model may call."""
        return self._gateway.tools

    def call_tool(self, name: str, arguments: Mapping[str, object], context: Context) -> ToolAnswer:
        """Return what a tool answers; what goes wrong is an answer as well."""
        failed = ToolAnswer.fail("The memory tool failed; go on without it.")
        return self._hook(
            lambda gateway: gateway.call_tool(name, arguments, context),
            failed,
            DEADLINE_S + _GRACE_S,
        )

    def flush(self, timeout_s: float) -> bool:
        """Deliver what waits, for so long at most; return whether nothing is left."""
        return self._hook(lambda gateway: gateway.flush(timeout_s), False, timeout_s + _GRACE_S)

    def close(self, timeout_s: float = 5.0) -> None:
        """Deliver what waits, for so long at most, close the connections and end the thread."""
        # After a fork the thread stays with the parent: nothing was begun here.
        if self._loop.is_closed() or not self._thread.is_alive():
            return
        self._hook(lambda gateway: gateway.close(timeout_s), None, timeout_s + _GRACE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_GRACE_S)
        if not self._thread.is_alive():
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _hook(
        self, work: Callable[[Gateway], Coroutine[Any, Any, T]], otherwise: T, timeout_s: float
    ) -> T:
        """Return what a hook returns, or something else if it does not in time."""
        try:
            return self._wait(work(self._ensure_running()), timeout_s)
        except Exception as error:
            log.warning("a hook gave no answer (%s)", type(error).__name__)
            return otherwise

    def _wait(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        if self._loop.is_closed():  # just now, by another thread
            work.close()
            raise RuntimeError("The gateway is closed.")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise


async def _begin_gateway(gateway: Gateway) -> None:
    """Begin a gateway, with everything imported that its requests will need."""
    with suppress(Exception):  # that nobody is there; what else it may be, requests tell
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without authorities, which take long
        async with httpx.AsyncClient(trust_env=False, verify=context) as http:
            await http.get("http://127.0.0.1:0")  # where nobody can be
    await gateway.__aenter__()


_open: "WeakSet[BlockingGateway]" = WeakSet()
# Loops of a parent process: whoever closed one here would take its wake-ups away there.
_inherited: list[asyncio.AbstractEventLoop] = []


@atexit.register
def _close_all() -> None:
    for gateway in list(_open):
        gateway.close(0.0)
