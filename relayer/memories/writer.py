"""One transaction for all that a write stores: memories, episodes, receipts, jobs, its effects.

Not here: what is written (`intake.py`, `recovery/restore.py`, `manual.py`), sealing
(`sealed_drafts.py`), erasing (`eraser.py`), SQL (`database.memories`).

- Everything an acknowledgement promises is in one transaction, under the account's row lock, with
  the signed receipt that vouches for it.
- Nothing slow happens under the lock: sealing, hashing and the words of a long text come before it,
  embedding after it.
"""

import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from relayer.database import accounts as account_rows
from relayer.database import episodes as episode_rows
from relayer.database import erasure as erasure_rows
from relayer.database import memories as rows
from relayer.database import queue, statistics, write_statement
from relayer.database import revisions as revision_rows
from relayer.database import states as state_rows
from relayer.database import vectors as vector_rows
from relayer.database.index_size import vector_bytes
from relayer.database.pool import Connection, Database, Row
from relayer.errors import NotFound, QuotaExceeded, Unavailable
from relayer.journal.changes import AccountChange, ReceiptItem
from relayer.journal.states import Change, change_states
from relayer.memories.contradictions import settle
from relayer.memories.eraser import erase_in, erase_made_of
from relayer.memories.opener import Caller
from relayer.preferences import AccountSettings
from relayer.record import Draft, Life, name_when_gone, revision_row_id
from relayer.sealed.keys import AccountId, Namespace
from relayer.settings import Limits
from relayer.tenants.accounts import Access, check_newest
from relayer.tenants.ledger import Ledger, Stale
from relayer.tenants.namespaces import NamespaceEntry, Namespaces
from relayer.words.tokens import INDEX_VERSION

Beside = Callable[[Connection], Awaitable[object]]  # what else a write's transaction does
WORDS_FEW: Final = 2_000  # different ones; to store more takes longer than one more statement
RESTORE: Final = "restore"
CONTENDED: Final = "Too many writers say the same thing at once."


class Overtaken(NotFound):
    """The episode that was to be stored, or that facts come from, was stored, extracted or erased
    meanwhile by somebody else."""


