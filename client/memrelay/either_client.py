"""Runs one procedure on the blocking client or on the asynchronous one.

It does not own what a procedure does (`langgraph.py`, `anthropic.py` …).

A procedure is a generator that yields calls of the client's methods and is sent their answers, so
that it is written once for both. An error of a call is raised where the call was yielded.
"""

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from memrelay.answers import onward
from memrelay.async_client import MemoryClient
from memrelay.models import Memory
from memrelay.sync_client import SyncMemoryClient

T = TypeVar("T")
PAGE_LIMIT = 100


class ClientCall(NamedTuple):
    """A call of a client's method, by its name."""

    name: str
    positional: tuple[Any, ...]
    named: dict[str, Any]


Procedure = Generator[ClientCall, Any, T]


def call(name: str, *positional: Any, **named: Any) -> Procedure[Any]:
    """Return the answer of one call, for `yield from`."""
    return (yield ClientCall(name, positional, named))


def list_all(**filters: Any) -> Procedure[list[Memory]]:
    """Return all memories that fit, newest first."""
    found: list[Memory] = []
    cursor: str | None = None
    while True:
        page = yield from call("list", limit=PAGE_LIMIT, cursor=cursor, **filters)
        found += page.memories
        cursor = onward(cursor, page.next_cursor)
        if cursor is None:
            return found


def run_blocking(client: SyncMemoryClient, procedure: Procedure[T]) -> T:
    """Return the result of a procedure, run on a blocking client."""
    try:
        asked = next(procedure)
        while True:
            try:
                answer = getattr(client, asked.name)(*asked.positional, **asked.named)
            except Exception as error:
                asked = procedure.throw(error)
            else:
                asked = procedure.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def run_async(client: MemoryClient, procedure: Procedure[T]) -> T:
    """Return the result of a procedure, run on an asynchronous client."""
    try:
        asked = next(procedure)
        while True:
            try:
                answer = await getattr(client, asked.name)(*asked.positional, **asked.named)
            except Exception as error:
                asked = procedure.throw(error)
            else:
                asked = procedure.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
