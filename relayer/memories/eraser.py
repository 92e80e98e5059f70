"""Erasing memories and episodes for good, with a receipt and a tombstone for each.

Not here: who may erase what (`deletion.py`), SQL (`database.erasure`), deletions in an outside
store (`journal/outbox.py`).

- A memory goes with all its revisions, and with everything that still says what it said: the turn
  it came from, what was merged into it, what it was merged into, what was made of it. Of the last,
  an expiry leaves what somebody made their own; and what is found by other means than its id, or
  expires, takes nothing along that it was merged into.
- What was made of a memory also goes when that is edited, rejected or superseded.
- Rows, vectors, postings, links and blobs go in one transaction, under the account's row lock.
- The receipt is also the journal's tombstone: it lies beside the blobs, so that no restore and no
  database of yesterday brings back what it names.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from relayer.database import erasure as rows
from relayer.database import queue
from relayer.database import runs as run_rows
from relayer.database.pool import Database, Row
from relayer.journal.changes import AccountChange, ReceiptItem
from relayer.record import name_when_gone
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, Namespace
from relayer.sealed.receipts import Receipt
from relayer.tenants.accounts import Access
from relayer.tenants.ledger import Ledger

FORGET: Final = "forget"
EXPIRE: Final = "expire"
ERASURES: Final = frozenset({FORGET, EXPIRE})
ROWS_MAX: Final = 500  # of one transaction, unless one memory alone has more revisions
RECEIPT_ITEMS_MAX: Final = 500  # so that a signed receipt stays below 64 KiB


@dataclass
class Erasure:
    """The ids and blobs of memories and episodes that were erased, and the receipts that say so."""

    ids: list[uuid.UUID] = field(default_factory=list)
    blob_ids: list[bytes] = field(default_factory=list)
    receipts: list[bytes] = field(default_factory=list)

    def add(self, other: "Erasure") -> None:
        """Count another one in."""
        self.ids += other.ids
        self.blob_ids += other.blob_ids
        self.receipts += other.receipts


class Eraser:
    """Erases memories of one account at a time, in changes of its own."""

    def __init__(self, *, database: Database, ledger: Ledger) -> None:
        self._database = database
        self._ledger = ledger

    async def erase(
        self,
        access: Access,
        namespaces: Iterable[Namespace],
        ids: Sequence[uuid.UUID],
        *,
        op: str = FORGET,
        upward: bool = True,
    ) -> Erasure:
        """Erase those of these memories and episodes that live, in bounded changes.

        Who asks has to be a writer of these namespaces still at each. With the operation `expire`,
        only those go whose time is over. What they were merged into, only `upward` of what is
        forgotten.

        Raises:
            NotFound: the account is gone.
            NotAuthenticated, NotAllowed: the key lost its right meanwhile.
        """
        erasure, namespaces, expired = Erasure(), tuple(namespaces), op == EXPIRE
        for batch in await self._batches(access.account, ids):
            async with self._ledger.change(access, namespaces, op=op, publishes=False) as change:
                targets = batch
                if expired:
                    targets = await rows.still_expired(
                        change.connection, account=change.account, ids=batch, now=change.time
                    )
                targets = await rows.find_entailed(
                    change.connection,
                    account=change.account,
                    ids=targets,
                    expired=expired,
                    upward=upward and op == FORGET,
                )
                done = await _erase(change, targets, op=op, expired=expired)
            erasure.add(done)
        if erasure.receipts:
            await self._ledger.publish_soon()
        return erasure

    async def expire(self, account: AccountId, ids: Sequence[uuid.UUID]) -> None:
        """Erase those of these whose time is over; it is the relayer that does.

        Raises:
            NotFound: the account is gone.
        """
        if ids:
            await self.erase(self._ledger.unasked(account), (), ids, op=EXPIRE)

    async def repeat(self, receipt: Receipt) -> Erasure:
        """Erase what a receipt of another time says was erased, for which the relayer answers.

        Raises:
            NotFound: the account is gone.
        """
        # By their blobs, too, for an episode may have lived under another name (`name_when_gone`).
        items = [(i.memory, envelope.blob_hash(i.blob_id)) for i in receipt.items]
        relayer, expired = self._ledger.unasked(receipt.account), receipt.op == EXPIRE
        async with self._ledger.change(relayer, op=receipt.op) as change:
            done = await _erase(
                change,
                [i for i, _ in items],
                blob_ids=[b for _, b in items],
                op=receipt.op,
                expired=expired,
            )
            await rows.insert_tombstones(
                change.connection,
                account=receipt.account,
                items=items,
                namespace=receipt.namespace,
                now=change.time,
                expired=expired,
            )
        return done

    async def _batches(
        self, account: AccountId, ids: Sequence[uuid.UUID]
    ) -> list[Sequence[uuid.UUID]]:
        """Return the ids, so many together as have at most `ROWS_MAX` rows."""
        if len(ids) < 2:
            return [ids] if ids else []
        earlier = await rows.revision_counts(self._database, account=account, ids=ids)
        return list(_fill((i, 1 + earlier.get(i, 0)) for i in dict.fromkeys(ids)))


async def erase_in(
    change: AccountChange,
    ids: Sequence[uuid.UUID],
    *,
    blob_ids: Sequence[bytes] = (),
    expired: bool = False,
) -> list[bytes]:
    """Erase these, with what is entailed, in a change of their account; the receipts.

    Episodes go by their blobs, too, where their names may have been others (`name_when_gone`).
    Of what is `expired`, what somebody made their own stays.
    """
    if not ids:
        return []
    targets = await rows.find_entailed(
        change.connection, account=change.account, ids=ids, expired=expired, upward=not expired
    )
    done = await _erase(change, targets, blob_ids=blob_ids, op=FORGET, expired=expired)
    return done.receipts


async def erase_made_of(change: AccountChange, ids: Sequence[uuid.UUID]) -> list[bytes]:
    """Erase what was made of memories that hold no more as they were then; the receipts.

    What somebody made their own stays.
    """
    if not ids:
        return []
    made = await rows.find_made_of(change.connection, account=change.account, ids=ids)
    if made:
        await run_rows.outdate(change.connection, account=change.account, memory_ids=made)
    return await erase_in(change, made, expired=True)


async def _erase(
    change: AccountChange,
    ids: Sequence[uuid.UUID],
    *,
    blob_ids: Sequence[bytes] = (),
    op: str,
    expired: bool,
) -> Erasure:
    """Erase exactly these."""
    connection, account = change.connection, change.account
    memories = await rows.lock_memories(connection, account=account, memory_ids=ids)
    if blob_ids:
        ids = [*ids, *await rows.episodes_of_blobs(connection, account=account, blob_ids=blob_ids)]
    episodes = await rows.lock_episodes(connection, account=account, episode_ids=ids)
    # One that is done has let its blob go already.
    living = [episode for episode in episodes if episode["state"] != "done"]
    targets = memories + living
    if not targets:
        return Erasure()
    names = {row["memory_id"]: name_when_gone(row["memory_id"]) for row in living}
    receipts = _sign(change, op, targets, names)
    places = {
        _row_id(r): (names.get(r["memory_id"], r["memory_id"]), r["namespace_id"]) for r in targets
    }
    earlier = await rows.earlier_blobs(connection, account=account, row_ids=list(places))
    had = [*((_row_id(r), r["blob_id"]) for r in targets), *((r, b) for r, b, _ in earlier)]
    outside = change.outside_store
    erased = rows.Erased(
        rows=[row["row_id"] for row in memories],
        episodes=[row["memory_id"] for row in episodes],
        tombstones=[(*places[row_id], blob) for row_id, blob in had],
        # One that is due may be on its way out of an outside store, and its note locked.
        earlier=[b for _, b, due in earlier if due > change.time or not outside],
        receipts=receipts,
        receipt_blob_ids=[envelope.blob_hash(envelope.blob_id(signed)) for _, signed in receipts],
        receipt_head=change.receipt_head,
        expired=expired,
    )
    await rows.erase(
        connection, account=account, erased=erased, now=change.time, outside_store=outside
    )
    change.has_objects = True
    if outside:
        await queue.enqueue(connection, queue.DELETE_BLOBS, account, [])
    return Erasure(
        list(dict.fromkeys(row["memory_id"] for row in targets)),
        [blob for _, blob in had],
        [signed for _, signed in receipts],
    )


def _sign(
    change: AccountChange, op: str, targets: Sequence[Row], names: Mapping[uuid.UUID, uuid.UUID]
) -> list[tuple[int, bytes]]:
    """Return one receipt per namespace and epoch, or several where there is too much for one."""
    namespaces = {r["namespace_id"]: Namespace(r["namespace"]) for r in targets}
    items = [
        ReceiptItem(
            names.get(r["memory_id"], r["memory_id"]),
            r["revision"],
            r["blob_id"],
            r["namespace_id"],
            r["epoch"],
        )
        for r in sorted(targets, key=lambda r: (r["namespace_id"], r["epoch"]))
    ]
    receipts: list[tuple[int, bytes]] = []
    for at in range(0, len(items), RECEIPT_ITEMS_MAX):
        part = items[at : at + RECEIPT_ITEMS_MAX]
        receipts += change.sign(part, namespaces, op=op)
    return receipts


def _row_id(row: Row) -> uuid.UUID:
    """Return the id of a memory's revision, or an episode's own."""
    row_id: uuid.UUID = row.get("row_id", row["memory_id"])
    return row_id


def _fill(sized: Iterator[tuple[uuid.UUID, int]]) -> Iterator[list[uuid.UUID]]:
    """Yield ids together, as many as have `ROWS_MAX` rows at most; one that has more is alone."""
    batch: list[uuid.UUID] = []
    total = 0
    for memory_id, size in sized:
        if batch and total + size > ROWS_MAX:
            yield batch
            batch, total = [], 0
        batch.append(memory_id)
        total += size
    if batch:
        yield batch