class Gone(Stale):
    """Memories that a write found to say the same have changed or gone in between: look again.

    `at` is the account's time then, which may be ahead of this machine's clock.
    """

    def __init__(self, memories: Collection[uuid.UUID], at: datetime) -> None:
        super().__init__()
        self.memories = memories
        self.at = at


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Changes that a write makes beside storing what is new.

    Attributes:
        same: memories that say the same already → the revision that does, which has to be there
            and in force still.
        replaced: memories that are erased if they are still expired, for they are said anew.
        longer: memories that were said again → how long they are kept now.
        seen: memories that were said once more.
        approved: memories that wait no longer, because somebody said them outright.
        reviews: new memories that are held back → for what.
        contradicting: new memories that speak against older ones.
        links: of memories to others and to their turns, that are made.
    """

    same: Mapping[uuid.UUID, int] = field(default_factory=dict)
    replaced: Sequence[uuid.UUID] = ()
    longer: Mapping[uuid.UUID, Life] = field(default_factory=dict)
    seen: Sequence[uuid.UUID] = ()
    approved: Sequence[uuid.UUID] = ()
    reviews: Mapping[uuid.UUID, str] = field(default_factory=dict)
    contradicting: Mapping[uuid.UUID, Draft] = field(default_factory=dict)
    links: Sequence[state_rows.Link] = ()

    @property
    def are_none(self) -> bool:
        """Return true if there is no side effect, whatever says the same already."""
        of_older = self.replaced, self.longer, self.seen, self.approved
        return not any(of_older) and not any((self.reviews, self.contradicting, self.links))


NO_EFFECTS: Final = Effects()


@dataclass(frozen=True)
class Origin:
    """The conversation that facts come from.

    Attributes:
        waiting: it had to wait for its extraction, and is done with now.
        kept: it stays, linked to its facts.
        new: it is to be kept from now on.
        names: its namespace by number.
    """

    id: uuid.UUID
    waiting: bool = False
    kept: bool = False
    new: rows.NewEpisode | None = None
    names: Mapping[int, Namespace] = field(default_factory=dict)


@dataclass(frozen=True)
class Committed:
    """The outcome of a write.

    Attributes:
        receipts: of what was stored.
        others: receipts of what it changed or erased beside.
        changes: the states that it changed.
        memories_before: how many memories the account had been given before.
    """

    receipts: list[bytes]
    others: list[bytes] = field(default_factory=list)
    changes: Mapping[uuid.UUID, Change] = field(default_factory=dict)
    memories_before: int = 0


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The sealed rows of one write, in the namespaces of `names`; marks may be of `within`."""

    op: str
    memories: Sequence[rows.NewMemory]
    episodes: Sequence[rows.NewEpisode]
    names: Mapping[int, Namespace]
    within: Collection[Namespace]
    marks: Sequence[rows.Mark]
    origin: Origin | None
    manual_vector: vector_rows.UploadVector | None

    @property
    def blobs(self) -> list[tuple[bytes, bytes]]:
        """Return (id, bytes) of each envelope."""
        memories = [(m.blob_id, m.blob) for m in self.memories]
        return memories + [(e.blob_id, e.blob) for e in self.episodes]

    @property
    def new_bytes(self) -> int:
        """Return the bytes that it adds to the account's quota.

        Vectors that it does not bring are counted once they are made.
        """
        sealed = sum(len(blob) for _, blob in self.blobs)
        index = sum(m.index_bytes for m in self.memories)
        if self.manual_vector is not None and self.manual_vector.embedding is not None:
            index += vector_bytes(len(self.manual_vector.embedding))
        return sealed + index

    @property
    def wordy(self) -> list[rows.NewMemory]:
        """Return memories with so many words that these are stored before the account is locked.

        What is restored may have some of its own there still.
        """
        if self.op == RESTORE:
            return []
        return [m for m in self.memories if len(m.postings) > WORDS_FEW]

    @property
    def is_plain(self) -> bool:
        """Return true if it stores memories, and nothing else is to be looked up or to follow."""
        others = self.episodes, self.origin, self.manual_vector
        return self.op != RESTORE and not any(others) and not self.wordy

    @property
    def epochs(self) -> list[int]:
        """Return those that its envelopes are sealed under."""
        return [m.epoch for m in self.memories] + [e.epoch for e in self.episodes]


