"""Namespaces held in memory, none of them older than the request.

Not here: the arrays (`namespace.py`), searching them (`evidence.py`).

- Every request reads the mark of its account's index from the database; a namespace under another
  mark is looked through for what changed before it is searched. So what was acknowledged is found,
  and what was erased is not, by whichever process and whoever wrote it.
- A namespace is loaded from the second recall on, which pays for nothing: it is read in the
  background. It takes the place of what was asked longest ago, and of nothing that was asked since;
  what has made room is not read again for a while, so that two do not go on displacing each other.
- Before any of it is read, the database says how much it takes: what has no room is not read, and
  what has is read in pages that take little.
- Namespaces with a sealed index have the first place (`sealed.py`): nobody else can search them.
- Until then, and where there is no room or a reading fails, the database searches. No recall fails
  for what is only about memory, and what failed is let go of and not read again for a while.
"""

import asyncio
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from relayer.affinity import ALONE, Affinity
from relayer.blobs.store import verify_hash
from relayer.database import memory_index as rows
from relayer.database.index_steps import IndexMark
from relayer.database.pool import Database, Row
from relayer.database.recall import rows_of
from relayer.errors import Unavailable
from relayer.logs import describe, warn
from relayer.memory_index.namespace import LoadedNamespace
from relayer.memory_index.reading import (
    IndexKey,
    apply_changes,
    load_whole,
    read_changes,
    read_pages,
)
from relayer.memory_index.rows import RecentRows
from relayer.memory_index.sealed import (
    AHEAD_SHARE,
    BYTES_A_MEMORY,
    NOBODY,
    Opens,
    SealedNamespaces,
)
from relayer.sealed.keys import AccountId
from relayer.telemetry.instruments import count_lookups
from relayer.tenants.accounts import Access

log = logging.getLogger("relayer.memory_index")

ASKED_BEFORE: Final = 1  # recalls before a namespace is read into memory
REFUSED: Final = -1_000  # recalls after which one that had no room is looked at again
MISSED_MAX: Final = 3  # times that the database may be away before a held one is let go of
PUT_OFF: Final = -100  # the same for one that failed, or had room only in place of others
ASKED_MAX: Final = 20_000  # namespaces whose recalls are counted
READING_MAX: Final = 2  # namespaces that are read at the same time
CATCH_UP_MAX: Final = 500  # changed memories that a recall itself waits for
CATCH_UP_BYTES_MAX: Final = 16 * 2**20  # that these take
MARKS_MAX: Final = 8  # of requests under way together, so that none turns back what another saw
ROWS_SHARE: Final = 8  # rows of what was found take one part of so many
LARGE_SHARE: Final = 16  # of the room: what takes more is held by one of several processes


@dataclass
class _Entry:
    """A namespace, the mark of the state it was read in, those of requests it is new enough for,
    the number of the last recall that asked for it, whether it was loaded before any did, and how
    often in a row the database was away when it had to be brought up to date."""

    loaded: LoadedNamespace
    mark: IndexMark
    marks: deque[IndexMark]
    asked_by: int = 0
    is_ahead: bool = False
    missed: int = 0
    catching_up: asyncio.Lock = field(default_factory=asyncio.Lock)


