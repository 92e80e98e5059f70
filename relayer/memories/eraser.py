"""Erasing memories and turns for good, with a receipt and a tombstone for each.

Not here: who may erase what (`forgetting.py`), SQL (`database.erasure`), deletions in an outside
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from relayer.clock import Clock
from relayer.database import accounts as account_rows
from relayer.database import erasure as rows
from relayer.database import queue
from relayer.database import runs as run_rows
from relayer.database.pool import Connection, Database, Row
from relayer.journal.changes import AccountChange
from relayer.journal.outbox import Outbox
from relayer.journal.receipts import Act, Subject, chained
from relayer.record import name_when_gone
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, Identity, Namespace, PublicKey
from relayer.sealed.receipts import Receipt

FORGET: Final = "forget"
EXPIRE: Final = "expire"
ERASURES: Final = frozenset({FORGET, EXPIRE})
ROWS_MAX: Final = 500  # of one transaction, unless one memory alone has more revisions
RECEIPT_ITEMS_MAX: Final = 500  # so that a signed receipt stays below 64 KiB


@dataclass
class Erasure:
    """What was erased: memories and turns, their blobs, and the receipts that say so."""

    ids: list[uuid.UUID] = field(default_factory=list)
    blob_ids: list[bytes] = field(default_factory=list)
    receipts: list[bytes] = field(default_factory=list)

    def add(self, other: "Erasure") -> None:
        """Count another one in."""
        self.ids += other.ids
        self.blob_ids += other.blob_ids
        self.receipts += other.receipts


class Eraser:
    """Erases memories of one account at a time."""

    def __init__(
        self, *, database: Database, outbox: Outbox, identity: Identity, clock: Clock
    ) -> None:
        self._database = database
        self._outbox = outbox
        self._identity = identity
        self._clock = clock

    async def erase(
        self,
        account: AccountId,
        actor: PublicKey,
        ids: Sequence[uuid.UUID],
        *,
        op: str = FORGET,
        upward: bool = True,
        lock: account_rows.Lock | None = None,
    ) -> Erasure:
        """Erase those of these memories and turns that live, in bounded transactions.

        With the operation `expire`, only those whose time is over. What they were merged into, only
        `upward` of what is forgotten. `lock` is how each begins, where somebody asks.

        Raises:
            NotFound: the account is gone.
        """
        erasure = Erasure()
        lock = lock or partial(account_rows.locked_heads, account=account)
        for batch in await self._batches(account, ids):
            async with self._database.transaction() as connection:
                heads = await lock(connection)
                act = Act(account, actor, op, heads.time(self._clock()))
                doomed = batch
                if op == EXPIRE:
                    doomed = await rows.still_expired(
                        connection, account=account, ids=batch, now=act.time
                    )
                doomed = await rows.entailed(
                    connection,
                    account=account,
                    ids=doomed,
                    expired=op == EXPIRE,
                    upward=upward and op == FORGET,
                )
                done, _ = await self._erase_locked(
                    connection, act, heads, doomed, expired=op == EXPIRE
                )
            erasure.add(done)
        if erasure.receipts:
            await self._outbox.publish_soon()
        return erasure

    async def expire(self, account: AccountId, ids: Sequence[uuid.UUID]) -> None:
        """Erase those of these whose time is over; it is the relayer that does.

        Raises:
            NotFound: the account is gone.
        """
        if ids:
            await self.erase(account, self._identity.public_key, ids, op=EXPIRE)

    async def erase_in(
        self,
        change: AccountChange,
        ids: Sequence[uuid.UUID],
        *,
        blob_ids: Sequence[bytes] = (),
        expired: bool = False,
    ) -> list[bytes]:
        """The receipts of erasing these in a change of their account, as `erase_within`."""
        receipts, change.heads = await self.erase_within(
            change.connection,
            change.act(FORGET),
            change.heads,
            ids,
            blob_ids=blob_ids,
            expired=expired,
        )
        change.has_objects |= bool(receipts)
        return receipts

    async def erase_made_in(self, change: AccountChange, ids: Sequence[uuid.UUID]) -> list[bytes]:
        """Likewise of erasing what was made of these, as `erase_made_of`."""
        receipts, change.heads = await self.erase_made_of(
            change.connection, change.act(FORGET), change.heads, ids
        )
        change.has_objects |= bool(receipts)
        return receipts

    async def erase_within(
        self,
        connection: Connection,
        act: Act,
        heads: account_rows.Heads,
        ids: Sequence[uuid.UUID],
        *,
        blob_ids: Sequence[bytes] = (),
        expired: bool = False,
    ) -> tuple[list[bytes], account_rows.Heads]:
        """The receipts of an erasure under the account's lock, and the heads after it.

        Turns go by their blobs, too, where their names may have been others (`name_when_gone`).
        Of what is `expired`, what somebody made their own stays.
        """
        if not ids:
            return [], heads
        doomed = await rows.entailed(
            connection, account=act.account, ids=ids, expired=expired, upward=not expired
        )
        done, after = await self._erase_locked(
            connection, act, heads, doomed, blob_ids=blob_ids, expired=expired
        )
        return done.receipts, after

    async def erase_made_of(
        self,
        connection: Connection,
        act: Act,
        heads: account_rows.Heads,
        ids: Sequence[uuid.UUID],
    ) -> tuple[list[bytes], account_rows.Heads]:
        """Likewise of erasing what was made of memories that hold no more as they were then.

        What somebody made their own stays.
        """
        made = await rows.made_of(connection, account=act.account, ids=ids) if ids else []
        if made:
            await run_rows.outdate(connection, account=act.account, memory_ids=made)
        act = replace(act, op=FORGET)
        return await self.erase_within(connection, act, heads, made, expired=True)

    async def repeat(self, receipt: Receipt) -> Erasure:
        """Erase what a receipt of another time says was erased, for which the relayer answers.

        Raises:
            NotFound: the account is gone.
        """
        # By their blobs, too, for a turn may have lived under another name (`name_when_gone`).
        items = [(i.memory, envelope.blob_hash(i.blob_id)) for i in receipt.items]
        async with self._database.transaction() as connection:
            heads = await account_rows.locked_heads(connection, receipt.account)
            now = heads.time(self._clock())
            act = Act(receipt.account, self._identity.public_key, receipt.op, now)
            expired = receipt.op == EXPIRE
            done, _ = await self._erase_locked(
                connection,
                act,
                heads,
                [i for i, _ in items],
                blob_ids=[b for _, b in items],
                expired=expired,
            )
            await rows.insert_tombstones(
                connection,
                account=receipt.account,
                items=items,
                namespace=receipt.namespace,
                now=act.time,
                expired=expired,
            )
        if done.receipts:
            await self._outbox.publish_soon()
        return done

    async def _batches(
        self, account: AccountId, ids: Sequence[uuid.UUID]
    ) -> list[Sequence[uuid.UUID]]:
        """The ids, so many together as have at most `ROWS_MAX` rows."""
        if len(ids) < 2:
            return [ids] if ids else []
        earlier = await rows.revision_counts(self._database, account=account, ids=ids)
        return list(_filled((i, 1 + earlier.get(i, 0)) for i in dict.fromkeys(ids)))

    async def _erase_locked(
        self,
        connection: Connection,
        act: Act,
        heads: account_rows.Heads,
        ids: Sequence[uuid.UUID],
        *,
        blob_ids: Sequence[bytes] = (),
        expired: bool,
    ) -> tuple[Erasure, account_rows.Heads]:
        """Erase exactly these under the account's lock, and the heads after it."""
        memories = await rows.lock_memories(connection, account=act.account, memory_ids=ids)
        if blob_ids:
            ids = [
                *ids,
                *await rows.turns_of_blobs(connection, account=act.account, blob_ids=blob_ids),
            ]
        turns = await rows.lock_turns(connection, account=act.account, episode_ids=ids)
        # One that is done has let its blob go already.
        living = [turn for turn in turns if turn["state"] != "done"]
        doomed = memories + living
        if not doomed:
            return Erasure(), heads
        names = {row["memory_id"]: name_when_gone(row["memory_id"]) for row in living}
        receipts, after = self._receipts(act, heads, doomed, names)
        places = {
            _row_id(r): (names.get(r["memory_id"], r["memory_id"]), r["namespace_id"])
            for r in doomed
        }
        earlier = await rows.earlier_blobs(connection, account=act.account, row_ids=list(places))
        had = [*((_row_id(r), r["blob_id"]) for r in doomed), *((r, b) for r, b, _ in earlier)]
        erased = rows.Erased(
            rows=[row["row_id"] for row in memories],
            turns=[row["memory_id"] for row in turns],
            stones=[(*places[row_id], blob) for row_id, blob in had],
            # One that is due may be on its way out of an outside store, and its note locked.
            earlier=[b for _, b, due in earlier if due > act.time or not self._outbox.outside],
            receipts=receipts,
            receipt_blob_ids=[
                envelope.blob_hash(envelope.blob_id(signed)) for _, signed in receipts
            ],
            receipt_head=after.receipt_head,
            expired=expired,
        )
        await rows.erase(
            connection,
            account=act.account,
            erased=erased,
            now=act.time,
            outside_store=self._outbox.outside,
        )
        if self._outbox.outside:
            await queue.enqueue(connection, queue.DELETE_BLOBS, act.account, [])
        done = Erasure(
            list(dict.fromkeys(row["memory_id"] for row in doomed)),
            [blob for _, blob in had],
            [signed for _, signed in receipts],
        )
        return done, after

    def _receipts(
        self,
        act: Act,
        heads: account_rows.Heads,
        doomed: Sequence[Row],
        names: Mapping[uuid.UUID, uuid.UUID],
    ) -> tuple[list[tuple[int, bytes]], account_rows.Heads]:
        """One receipt per namespace and epoch, or several where there is too much for one."""
        namespaces = {r["namespace_id"]: Namespace(r["namespace"]) for r in doomed}
        subjects = [
            Subject(
                names.get(r["memory_id"], r["memory_id"]),
                r["revision"],
                r["blob_id"],
                r["namespace_id"],
                r["epoch"],
            )
            for r in sorted(doomed, key=lambda r: (r["namespace_id"], r["epoch"]))
        ]
        receipts: list[tuple[int, bytes]] = []
        for at in range(0, len(subjects), RECEIPT_ITEMS_MAX):
            part = subjects[at : at + RECEIPT_ITEMS_MAX]
            signed, heads = chained(self._identity, act, heads, part, namespaces)
            receipts += signed
        return receipts, heads


def _row_id(row: Row) -> uuid.UUID:
    """That of a memory's revision, or a turn's own."""
    row_id: uuid.UUID = row.get("row_id", row["memory_id"])
    return row_id


def _filled(sized: Iterator[tuple[uuid.UUID, int]]) -> Iterator[list[uuid.UUID]]:
    """Ids together, as many as have `ROWS_MAX` rows at most; one that has more is alone."""
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