class Writer:
    """Stores what is sealed, of one account at a time."""

    def __init__(
        self,
        *,
        database: Database,
        ledger: Ledger,
        namespaces: Namespaces,
        storage_bytes_max: int,
        embeds: bool,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._namespaces = namespaces
        self._storage_bytes_max = storage_bytes_max
        self._embeds = embeds

    async def place(self, caller: Caller, namespace: Namespace) -> NamespaceEntry:
        """Return the namespace that a caller seals for under its newest key; make it if it is new.

        Raises:
            BadRequest, NotAllowed, NotAuthenticated: as `Namespaces.ensure`.
        """
        newest = caller.keys.of(namespace)[0]
        return await self._namespaces.ensure(caller.access, newest, caller.keys.lender)

    async def embed_soon(self, change: AccountChange, row_ids: Sequence[uuid.UUID]) -> None:
        """Have these rows embedded, where there is a model.

        An archive's id comes before its memory's: a job of the revision before may still run.
        """
        if self._embeds:
            waiting = await queue.count_unembedded(
                change.connection, change.account, index_version=INDEX_VERSION
            )
            await queue.embed_soon(change.connection, change.account, row_ids, waiting)

    async def store(
        self,
        access: Access,
        memories: Sequence[rows.NewMemory],
        *,
        op: str,
        names: dict[int, Namespace],
        within: Collection[Namespace] = (),
        marks: Sequence[rows.Mark] = (),
        episodes: Sequence[rows.NewEpisode] = (),
        origin: Origin | None = None,
        manual_vector: vector_rows.UploadVector | None = None,
        effects: Effects = NO_EFFECTS,
        beside: Beside | None = None,
    ) -> Committed:
        """Commit sealed memories and episodes with their receipts, jobs and effects.

        An episode that had waited, their `origin`, is finished in the same transaction; `beside` is
        done in it, under the account's lock, and undoes everything by raising. Who asks has to be a
        writer of the namespaces in `names`, and `within`.

        Raises:
            Stale: a fact or mark came in between.
            Gone: what says the same was erased, edited or superseded in between.
            QuotaExceeded: the account is full.
            NotAuthenticated, NotAllowed: the key lost its right meanwhile.
            Misdirected: the account was rotated meanwhile.
            Overtaken: the episode that these come from is gone, or the same one came in between.
            NotFound: the account is gone, or what is restored was erased.
        """
        batch = Batch(
            op=op,
            memories=memories,
            episodes=episodes,
            names=names,
            within=within,
            marks=marks,
            origin=origin,
            manual_vector=manual_vector,
        )
        # What is restored is in the store, and must not be noted as an orphan to be.
        put = [] if op == RESTORE else batch.blobs
        first = None
        if wordy := batch.wordy:
            first = partial(write_statement.insert_words, account=access.account, memories=wordy)
        namespaces = {*batch.names.values(), *batch.within}
        is_plain = batch.is_plain and effects.are_none and not effects.same and beside is None
        async with self._ledger.change(
            access, namespaces, op=op, blobs=put, first=first, keeps_plans=is_plain
        ) as change:
            committed = await self._commit(change, access.settings, batch, effects)
            if beside is not None:
                await beside(change.connection)
        before = committed.memories_before
        if any(before < step <= before + len(memories) for step in statistics.STEPS):
            with suppress(Unavailable):  # what was acknowledged stands, whatever becomes of this
                await statistics.gather(self._database, before, before + len(memories))
        return committed

    async def _commit(
        self, change: AccountChange, settings: AccountSettings, batch: Batch, effects: Effects
    ) -> Committed:
        """Erase what is replaced, store what is new, then change what a write changes of others."""
        if batch.op == RESTORE:  # it may have been sealed before a rotation
            await _check_living(change, batch)
        else:
            check_newest(change.epoch, batch.epochs)
        if effects.same:
            await _check_same(change, effects.same)
        erased = await _erase_expired(change, effects.replaced) if effects.replaced else []
        batch, items, freed = await _vouch(change, batch)
        self.check_room(change, batch.new_bytes - freed)
        receipts = change.sign(items, batch.names)
        waiting = await _insert(change, batch, receipts)
        await self._follow_up(change, batch, waiting)
        changed, changes = list[bytes](), dict[uuid.UUID, Change]()
        if not effects.are_none:
            changed, changes = await _affect(change, settings, effects)
        signed = [signed for _, signed in receipts]
        return Committed(signed, [*erased, *changed], changes, change.memory_seq)

    async def advance(
        self, access: Access, memory: rows.NewMemory, *, names: dict[int, Namespace]
    ) -> None:
        """Restore a revision of a memory that is here in an older one, which becomes history.

        Raises:
            Stale: another memory says exactly this.
            NotFound: the account or the memory is gone, or has come as far meanwhile.
            QuotaExceeded: the account is full.
            NotAuthenticated, NotAllowed: the key lost its right meanwhile.
        """
        account = access.account
        async with self._ledger.change(access, names.values(), op=RESTORE) as change:
            current = await revision_rows.lock_current(
                change.connection, account=account, memory_id=memory.memory_id
            )
            if current is None or current["revision"] >= memory.revision:
                raise NotFound("No older revision of that memory.")
            self.check_room(change, len(memory.blob) + memory.index_bytes)
            [receipt] = change.sign([item_of_memory(memory)], names)
            archive_id = revision_row_id(memory.memory_id, current["revision"])
            await revision_rows.revise(
                change.connection,
                account,
                revision_rows.Revision(
                    memory=memory,
                    archive_id=archive_id,
                    keeps_vectors=False,
                    index_version=INDEX_VERSION,
                    memory_seq=change.memory_seq,
                    marks=(),
                    marks_expire_at=change.time,
                    changed_at=change.time,
                    receipt=receipt,
                    receipt_head=change.receipt_head,
                    blob_here=not change.outside_store,
                ),
            )
            await self.embed_soon(change, [archive_id, memory.memory_id])

    async def _follow_up(self, change: AccountChange, batch: Batch, waiting: queue.Waiting) -> None:
        """Promise the work that follows this write, in the same transaction."""
        connection, account = change.connection, change.account
        if batch.manual_vector is not None:
            await vector_rows.insert_manual_vector(
                connection, account=account, memory=batch.memories[0], vector=batch.manual_vector
            )
        elif batch.memories and self._embeds:
            ids = [m.memory_id for m in batch.memories]
            await queue.embed_soon(connection, account, ids, waiting)
        if pending := [e.episode_id for e in batch.episodes if e.state == rows.PENDING]:
            place = await queue.behind_episodes(connection, account)
            await queue.enqueue(connection, queue.EXTRACT, account, pending, priority=place)
        if batch.origin is not None and batch.origin.waiting:
            await episode_rows.finish_episode(
                connection,
                account=account,
                episode_id=batch.origin.id,
                now=change.time,
                keep=batch.origin.kept,
                outside_store=change.outside_store,
            )

    def check_room(self, change: AccountChange, new_bytes: int) -> None:
        """Return when so many more bytes fit; none always do, also where less is allowed by now.

        Raises:
            QuotaExceeded: the account is full.
        """
        used = change.used_bytes + new_bytes
        if new_bytes > 0 and self._storage_bytes_max and used > self._storage_bytes_max:
            raise _full()

    async def refuse_full(self, account: AccountId, room_bytes: int = 1) -> None:
        """Return if an account has so much room by now: what costs money may be worth its while.

        Raises:
            QuotaExceeded: it has not.
        """
        row = await account_rows.find_account(self._database, account)
        bytes_max = self._storage_bytes_max
        if row is None or not bytes_max:
            return
        if row["storage_bytes"] + row["index_bytes"] + room_bytes > bytes_max:
            raise _full()


async def _erase_expired(change: AccountChange, replaced: Sequence[uuid.UUID]) -> list[bytes]:
    """Erase those of these that are said anew; the receipts.

    One that was edited, pinned or said for longer since has a life of its own again.
    """
    over = await erasure_rows.still_expired(
        change.connection, account=change.account, ids=replaced, now=change.time
    )
    erased = await erase_in(change, over, expired=True)
    if erased:  # the room of what is gone counts
        await change.reread()
    return erased


async def _vouch(change: AccountChange, batch: Batch) -> tuple[Batch, list[ReceiptItem], int]:
    """Return the new part of a batch, the items of its receipts, and the bytes that are freed.

    The bytes are those of the episode that its facts come from.
    """
    names, origin, freed = batch.names, batch.origin, 0
    items = [*map(item_of_memory, batch.memories)]
    if origin is not None and origin.waiting:
        row = await _lock_waiting(change, origin.id)
        names = {**names, row["namespace_id"]: Namespace(row["namespace"])}
        if not origin.kept:
            items.append(_item_of_gone(row))
            freed = row["size_bytes"]
    elif origin is not None and origin.new is None:
        await _check_kept(change, origin.id)
    episodes = await _find_unsaid(change, batch)
    items += map(_item_of_episode, episodes)
    return replace(batch, episodes=episodes, names=names), items, freed


async def _insert(
    change: AccountChange, batch: Batch, receipts: Sequence[tuple[int, bytes]]
) -> queue.Waiting:
    return await write_statement.write(
        change.connection,
        change.account,
        write_statement.Write(
            now=change.time,
            memories=batch.memories,
            episodes=batch.episodes,
            marks=batch.marks,
            marks_expire_at=change.time + timedelta(seconds=Limits.idempotency_life_s),
            index_version=INDEX_VERSION,
            memory_seq=change.memory_seq,
            receipts=receipts,
            receipt_seq=change.receipt_seq,
            receipt_head=change.receipt_head,
            blobs_here=not change.outside_store,
            wordy=batch.wordy,
        ),
    )


async def _lock_waiting(change: AccountChange, episode: uuid.UUID) -> Row:
    locked = await episode_rows.lock_episodes(
        change.connection, account=change.account, episode_ids=[episode]
    )
    if not locked:
        raise Overtaken("That episode was erased or extracted meanwhile.")
    return locked[0]


async def _check_kept(change: AccountChange, episode: uuid.UUID) -> None:
    if not await episode_rows.find_kept(
        change.connection, account=change.account, episode_ids=[episode]
    ):
        raise Overtaken("That episode was erased meanwhile.")


async def _find_unsaid(change: AccountChange, batch: Batch) -> Sequence[rows.NewEpisode]:
    """Return the episodes to store.

    One that is restored may have been said again since: it comes back, but the other one is known
    by what they say.
    """
    if not batch.episodes:
        return []
    places = [(e.namespace_id, e.epoch, e.fingerprint) for e in batch.episodes if e.fingerprint]
    found = await episode_rows.claim(
        change.connection,
        account=change.account,
        places=places,
        now=change.time,
        to_wait=batch.op == "analyze" and batch.episodes[0].state == rows.PENDING,
    )
    said = {row["fingerprint"] for row in found}
    if said and batch.op != RESTORE:
        raise Overtaken("The same episode was stored meanwhile.")
    return [replace(e, fingerprint=None) if e.fingerprint in said else e for e in batch.episodes]


async def _check_same(change: AccountChange, same: Mapping[uuid.UUID, int]) -> None:
    """Under the account's lock: what was found before it may have changed since, or gone."""
    current = await rows.in_force(
        change.connection, account=change.account, memory_ids=list(same), now=change.time
    )
    if gone := {memory for memory, revision in same.items() if current.get(memory) != revision}:
        raise Gone(gone, change.time)


async def _check_living(change: AccountChange, batch: Batch) -> None:
    """Under the account's lock, so that nothing erased meanwhile comes back."""
    ids = [m.revision_of or m.memory_id for m in batch.memories]
    ids += [e.episode_id for e in batch.episodes]
    if await erasure_rows.find_tombstoned(
        change.connection, account=change.account, memory_ids=ids
    ):
        raise NotFound("That memory was erased.")


async def _affect(
    change: AccountChange, settings: AccountSettings, effects: Effects
) -> tuple[list[bytes], dict[uuid.UUID, Change]]:
    """Change what a write changes of memories that are stored by now; (receipts, changes)."""
    connection, account, now = change.connection, change.account, change.time
    if effects.links:
        await state_rows.link(connection, account=account, links=effects.links, now=now)
    if effects.seen:
        await rows.count_seen(connection, account=account, ids=effects.seen, now=now)
    standing = {}
    if effects.contradicting:
        others = {d.contradicts.id for d in effects.contradicting.values() if d.contradicts}
        standing = await state_rows.lock_states(
            connection, account=account, memory_ids=sorted(others)
        )
    changes = settle(
        effects.contradicting, effects.reviews, standing, effects.same, settings, now
    ) | {memory: Change(review=None) for memory in effects.approved}
    for memory, life in effects.longer.items():
        longer = Change(expires_at=life.expires_at, has_default_life=life.is_default)
        changes[memory] = changes.get(memory, Change()) | longer
    superseded = [memory for memory, new in changes.items() if "superseded_at" in new]
    made = await erase_made_of(change, superseded)
    return [*made, *await change_states(change, changes)], changes


def _full() -> QuotaExceeded:
    return QuotaExceeded("The account's storage is used up.")


def item_of_memory(memory: rows.NewMemory) -> ReceiptItem:
    """Return the item of a receipt for a memory that is stored."""
    memory_id = memory.revision_of or memory.memory_id
    return ReceiptItem(
        memory_id, memory.revision, memory.blob_id, memory.namespace_id, memory.epoch
    )


def _item_of_gone(episode: Row) -> ReceiptItem:
    """Return the item which says that a waiting episode is not kept: its facts were taken."""
    gone = name_when_gone(episode["memory_id"])
    return ReceiptItem(gone, 0, episode["blob_id"], episode["namespace_id"], episode["epoch"])


def _item_of_episode(episode: rows.NewEpisode) -> ReceiptItem:
    return ReceiptItem(episode.episode_id, 1, episode.blob_id, episode.namespace_id, episode.epoch)
