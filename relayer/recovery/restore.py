"""Rebuilding index rows from sealed blobs.

Not here: finding blobs without rows (`orphans.py`), writing rows (`memories/writer.py`), founding
accounts again (`upkeep/rebuild.py`). The blob says nearly everything a row needs, the journal's
`state` objects the rest; who may read the namespace is asked as always, and what was erased stays
erased.

- An episode that was kept beside its facts is so again. Another one had to wait, or had waited: its
  facts are taken (again), and known ones are recognised.
- Of a memory's revisions the highest is the memory; the others become earlier revisions of it,
  one that has its row already, too. What any of them was made of, the memory was made of.
- Rows come back in the order of what they tell of, so that neighbours are neighbours again.
- What was sealed anew shortly before may lie there under its old key, too: the newest epoch counts.
- What only a later release reads waits for it: its blob is never taken for useless.
"""

import logging
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from relayer.clock import Clock
from relayer.database import memories as rows
from relayer.database import namespaces as namespace_rows
from relayer.database import outbox as outbox_rows
from relayer.database import rebuild as rebuild_rows
from relayer.database import revisions
from relayer.database.pool import Database
from relayer.database.states import Link
from relayer.errors import NotFound
from relayer.memories.opener import Caller
from relayer.memories.writer import RESTORE, Effects, Writer
from relayer.record import UnknownVersion, decode
from relayer.recovery.orphan_rows import OpenedBlob, episode_of, links_of, memory_of, merged_with
from relayer.recovery.orphans import PAGE, Blob, Finder, Lost
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey
from relayer.sealed.primitives import CryptoError
from relayer.tenants.accounts import Access
from relayer.tenants.custody import Keys, LentKeys, RootKeys
from relayer.tenants.ledger import Ledger, Stale
from relayer.tenants.namespaces import Namespaces

log = logging.getLogger("relayer.restore")

REST: Final = timedelta(hours=1)  # between walks with the same keys, if the last one did nothing


@dataclass(frozen=True)
class Restored:
    """The outcome of a restore: it saw `total` blobs of the namespace; `skipped` had their rows."""

    restored: int
    skipped: int
    failed: int
    total: int
    truncated: bool


@dataclass
class _Outcome:
    """Numbers of rows that came back and of blobs that did not open.

    `later` names those that only a later release reads.
    """

    restored: int = 0
    failed: int = 0
    later: list[str] = field(default_factory=list)


