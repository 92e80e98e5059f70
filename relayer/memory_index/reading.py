"""Reading a namespace's index page by page, and what changed of it.

Not here: which namespaces are read and when (`index.py`, `sealed.py`), the statements
(`database.memory_index`).
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from relayer.database import memory_index as rows
from relayer.database.index_steps import IndexMark
from relayer.database.pool import Connection
from relayer.memory_index.namespace import Ints, LoadedNamespace, estimate_sizes, row_bytes, update
from relayer.sealed.keys import AccountId

IndexKey = tuple[AccountId, int]  # account, number of a namespace

PAGE: Final = 2_000  # memories read at once
PAGE_BYTES: Final = 8 * 2**20  # that these take in memory, unless one alone takes more
COPIED_AT_ONCE_MAX: Final = 2_000  # memories that are copied on the loop itself
COPIED_BYTES_AT_ONCE_MAX: Final = 4 * 2**20  # that these take


async def read_pages(
    connection: Connection, key: IndexKey, seqs: Ints, bytes_max: int
) -> list[rows.Page] | None:
    """Read the pages of these memories; None, and none of it read, where they take more."""
    cuts: list[Ints] = []
    for at in range(0, len(seqs), PAGE):
        extent = await rows.extent(connection, *key, seqs[at : at + PAGE].tolist())
        sizes = estimate_sizes(extent, among=len(seqs))
        bytes_max -= int(sizes.sum())
        if bytes_max < 0:
            return None
        cuts += _cut(extent.seqs, sizes)
    return [await rows.page(connection, *key, cut.tolist()) for cut in cuts]


async def read_newest(
    connection: Connection, key: IndexKey, before: int, count: int, bytes_max: int
) -> tuple[rows.Newest, list[rows.Page] | None] | None:
    """Read so many of the newest memories before a number; no pages where they take more.

    Returns None where the namespace is not there.
    """
    bounds = rows.Bounds(count, row_bytes(), min(bytes_max, PAGE_BYTES), bytes_max)
    newest = await rows.newest(connection, *key, before, bounds)
    if newest is None:
        return None
    memories = newest.memories
    if not len(memories) and newest.rest is not None:
        return newest, None
    if memories.record_sizes.all():
        return newest, [rows.page_of_records(memories)]
    return newest, await read_pages(connection, key, memories.seq, bytes_max)


def _cut(seqs: Ints, sizes: Ints) -> Iterator[Ints]:
    """Yield memories in parts that take `PAGE_BYTES` at most, or consist of one."""
    ends, at = sizes.cumsum(), 0
    while at < len(seqs):
        fits = int(ends.searchsorted(ends[at] - sizes[at] + PAGE_BYTES, side="right"))
        yield seqs[at : (at := max(fits, at + 1))]


async def read_changes(
    connection: Connection, key: IndexKey, loaded: LoadedNamespace, mark: IndexMark
) -> rows.Differing | None:
    """Return the changes since it was read: by the steps from then on, or by all rows."""
    if (now := await rows.read_changes(connection, *key, mark)) is not None:
        return now
    there = await rows.versions(connection, *key)
    return None if there is None else loaded.compare(there)


async def apply_changes(
    before: LoadedNamespace, now: rows.Differing, pages: Sequence[rows.Page]
) -> LoadedNamespace:
    """Apply changes to a namespace; a thread copies what is large, because others are waiting."""
    if len(now.seqs) and _is_large(before, now, pages):
        return await asyncio.to_thread(update, before, now, pages)
    return update(before, now, pages)


def _is_large(before: LoadedNamespace, now: rows.Differing, pages: Sequence[rows.Page]) -> bool:
    count = len(before.memories) + len(now.seqs)
    size_bytes = before.size_bytes + sum(page.size_bytes for page in pages)
    return count > COPIED_AT_ONCE_MAX or size_bytes > COPIED_BYTES_AT_ONCE_MAX
