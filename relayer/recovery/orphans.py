"""Objects in a store that no row refers to: sealed blobs, and what the journal says of them.

Not here: giving it rows (`restore.py`), what becomes of the rest (`collection.py`).

- An object's name does not tell what it is, so what no row speaks of is read. What proves to be of
  the journal, and to stay, is noted a page at a time and read no more: a look through the store
  that is broken off is gone on with by the next.
"""

import uuid
from collections.abc import AsyncIterator, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from relayer.blobs.store import BlobStore, select_unread
from relayer.database import collection as collection_rows
from relayer.database import memories as rows
from relayer.database import rebuild as rebuild_rows
from relayer.database.pool import Database, Row
from relayer.errors import Corrupted
from relayer.record import decode
from relayer.recovery.journal_objects import is_lasting
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, NamespaceKey, PublicKey
from relayer.sealed.primitives import CryptoError, to_base64url
from relayer.sealed.states import SignedState, open_state

PAGE: Final = 200
NAMES: Final = 1_000  # looked up together; nearly all of a store are known
READ_AT_ONCE: Final = 16  # blobs in memory; each may have a mebibyte
_MEMORIES: Final = frozenset({envelope.MEMORY, envelope.SUMMARY})
Blob = tuple[str, envelope.Header]
Read = bytes | Corrupted | None  # None is there and cannot be read now


@dataclass
class Lost:
    """Blobs without rows, and what the journal says.

    Attributes:
        memories: (name, header) of memories that the keys at hand open.
        episodes: the same of episodes.
        later: names of those that they open, of types that only a later release knows.
        others: how many are sealed under other keys.
        unread: how many cannot be read now; they may be any of the others.
        states: memory → the newest `state` object of it, and its name.
    """

    memories: list[Blob] = field(default_factory=list)
    episodes: list[Blob] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    altered: int = 0
    unread: int = 0
    others: int = 0
    states: dict[uuid.UUID, tuple[SignedState, bytes]] = field(default_factory=dict)

    @cached_property
    def merged(self) -> dict[uuid.UUID, list[uuid.UUID]]:
        """Return memory → those merged into it; to be asked for when all states are noted."""
        found: dict[uuid.UUID, list[uuid.UUID]] = {}
        for memory, (said, _) in self.states.items():
            if said.merged and said.superseded_by is not None:
                found.setdefault(said.superseded_by, []).append(memory)
        return found


