"""The order of steps of remember, list, get and forget; nothing else.

Not here: what the steps do (`writer`, `opening`, `database`), recall (`recall.py`), extraction
(`analysis.py`), request checks (`checks.py`).

- Whoever calls has passed the guard; every method still asks `Access` about each namespace.
- A memory is acknowledged only after everything it needs is committed.
"""

import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from relayer.accounts import Access
from relayer.clock import Clock
from relayer.database import erasure as erasure_rows
from relayer.database import memories as rows
from relayer.database import outbox as outbox_rows
from relayer.database.pool import Database, Row
from relayer.eraser import Eraser
from relayer.errors import Corrupted, NotFound
from relayer.namespaces import Namespaces
from relayer.opening import Caller, Opener, as_memory
from relayer.record import Draft, Memory
from relayer.sealed.keys import Namespace
from relayer.writer import Remembered, Writer

log = logging.getLogger("relayer.memory")

LAST_SEQ: Final = 2**63 - 1


class MemoryService:
    """Remembers, lists, gets and forgets memories of one account at a time; `embeds` says whether
    they get vectors."""

    def __init__(
        self,
        *,
        database: Database,
        opener: Opener,
        namespaces: Namespaces,
        writer: Writer,
        eraser: Eraser,
        embeds: bool,
        clock: Clock,
    ) -> None:
        self._database = database
        self._opener = opener
        self._namespaces = namespaces
        self._writer = writer
        self._eraser = eraser
        self._embeds = embeds
        self._clock = clock

    def now(self) -> datetime:
        """The service's clock."""
        return self._clock()

    async def remember(self, caller: Caller, drafts: Sequence[Draft], *, route: str) -> Remembered:
        """Store what is new of these drafts; durable and found by keyword when this returns.

        Raises:
            NotAllowed: not a writer of a namespace, or its key is missing.
            Conflict: an idempotency key came back with another text.
            QuotaExceeded: the account is full.
        """
        for draft in drafts:
            caller.access.require(draft.namespace, "writer")
        return await self._writer.write(
            caller.access, caller.keys, drafts, op="remember", route=route
        )

    async def newest(
        self,
        caller: Caller,
        namespaces: Sequence[Namespace],
        *,
        before_seq: int = LAST_SEQ,
        kind: str | None = None,
        limit: int,
    ) -> list[Memory]:
        """A page of memories, newest first.

        Raises:
            NotAllowed: not a reader of a namespace, or its key is missing.
        """
        for namespace in namespaces:
            caller.access.require(namespace, "reader")
        entries = [await self._namespaces.find(caller.access.account, n) for n in namespaces]
        found = await rows.newest(
            self._database,
            account=caller.access.account,
            namespace_ids=[e.namespace_id for e in entries if e is not None],
            before_seq=before_seq,
            kind=kind,
            limit=limit,
            now=self._clock(),
        )
        opened = await self._opener.open_rows(caller, found)
        # One that is lost or altered is listed as that: it must not hide what is behind it.
        return [
            memory or replace(as_memory(row, None), status="failed")
            for row, memory in zip(found, opened, strict=True)
        ]

    async def get(self, caller: Caller, memory_id: uuid.UUID) -> Memory:
        """One memory.

        Raises:
            NotFound: absent, somebody else's, or in a namespace the key may not read.
            Corrupted: its blob is lost or altered.
        """
        row = await self._readable(caller.access, memory_id)
        [memory] = await self._opener.open_rows(caller, [row])
        if memory is None:
            raise Corrupted("A stored memory does not match its name or its row.")
        return memory

    async def _readable(self, access: Access, memory_id: uuid.UUID) -> Row:
        found = await rows.find_memories(
            self._database, account=access.account, memory_ids=[memory_id], now=self._clock()
        )
        if not found or not access.strength(Namespace(found[0]["namespace"])):
            raise NotFound("No such memory.")
        return found[0]

    async def forget(self, access: Access, memory_id: uuid.UUID) -> tuple[bytes, bool]:
        """Erase one memory or waiting turn, expired or not.

        Returns the receipt, and whether an outside store has still to confirm.

        Raises:
            NotFound: absent, somebody else's, or in a namespace the key may not read.
            NotAllowed: the key only reads.
        """
        row = (await self.states(access, [memory_id])).get(memory_id)
        if row is None:
            raise NotFound("No such memory.")
        access.require(Namespace(row["namespace"]), "writer")
        receipts = await self._eraser.erase(access.account, access.key, [memory_id])
        if not receipts:
            raise NotFound("No such memory.")
        pending = await outbox_rows.deletions_pending(
            self._database, account=access.account, blob_ids=[row["blob_id"]]
        )
        return receipts[0], pending > 0

    async def forget_namespace(self, access: Access, namespace: Namespace) -> int:
        """Erase every memory and waiting turn of a namespace, in bounded transactions; how many.

        Raises:
            NotAllowed: not a writer of the namespace.
        """
        access.require(namespace, "writer")
        entry = await self._namespaces.find(access.account, namespace)
        erased = 0
        while entry is not None:
            ids = await erasure_rows.namespace_memories(
                self._database,
                account=access.account,
                namespace_id=entry.namespace_id,
                limit=500,
            )
            if not ids:
                break
            await self._eraser.erase(access.account, access.key, ids)
            erased += len(ids)
        return erased

    async def states(self, access: Access, ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Row]:
        """Id → (namespace, blob_id, state) of memories and episodes the key may read."""
        found = await rows.states(
            self._database, account=access.account, ids=ids, embeds=self._embeds
        )
        return {i: r for i, r in found.items() if access.strength(Namespace(r["namespace"]))}
