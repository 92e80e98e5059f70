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
from typing import Any, Final

import numpy as np

from relayer.affinity import ALONE, Affinity
from relayer.database import memory_index as rows
from relayer.database.index_steps import IndexMark
from relayer.database.pool import Connection, Database
from relayer.errors import RelayerError
from relayer.logs import describe
from relayer.memory_index.namespace import Ints, LoadedNamespace, empty, row_bytes
from relayer.memory_index.reading import IndexKey, apply_changes, read_newest, read_pages
from relayer.memory_index.records import OpenedPages, has_records, open_pages
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey
from relayer.telemetry.instruments import count_lookups
from relayer.tenants.accounts import Access

log = logging.getLogger("relayer.memory_index")

BYTES_MIN: Final = 64 * 2**20  # that they may take, however little others may
BYTES_A_MEMORY: Final = 150  # at least: what is surely too large is not even looked at
WAIT_S: Final = 5.0  # that a recall waits for a namespace, before it asks what is there
FIRST: Final = 1_000  # memories that are read first; then twice as many each time
MOST: Final = 4_000
ALL: Final = 2**63 - 1  # before which all numbers are
AFRESH: Final = 20_000  # changed memories from which a namespace is read anew
MARKS_MAX: Final = 8  # of requests under way together
OPENED_AT_ONCE_MAX: Final = 200  # records that are opened on the loop itself: some milliseconds
NOBODY: Final = AccountId(bytes(32))  # has nothing
_Read = tuple[rows.Newest, list[rows.Page] | None]
Opens = Callable[[AccountId, Namespace], Awaitable[bool]]


@dataclass
class _Entry:
    """A namespace as far as it is loaded.

    Attributes:
        counts: of its row.
        mark: of the state that it is brought up to.
        marks: of the requests that it is new enough for.
        before: memories of lower numbers are not read yet, but for some that changed meanwhile;
            0 once all are.
        closed: epoch → memories whose key was not at hand.
        loading: reads what is not read yet; None once it has ended.
        name: whose keys opened its records.
        turn: of who changes it.
    """

    loaded: LoadedNamespace
    counts: rows.Counts = field(default_factory=lambda: rows.Counts(0, 0))
    mark: IndexMark | None = None
    marks: deque[IndexMark] = field(default_factory=lambda: deque(maxlen=MARKS_MAX))
    before: int = ALL
    closed: dict[int, set[int]] = field(default_factory=dict)
    loading: asyncio.Task[None] | None = None
    name: Namespace | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def view(self) -> LoadedNamespace:
        """Return what is loaded, which says if that is all."""
        if not (self.before or any(self.closed.values())):
            return self.loaded
        return replace(self.loaded, is_partial=True, is_loading=self.before > 0)