class Finder:
    """Looks through a store."""

    def __init__(
        self, *, database: Database, blobs: BlobStore, relayers: Sequence[PublicKey]
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._relayers = relayers

    async def find_lost(self, account: AccountId, keys: Mapping[bytes, NamespaceKey]) -> Lost:
        """Find the blobs that no row refers to; `keys` by their ids.

        Only such blobs are read. An altered one does not say whose it was. Of the states that rows
        have, those are read, too, that say something of a memory found: of another revision of it,
        or that others were merged into it.
        """
        lost = Lost()
        states: list[Row] = []
        async for name, data in self._without_rows(account, states):
            self._note(account, name, data, keys, lost)
        found = {header.address.memory for _, header in lost.memories}
        # What no row speaks of may be older than what one has: from a copy of the store.
        merged = {m for m, (said, _) in lost.states.items() if said.superseded_by in found}
        asked = found | merged
        telling = {s["state_blob"] for s in states if not asked.isdisjoint(_told_of(s))}
        async for name, data in self._read(account, sorted(map(to_base64url, telling))):
            self._note(account, name, data, keys, lost)
        return lost

    async def read(self, account: AccountId, name: str) -> bytes | Corrupted | None:
        """Return a blob's bytes; `Corrupted` if it is altered, None if it is gone."""
        return (await self._blobs.get_many(account, [name])).get(name)

    async def waits(
        self, account: AccountId, key_ids: Container[bytes], ids: Container[uuid.UUID] | None
    ) -> bool:
        """Return true if something under one of these keys has no row yet.

        That is one of these memories and episodes, or (None) anything. What cannot be read now may
        be that.
        """
        async for header in self._headers_without_rows(account):
            if header is None:
                return True
            if header.key_id in key_ids and (ids is None or header.address.memory in ids):
                return True
        return False

    async def needs(self, account: AccountId, epochs: range) -> bool:
        """Return true if an account was rebuilt and something of these epochs may have no row yet.

        What cannot be read now may be of them.
        """
        if not await rebuild_rows.is_incomplete(self._database, account):
            return False
        async for header in self._headers_without_rows(account):
            if header is None or header.epoch in epochs:
                return True
        return False

    async def _headers_without_rows(
        self, account: AccountId
    ) -> AsyncIterator[envelope.Header | None]:
        """Yield the header of every sealed blob that no row speaks of.

        None stands for one that cannot be read now.
        """
        async for _, data in self._without_rows(account, []):
            if data is None:
                yield None
                continue
            try:
                header = envelope.read_header(data) if isinstance(data, bytes) else None
            except CryptoError:
                continue
            if header is not None and header.address.account == account:
                yield header

    async def _without_rows(
        self, account: AccountId, states: list[Row]
    ) -> AsyncIterator[tuple[str, Read]]:
        """Name and bytes of every blob that no row speaks of; None of one that cannot be read.

        Args:
            states: takes whose the states are that rows have; these are not read.
        """
        names = [name async for name in self._blobs.names(account)]
        for page in _pages(names, NAMES):
            hashes = {n: envelope.blob_hash(n) for n in page}
            known = await rows.find_blobs(
                self._database, account=account, blob_ids=list(hashes.values())
            )
            unknown = [n for n in page if hashes[n] not in known]
            if not unknown:
                continue
            said = await rows.find_by_state_blobs(
                self._database, account=account, blob_ids=[hashes[n] for n in unknown]
            )
            states += said
            stated = {row["state_blob"] for row in said}
            for some in _pages([n for n in unknown if hashes[n] not in stated], PAGE):
                lasting: list[str] = []
                async for name, data in self._read(account, some):
                    if isinstance(data, bytes) and is_lasting(data, account, self._relayers):
                        lasting.append(name)
                    else:
                        yield name, data
                await collection_rows.note_lasting(self._database, account, lasting)

    async def _read(
        self, account: AccountId, names: Sequence[str]
    ) -> AsyncIterator[tuple[str, Read]]:
        for some in _pages(names, READ_AT_ONCE):
            read = await self._blobs.get_many(account, some)
            for found in read.items():
                yield found
            for name in await select_unread(self._blobs, account, some, read):
                yield name, None

    async def find_overtaken(
        self, account: AccountId, keys: Mapping[bytes, NamespaceKey], found: Sequence[Blob]
    ) -> list[Row]:
        """Return rows of an older database whose bytes are gone: these blobs replaced them.

        What replaces them can be read.
        """
        newest = {
            (header.address.memory, header.address.revision): (name, header)
            for name, header in sorted(found, key=lambda blob: blob[1].epoch)
        }
        ids, overtaken = sorted({memory for memory, _ in newest}), []
        for at in range(0, len(ids), PAGE):
            for row in await rebuild_rows.find_sealed(self._database, account, ids[at : at + PAGE]):
                name, header = newest.get((row["id"], row["revision"]), ("", None))
                if header is None or header.epoch <= row["epoch"]:
                    continue
                old = to_base64url(row["blob_id"])
                blobs = await self._blobs.get_many(account, [old, name])
                if old in blobs or await select_unread(self._blobs, account, [old], blobs):
                    continue
                if _is_read(keys[header.key_id], header, blobs.get(name)):
                    overtaken.append(row)
        return overtaken

    def _note(
        self,
        account: AccountId,
        name: str,
        data: Read,
        keys: Mapping[bytes, NamespaceKey],
        lost: Lost,
    ) -> None:
        if data is None:
            lost.unread += 1
            return
        if isinstance(data, Corrupted):
            lost.altered += 1
            return
        if data.startswith(b"{"):
            self._note_state(account, name, data, lost)
            return
        try:
            header = envelope.read_header(data)
        except CryptoError:
            return
        if header.address.account != account:
            return
        if header.key_id not in keys:
            lost.others += 1
        elif header.address.type in _MEMORIES:
            lost.memories.append((name, header))
        elif header.address.type == envelope.EPISODE:
            lost.episodes.append((name, header))
        elif _opens(keys[header.key_id], header, data):
            lost.later.append(name)

    def _note_state(self, account: AccountId, name: str, data: bytes, lost: Lost) -> None:
        try:
            said = open_state(data, *self._relayers)
        except CryptoError:
            return
        before = lost.states.get(said.memory)
        if said.account == account and (before is None or before[0].order < said.order):
            lost.states[said.memory] = (said, envelope.blob_hash(name))


def _told_of(state: Row) -> tuple[uuid.UUID, uuid.UUID | None]:
    """Return the memories that the state of a row says something of."""
    return state["id"], state["superseded_by"]


def _opens(key: NamespaceKey, header: envelope.Header, data: bytes) -> bool:
    try:
        envelope.open_envelope(key, header.address, data)
    except CryptoError:
        return False
    return True


def _is_read(key: NamespaceKey, header: envelope.Header, data: bytes | Corrupted | None) -> bool:
    if not isinstance(data, bytes):
        return False
    try:
        decode(envelope.open_envelope(key, header.address, data))
    except CryptoError:
        return False
    return True


def _pages(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[at : at + size] for at in range(0, len(names), size))
