"""Namespaces whose index is sealed: opened into memory as long as their keys are lent.

Not here: the format of a record (`sealed.index_record`), opening pages of them (`records.py`),
namespaces that statements can search, too (`index.py`).

- Nothing else can search them, so a recall waits for its namespace. One that is large is answered
  by what is loaded by then, the newest memories first, and is said to be partial.
- A namespace is brought up to the moment of the request before it is searched, while it is loaded
  as well: what was acknowledged is found, and what was erased is not.
- What has no room stays out, the oldest first. What was asked longest ago makes room for others.
- Records are opened with the keys of a request. `release` lets go of what these keys open as soon
  as the process holds them no longer.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from relayer.database import memory_index as rows
from relayer.database.index_steps import IndexMark
from relayer.database.pool import Connection, Database
from relayer.errors import RelayerError
from relayer.logs import describe
from relayer.memory_index.namespace import Ints, LoadedNamespace, empty
from relayer.memory_index.reading import IndexKey, apply_changes, read_changes, read_pages
from relayer.memory_index.records import OpenedPages, has_records, open_pages
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey
from relayer.telemetry.instruments import count_lookups
from relayer.tenants.accounts import Access

log = logging.getLogger("relayer.memory_index")

BYTES_MIN: Final = 64 * 2**20  # that they may take, however little others may
WAIT_S: Final = 5.0  # that a recall waits for a namespace, before it asks what is there
FIRST: Final = 2_000  # memories that are read first; then twice as many each time
MOST: Final = 16_000
AFRESH: Final = 20_000  # changed memories from which a namespace is read anew
MARKS_MAX: Final = 8  # of requests under way together
OPENED_AT_ONCE_MAX: Final = 200  # records that are opened on the loop itself: some milliseconds
Opens = Callable[[AccountId, Namespace], Awaitable[bool]]


@dataclass
class _Entry:
    """A namespace as far as it is loaded.

    Attributes:
        counts: of its row.
        marks: of the requests that it is new enough for.
        waiting: numbers of memories that are not read yet, ascending.
        closed: epoch → memories whose key was not at hand.
        loading: reads what is waiting; None once it has ended.
        name: whose keys opened its records.
        turn: of who changes it.
    """

    loaded: LoadedNamespace
    counts: rows.Counts
    mark: IndexMark
    marks: deque[IndexMark]
    waiting: Ints
    closed: dict[int, set[int]] = field(default_factory=dict)
    loading: asyncio.Task[None] | None = None
    name: Namespace | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def view(self) -> LoadedNamespace:
        """Return what is loaded, which says if that is all."""
        is_loading = bool(len(self.waiting))
        if not (is_loading or any(self.closed.values())):
            return self.loaded
        return replace(self.loaded, is_partial=True, is_loading=is_loading)


class SealedNamespaces:
    """Holds namespaces with records of at most so many bytes together, but for `BYTES_MIN`."""

    def __init__(
        self, *, database: Database, bytes_max: int, make_room: Callable[[], None]
    ) -> None:
        """`make_room` is called whenever they take more: others may have to take less."""
        self._database = database
        self._bytes_max = max(bytes_max, BYTES_MIN)
        self._make_others_room = make_room
        self._entries: OrderedDict[IndexKey, _Entry] = OrderedDict()  # asked last behind others
        self.size_bytes = 0  # of all of them

    async def load(
        self, access: Access, wanted: Mapping[int, Sequence[NamespaceKey]]
    ) -> list[LoadedNamespace]:
        """Return these namespaces (number → the keys at hand), as new as the request.

        Raises:
            Unavailable: the database is away.
        """
        return [
            await self.load_one(access.account, number, keys, access.index_mark)
            for number, keys in wanted.items()
        ]

    async def load_one(
        self,
        account: AccountId,
        namespace_id: int,
        keys: Sequence[NamespaceKey],
        mark: IndexMark | None = None,
    ) -> LoadedNamespace:
        """Return one namespace, as new as the request of this mark, or as now.

        Raises:
            Unavailable: the database is away.
        """
        key = (account, namespace_id)
        count_lookups("index", key in self._entries)
        entry = await self._find(key, keys)
        if entry is not None and not await self._bring_up(key, entry, keys, mark):
            self._let_go(key, entry)
            entry = await self._find(key, keys)
        self._make_room()
        return empty(namespace_id) if entry is None else entry.view

    async def release(self, opens: Opens) -> None:
        """Let go of namespaces whose keys this process holds no longer, as `opens` tells."""
        for key, entry in list(self._entries.items()):
            try:
                is_open = entry.name is None or await opens(key[0], entry.name)
            except RelayerError:  # the account is gone, or nobody can tell
                is_open = False
            if not is_open:
                self._let_go(key, entry)

    async def close(self) -> None:
        """Stop reading, and let go of all."""
        tasks = [entry.loading for entry in self._entries.values() if entry.loading is not None]
        for key, entry in list(self._entries.items()):
            self._let_go(key, entry)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _find(self, key: IndexKey, keys: Sequence[NamespaceKey]) -> _Entry | None:
        """Return the namespace once it is loaded, or some of it; None where it is not there."""
        entry = self._entries.get(key) or await self._begin(key, keys)
        if entry is None:
            return None
        if key in self._entries:
            self._entries.move_to_end(key)
        if keys:
            entry.name = keys[0].namespace
        if (loading := entry.loading) is not None:
            await asyncio.wait({loading}, timeout=WAIT_S)
            if loading.done() and not loading.cancelled():
                loading.result()
        return entry

    async def _begin(self, key: IndexKey, keys: Sequence[NamespaceKey]) -> _Entry | None:
        """Return the namespace, of which nothing is read yet; None where it is not there."""
        async with self._database.snapshot() as connection:
            there = await rows.versions(connection, *key)
        if there is None:
            return None
        if (known := self._entries.get(key)) is not None:  # another recall was faster
            return known
        marks = deque([there.mark], maxlen=MARKS_MAX)
        entry = _Entry(empty(key[1]), there.counts, there.mark, marks, there.seqs)
        self._entries[key] = entry
        if len(entry.waiting):
            entry.loading = asyncio.create_task(self._load(key, entry, keys))
            entry.loading.add_done_callback(_retrieve)
        return entry

    async def _load(self, key: IndexKey, entry: _Entry, keys: Sequence[NamespaceKey]) -> None:
        """Read what is waiting, the newest first, as far as there is room.

        Raises:
            Unavailable: the database is away; it is read anew then.
        """
        count = FIRST
        try:
            while len(entry.waiting) and self._entries.get(key) is entry:
                async with entry.turn:
                    if not await self._read_some(key, entry, keys, count):
                        log.warning("a sealed index has no room", extra={"event": "resident.room"})
                        return
                self._make_room()
                count = min(2 * count, MOST)
        except BaseException as error:
            self._let_go(key, entry)
            if isinstance(error, Exception) and not isinstance(error, RelayerError):
                extra = {"event": "resident.failed", "exception": describe(error)}
                log.error("a sealed index was not read", extra=extra)
            raise
        finally:
            entry.loading = None

    async def _read_some(
        self, key: IndexKey, entry: _Entry, keys: Sequence[NamespaceKey], count: int
    ) -> bool:
        """Read the newest of what is waiting; False where there is no room for it."""
        some = entry.waiting[-count:]
        async with self._database.snapshot() as connection:
            pages = await read_pages(connection, key, some, self._room(entry))
        if pages is None:
            return False
        entry.waiting = entry.waiting[: len(entry.waiting) - len(some)]
        await self._apply(key, entry, keys, rows.Differing(entry.mark, entry.counts, some), pages)
        return True

    async def _bring_up(
        self,
        key: IndexKey,
        entry: _Entry,
        keys: Sequence[NamespaceKey],
        mark: IndexMark | None,
    ) -> bool:
        """Bring what is loaded up to the request; False where it has to be read anew."""
        async with entry.turn:
            again = _find_openable(entry, keys)
            if mark is not None and mark in entry.marks and not len(again):
                return True
            async with self._database.snapshot() as connection:
                now = await _changes(connection, key, entry)
                if now is None or len(now.seqs) > AFRESH:
                    return False
                seqs = np.union1d(now.seqs, again)
                pages = await read_pages(connection, key, seqs, self._room(entry))
            if pages is None:
                return False
            entry.waiting = np.setdiff1d(entry.waiting, seqs, assume_unique=True)
            await self._apply(key, entry, keys, replace(now, seqs=seqs), pages)
            entry.mark, entry.counts = now.mark, now.counts
            entry.marks.extend({now.mark, mark or now.mark}.difference(entry.marks))
            return True

    async def _apply(
        self,
        key: IndexKey,
        entry: _Entry,
        keys: Sequence[NamespaceKey],
        now: rows.Differing,
        pages: Sequence[rows.Page],
    ) -> None:
        """Put pages in the place of what was there of the same memories."""
        opened = await _open(pages, key[0], keys)
        loaded = await apply_changes(entry.loaded, now, opened.pages)
        if any(entry.closed.values()):
            read = set(now.seqs.tolist())
            entry.closed = {epoch: seqs - read for epoch, seqs in entry.closed.items()}
        for epoch, seqs in opened.closed.items():
            entry.closed.setdefault(epoch, set()).update(seqs)
        if self._entries.get(key) is entry:
            self.size_bytes += loaded.size_bytes - entry.loaded.size_bytes
        entry.loaded = loaded

    def _room(self, entry: _Entry) -> int:
        """Return the bytes that a namespace may still take, if all others go."""
        return self._bytes_max - entry.loaded.size_bytes

    def _make_room(self) -> None:
        """Let go of what was asked longest ago, but for the last."""
        while self.size_bytes > self._bytes_max and len(self._entries) > 1:
            key, entry = next(iter(self._entries.items()))
            self._let_go(key, entry)
        self._make_others_room()

    def _let_go(self, key: IndexKey, entry: _Entry) -> None:
        if self._entries.get(key) is entry:
            del self._entries[key]
            self.size_bytes -= entry.loaded.size_bytes
        if entry.loading is not None and entry.loading is not asyncio.current_task():
            entry.loading.cancel()


def _find_openable(entry: _Entry, keys: Sequence[NamespaceKey]) -> Ints:
    """Return the memories that were closed so far, and that these keys open."""
    found = [seq for key in keys for seq in entry.closed.get(key.epoch, ())]
    return np.array(sorted(found), np.int64)


async def _changes(connection: Connection, key: IndexKey, entry: _Entry) -> rows.Differing | None:
    """Return the changes of what is loaded; what waits is read as it is then."""
    now = await read_changes(connection, key, entry.loaded, entry.mark)
    if now is None or len(entry.waiting) == 0 or len(now.seqs) < len(entry.waiting):
        return now
    # All rows were compared: most of what differs is only not there yet.
    return replace(now, seqs=np.setdiff1d(now.seqs, entry.waiting, assume_unique=True))


async def _open(
    pages: Sequence[rows.Page], account: AccountId, keys: Sequence[NamespaceKey]
) -> OpenedPages:
    """Open pages; a thread does it for many, because others are waiting."""
    if not has_records(pages):
        return OpenedPages(pages, {})
    if sum(len(page.memories) for page in pages) > OPENED_AT_ONCE_MAX:
        return await asyncio.to_thread(open_pages, pages, account, keys)
    return open_pages(pages, account, keys)


def _retrieve(loading: "asyncio.Task[None]") -> None:
    """Retrieve the failure of a reading that nobody awaits any more, lest asyncio log it."""
    if not loading.cancelled():
        loading.exception()