class SealedNamespaces:
    """Holds namespaces with records of at most so many bytes together, but for `BYTES_MIN`."""

    def __init__(
        self,
        *,
        database: Database,
        bytes_max: int,
        make_room: Callable[[], None],
        affinity: Affinity = ALONE,
        large_bytes: int = 0,
    ) -> None:
        """`make_room` is called whenever they take more: others may have to take less.

        By `affinity` each that takes more than `large_bytes` is held by one of several processes.
        """
        self._database = database
        self._affinity, self._large_bytes = affinity, large_bytes
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

    async def prepare(self) -> None:
        """Let the database parse the statement that a first recall waits for.

        Raises:
            Unavailable: the database is away.
        """
        async with self._database.snapshot() as connection:
            await read_newest(connection, (NOBODY, 0), 0, 0, 0)

    def has_all(self, account: AccountId, numbers: Sequence[int]) -> bool:
        """Return true if none of these namespaces would have to be waited for."""
        entries = [self._entries.get((account, number)) for number in numbers]
        return all(entry is not None and entry.loading is None for entry in entries)

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
        """Let go of namespaces whose keys this process holds no longer, as `opens` tells.

        Those that another process holds go as well.
        """
        for key, entry in list(self._entries.items()):
            try:
                is_open = entry.name is None or await opens(key[0], entry.name)
            except RelayerError:  # the account is gone, or nobody can tell
                is_open = False
            if not is_open or self._affinity.is_elsewhere(key[0]):
                self._let_go(key, entry)

    async def close(self) -> None:
        """Stop reading, and let go of all."""
        tasks = [entry.loading for entry in self._entries.values() if entry.loading is not None]
        for key, entry in list(self._entries.items()):
            self._let_go(key, entry)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _find(self, key: IndexKey, keys: Sequence[NamespaceKey]) -> _Entry | None:
        """Return the namespace once it is loaded, or some of it; None where it is not there."""
        if (entry := self._entries.get(key)) is None:
            entry = self._entries[key] = _Entry(empty(key[1]))
            entry.loading = asyncio.create_task(self._load(key, entry, keys))
            entry.loading.add_done_callback(_retrieve)
        else:
            self._entries.move_to_end(key)
        if keys:
            entry.name = keys[0].namespace
        if (loading := entry.loading) is not None:
            await asyncio.wait({loading}, timeout=WAIT_S)
            if loading.done() and not loading.cancelled():
                loading.result()
        return entry if entry.mark is not None or entry.loading is not None else None

    async def _load(self, key: IndexKey, entry: _Entry, keys: Sequence[NamespaceKey]) -> None:
        """Read what is there, the newest first, as far as there is room.

        Raises:
            Unavailable: the database is away; it is read anew then.
        """
        count, reading = FIRST, self._begin_reading(key, entry, FIRST)
        try:
            while self._entries.get(key) is entry:
                if (found := await reading) is None:  # it is not there
                    self._let_go(key, entry)
                    return
                newest, pages = found
                if newest.counts.memory_count * BYTES_A_MEMORY > self._large_bytes:
                    self._affinity.pin(key[0])  # before others begin to read it, too
                if pages is None:
                    log.warning("a sealed index has no room", extra={"event": "resident.room"})
                    entry.mark = entry.mark or newest.mark
                    return
                count = min(2 * count, MOST)
                if newest.rest is not None:  # the next ones are read while these are opened
                    reading = self._begin_reading(key, entry, count, behind=newest)
                if not await self._put_in(key, entry, keys, newest, pages):
                    reading.cancel()
                    reading = self._begin_reading(key, entry, count)
                self._make_room()
                if not entry.before:
                    return
        except BaseException as error:
            self._let_go(key, entry)
            if isinstance(error, Exception) and not isinstance(error, RelayerError):
                extra = {"event": "resident.failed", "exception": describe(error)}
                log.error("a sealed index was not read", extra=extra)
            raise
        finally:
            reading.cancel()
            entry.loading = None

    def _begin_reading(
        self, key: IndexKey, entry: _Entry, count: int, behind: rows.Newest | None = None
    ) -> "asyncio.Task[_Read | None]":
        """Begin to read what comes next, or what comes behind those that are not put in yet."""
        before, taken = entry.before, 0
        if behind is not None:
            before = _before(behind)
            taken = len(behind.memories) * row_bytes() + len(behind.memories.records)

        async def read() -> _Read | None:
            async with self._database.snapshot() as connection:
                room = self._room(entry) - taken
                return await read_newest(connection, key, before, count, room)

        reading = asyncio.create_task(read())
        reading.add_done_callback(_retrieve)
        return reading

    async def _put_in(
        self,
        key: IndexKey,
        entry: _Entry,
        keys: Sequence[NamespaceKey],
        newest: rows.Newest,
        pages: Sequence[rows.Page],
    ) -> bool:
        """Put in what was read; False where what is there is of a later state by now."""
        async with entry.turn:
            if entry.mark is None:
                entry.mark, entry.counts = newest.mark, newest.counts
                entry.marks.append(newest.mark)
            elif newest.mark.number < entry.mark.number:
                return False
            now = rows.Differing(entry.mark, entry.counts, newest.memories.seq)
            await self._apply(key, entry, keys, now, pages)
            entry.before = _before(newest)
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
            if entry.mark is None:  # nothing is read yet, and what will be is as new
                return True
            again = _find_openable(entry, keys)
            if mark is not None and mark in entry.marks and not len(again):
                return True
            async with self._database.snapshot() as connection:
                now = await _changes(connection, key, entry, entry.mark)
                if now is None or len(now.seqs) > AFRESH:
                    return False
                seqs = np.union1d(now.seqs, again)
                pages = await read_pages(connection, key, seqs, self._room(entry))
            if pages is None:
                return False
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


async def _changes(
    connection: Connection, key: IndexKey, entry: _Entry, since: IndexMark
) -> rows.Differing | None:
    """Return the changes of what is loaded; the rest is read as it is then."""
    if (now := await rows.read_changes(connection, *key, since)) is not None:
        return now
    if (there := await rows.versions(connection, *key)) is None:
        return None
    now = entry.loaded.compare(there)
    is_here = np.isin(now.seqs, entry.loaded.memories.seq, assume_unique=True)
    return replace(now, seqs=now.seqs[is_here | (now.seqs >= entry.before)])


def _before(newest: rows.Newest) -> int:
    """Return the number before which all others are; 0 where none is."""
    return 0 if newest.rest is None else newest.rest + 1


async def _open(
    pages: Sequence[rows.Page], account: AccountId, keys: Sequence[NamespaceKey]
) -> OpenedPages:
    """Open pages; a thread does it for many, because others are waiting."""
    if not has_records(pages):
        return OpenedPages(pages, {})
    if sum(len(page.memories) for page in pages) > OPENED_AT_ONCE_MAX:
        return await asyncio.to_thread(open_pages, pages, account, keys)
    return open_pages(pages, account, keys)


def _retrieve(loading: "asyncio.Task[Any]") -> None:
    """Retrieve the failure of a reading that nobody awaits any more, lest asyncio log it."""
    if not loading.cancelled():
        loading.exception()
