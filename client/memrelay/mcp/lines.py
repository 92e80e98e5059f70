"""The lines of an MCP client that pydantic cannot read and Python can, for them to be answered.

It does not own the transport (`serve.py`) or what is answered (`server.py`).

- JSON may name half a character, as one text that was cut in two. The library drops such a line
  without a word; here it goes on, and the tool refuses the argument by its name.
"""

import json
from contextvars import Context
from types import TracebackType
from typing import Any, Self

from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError


class Lines:
    """The messages of a stream of the library, which it uses like that stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    @property
    def last_context(self) -> Context | None:
        """The context of the message that came last."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or why there is none."""
        return _read(await self._stream.receive())

    async def aclose(self) -> None:
        """Read no more."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return _read(await anext(self._stream))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


def _read(item: SessionMessage | Exception) -> SessionMessage | Exception:
    if not isinstance(item, ValidationError):
        return item
    try:
        value = json.loads(item.errors()[0]["input"])
        return SessionMessage(jsonrpc_message_adapter.validate_python(value, by_name=False))
    except (TypeError, ValueError, RecursionError):
        return item
