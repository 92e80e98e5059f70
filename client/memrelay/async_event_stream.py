"""Listening to events over httpx, in a loop that awaits: the steps of `events.listen`.

It does not own the same in a loop that blocks (`event_stream.py`).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from memrelay.errors import MemrelayError
from memrelay.event_stream import Request, next_step
from memrelay.events import Event, Listening, Read
from memrelay.exchange import Keep, Send, Sleep
from memrelay.transport import httpx


async def iterate_async(
    http: httpx.AsyncClient, request: Request, listening: Listening
) -> AsyncIterator[Event]:
    """Yield the events, in `async for`."""
    outcome: Any = None
    async with contextlib.AsyncExitStack() as opened:
        while (step := next_step(listening, outcome)) is not None:
            try:
                if isinstance(step, Send):
                    await opened.aclose()
                    outcome = await _open_response(http, request(step), step.timeout_s)
                    opened.push_async_callback(outcome.aclose)
                    pieces = outcome.aiter_bytes()
                elif isinstance(step, Read):
                    outcome = await anext(pieces, b"")
                elif isinstance(step, Sleep):
                    await asyncio.sleep(step.seconds)
                    outcome = None
                elif isinstance(step, Keep):
                    outcome = await asyncio.to_thread(step.work)
                else:
                    outcome = yield step
            except (httpx.HTTPError, MemrelayError) as error:
                outcome = error


async def _open_response(
    http: httpx.AsyncClient, request: httpx.Request, timeout_s: float
) -> httpx.Response:
    try:
        async with asyncio.timeout(timeout_s):
            return await http.send(request, stream=True)
    except TimeoutError as error:
        raise httpx.ReadTimeout("no answer in time") from error
