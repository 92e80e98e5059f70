"""The order of steps of showing what waits to be looked at.

Not here: which memories that are (`database.listing`), deciding about them (`states.py`).
Source: SPEC §13.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from relayer.database import listing
from relayer.database import memories as memory_rows
from relayer.database import states as state_rows
from relayer.database.pool import Database, Row
from relayer.memories.opener import Caller, Opener, Page, next_cursor, size_of, take_fitting
from relayer.record import Memory
from relayer.sealed.keys import AccountId, Namespace
from relayer.tenants.namespaces import Namespaces


@dataclass(frozen=True)
class Doubtful:
    """A memory that waits to be looked at: why, and those in force that it speaks against."""

    memory: Memory
    reason: str
    others: Sequence[Memory]


class Reviewer:
    """Shows what is doubtful of the memories of one account at a time."""

    def __init__(self, *, database: Database, opener: Opener, namespaces: Namespaces) -> None:
        self._database = database
        self._opener = opener
        self._namespaces = namespaces

    async def list_doubtful(
        self, caller: Caller, namespaces: Sequence[Namespace], *, before_seq: int, limit: int
    ) -> Page[Doubtful]:
        """Return a page of memories that wait for approval or contradict others, newest first.

        Raises:
            NotAllowed: not a reader of a namespace, or its key is missing.
        """
        account, now = caller.access.account, caller.access.time
        for namespace in namespaces:
            caller.access.require(namespace, "reader")
        found = await listing.find_waiting(
            self._database,
            account=account,
            namespace_ids=await self._namespaces.numbers(account, namespaces),
            before_seq=before_seq,
            limit=limit,
            now=now,
        )
        others = await self._find_contradicted(account, found, now)

        def size_in(row: Row) -> int:
            return sum(map(size_of, (row, *others[row["memory_id"]])))

        page = take_fitting(found, size_in=size_in)
        contradicted = {o["memory_id"]: o for row in page for o in others[row["memory_id"]]}
        opened = await self._opener.open_all(caller, [*page, *contradicted.values()])
        known = dict(zip(contradicted, opened[len(page) :], strict=True))
        doubtful = [
            Doubtful(m, row["review"], [known[o["memory_id"]] for o in others[row["memory_id"]]])
            for row, m in zip(page, opened, strict=False)
        ]
        return Page(doubtful, next_cursor(found, page, limit))

    async def _find_contradicted(
        self, account: AccountId, found: Sequence[Row], now: datetime
    ) -> Mapping[uuid.UUID, Sequence[Row]]:
        """Return, for each of these rows, by its id, those that it contradicts and that stand."""
        others = dict[uuid.UUID, list[Row]]((row["memory_id"], []) for row in found)
        links = await state_rows.links_of(self._database, account=account, memory_ids=list(others))
        links = [one for one in links if one.relation == state_rows.CONTRADICTS]
        rows = await memory_rows.find_memories(
            self._database, account=account, memory_ids=[o.other_id for o in links], now=now
        )
        stand = {row["memory_id"]: row for row in rows if row["superseded_at"] is None}
        for one in links:
            if one.memory_id in others and one.other_id in stand:
                others[one.memory_id].append(stand[one.other_id])
        return others
