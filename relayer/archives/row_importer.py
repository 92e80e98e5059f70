"""Rows that come from another relayer, placed among those here and written in one transaction.

Not here: what comes before them (`importer.py`), which of them come in (`validation.py`), SQL
(`database.imports`). Source: SPEC §17.2.
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Final

import msgspec

from relayer.archives import validation
from relayer.archives.validation import Row
from relayer.database import collection, statistics
from relayer.database import episodes as episode_rows
from relayer.database import imports as rows
from relayer.database import revisions as revision_rows
from relayer.database.pool import Connection, Database
from relayer.errors import QuotaExceeded, Unavailable
from relayer.journal.changes import AccountChange, ReceiptItem
from relayer.journal.states import Change, change_states
from relayer.portable import MovedEpisode, MovedMemory
from relayer.record import State, is_former_name
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, Namespace
from relayer.tenants.accounts import Access
from relayer.tenants.ledger import Ledger, Stale
from relayer.tenants.namespaces import NamespaceEntry

IMPORT: Final = "import"
PLACES_MAX: Final = 2**52  # in the sequence: what is written here behind them stays below 2**53
_EARLIER: Final = timedelta(milliseconds=1)


class RowImporter:
    """Writes the memories and episodes that an owner brings."""

    def __init__(
        self,
        *,
        database: Database,
        ledger: Ledger,
        embedding_model: str | None,
        storage_bytes_max: int,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._embedding_model = embedding_model
        self._storage_bytes_max = storage_bytes_max

    async def take_in(
        self,
        access: Access,
        memories: Sequence[MovedMemory],
        episodes: Sequence[MovedEpisode],
        entries: Mapping[str, NamespaceEntry],
        *,
        serial: int,
        oldest: int,
    ) -> tuple[list[tuple[uuid.UUID, str]], list[bytes]]:
        """Store rows; return the outcome for each by its id, and the receipts for what is new.

        `entries` are the namespaces here, by name; `oldest` is the oldest epoch that is not over,
        as of the grant with this `serial`.

        Raises:
            Stale: another grant came in between, and maybe other epochs are over by it.
            BadRequest: an id stands there twice, or a blob id is none.
            TooLarge: there are too many words or vectors together.
            QuotaExceeded: the account is full.
            NotFound: the account is gone.
        """
        moved: list[Row] = [*memories, *episodes]
        validation.unique([row.id for row in moved])
        validation.check_size(memories)
        # In a thread: to look at every word takes a while, and others are waiting.
        refused = await asyncio.to_thread(validation.find_refused, access, moved, entries)
        sound = [row for row in moved if row.id not in refused]
        blobs = [(validation.hash_of(row.blob_id), row.blob or b"") for row in sound]
        async with self._ledger.change(access, op=IMPORT, as_owner=True, blobs=blobs) as change:
            connection, account = change.connection, change.account
            if change.grant_serial != serial:
                raise Stale
            known = [validation.id_of(row) for row in moved]
            present = await rows.present(connection, account, [*(r.id for r in moved), *known])
            # Nobody could read it or seal it anew, so that its epoch never came to an end here.
            over = {r.id for r in sound if r.id not in present and validation.is_over(r, oldest)}
            refused |= over
            sound = [row for row in sound if row.id not in over]
            erased = await rows.find_erased(connection, account, known)
            erased |= await _find_erased_turns(connection, account, sound)
            passed = validation.passed(sound, present)
            refused |= validation.orphans(sound, present)
            results = {
                row.id: validation.outcome(row, refused, present, erased, passed) for row in moved
            }
            fresh = [row for row in sound if results[row.id] == validation.IMPORTED]
            if sum(map(rows.new_bytes, fresh)) + change.used_bytes > (
                self._storage_bytes_max or 2**63
            ):
                raise QuotaExceeded("The account's storage is used up.")
            earlier = [
                one for one in passed.values() if results[one.memory_id] == validation.IMPORTED
            ]
            await _step_back(change, earlier)
            receipts = await self._write(change, fresh, entries)
        with suppress(Unavailable):  # what has come is here, whatever becomes of this
            await statistics.gather_after(self._database, account, len(memories))
        return list(results.items()), receipts

    async def _write(
        self,
        change: AccountChange,
        fresh: Sequence[Row],
        entries: Mapping[str, NamespaceEntry],
    ) -> list[bytes]:
        """Write the fresh rows with their states in the caller's transaction; return receipts."""
        if not fresh:
            return []
        memories = [row for row in fresh if isinstance(row, MovedMemory)]
        arriving = await self._place(change, memories, entries)
        names = {entries[row.namespace].namespace_id: Namespace(row.namespace) for row in fresh}
        receipts = change.sign([_receipt_item(row, entries) for row in fresh], names)
        page = rows.Page(
            memories=arriving,
            turns=await _turns_placed(change, fresh, entries),
            vouched=rows.Vouched(receipts, change.receipt_seq, change.receipt_head),
            now=change.time,
            blobs_here=not change.outside_store,
        )
        await rows.arrive(change.connection, change.account, page)
        change.has_objects = True
        placed = [one.memory for one in arriving]
        changes = {row.id: _change(row) for row in placed if row.revision_of is None}
        signed = await change_states(change, changes)
        # What a memory said before may have been here, and held otherwise.
        await revision_rows.share(
            change.connection, account=change.account, memory_ids=list(changes)
        )
        return [*(receipt for _, receipt in receipts), *signed]

    async def _place(
        self,
        change: AccountChange,
        memories: Sequence[MovedMemory],
        entries: Mapping[str, NamespaceEntry],
    ) -> list[rows.ArrivingMemory]:
        """Return rows with their numbers here: their own place in the sequence where it is free.

        A memory whose fact another one says here by now gives way to that: one of them counts.
        """
        connection, account = change.connection, change.account
        taken = await rows.find_taken_seqs(connection, account, [m.seq for m in memories])
        prints = [m.fingerprint for m in memories if m.fingerprint is not None]
        facts = await rows.find_facts(connection, account, prints)
        last = max([change.memory_seq, *(m.seq for m in memories if m.seq <= PLACES_MAX)])
        placed = []
        for memory in memories:
            number = entries[memory.namespace].namespace_id
            seq = memory.seq
            if seq in taken or seq > PLACES_MAX:
                last = seq = last + 1
            taken.add(seq)
            fact = (number, memory.epoch, memory.fingerprint or b"")
            row = validation.with_usable_vectors(memory, self._embedding_model)
            if memory.fingerprint is not None and memory.superseded_at is None:
                if fact in facts:
                    row = msgspec.structs.replace(
                        row,
                        superseded_at=change.time,
                        superseded_by=facts[fact],
                        merged=False,
                    )
                facts.setdefault(fact, memory.id)
            state = _state_on_arrival(row)
            placed.append(rows.ArrivingMemory(row, number, seq, row.blob or b"", state))
        return placed


