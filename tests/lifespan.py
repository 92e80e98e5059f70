"""An application between its start and its end, in this process and without a server.

Not here: asking it (`signing.client_of`). Most tests need no start: only then does its worker run,
and only at its end does it close what it opened.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar.types import ASGIApp


@asynccontextmanager
async def living(app: ASGIApp) -> AsyncIterator[ASGIApp]:
    """The application once it has started; it has ended afterwards."""
    said, answered = asyncio.Queue[Any](), asyncio.Queue[Any]()
    scope: Any = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    running = asyncio.ensure_future(app(scope, said.get, answered.put))
    try:
        await _pass("startup", said, answered)
        yield app
        await _pass("shutdown", said, answered)
    finally:
        running.cancel()  # it has ended, unless something failed
        await asyncio.wait({running})


async def _pass(word: str, said: "asyncio.Queue[Any]", answered: "asyncio.Queue[Any]") -> None:
    await said.put({"type": f"lifespan.{word}"})
    assert await answered.get() == {"type": f"lifespan.{word}.complete"}
