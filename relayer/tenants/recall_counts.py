"""Counts of how often each memory was recalled, in the accounts that choose to have them.

Not here: SQL (`database/recall_counts.py`), recalls (`memories/recall.py`).

- A recall notes in memory alone which memories it showed. Once a minute that is stored, behind all
  answers. A relayer that is killed loses a minute of it.
- Nothing of the query, the key that asked or the hour is noted: an id, a number and a day.
"""

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Final

from relayer.database import recall_counts as rows
from relayer.database.pool import Database, Row
from relayer.database.recall_counts import NEVER, RecallCount
from relayer.errors import BadRequest
from relayer.sealed.keys import AccountId, Namespace
from relayer.tenants.accounts import Access
from relayer.tenants.regular_storing import store_regularly

log = logging.getLogger("relayer.recalls")

MEMORIES_MAX: Final = 100_000  # that wait to be stored, about 20 MB
Shown = uuid.UUID | bytes  # a memory, or the hash that names its blob
SLICE_MAX: Final = 5_000  # in one transaction, which keeps the account from being written


class RecallCounts:
    """Notes which memories are recalled, and stores how often."""

    def __init__(self, *, database: Database) -> None:
        self._database = database
        self._due: dict[AccountId, dict[Shown, RecallCount]] = {}
        self._due_count = 0
        self._passed_over = 0

    def note(self, access: Access, shown: Iterable[Shown]) -> None:
        """Note that these memories were shown, if the account counts recalls.

        Where too many wait to be stored, further memories are passed over; the log says how many.
        """
        if access.settings.count_recalls:
            for one in set(shown):
                self._add(access.account, one, RecallCount(1, access.time.date()))

    def _add(self, account: AccountId, shown: Shown, count: RecallCount) -> None:
        due = self._due.setdefault(account, {})
        if shown in due:
            due[shown] += count
        elif self._due_count < MEMORIES_MAX:
            due[shown] = count
            self._due_count += 1
        else:
            self._passed_over += 1

    async def count_of(self, access: Access, memory_id: uuid.UUID) -> RecallCount | None:
        """Return the count of a memory; None if the account does not count recalls."""
        if not access.settings.count_recalls:
            return None
        stored = await rows.count_of(self._database, access.account, memory_id)
        due = self._due.get(access.account, {}).get(memory_id)
        return (stored or NEVER) + (due or NEVER)

    async def find_most(
        self, access: Access, namespaces: Sequence[Namespace] | None, limit: int
    ) -> tuple[date, list[Row]] | None:
        """Return since which day the account counts recalls, and what was recalled most.

        None if it counts none. What this process noted is stored first.
        """
        if not access.settings.count_recalls:
            return None
        await self.store_of(access.account)
        since = await rows.find_since(self._database, access.account)
        if since is None:
            return None
        found = await rows.most_recalled(
            self._database,
            account=access.account,
            namespaces=namespaces,
            limit=limit,
            now=access.time,
        )
        return since, found

    async def settle(self, access: Access) -> None:
        """Store what this process noted of the account, before somebody reads it.

        Raises:
            BadRequest: the account counts no recalls.
        """
        if not access.settings.count_recalls:
            raise BadRequest("The account does not count recalls.", code="recalls.not_counted")
        await self.store_of(access.account)

    async def end(self, access: Access) -> None:
        """Delete most counts of an account that is about to choose that there be none.

        Those that are left go in the transaction that stores the choice.
        """
        access.require_owner()
        self._take(access.account)
        while await rows.delete_some(self._database, access.account, SLICE_MAX):
            pass

    async def store(self) -> None:
        """Store what was noted; of an account that cannot be written, it is tried again."""
        if self._passed_over:
            members = {"event": "recalls.passed_over", "memories": self._passed_over}
            log.warning("too many recalls wait to be counted", extra=members)
            self._passed_over = 0
        for account in list(self._due):
            await self.store_of(account)

    async def store_of(self, account: AccountId) -> None:
        """Store what was noted of an account."""
        left = list(self._take(account).items())
        try:
            while left:
                some = await self._find_ids(account, dict(left[:SLICE_MAX]))
                await rows.add_recalls(self._database, account, some)
                del left[:SLICE_MAX]
        finally:
            for shown, count in left:
                self._add(account, shown, count)

    async def _find_ids(
        self, account: AccountId, noted: Mapping[Shown, RecallCount]
    ) -> dict[uuid.UUID, RecallCount]:
        """Return memory → count, of what was noted by the memory or by its blob."""
        blobs = [one for one in noted if isinstance(one, bytes)]
        found = await rows.find_ids(self._database, account, blobs) if blobs else {}
        counts: dict[uuid.UUID, RecallCount] = {}
        for one, count in noted.items():
            for memory_id in found.get(one, ()) if isinstance(one, bytes) else (one,):
                known = counts.get(memory_id)
                counts[memory_id] = count if known is None else known + count
        return counts

    def _take(self, account: AccountId) -> dict[Shown, RecallCount]:
        taken = self._due.pop(account, {})
        self._due_count -= len(taken)
        return taken

    async def run(self) -> None:
        """Store what was noted, again and again; until it is cancelled, and then once more."""
        await store_regularly(
            self.store, log, "counts of recalls are stored later", "recalls.counts"
        )
