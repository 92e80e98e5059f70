"""The order of steps of list, get and forget; nothing else.

Not here: what the steps do (`opener`, `database`), remember (`intake.py`), recall (`recall.py`),
extraction (`analysis.py`), request checks (`http/checks.py`).

- Whoever calls has passed the guard; every method still asks `Access` about each namespace.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypedDict, Unpack

from relayer.database import listing
from relayer.database import memories as rows
from relayer.database.pool import Database, Row
from relayer.errors import Corrupted, NotFound
from relayer.memories.deletion import Deletion
from relayer.memories.opener import Caller, Opener, Page, next_cursor, readable, take_fitting
from relayer.memories.record_search import RecordSearch
from relayer.record import Memory
from relayer.sealed import index
from relayer.sealed.keys import Namespace
from relayer.tenants.accounts import Access

MATCHES_MAX: Final = 10  # ids that begin alike: a person is to give more digits
LAST_SEQ: Final = 2**63 - 1


class Narrowing(TypedDict, total=False):
    """Filters of a list: see `listing.Filters`."""

    kind: str | None
    writers: Sequence[bytes] | None
    after: datetime | None
    before: datetime | None
    pinned: bool | None
    never_recalled: bool
    state: str


class MemoryService:
    """Lists, gets and forgets memories of one account at a time."""

    def __init__(
        self,
        *,
        database: Database,
        opener: Opener,
        records: RecordSearch,
        deletion: Deletion,
    ) -> None:
        self._database = database
        self._opener = opener
        self._records = records
        self._namespaces = records.namespaces
        self._deletion = deletion

    async def newest(
        self,
        caller: Caller,
        namespaces: Sequence[Namespace],
        *,
        before_seq: int = LAST_SEQ,
        limit: int,
        tags: Sequence[str] = (),
        source: str | None = None,
        **filters: Unpack[Narrowing],
    ) -> Page[Memory]:
        """Return a page of memories, newest first; with all of these `tags`, and of this `source`.

        Raises:
            NotAllowed: not a reader of a namespace, or its key is missing.
            Unavailable: `index.loading`, a sealed index is not loaded yet.
        """
        account = caller.access.account
        for namespace in namespaces:
            caller.access.require(namespace, "reader")
        seqs = await self._records.find_tagged(caller, namespaces, tags=tags, source=source)
        tokens = [
            (number, ordinal, token)
            for namespace in namespaces
            for number in await self._namespaces.numbers(account, [namespace])
            for key in caller.keys.of(namespace)
            for ordinal, token in enumerate(index.filters(key, tags=tags, source=source))
        ]
        found = await listing.newest(
            self._database,
            account=account,
            namespace_ids=await self._namespaces.numbers(account, namespaces),
            before_seq=before_seq,
            limit=limit,
            now=caller.access.time,
            filters=listing.Filters(
                tokens=tokens, wanted=len(tags) + (source is not None), seqs=seqs, **filters
            ),
        )
        page = take_fitting(found)
        return Page(await self._opener.open_all(caller, page), next_cursor(found, page, limit))

    async def get(self, caller: Caller, memory_id: uuid.UUID) -> Memory:
        """Return one memory.

        Raises:
            NotFound: absent, somebody else's, or in a namespace the key may not read.
            Corrupted: its blob is lost or altered.
        """
        row = await self._readable(caller.access, memory_id)
        [memory] = await self._opener.open_rows(caller, [row])
        if memory is None:
            await self._readable(caller.access, memory_id)  # its blob goes when it is forgotten
            raise Corrupted("A stored memory does not match its name or its row.")
        return memory

    async def _readable(self, access: Access, memory_id: uuid.UUID) -> Row:
        return await readable(self._database, access, memory_id)

    async def forget(self, access: Access, memory_id: uuid.UUID) -> tuple[bytes, bool]:
        """Erase one memory or waiting episode, expired or not, that was not erased before.

        Returns the receipt, and whether an outside store has still to confirm.

        Raises:
            NotFound: absent, erased, somebody else's, or in a namespace the key may not read.
            NotAllowed: the key only reads.
        """
        done = await self._deletion.forget(access, memory_id)
        if not done.receipts:
            raise NotFound("No such memory.")
        return done.receipts[0], done.pending

    async def forget_namespace(self, access: Access, namespace: Namespace) -> int:
        """Erase every memory and waiting episode of a namespace; how many.

        Raises:
            NotAllowed: not a writer of the namespace.
        """
        erased, more = 0, True
        while more:
            done = await self._deletion.forget_namespace(access, namespace)
            erased, more = erased + done.erased, done.more
        return erased

    async def find_beginning(
        self, access: Access, beginnings: Sequence[str]
    ) -> list[list[uuid.UUID]]:
        """Return, for each beginning of hex digits, ids of living memories the key may read."""
        ranges = [
            (uuid.UUID(digits.ljust(32, "0")), uuid.UUID(digits.ljust(32, "f")))
            for digits in beginnings
        ]
        return await rows.find_between(
            self._database,
            account=access.account,
            ranges=ranges,
            namespaces=access.namespaces,
            now=access.time,
            limit=MATCHES_MAX,
        )

    async def states(self, access: Access, ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Row]:
        """Return id → (namespace, blob_id, state) of what lives and the key may read."""
        found = await rows.states(
            self._database,
            account=access.account,
            ids=ids,
            embeds=self._opener.embeds,
            now=access.time,
        )
        return {i: r for i, r in found.items() if access.strength(Namespace(r["namespace"]))}
