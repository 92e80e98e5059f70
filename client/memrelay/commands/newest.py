"""Reads the memories that were stored last, and no more than a command is to look at.

It does not own the lists of pages that go on by a cursor (`lists.py`).
"""

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import TYPE_CHECKING, NamedTuple, Unpack

from memrelay.answers import onward
from memrelay.client import PAGE_LIMIT
from memrelay.models import Memory
from memrelay.operations.lists import Filters

if TYPE_CHECKING:
    from memrelay.sync_client import SyncMemoryClient


class Newest(NamedTuple):
    """The memories that were stored last, newest first; `truncated` if there are older ones."""

    memories: list[Memory]
    truncated: bool


def read_newest(
    client: "SyncMemoryClient",
    namespaces: Iterable[str | None],
    limit: int,
    **filters: Unpack[Filters],
) -> Newest:
    """Return up to `limit` memories of these namespaces together; None is the profile's.

    A page too small for all of them is not asked for: up to `limit` 99, one request a namespace.
    """
    page_limit = min(limit + 1, PAGE_LIMIT)  # one more says whether there are more
    sources = [_iterate(client, name, page_limit, filters) for name in namespaces]
    found: list[Memory] = []
    for memory in merge(*sources, key=lambda memory: memory.seq or 0, reverse=True):
        if len(found) == limit:
            return Newest(found, truncated=True)
        found.append(memory)
    return Newest(found, truncated=False)


def _iterate(
    client: "SyncMemoryClient", name: str | None, page_limit: int, filters: Filters
) -> Iterator[Memory]:
    cursor: str | None = None
    while True:
        page = client.list(namespace=name, limit=page_limit, cursor=cursor, **filters)
        yield from page.memories
        cursor = onward(cursor, page.next_cursor)
        if cursor is None:
            return
