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
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from relayer.affinity import ALONE, Affinity
from relayer.database import memory_index as rows
from relayer.database.index_pages import Counts, Differing, Page
from relayer.database.index_steps import IndexMark
from relayer.database.pool import Connection, Database
from relayer.errors import RelayerError
from relayer.logs import describe
from relayer.memory_index.namespace import Ints, LoadedNamespace, empty
from relayer.memory_index.reading import (
    ALL,
    PAGE,
    IndexKey,
    Part,
    apply_changes,
    read_newest,
    read_pages,
)
from relayer.memory_index.records import OpenedPages, has_records, open_pages
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey
from relayer.telemetry.instruments import count_lookups
from relayer.tenants.accounts import Access

log = logging.getLogger("relayer.memory_index")

BYTES_MIN: Final = 64 * 2**20  # that they may take, however little others may
BYTES_A_MEMORY: Final = 150  # at least: what is surely too large is not even looked at
WAIT_S: Final = 0.6  # that a recall waits for a namespace: agents wait a second for one
WHOLE_WAIT_S: Final = 5.0  # that those wait who must not miss anything
AHEAD_SHARE: Final = 2  # of the room, that may be taken by what nobody has asked for
AHEAD_MAX: Final = 200  # namespaces that nobody has asked for
UNASKED_S: Final = 600.0  # that what is read and not opened is kept
FIRST: Final = 1_000  # memories that are read first; then twice as many each time
MOST: Final = PAGE
WAITING_MAX: Final = 16_000  # opened memories that wait to be put in, or as many as are put in
AFRESH: Final = 20_000  # changed memories from which a namespace is read anew
MARKS_MAX: Final = 8  # of requests under way together
OPENED_AT_ONCE_MAX: Final = 200  # records that are opened on the loop itself: some milliseconds
NOBODY: Final = AccountId(bytes(32))  # has nothing
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
        waiting: parts that are opened and not put in yet, each older than the one before it.
        closed: epoch → memories whose key was not at hand.
        unopened: where the memories of each part that is not opened yet were looked for, and it.
        loading: reads what is not read yet, and opens it with these keys; None once it has ended.
        keys: None until some are lent, and once it has ended.
        changed: set once somebody lends a key or asks.
        reading: of what comes next, of so many memories `at_once` below the number `rest`, 0 once
            there are none; when it `began_s` and how long the last one `took_s`.
        is_read: set once all is read for which there is room.
        name: whose keys opened its records.
        turn: of who changes it.
        is_ahead: nobody has asked for it yet.
        is_full: what is free is not enough for it.
        since: when its loading began.
        size_bytes: of all that is read.
    """

    loaded: LoadedNamespace
    counts: Counts = field(default_factory=lambda: Counts(0, 0))
    mark: IndexMark | None = None
    marks: deque[IndexMark] = field(default_factory=lambda: deque(maxlen=MARKS_MAX))
    before: int = ALL
    waiting: list[tuple[Part, OpenedPages]] = field(default_factory=list)
    closed: dict[int, set[int]] = field(default_factory=dict)
    unopened: list[tuple[int, Part]] = field(default_factory=list)
    loading: asyncio.Task[None] | None = None
    keys: Sequence[NamespaceKey] | None = field(default=None, repr=False)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_read: asyncio.Event = field(default_factory=asyncio.Event)
    reading: "asyncio.Task[Part | None] | None" = None
    rest: int = ALL
    at_once: int = field(default_factory=lambda: FIRST)
    began_s: float = 0.0
    took_s: float = 0.0
    name: Namespace | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_ahead: bool = False
    is_full: bool = False
    since: float = field(default_factory=time.monotonic)
    size_bytes: int = 0

    @property
    def view(self) -> LoadedNamespace:
        """Return what is loaded, which says if that is all."""
        if not (self.before or any(self.closed.values())):
            return self.loaded
        return replace(self.loaded, is_partial=True, is_loading=self.before > 0)

    @property
    def is_done(self) -> bool:
        """Return true if nothing is left to be read and opened, or nothing that has room."""
        return self.keys is not None and self.reading is None and not self.rest

    def stop_reading(self) -> None:
        """Read nothing more for now."""
        if self.reading is not None:
            self.reading.cancel()
            self.reading = None

    def lend(self, keys: Sequence[NamespaceKey]) -> None:
        """Let what is read be opened with these keys."""
        if keys:
            self.name = keys[0].namespace
        if self.loading is not None and self.keys is None:
            self.keys = keys
        self.changed.set()


class SealedNamespaces:
    """Holds namespaces with records of at most so many bytes together, but for `BYTES_MIN`."""

    def __init__(
        self,
        *,
        database: Database,
        bytes_max: int,
        make_room: Callable[[], None],
        free: Callable[[], int],
        affinity: Affinity = ALONE,
        large_bytes: int = 0,
    ) -> None:
        """`make_room` is called whenever they take more: others may have to take less.

        `free` tells what nobody takes, of which some is for what nobody has asked for yet. By
        `affinity` each that takes more than `large_bytes` is held by one of several processes.
        """
        self._database = database
        self._free = free
        self._affinity, self._large_bytes = affinity, large_bytes
        self._bytes_max = max(bytes_max, BYTES_MIN)
        self._make_others_room = make_room
        self._entries: OrderedDict[IndexKey, _Entry] = OrderedDict()  # asked last behind others
        self.size_bytes = 0  # of all of them

    async def load(
        self,
        access: Access,
        wanted: Mapping[int, Sequence[NamespaceKey]],
        *,
        wait_s: float | None = None,
    ) -> list[LoadedNamespace]:
        """Return these namespaces (number → the keys at hand), as new as the request.

        Raises:
            Unavailable: the database is away.
        """
        return [
            await self.load_one(access.account, number, keys, access.index_mark, wait_s=wait_s)
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

    def knows(self, account: AccountId, number: int) -> bool:
        """Return true if any of this namespace is read, opened or not."""
        return (account, number) in self._entries

    async def load_one(
        self,
        account: AccountId,
        namespace_id: int,
        keys: Sequence[NamespaceKey],
        mark: IndexMark | None = None,
        *,
        wait_s: float | None = None,
    ) -> LoadedNamespace:
        """Return one namespace, as new as the request of this mark, or as now.

        `wait_s` is how long at most, if not as long as a recall does.

        Raises:
            Unavailable: the database is away.
        """
        key = (account, namespace_id)
        count_lookups("index", key in self._entries)
        entry = await self._find(key, keys, wait_s)
        if entry is not None and not await self._bring_up(key, entry, keys, mark):
            self._let_go(key, entry)
            entry = await self._find(key, keys, wait_s)
        self._make_room()
        return empty(namespace_id) if entry is None else entry.view

    async def release(self, opens: Opens) -> None:
        """Let go of namespaces whose keys this process holds no longer, as `opens` tells.

        Likewise of those that wait for a key for long, or that another process holds.
        """
        for key, entry in list(self._entries.items()):
            if entry.name is None and time.monotonic() - entry.since > UNASKED_S:
                self._let_go(key, entry)
                continue
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

    async def load_ahead(
        self, account: AccountId, namespace_id: int, keys: Sequence[NamespaceKey]
    ) -> None:
        """Read a namespace that nobody has asked for, as far as there is free room.

        It is opened with these keys, if any, or with those of who asks for it.
        """
        key = (account, namespace_id)
        if (entry := self._entries.get(key)) is None:
            ahead = [other for other, its in self._entries.items() if its.is_ahead]
            for other in ahead[: len(ahead) + 1 - AHEAD_MAX]:
                self._let_go(other, self._entries[other])
            entry = self._begin(key)
            entry.is_ahead = True
        if keys:
            entry.lend(keys)
        if (loading := entry.loading) is not None:
            is_read = asyncio.create_task(entry.is_read.wait())
            await asyncio.wait({loading, is_read}, return_when=asyncio.FIRST_COMPLETED)
            is_read.cancel()
        if entry.is_ahead and not entry.size_bytes:  # there is no room
            self._let_go(key, entry)

    def _begin(self, key: IndexKey) -> _Entry:
        entry = self._entries[key] = _Entry(empty(key[1]))
        entry.loading = asyncio.create_task(self._load(key, entry))
        entry.loading.add_done_callback(_retrieve)
        return entry

    async def _find(
        self, key: IndexKey, keys: Sequence[NamespaceKey], wait_s: float | None
    ) -> _Entry | None:
        """Return the namespace once it is loaded, or some of it; None where it is not there."""
        entry = self._entries.get(key) or self._begin(key)
        self._entries.move_to_end(key)
        entry.is_ahead = False
        entry.lend(keys)
        if (loading := entry.loading) is not None:
            await asyncio.wait({loading}, timeout=WAIT_S if wait_s is None else wait_s)
            if loading.done() and not loading.cancelled():
                loading.result()
        return entry if entry.mark is not None or entry.loading is not None else None

    async def _load(self, key: IndexKey, entry: _Entry) -> None:
        """Read what is there, the newest first, as far as there is room, and open it with the keys.

        Raises:
            Unavailable: the database is away; it is read anew then.
        """
        try:
            while self._entries.get(key) is entry:
                await self._read_on(key, entry)
                if entry.keys is not None and entry.unopened:
                    await self._open_next(key, entry, entry.keys)
                    continue
                if entry.is_done:
                    return
                await _wait(entry, entry.reading)
                if entry.reading is not None and entry.reading.done():
                    await self._take(key, entry)
        except BaseException as error:
            self._let_go(key, entry)
            if isinstance(error, Exception) and not isinstance(error, RelayerError):
                extra = {"event": "resident.failed", "exception": describe(error)}
                log.error("a sealed index was not read", extra=extra)
            raise
        finally:
            entry.stop_reading()
            entry.loading = entry.keys = None
            entry.is_read.set()

    async def _read_on(self, key: IndexKey, entry: _Entry) -> None:
        """Begin to read what comes next, if there is any and nothing is read just now."""
        if entry.reading is None and entry.rest and not (entry.is_full and entry.is_ahead):
            if entry.is_ahead:  # it takes half of the time: others ask meanwhile
                await _wait(entry, None, entry.took_s)
            room = self._room(entry)
            if entry.is_ahead:
                ahead = sum(its.size_bytes for its in self._entries.values() if its.is_ahead)
                room = min(self._free(), self._bytes_max // AHEAD_SHARE - ahead)
            entry.began_s = time.monotonic()
            entry.reading = self._begin_reading(key, entry.rest, entry.at_once, room)
        if entry.reading is None:
            entry.is_read.set()

    def _begin_reading(
        self, key: IndexKey, before: int, count: int, room: int
    ) -> "asyncio.Task[Part | None]":
        async def read() -> Part | None:
            async with self._database.snapshot() as connection:
                return await read_newest(connection, key, before, count, room)

        reading = asyncio.create_task(read())
        reading.add_done_callback(_retrieve)
        return reading

    async def _take(self, key: IndexKey, entry: _Entry) -> None:
        """Take what was read."""
        assert entry.reading is not None
        part, entry.reading = entry.reading.result(), None
        entry.took_s = time.monotonic() - entry.began_s
        if part is None:  # it is not there
            self._let_go(key, entry)
            return
        if part.counts.memory_count * BYTES_A_MEMORY > self._large_bytes:
            self._affinity.pin(key[0])  # before others begin to read it, too
        if part.pages is not None:
            entry.at_once = min(2 * entry.at_once, MOST)
            entry.unopened = [*entry.unopened, (entry.rest, part)]
            entry.rest = part.before
            self._recount(key, entry)
        elif entry.is_ahead:
            entry.is_full = True
        else:
            log.warning("a sealed index has no room", extra={"event": "resident.room"})
            entry.rest = 0
            await self._put_in(key, entry, replace(part, pages=[]), OpenedPages([], {}))

    async def _open_next(self, key: IndexKey, entry: _Entry, keys: Sequence[NamespaceKey]) -> None:
        """Open and put in what was read first; what is older than what is there is read anew."""
        at, part = entry.unopened[0]
        opened = await _open(part.pages or [], key[0], keys)
        if await self._put_in(key, entry, part, opened):
            entry.unopened = entry.unopened[1:]
        else:
            entry.stop_reading()
            entry.unopened, entry.rest = [], at
        self._recount(key, entry)
        self._make_room()

    async def _put_in(self, key: IndexKey, entry: _Entry, part: Part, opened: OpenedPages) -> bool:
        """Put in what was opened; False where what is there is of a later state by now.

        It waits until it is worth copying all that is there, or until somebody asks.
        """
        async with entry.turn:
            if entry.mark is None:
                entry.mark, entry.counts = part.mark, part.counts
                entry.marks.append(part.mark)
            elif part.mark.number < entry.mark.number:
                return False
            entry.waiting.append((part, opened))
            waiting = sum(len(its.seqs) for its, _ in entry.waiting)
            is_last = not (part.before and len(part.seqs))
            if is_last or waiting >= max(WAITING_MAX, len(entry.loaded.memories)):
                await self._put_in_waiting(key, entry)
            return True

    async def _put_in_waiting(self, key: IndexKey, entry: _Entry) -> None:
        if not entry.waiting:
            return
        assert entry.mark is not None
        waiting, entry.waiting = entry.waiting[::-1], []
        opened = OpenedPages([], {})
        for _, its in waiting:
            opened = opened.join(its)
        seqs = np.concatenate([part.seqs for part, _ in waiting])
        await self._put(key, entry, Differing(entry.mark, entry.counts, seqs), opened)
        entry.before = waiting[0][0].before

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
            await self._put_in_waiting(key, entry)
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
            opened = await _open(pages, key[0], keys)
            await self._put(key, entry, replace(now, seqs=seqs), opened)
            entry.mark, entry.counts = now.mark, now.counts
            entry.marks.extend({now.mark, mark or now.mark}.difference(entry.marks))
            return True

    async def _put(self, key: IndexKey, entry: _Entry, now: Differing, opened: OpenedPages) -> None:
        """Put opened pages in the place of what was there of the same memories."""
        loaded = await apply_changes(entry.loaded, now, opened.pages)
        if any(entry.closed.values()):
            read = set(now.seqs.tolist())
            entry.closed = {epoch: seqs - read for epoch, seqs in entry.closed.items()}
        for epoch, seqs in opened.closed.items():
            entry.closed.setdefault(epoch, set()).update(seqs)
        entry.loaded = loaded
        self._recount(key, entry)

    def _recount(self, key: IndexKey, entry: _Entry) -> None:
        """Count what is held of a namespace, opened or not."""
        parts = [part for part, _ in entry.waiting] + [part for _, part in entry.unopened]
        now_bytes = entry.loaded.size_bytes + sum(part.size_bytes for part in parts)
        if self._entries.get(key) is entry:
            self.size_bytes += now_bytes - entry.size_bytes
        entry.size_bytes = now_bytes

    def _room(self, entry: _Entry) -> int:
        """Return the bytes that a namespace may still take, if all others go."""
        return self._bytes_max - entry.size_bytes

    def _make_room(self) -> None:
        """Let go of what nobody has asked for, and then longest ago, but for the last."""
        while self.size_bytes > self._bytes_max and len(self._entries) > 1:
            key, entry = min(self._entries.items(), key=lambda item: not item[1].is_ahead)
            self._let_go(key, entry)
        self._make_others_room()

    def _let_go(self, key: IndexKey, entry: _Entry) -> None:
        if self._entries.get(key) is entry:
            del self._entries[key]
            self.size_bytes -= entry.size_bytes
        if entry.loading is not None and entry.loading is not asyncio.current_task():
            entry.loading.cancel()


def _find_openable(entry: _Entry, keys: Sequence[NamespaceKey]) -> Ints:
    """Return the memories that were closed so far, and that these keys open."""
    found = [seq for key in keys for seq in entry.closed.get(key.epoch, ())]
    return np.array(sorted(found), np.int64)


async def _changes(
    connection: Connection, key: IndexKey, entry: _Entry, since: IndexMark
) -> Differing | None:
    """Return the changes of what is loaded; the rest is read as it is then."""
    if (now := await rows.read_changes(connection, *key, since)) is not None:
        return now
    if (there := await rows.versions(connection, *key)) is None:
        return None
    now = entry.loaded.compare(there)
    is_here = np.isin(now.seqs, entry.loaded.memories.seq, assume_unique=True)
    return replace(now, seqs=now.seqs[is_here | (now.seqs >= entry.before)])


async def _open(
    pages: Sequence[Page], account: AccountId, keys: Sequence[NamespaceKey]
) -> OpenedPages:
    """Open pages; a thread does it for many, because others are waiting."""
    if not has_records(pages):
        return OpenedPages(pages, {})
    if sum(len(page.memories) for page in pages) > OPENED_AT_ONCE_MAX:
        return await asyncio.to_thread(open_pages, pages, account, keys)
    return open_pages(pages, account, keys)


async def _wait(
    entry: _Entry, reading: "asyncio.Task[Part | None] | None", at_most_s: float | None = None
) -> None:
    """Wait until something is read, or somebody lends a key or asks."""
    changed = asyncio.create_task(entry.changed.wait())
    try:
        waited = {changed} if reading is None else {changed, reading}
        await asyncio.wait(waited, timeout=at_most_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        changed.cancel()
    entry.changed.clear()


def _retrieve(loading: "asyncio.Task[Any]") -> None:
    """Retrieve the failure of a reading that nobody awaits any more, lest asyncio log it."""
    if not loading.cancelled():
        loading.exception()