async def _step_back(change: AccountChange, earlier: Sequence[MovedMemory]) -> None:
    """Make these revisions, current here, the earlier ones that they are elsewhere."""
    for row in earlier:
        assert row.revision_of is not None
        await revision_rows.step_back(
            change.connection,
            account=change.account,
            memory_id=row.revision_of,
            archive_id=row.id,
            seq=change.take_place(),
            superseded_at=row.superseded_at or change.time,
            now=change.time,
            outside_store=change.outside_store,
        )


async def _turns_placed(
    change: AccountChange,
    fresh: Sequence[Row],
    entries: Mapping[str, NamespaceEntry],
) -> list[rows.ArrivingTurn]:
    """Return episodes with their namespaces' numbers here.

    Of equal ones, the first is known by what it says.
    """
    turns = [
        rows.ArrivingTurn(row, entries[row.namespace].namespace_id, row.blob or b"")
        for row in fresh
        if isinstance(row, MovedEpisode)
    ]
    found = await episode_rows.claim(
        change.connection,
        account=change.account,
        places=[t.place for t in turns],
        now=change.time,
    )
    said = {(r["namespace_id"], r["epoch"], r["fingerprint"]) for r in found}
    placed = []
    for arriving in turns:
        bare = msgspec.structs.replace(arriving.turn, fingerprint=None)
        placed.append(replace(arriving, turn=bare) if arriving.place in said else arriving)
        said.add(arriving.place)
    return placed


async def _find_erased_turns(
    connection: Connection, account: AccountId, sound: Sequence[Row]
) -> set[uuid.UUID]:
    """Return those of these episodes that are erased here under another name (`name_when_gone`)."""
    turns = {validation.hash_of(row.blob_id): row.id for row in sound if is_former_name(row.id)}
    if not turns:
        return set()
    gone = await collection.find_tombstoned_blobs(connection, account=account, blob_ids=list(turns))
    return {turns[blob] for blob in gone}


def _state_on_arrival(row: MovedMemory) -> State:
    """Return the state in which a row begins here: of an earlier revision, its own.

    Of a memory's state only that it is out of recall, a moment too early, so that the signed object
    that follows finds all of it to say.
    """
    if row.revision_of is not None:
        return State(
            pinned=row.pinned,
            review=row.review,
            stale=row.stale,
            superseded_at=row.superseded_at,
            superseded_by=row.superseded_by,
        )
    if row.superseded_at is None:
        return State()
    return State(superseded_at=row.superseded_at - _EARLIER)


def _change(row: MovedMemory) -> Change:
    change = Change(pinned=row.pinned, review=row.review, stale=row.stale)
    if row.superseded_at is not None:
        at, by = row.superseded_at, row.superseded_by
        change |= Change(superseded_at=at, superseded_by=by, merged=row.merged)
    return change


def _receipt_item(row: Row, entries: Mapping[str, NamespaceEntry]) -> ReceiptItem:
    number = entries[row.namespace].namespace_id
    blob = envelope.blob_hash(row.blob_id)
    if isinstance(row, MovedMemory):
        return ReceiptItem(row.memory_id, row.revision, blob, number, row.epoch)
    return ReceiptItem(row.id, 1, blob, number, row.epoch)