class MemoryIndex:
    """Holds namespaces of at most so many bytes together; 0 holds none."""

    def __init__(self, *, database: Database, bytes_max: int, affinity: Affinity = ALONE) -> None:
        """By `affinity` each large one is held by one of several processes."""
        self._database = database
        self._affinity = affinity
        self._large_bytes = bytes_max // LARGE_SHARE
        self._whole_bytes_max = bytes_max - bytes_max // ROWS_SHARE
        self.sealed = SealedNamespaces(
            database=database,
            bytes_max=self._whole_bytes_max,
            make_room=self._make_room,
            free=lambda: self.free_bytes,
            affinity=affinity,
            large_bytes=bytes_max // LARGE_SHARE,
        )
        self._rows = RecentRows(bytes_max // ROWS_SHARE)
        self._bytes = 0  # of what is held
        self._recalls = 0  # until now
        self._entries: OrderedDict[IndexKey, _Entry] = (
            OrderedDict()
        )  # what was asked last behind others
        self._asked: OrderedDict[IndexKey, int] = OrderedDict()
        self._estimated = set[IndexKey]()  # of which it was logged
        self._listing: asyncio.Task[None] | None = None  # makes lists of vectors
        self._is_closed = threading.Event()
        self._reading: dict[IndexKey, asyncio.Task[None]] = {}

    @property
    def reading(self) -> list["asyncio.Task[None]"]:
        """Return the tasks that read namespaces."""
        return list(self._reading.values())

    @property
    def size_bytes(self) -> int:
        """Return the size of all of them in bytes."""
        return self._bytes + self._rows.size_bytes + self.sealed.size_bytes

    @property
    def free_bytes(self) -> int:
        """Return the bytes that no namespace takes."""
        return self._whole_bytes_max - self.sealed.size_bytes - self._bytes

    def has_room_for(self, account: AccountId) -> bool:
        """Return true if more may be loaded here that nobody has asked for yet."""
        return self.free_bytes > 0 and not self._affinity.is_elsewhere(account)

    @property
    def _bytes_max(self) -> int:
        """Return the room beside namespaces that are sealed, which no statement could search."""
        return max(self._whole_bytes_max - self.sealed.size_bytes, 0)

    async def find(
        self, access: Access, namespace_ids: Sequence[int]
    ) -> list[LoadedNamespace] | None:
        """Return these namespaces, as new as the request; None if one is not loaded."""
        mark = access.index_mark
        if not (self._whole_bytes_max and namespace_ids and mark):
            return None
        if self._affinity.is_elsewhere(access.account):  # and will be asked there
            return None
        self._recalls += 1
        keys = [(access.account, number) for number in namespace_ids]
        entries = [self._entries.get(key) for key in keys]
        count_lookups("index", sum(entry is not None for entry in entries), len(entries))
        for key, entry in zip(keys, entries, strict=True):
            if entry is None:
                self._note(key, mark)
            else:
                entry.asked_by, entry.is_ahead = self._recalls, False
                self._entries.move_to_end(key)
        found = []
        for key, entry in zip(keys, entries, strict=True):
            if entry is None or (loaded := await self._current(key, entry, mark)) is None:
                return None
            found.append(loaded)
        return found

    async def rows(
        self, account: AccountId, loaded: Sequence[LoadedNamespace], seqs: Sequence[int]
    ) -> dict[int, Row]:
        """Return number → row of memories that still live; `loaded` are the namespaces searched.

        Raises:
            Unavailable: the database is away.
        """
        listed = {seq: v for one in loaded for seq, v in one.versions_of(seqs).items()}
        found = self._rows.find(account, listed)
        missing = [seq for seq in seqs if seq not in found]
        count_lookups("rows", len(found), len(seqs))
        if missing:
            read = await rows_of(self._database, account=account, seqs=missing)
            # Altered bytes are looked at each time: they may be mended.
            same = [row for seq, row in read.items() if listed.get(seq) == row["version"]]
            self._rows.keep(account, [row for row in same if _is_intact(row)])
            found |= read
        return found

    def note_estimates(self, account: AccountId, namespaces: Sequence[LoadedNamespace]) -> None:
        """Log, once a namespace, that a search of these estimated something."""
        for namespace in namespaces:
            key = (account, namespace.namespace_id)
            if key not in self._estimated:
                if len(self._estimated) >= ASKED_MAX:
                    self._estimated.clear()
                self._estimated.add(key)
                extra = {"event": "recall.estimated", "memories": len(namespace.memories)}
                log.info("a search estimates what it does not show", extra=extra)

    async def prepare(self) -> None:
        """Let the database parse what a first recall asks it, before there is one."""
        try:
            await self.sealed.prepare()
            await rows_of(self._database, account=NOBODY, seqs=[])
        except Unavailable as error:  # then the first recall has it parsed
            warn(log, "nothing is prepared for a first recall", "resident.prepare", error)

    def arrange_lists(self, namespaces: Sequence[LoadedNamespace]) -> None:
        """Begin to make lists of vectors that want them, of one namespace at a time."""
        wanting = (
            passages
            for namespace in namespaces
            if not namespace.is_loading
            for passages in namespace.passages.values()
            if passages.wants_lists
        )
        passages = next(wanting, None) if self._listing is None else None
        if passages is not None:
            making = asyncio.to_thread(passages.list_maker(self._is_closed))
            self._listing = asyncio.create_task(making)
            self._listing.add_done_callback(self._end_listing)

    def _end_listing(self, made: "asyncio.Task[None]") -> None:
        self._listing = None
        if not made.cancelled() and (error := made.exception()) is not None:
            extra = {"event": "resident.failed", "exception": describe(error)}
            log.error("lists of vectors were not made", extra=extra)

    async def load_ahead(self, account: AccountId, namespace_id: int) -> None:
        """Load a namespace that nobody has asked for yet, if there is free room for it."""
        key = (account, namespace_id)
        if key in self._entries or key in self._reading:
            return
        task = self._reading[key] = asyncio.create_task(self._load_ahead(key))
        task.add_done_callback(lambda _: self._reading.pop(key, None))
        await asyncio.wait({task})

    async def release(self, opens: Opens) -> None:
        """Let go of what other processes hold, and of sealed indexes without keys, by `opens`."""
        for key in list(self._entries):
            if self._affinity.is_elsewhere(key[0]):
                self._let_go(key)
        await self.sealed.release(opens)

    async def close(self) -> None:
        """Stop reading, and let go of rows."""
        self._is_closed.set()
        if self._listing is not None:
            await asyncio.wait({self._listing})
        self._rows.clear()
        await self.sealed.close()
        for task in (tasks := self.reading):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _note(self, key: IndexKey, mark: IndexMark) -> None:
        """Count a recall of what is not held, and read it if it was not the first."""
        asked = self._asked.get(key, 0)
        self._set_asked(key, asked + 1)
        if asked >= ASKED_BEFORE:
            self._read_soon(key, mark)

    def _set_asked(self, key: IndexKey, asked: int) -> None:
        self._asked[key] = asked
        self._asked.move_to_end(key)
        if len(self._asked) > ASKED_MAX:
            self._asked.popitem(last=False)

    async def _current(
        self, key: IndexKey, entry: _Entry, mark: IndexMark
    ) -> LoadedNamespace | None:
        """Bring the namespace up to the request's mark; None where too much has changed."""
        if mark in entry.marks:
            return entry.loaded
        if key in self._reading:
            return None
        missed = entry.missed
        async with entry.catching_up:
            if mark in entry.marks:
                return entry.loaded
            # Whoever was here before may have let go of it, or found the database away.
            if self._entries.get(key) is not entry or entry.missed != missed:
                return None
            return entry.loaded if await self._ensure_current(key, entry, mark) else None

    async def _ensure_current(self, key: IndexKey, entry: _Entry, mark: IndexMark) -> bool:
        """Bring an entry up to date, and let go of what cannot be; true if it is up to date."""
        try:
            caught_up = await self._catch_up(key, entry, mark)
        except Exception as error:  # the database searches
            entry.missed += 1
            if not isinstance(error, Unavailable) or entry.missed >= MISSED_MAX:
                self._fail(key, error)
            return False
        entry.missed = 0
        return caught_up

    async def _catch_up(self, key: IndexKey, entry: _Entry, mark: IndexMark) -> bool:
        async with self._database.snapshot() as connection:
            now, pages = await read_changes(connection, key, entry.loaded, entry.mark), None
            if now is not None and len(now.seqs) <= CATCH_UP_MAX:
                pages = await read_pages(connection, key, now.seqs, CATCH_UP_BYTES_MAX)
        if now is None or pages is None:
            self._read_soon(key, mark)
            return False
        loaded = await apply_changes(entry.loaded, now, pages)
        if loaded.size_bytes > self._bytes_max:
            self._refuse(key)
            return False
        if self._entries.get(key) is entry:
            self._bytes += loaded.size_bytes - entry.loaded.size_bytes
        entry.loaded, entry.mark = loaded, now.mark
        entry.marks.extend({mark, now.mark}.difference(entry.marks))
        self._make_room()
        return True

    def _read_soon(self, key: IndexKey, mark: IndexMark) -> None:
        if key in self._reading or len(self._reading) >= READING_MAX:
            return
        task = asyncio.create_task(self._read(key, mark, self._recalls))
        self._reading[key] = task
        task.add_done_callback(lambda _: self._reading.pop(key, None))

    async def _read(self, key: IndexKey, mark: IndexMark, asked_by: int) -> None:
        """Load a namespace as it is now, if there is room for it."""
        room = self._room(key, asked_by)
        try:
            whole = await self._whole(key, room)
        except Exception as error:  # recalls go on without it
            self._fail(key, error)
            return
        room = min(room, self._room(key, asked_by))
        if whole is None or whole.loaded.size_bytes > room:
            self._refuse(key, REFUSED if room == self._bytes_max else PUT_OFF)
            return
        self._let_go(key)
        whole.marks.append(mark)
        whole.asked_by = self._recalls
        self._entries[key] = whole
        self._bytes += whole.loaded.size_bytes
        self._asked.pop(key, None)
        self._make_room()

    async def _load_ahead(self, key: IndexKey) -> None:
        try:
            whole = await self._whole(key, self._room_ahead, is_ahead=True)
        except Exception as error:  # it is read once somebody asks
            self._fail(key, error)
            return
        if whole is not None and whole.loaded.size_bytes <= self._room_ahead:
            whole.is_ahead = True
            self._entries[key] = whole
            self._entries.move_to_end(key, last=False)
            self._bytes += whole.loaded.size_bytes

    @property
    def _room_ahead(self) -> int:
        ahead = sum(its.loaded.size_bytes for its in self._entries.values() if its.is_ahead)
        return min(self.free_bytes, self._whole_bytes_max // AHEAD_SHARE - ahead)

    async def _whole(
        self, key: IndexKey, bytes_max: int, *, is_ahead: bool = False
    ) -> _Entry | None:
        """Return the namespace; None where it surely takes more than that."""
        entry = self._entries.get(key)
        async with self._database.snapshot() as connection:
            memories = await rows.count(connection, *key)
            if memories is None or memories * BYTES_A_MEMORY > bytes_max:
                return None
            if memories * BYTES_A_MEMORY > self._large_bytes:  # before others begin to read it, too
                self._affinity.pin(key[0])
            if self._affinity.is_elsewhere(key[0]):
                return None
            if entry is None:
                whole = await load_whole(connection, key, bytes_max, is_ahead=is_ahead)
                if whole is None:
                    return None
                return _Entry(*whole, deque([whole[1]], maxlen=MARKS_MAX))
            there = await rows.versions(connection, *key)
            if there is None or len(there.seqs) * BYTES_A_MEMORY > bytes_max:
                return None
            now = entry.loaded.compare(there)
            pages = await read_pages(connection, key, now.seqs, bytes_max)
        if pages is None:
            return None
        loaded = await apply_changes(entry.loaded, now, pages)
        return _Entry(loaded, now.mark, deque([now.mark], maxlen=MARKS_MAX))

    def _room(self, key: IndexKey, asked_by: int) -> int:
        """Return bytes for a namespace if all goes that was asked last before that recall."""
        since = takewhile(
            lambda item: item[1].asked_by >= asked_by, reversed(self._entries.items())
        )
        return self._bytes_max - sum(
            entry.loaded.size_bytes for other, entry in since if other != key
        )

    def _refuse(self, key: IndexKey, asked: int = REFUSED) -> None:
        """Let go of a namespace that has no room, and do not look at it for a while."""
        self._let_go(key)
        self._set_asked(key, asked)

    def _fail(self, key: IndexKey, error: Exception) -> None:
        """Do the same where a reading failed; nothing of the error may be said."""
        self._refuse(key, PUT_OFF)
        if not isinstance(error, Unavailable):
            extra = {"event": "resident.failed", "exception": describe(error)}
            log.error("a namespace was not read into memory", extra=extra)

    def _let_go(self, key: IndexKey) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self._bytes -= entry.loaded.size_bytes

    def _make_room(self) -> None:
        """Let go of what was asked longest ago, and do not read it at once in place of others."""
        while self._bytes > self._bytes_max:
            self._refuse(next(iter(self._entries)), PUT_OFF)


def _is_intact(row: Row) -> bool:
    blob: bytes | None = row["blob"]
    return blob is None or isinstance(verify_hash(row["blob_id"], blob), bytes)
