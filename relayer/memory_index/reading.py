"""Reading a namespace's index page by page, and what changed of it.

Not here: which namespaces are read and when (`index.py`, `sealed.py`), the statements
(`database.memory_index`).
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from relayer.database import memory_index as rows
from relayer.database.index_pages import NO_PAGE, Counts, Differing, Extent, Page
from relayer.database.index_steps import IndexMark
from relayer.database.pool import Connection
from relayer.memory_index.namespace import (
    Ints,
    LoadedNamespace,
    empty,
    estimate_sizes,
    update,
)
from relayer.sealed.keys import AccountId

IndexKey = tuple[AccountId, int]  # account, number of a namespace

ALL: Final = 2**63 - 1  # before which all numbers are
PAGE: Final = 2_000  # memories read at once
PAGE_BYTES: Final = 8 * 2**20  # that these take in memory, unless one alone takes more
COPIED_AT_ONCE_MAX: Final = 2_000  # memories that are copied on the loop itself
COPIED_BYTES_AT_ONCE_MAX: Final = 4 * 2**20  # that these take


@dataclass(frozen=True)
class Part:
    """Memories of a namespace that were read together, at one state.

    Attributes:
        seqs: their numbers, ascending.
        pages: what finds them; None where even the first had no room.
        size_bytes: what they will take in memory, as is estimated.
        before: all others have lower numbers; 0 where there is none.
    """

    mark: IndexMark
    counts: Counts
    seqs: Ints
    pages: Sequence[Page] | None
    size_bytes: int
    before: int


async def read_pages(
    connection: Connection, key: IndexKey, seqs: Ints, bytes_max: int
) -> list[Page] | None:
    """Read the pages of these memories; None, and none of it read, where they take more."""
    extents = await _extents(connection, key, seqs)
    sizes = estimate_sizes(extents, among=len(seqs))
    if sizes.sum() > bytes_max:
        return None
    cuts = list(_cut(extents.seqs, sizes))
    return [await rows.page(connection, *key, cut.tolist()) for cut in cuts]


async def read_newest(
    connection: Connection, key: IndexKey, before: int, count: int, bytes_max: int
) -> Part | None:
    """Read so many of the newest memories before a number, or as many as take no more bytes.

    Returns None where the namespace is not there.
    """
    newest = await rows.newest(connection, *key, before, count)
    if newest is None:
        return None
    extent = newest.page.extent
    if len(newest.apart):
        extent = extent.join(await _extents(connection, key, newest.apart))
    sizes = estimate_sizes(extent, among=newest.counts.memory_count)
    fits = sizes[::-1].cumsum()[::-1] <= bytes_max
    seqs, rest = extent.seqs[fits], newest.rest
    if not fits.all():
        rest = int(extent.seqs[~fits][-1])
    pages = None
    if len(seqs) or rest is None:
        page = newest.page.only(np.isin(newest.page.memories.seq, seqs))
        is_apart = np.isin(seqs, newest.apart)
        cuts = list(_cut(seqs[is_apart], sizes[fits][is_apart]))
        pages = [page, *[await rows.page(connection, *key, cut.tolist()) for cut in cuts]]
    size_bytes = int(sizes[fits].sum())
    before = 0 if rest is None else rest + 1
    return Part(newest.mark, newest.counts, seqs, pages, size_bytes, before)


async def _extents(connection: Connection, key: IndexKey, seqs: Ints) -> Extent:
    """Return the extent of these memories, asked for a page at a time."""
    found = NO_PAGE.extent
    for at in range(0, len(seqs), PAGE):
        some = seqs[at : at + PAGE].tolist()
        found = found.join(await rows.extent(connection, *key, some))
    return found


async def load_whole(
    connection: Connection, key: IndexKey, bytes_max: int, *, is_ahead: bool = False
) -> tuple[LoadedNamespace, IndexMark] | None:
    """Load a namespace from one snapshot; None where it is not there, or takes more.

    What is loaded ahead of any recall takes half of the time: others ask meanwhile.
    """

    def read(before: int) -> "asyncio.Task[Part | None]":
        return asyncio.create_task(read_newest(connection, key, before, PAGE, room))

    room, seqs, pages = bytes_max, list[Ints](), list[Page]()
    reading = read(ALL)
    try:
        while True:
            began = time.monotonic()
            part = await reading
            if part is None or part.pages is None:
                return None
            if is_ahead:
                await asyncio.sleep(time.monotonic() - began)
            room -= part.size_bytes
            if part.before:  # the next ones are read meanwhile
                reading = read(part.before)
            seqs.append(part.seqs)
            pages += part.pages
            if not part.before:
                break
    finally:  # the connection is not given back in the middle of a statement
        reading.cancel()
        await asyncio.wait({reading})
    whole = Differing(part.mark, part.counts, np.concatenate(seqs[::-1]))
    return await apply_changes(empty(key[1]), whole, pages[::-1]), part.mark


def _cut(seqs: Ints, sizes: Ints) -> Iterator[Ints]:
    """Yield memories in parts that take `PAGE_BYTES` at most, or consist of one."""
    ends, at = sizes.cumsum(), 0
    while at < len(seqs):
        fits = int(ends.searchsorted(ends[at] - sizes[at] + PAGE_BYTES, side="right"))
        yield seqs[at : (at := max(fits, at + 1))]


async def read_changes(
    connection: Connection, key: IndexKey, loaded: LoadedNamespace, mark: IndexMark
) -> Differing | None:
    """Return the changes since it was read: by the steps from then on, or by all rows."""
    if (now := await rows.read_changes(connection, *key, mark)) is not None:
        return now
    there = await rows.versions(connection, *key)
    return None if there is None else loaded.compare(there)


async def apply_changes(
    before: LoadedNamespace, now: Differing, pages: Sequence[Page]
) -> LoadedNamespace:
    """Apply changes to a namespace; a thread copies what is large, because others are waiting."""
    if len(now.seqs) and _is_large(before, now, pages):
        return await asyncio.to_thread(update, before, now, pages)
    return update(before, now, pages)


def _is_large(before: LoadedNamespace, now: Differing, pages: Sequence[Page]) -> bool:
    count = len(before.memories) + len(now.seqs)
    size_bytes = before.size_bytes + sum(page.size_bytes for page in pages)
    return count > COPIED_AT_ONCE_MAX or size_bytes > COPIED_BYTES_AT_ONCE_MAX