class Restore:
    """Finds blobs without rows and gives them theirs."""

    def __init__(
        self,
        *,
        database: Database,
        namespaces: Namespaces,
        writer: Writer,
        ledger: Ledger,
        finder: Finder,
        clock: Clock,
    ) -> None:
        self._database = database
        self._namespaces = namespaces
        self._writer = writer
        self._ledger = ledger
        self._finder = finder
        self._clock = clock
        # Account → ids of keys that walks did nothing with, and until when that counts.
        self._resting: dict[AccountId, tuple[frozenset[bytes], datetime]] = {}

    async def restore(self, caller: Caller, namespace: Namespace, limit: int) -> Restored:
        """Give at most `limit` blobs of the namespace their rows back.

        Raises:
            NotAllowed: not a writer of the namespace, or its key is missing.
            NotAuthenticated: the key was revoked meanwhile; what came back before stays.
        """
        caller.access.require(namespace, "writer")
        keys = {key.key_id: key for key in caller.keys.of(namespace)}
        lost = await self._finder.find_lost(caller.access.account, keys)
        indexed = await self._count_indexed(caller, namespace)
        done = await self._restore(caller.access, keys, lost, limit)
        failed = done.failed + len(done.later)
        found = len(lost.memories) + len(lost.episodes)
        inspected = min(found, limit)
        return Restored(
            restored=done.restored,
            skipped=indexed + inspected - done.restored - failed,
            failed=failed + lost.altered + lost.unread,
            total=found + indexed + lost.altered + lost.unread,
            truncated=found > limit,
        )

    async def complete(self, account: AccountId, keys: Keys) -> None:
        """Give a rebuilt account's memories their rows, as far as these keys go.

        When nothing is left that other keys would open, or that cannot be read now, the account is
        complete. Until then, it is asked for each minute, and reads the store only with a new key
        or after an hour.
        """
        if not await rebuild_rows.is_incomplete(self._database, account):
            return
        at_hand = await self._keys_at_hand(account, keys)
        if self._rests(account, at_hand):
            return
        lost = await self._finder.find_lost(account, at_hand)
        # Nobody asked for it: the relayer itself is whom the receipts name.
        access = self._ledger.unasked(account)
        everything = len(lost.memories) + len(lost.episodes)
        done = await self._restore(access, at_hand, lost, everything, equals=True)
        later = lost.later + done.later
        if later:
            extra = {"event": "restore.later", "count": len(later)}
            log.warning("records are of a later release", extra=extra)
        left = lost.others + lost.unread
        if not left:
            await self._set_complete(account, later)
        if done.restored or not left:
            self._resting.pop(account, None)
        else:
            known, until = self._resting.get(account, (frozenset(), self._clock() + REST))
            self._resting[account] = known | at_hand.keys(), until

    def _rests(self, account: AccountId, at_hand: Mapping[bytes, NamespaceKey]) -> bool:
        """Return true if walks through the store did nothing lately, with each of these keys."""
        now = self._clock()
        known, until = self._resting.get(account, (frozenset(), now))
        if now >= until:
            self._resting.pop(account, None)
            return False
        return at_hand.keys() <= known

    async def _set_complete(self, account: AccountId, later: Sequence[str]) -> None:
        """Wait for no more keys; what only a later release reads is looked at again, and kept, when
        the next walk through the store finds it astray."""
        async with self._database.transaction() as connection:
            # In this order: what a walk notes meanwhile is either seen here, or makes the account
            # incomplete again.
            await rebuild_rows.set_complete(connection, account)
            hashes = [envelope.blob_hash(name) for name in later]
            await outbox_rows.spare(connection, account=account, blob_ids=hashes)

    async def _keys_at_hand(self, account: AccountId, keys: Keys) -> dict[bytes, NamespaceKey]:
        if isinstance(keys, LentKeys):
            return {key.key_id: key for held in keys.keys.values() for key in held}
        assert isinstance(keys, RootKeys)
        found = await namespace_rows.find_namespaces(self._database, account, None)
        names = {Namespace(row["name"]) for row in found}
        return {key.key_id: key for name in names for key in keys.of(name)}

    async def _restore(
        self,
        access: Access,
        keys: Mapping[bytes, NamespaceKey],
        lost: Lost,
        limit: int,
        *,
        equals: bool = False,
    ) -> _Outcome:
        """Give the first so many blobs their rows.

        With `equals`, a memory comes back also beside one that says the same.
        """
        # Episodes first: memories are linked to them.
        episodes = sorted(lost.episodes, key=lambda episode: -episode[1].epoch)[:limit]
        placed = (await self._order(access.account, lost))[: limit - len(episodes)]
        await self._drop_overtaken(
            access, keys, episodes + [(name, header) for name, header, _ in placed]
        )
        done = _Outcome()
        for name, header in episodes:
            await self._count(done, name, self._restore_episode(access, keys, name, header))
        for name, header, at in placed:
            work = self._restore_one(access, keys, lost, name, header, at, equals=equals)
            await self._count(done, name, work)
        if done.restored:  # with receipts, of which nothing was put that a mark would follow
            self._ledger.mark_later([access.account])
        return done

    async def _count(self, done: _Outcome, name: str, work: Awaitable[bool]) -> None:
        try:
            done.restored += await work
        except UnknownVersion:
            done.later.append(name)
        except CryptoError:
            done.failed += 1

    async def _drop_overtaken(
        self, access: Access, keys: Mapping[bytes, NamespaceKey], blobs: Sequence[Blob]
    ) -> None:
        """Take away the rows that these blobs are to have anew, and count what is there."""
        if blobs:
            overtaken = await self._finder.find_overtaken(access.account, keys, blobs)
            names = {key.namespace for key in keys.values()}
            async with self._ledger.change(access, names) as change:
                await rebuild_rows.drop(change.connection, access.account, overtaken)
            await namespace_rows.recount(self._database, access.account)

    async def _count_indexed(self, caller: Caller, namespace: Namespace) -> int:
        """Count the memories of the namespace that have their rows."""
        entry = await self._namespaces.find(caller.access.account, namespace)
        if entry is None:
            return 0
        return await rows.count_sealed(
            self._database, account=caller.access.account, namespace_id=entry.namespace_id
        )

    async def _order(
        self, account: AccountId, lost: Lost
    ) -> list[tuple[str, envelope.Header, int | None]]:
        """Return blobs in the order of their rows; with when the next revision was stored.

        A memory has its place since its first revision, an earlier one since it was replaced.
        """
        ids = sorted({header.address.memory for _, header in lost.memories})
        stored: dict[uuid.UUID, dict[int, int]] = {}
        for at in range(0, len(ids), PAGE):
            page = ids[at : at + PAGE]
            for row in await rebuild_rows.revisions(self._database, account, page):
                when = round(row["stored_at"].timestamp() * 1000)
                stored.setdefault(row["id"], {})[row["revision"]] = when
        for _, header in lost.memories:
            known = stored.setdefault(header.address.memory, {})
            known[header.address.revision] = header.created_ms
        placed = []
        for name, header in lost.memories:
            known = stored[header.address.memory]
            later = [n for n in known if n > header.address.revision]
            following = known[min(later)] if later else None
            when = known[min(known)] if following is None else following
            address = header.address
            order = (when, address.memory, address.revision, -header.epoch, name)
            placed.append((order, header, following))
        placed.sort(key=lambda p: p[0])
        return [(order[-1], header, following) for order, header, following in placed]

    async def _restore_one(
        self,
        access: Access,
        keys: Mapping[bytes, NamespaceKey],
        lost: Lost,
        name: str,
        header: envelope.Header,
        replaced_ms: int | None,
        *,
        equals: bool,
    ) -> bool:
        """Give a blob its row; true if it got one.

        It gets none when it was erased, or its fact was said again since, unless `equals` are to
        come back: the other one stays known by what both say.

        Raises:
            UnknownVersion: a later release reads it.
            CryptoError: it does not open.
        """
        account, address = access.account, header.address
        found = await self._opened(access, keys[header.key_id], name, header)
        if found is None:
            return False
        said, said_by = lost.states.get(address.memory, (None, b""))
        memory = memory_of(found, said, replaced_ms)
        links = links_of(address, found.draft)
        if replaced_ms is None:
            # Whichever of two comes back later finds the other one there.
            links += merged_with(address.memory, said, lost.merged.get(address.memory, ()))
        newer = replaced_ms is None and await self._is_here(account, address.memory)
        stored = await self._store(access, memory, found.names, links, newer=newer)
        if not stored and equals:
            bare = replace(memory, fingerprint=None)
            stored = await self._store(access, bare, found.names, links, newer=newer)
        if stored and said is not None and replaced_ms is None and not newer:
            await rebuild_rows.set_state_blobs(self._database, account, {address.memory: said_by})
        return stored

    async def _store(
        self,
        access: Access,
        memory: rows.NewMemory,
        names: dict[int, Namespace],
        links: Sequence[Link],
        *,
        newer: bool,
    ) -> bool:
        """Write a row; true if it was written: nothing has its place, erased it, or says the same.

        A `newer` revision makes the one that is here an earlier one.
        """
        whole = memory.revision_of or memory.memory_id
        try:
            if newer:
                await self._writer.advance(access, memory, names=names)
            else:
                await self._writer.store(
                    access,
                    [memory],
                    op=RESTORE,
                    names=names,
                    effects=Effects(links=links),
                    beside=partial(revisions.share, account=access.account, memory_ids=[whole]),
                )
        except (Stale, NotFound):
            return False
        return True

    async def _is_here(self, account: AccountId, memory_id: uuid.UUID) -> bool:
        """Return true if a memory has a row, of another revision than the one to restore."""
        found = await rebuild_rows.revisions(self._database, account, [memory_id])
        return any(row["revision_of"] is None for row in found)

    async def _opened(
        self, access: Access, key: NamespaceKey, name: str, header: envelope.Header
    ) -> OpenedBlob | None:
        """Return a blob, opened; None when what it says of its namespace is not so.

        Raises:
            UnknownVersion: a later release reads it.
            CryptoError: it is gone or altered.
        """
        blob = await self._finder.read(access.account, name)
        if not isinstance(blob, bytes):
            raise CryptoError("altered")
        record = envelope.open_envelope(key, header.address, blob)
        draft, writer = decode(record)
        if draft.namespace != key.namespace:
            return None
        entry = await self._namespaces.ensure(access, key, access.key)
        return OpenedBlob(header, key, entry, blob, record, draft, writer)

    async def _restore_episode(
        self,
        access: Access,
        keys: Mapping[bytes, NamespaceKey],
        name: str,
        header: envelope.Header,
    ) -> bool:
        """Store an episode; true if it is back.

        It is kept if it says so, else its facts are taken (again).

        Raises:
            UnknownVersion: a later release reads it.
            CryptoError: it does not open.
        """
        found = await self._opened(access, keys[header.key_id], name, header)
        if found is None:
            return False
        try:
            await self._writer.store(
                access, [], op=RESTORE, names=found.names, episodes=[episode_of(found)]
            )
        except (Stale, NotFound):
            return False
        return True
