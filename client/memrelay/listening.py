"""Listening to events over httpx, in a loop that awaits or blocks: the steps of `events.listen`.

It does not own what is asked, read or told, nor when it is asked again (`events.py`).

- A stream has to begin in time, however much comes before it; once it began, it may last.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx

from memrelay.deadline import Deadline
from memrelay.errors import MemrelayError
from memrelay.events import Event, Listening, Read
from memrelay.exchange import Send, Sleep

Request = Callable[[Send], httpx.Request]


async def awaited(
    http: httpx.AsyncClient, request: Request, listening: Listening
) -> AsyncIterator[Event]:
    """Yield the events, in `async for`."""
    outcome: Any = None
    async with contextlib.AsyncExitStack() as opened:
        while (step := _step(listening, outcome)) is not None:
            try:
                if isinstance(step, Send):
                    await opened.aclose()
                    outcome = await _begun(http, request(step), step.timeout_s)
                    opened.push_async_callback(outcome.aclose)
                    pieces = outcome.aiter_bytes()
                elif isinstance(step, Read):
                    outcome = await anext(pieces, b"")
                elif isinstance(step, Sleep):
                    await asyncio.sleep(step.seconds)
                    outcome = None
                else:
                    outcome = yield step
            except (httpx.HTTPError, MemrelayError) as error:
                outcome = error


async def _begun(
    http: httpx.AsyncClient, request: httpx.Request, timeout_s: float
) -> httpx.Response:
    try:
        async with asyncio.timeout(timeout_s):
            return await http.send(request, stream=True)
    except TimeoutError as error:
        raise httpx.ReadTimeout("no answer in time") from error


def blocking(
    http: httpx.Client, request: Request, deadline: Deadline, listening: Listening
) -> Iterator[Event]:
    """Yield the events, in `for`; `deadline` watches the client."""
    outcome: Any = None
    with contextlib.ExitStack() as opened:
        while (step := _step(listening, outcome)) is not None:
            try:
                if isinstance(step, Send):
                    opened.close()
                    with deadline.within(step.timeout_s):
                        outcome = http.send(request(step), stream=True)
                    opened.callback(outcome.close)
                    pieces = outcome.iter_bytes()
                elif isinstance(step, Read):
                    outcome = next(pieces, b"")
                elif isinstance(step, Sleep):
                    time.sleep(step.seconds)
                    outcome = None
                else:
                    outcome = yield step
            except (httpx.HTTPError, MemrelayError) as error:
                outcome = error


def _step(listening: Listening, outcome: Any) -> Send | Read | Sleep | Event | None:
    try:
        if isinstance(outcome, Exception):
            return listening.throw(outcome)
        return listening.send(outcome)
    except StopIteration:
        return None
