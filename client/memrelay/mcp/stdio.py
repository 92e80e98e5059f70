"""The lines of an MCP client that the library drops without a word, for them to be answered.

It does not own the transport (`serve.py`) or what is answered to requests (`server.py`).

- JSON may name half a character, as one text that was cut in two. Pydantic cannot read such a line
  and Python can: it goes on, and the tool refuses the argument by its name.
- What stays unreadable, or could not be named in an answer, is refused as JSON-RPC has it.
"""

import json
from contextvars import Context
from types import TracebackType
from typing import Any, Self

from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

_NO_MESSAGE = "The line is no single message of JSON-RPC 2.0."


class Lines:
    """The messages of a stream of the library, which it uses like that stream.

    `outgoing` takes what is answered to those that are none.
    """

    def __init__(self, stream: Any, outgoing: Any) -> None:
        self._stream = stream
        self._outgoing = outgoing

    @property
    def last_context(self) -> Context | None:
        """The context of the message that came last."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or why there is none."""
        return await self._read(await self._stream.receive())

    async def aclose(self) -> None:
        """Read no more."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return await self._read(await anext(self._stream))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _read(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if not isinstance(item, ValidationError):
            return item
        fault = item.errors()[0]
        if fault["type"] != "json_invalid":  # of what it is about, a part may be all that is known
            await self._refuse(INVALID_REQUEST, _NO_MESSAGE)
            return item
        line = fault["input"]
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            if line.strip():
                await self._refuse(PARSE_ERROR, "The line is no JSON.")
            return item
        try:
            message: Any = jsonrpc_message_adapter.validate_python(value, by_name=False)
            # An answer names them.
            f"{getattr(message, 'id', '')}{getattr(message, 'method', '')}".encode()
        except ValueError:
            await self._refuse(INVALID_REQUEST, _NO_MESSAGE)
            return item
        return SessionMessage(message)

    async def _refuse(self, code: int, message: str) -> None:
        error = ErrorData(code=code, message=message)
        await self._outgoing.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=error)))
