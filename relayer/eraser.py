"""Erasing memories and waiting turns for good, with a receipt and a tombstone for each.

Not here: who may erase what (`memory.py`), SQL (`database.erasure`), deletions in an outside store
(`outbox.py`).

- Row, vectors, postings and blob go in one transaction, under the account's row lock.
- The receipt is also the journal's tombstone: it lies beside the blobs, so that no restore and no
  database of yesterday brings back what it names.
"""

import uuid
from collections.abc import Sequence

from relayer.clock import Clock
from relayer.database import accounts as account_rows
from relayer.database import episodes as episode_rows
from relayer.database import erasure as rows
from relayer.database import queue
from relayer.database.pool import Connection, Database
from relayer.errors import NotFound
from relayer.outbox import Outbox
from relayer.receipts import Act, Subject, chained
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, Identity, Namespace, PublicKey

FORGET = "forget"


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
        self, account: AccountId, actor: PublicKey, ids: Sequence[uuid.UUID], *, op: str = FORGET
    ) -> list[bytes]:
        """Erase those of these memories and waiting turns that live; the receipts."""
        act = Act(account, actor, op, self._clock())
        async with self._database.transaction() as connection:
            heads = await account_rows.lock_account(connection, account)
            if heads is None:
                raise NotFound("No such account.")
            receipts, _ = await self.erase_within(connection, act, heads, ids)
        if receipts:
            await self._outbox.publish_soon()
        return receipts

    async def erase_within(
        self,
        connection: Connection,
        act: Act,
        heads: account_rows.Heads,
        ids: Sequence[uuid.UUID],
    ) -> tuple[list[bytes], account_rows.Heads]:
        """The receipts of an erasure under the account's lock, and the heads after it."""
        doomed = await rows.lock_memories(connection, account=act.account, memory_ids=ids)
        doomed += await episode_rows.lock_episodes(connection, account=act.account, episode_ids=ids)
        if not doomed:
            return [], heads
        subjects = [
            Subject(r["memory_id"], r["revision"], r["blob_id"], r["namespace_id"], r["epoch"])
            for r in doomed
        ]
        names = {r["namespace_id"]: Namespace(r["namespace"]) for r in doomed}
        receipts, after = chained(self._identity, act, heads, subjects, names)
        await rows.erase(
            connection,
            account=act.account,
            memory_ids=[s.memory_id for s in subjects],
            now=act.time,
            outside_store=self._outbox.outside,
            receipts=receipts,
            receipt_blob_ids=[
                envelope.blob_hash(envelope.blob_id(signed)) for _, signed in receipts
            ],
            receipt_head=after.receipt_head,
        )
        if self._outbox.outside:
            await queue.enqueue(connection, queue.DELETE_BLOBS, act.account, [])
        return [signed for _, signed in receipts], after
