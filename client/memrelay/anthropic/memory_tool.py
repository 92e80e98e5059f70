"""The memory tool of the anthropic package on a client, blocking and asynchronous.

It does not own the files (`files.py`) or the tool's protocol (the anthropic package).

- A failure is told to the model in plain words, and the conversation goes on.
- The relayer takes secrets out of a file's content, as out of every text; the model is told.
"""

import threading
from collections.abc import Callable
from typing import Any

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError

from memrelay.anthropic.files import Files
from memrelay.async_client import MemoryClient
from memrelay.either_client import Procedure, run_async, run_blocking
from memrelay.errors import MemrelayError
from memrelay.gateway.tool_answers import explain
from memrelay.sync_client import SyncMemoryClient

Procedures = Callable[..., Procedure[str]]


def _make_blocking(procedure: Procedures) -> Callable[..., str]:
    def method(self: "MemoryTool", *command: Any) -> str:
        try:
            with self._lock:
                return run_blocking(self._client, procedure(self._files, *command))
        except MemrelayError as error:
            raise ToolError(explain(error)) from error

    method.__doc__ = procedure.__doc__
    return method


def _make_async(procedure: Procedures) -> Callable[..., Any]:
    async def method(self: "AsyncMemoryTool", *command: Any) -> str:
        try:
            return await run_async(self._client, procedure(self._files, *command))
        except MemrelayError as error:
            raise ToolError(explain(error)) from error

    method.__doc__ = procedure.__doc__
    return method


class MemoryTool(BetaAbstractMemoryTool):
    """Claude's memory tool whose files are sealed memories of one namespace.

    Give it a namespace of its own: every agent that may write there can change the files.
    """

    def __init__(
        self, client: SyncMemoryClient, *, namespace: str | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self._client, self._files = client, Files(namespace)
        self._lock = threading.Lock()  # a blocking client is for one thread at a time

    view = _make_blocking(Files.view)
    create = _make_blocking(Files.create)
    str_replace = _make_blocking(Files.str_replace)
    insert = _make_blocking(Files.insert)
    delete = _make_blocking(Files.delete)
    rename = _make_blocking(Files.rename)
    clear_all_memory = _make_blocking(Files.clear)


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """Claude's memory tool for an asynchronous client; else as `MemoryTool`."""

    def __init__(
        self, client: MemoryClient, *, namespace: str | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self._client, self._files = client, Files(namespace)

    view = _make_async(Files.view)
    create = _make_async(Files.create)
    str_replace = _make_async(Files.str_replace)
    insert = _make_async(Files.insert)
    delete = _make_async(Files.delete)
    rename = _make_async(Files.rename)
    clear_all_memory = _make_async(Files.clear)
