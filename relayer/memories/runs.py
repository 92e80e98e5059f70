"""Consolidation runs as callers see them: begun, listed with what they did, undone.

Not here: what a run does (`consolidation.py`), when one is due or goes on (`jobs.py`).
Source: SPEC §19.

- Beginning again while a run is unfinished, and undoing again, change nothing more.
- Undoing brings states back and erases what was made; what was changed or erased since is skipped,
  and says so.
"""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from relayer.clock import Clock
from relayer.database import queue
from relayer.database import runs as rows
from relayer.database.pool import Database, Row
from relayer.database.runs import Scope
from relayer.errors import Conflict, NotFound
from relayer.journal.changes import AccountChange
from relayer.journal.states import STATE, Change, change_states
from relayer.memories.eraser import erase_in
from relayer.memories.opener import Caller
from relayer.record import PENDING, new_id
from relayer.sealed.keys import AccountId, Namespace
from relayer.tenants.accounts import Access
from relayer.tenants.ledger import Ledger
from relayer.tenants.namespaces import Namespaces

UNDONE_MAX: Final = 500  # actions of one request, whose deadline they have to meet
EMPTY_LIFE: Final = timedelta(days=7)  # of runs that did nothing
DUE_PAGE: Final = 1_000


class _Settled(Exception):
    """Another request has undone or skipped an action meanwhile."""


@dataclass(frozen=True)
class Undone:
    """A run and what became of undoing it; with `more`, asking again goes on."""

    run: Row
    undone: int
    skipped: int
    more: bool
    receipts: Sequence[bytes]


class Runs:
    """Begins, shows and undoes consolidations of one account at a time."""

    def __init__(
        self,
        *,
        database: Database,
        ledger: Ledger,
        namespaces: Namespaces,
        clock: Clock,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._namespaces = namespaces
        self._clock = clock

    async def start(self, caller: Caller, namespace: Namespace) -> Row:
        """Return the run of a namespace that is unfinished, or a new one.

        Raises:
            NotAllowed: not a writer of the namespace, or its key is missing.
            NotAuthenticated: the key was revoked meanwhile.
            NotFound: the namespace is not there.
        """
        caller.access.require(namespace, "writer")
        caller.keys.of(namespace)
        account = caller.access.account
        entry = await self._namespaces.find(account, namespace)
        if entry is None:
            raise NotFound("No such namespace.")
        run = await self._begin(caller.access, namespace, entry.namespace_id)
        async with self._database.connection() as connection:
            await queue.enqueue(connection, queue.CONSOLIDATE, account, [run["run_id"]])
        return run

    async def _begin(self, access: Access, namespace: Namespace, namespace_id: int) -> Row:
        row = None
        while row is None:  # another process may have finished the other one just now
            async with self._ledger.change(access, [namespace]) as change:
                row = await rows.start(
                    change.connection,
                    Scope(access.account, namespace_id, change.time),
                    run_id=new_id(),
                    actor=access.key,
                    pruned=change.time - EMPTY_LIFE,
                )
        return row

    async def due(self, account: AccountId | None) -> AsyncIterator[list[Row]]:
        """Yield pages of (whole_id, namespace_id, namespace) whose time has come.

        They are of one account or of all.
        """
        now, after = self._clock(), rows.START
        while page := await rows.due(
            self._database, now=now, account=account, after=after, limit=DUE_PAGE
        ):
            yield page
            after = rows.behind(page)

    async def begin(self, due: Row) -> None:
        """Begin a run that is due, in the relayer's name."""
        relayer = self._ledger.unasked(AccountId(due["whole_id"]))
        with suppress(NotFound):  # the account was closed meanwhile
            await self._begin(relayer, Namespace(due["namespace"]), due["namespace_id"])

    async def find_unfinished(self, account: AccountId | None) -> AsyncIterator[list[Row]]:
        """Yield pages of (whole_id, run_id, namespace) of runs that are to go on.

        They are of one account or of all.
        """
        after = rows.START
        while page := await rows.find_unfinished(
            self._database, account=account, after=after, limit=DUE_PAGE
        ):
            yield page
            after = rows.behind(page)

    async def newest(
        self,
        access: Access,
        namespace: Namespace | None,
        *,
        before: uuid.UUID | None,
        limit: int,
    ) -> list[Row]:
        """Return a page of runs in what the key may read, newest first.

        Raises:
            NotAllowed: not a reader of the namespace that was named.
        """
        if namespace is not None:
            access.require(namespace, "reader")
        names = access.namespaces if namespace is None else [namespace]
        return await rows.runs(
            self._database, account=access.account, namespaces=names, before=before, limit=limit
        )

    async def get(self, access: Access, run_id: uuid.UUID) -> Row:
        """Return one run.

        Raises:
            NotFound: absent, somebody else's, or of a namespace the key may not read.
        """
        run = await rows.find_run(self._database, account=access.account, run_id=run_id)
        if run is None or not access.strength(Namespace(run["namespace"])):
            raise NotFound("No such consolidation.")
        return run

    async def actions(
        self, access: Access, run_id: uuid.UUID, *, after: uuid.UUID | None, limit: int
    ) -> list[Row]:
        """Return a page of what a run did, in order; who asks has seen the run."""
        return await rows.actions(
            self._database, account=access.account, run_id=run_id, after=after, limit=limit
        )

    async def undo(self, access: Access, run_id: uuid.UUID) -> Undone:
        """End a run if it is unfinished, and take back what it did, the last first.

        Raises:
            NotFound: absent, somebody else's, or of a namespace the key may not read.
            NotAllowed: the key only reads there.
            NotAuthenticated: it was revoked meanwhile; what was undone before stays so.
        """
        run = await self.get(access, run_id)
        namespace = Namespace(run["namespace"])
        access.require(namespace, "writer")
        if run["finished_at"] is None:
            async with self._ledger.change(access, [namespace], op=STATE) as change:
                await rows.finish(
                    change.connection,
                    account=change.account,
                    run_id=run_id,
                    state=rows.UNDONE,
                    now=change.time,
                )
        undone, skipped, receipts = 0, 0, list[bytes]()
        page = await rows.open_actions(
            self._database, account=access.account, run_id=run_id, limit=UNDONE_MAX
        )
        for action in page:
            try:
                signed = await self._undo(access, namespace, run_id, action)
            except _Settled:
                continue
            undone, skipped = undone + (signed is not None), skipped + (signed is None)
            receipts += signed or ()
        more = len(page) == UNDONE_MAX
        if not more:
            async with self._ledger.change(access, [namespace], op=STATE) as change:
                await rows.undo(change.connection, account=change.account, run_id=run_id)
        if receipts:
            await self._ledger.publish_soon()
        run = await self.get(access, run_id)
        return Undone(run, undone, skipped, more, receipts)

    async def _undo(
        self, access: Access, namespace: Namespace, run_id: uuid.UUID, action: Row
    ) -> list[bytes] | None:
        """Undo one action; return the receipts, or None when it was skipped.

        Raises:
            _Settled: another request was faster.
        """
        try:
            async with self._change(access, namespace) as change:
                signed = await self._reverse(change, action)
                await _settle(change, run_id, action, is_undone=signed is not None)
            return signed
        except Conflict:  # what was merged is said by another memory now
            async with self._change(access, namespace) as change:
                await _settle(change, run_id, action, is_undone=False)
            return None

    def _change(
        self, access: Access, namespace: Namespace
    ) -> AbstractAsyncContextManager[AccountChange]:
        """Return one change of many, which are published together."""
        return self._ledger.change(access, [namespace], op=STATE, publishes=False)

    async def _reverse(self, change: AccountChange, action: Row) -> list[bytes] | None:
        """Reverse an action; return the receipts, or None if it cannot be reversed any more."""
        connection, account = change.connection, change.account
        memory_id = action["memory_id"]
        merged = action["other_ids"] if action["action"] == rows.MERGE else []
        left = await rows.lock_left(connection, account=account, memory_ids=[memory_id, *merged])
        is_said = await rows.is_still_said(connection, account=account, memory_id=memory_id)
        if not _is_as_left(action, left, is_said=is_said):
            return None
        if action["action"] in (rows.SUMMARY, rows.PROCEDURE):
            return await erase_in(change, [memory_id])
        changes = {memory_id: Change(stale=False)}
        if action["action"] == rows.MERGE:
            [other] = merged
            changes = {other: Change(superseded_at=None, superseded_by=None)}
        return await change_states(change, changes)


async def _settle(
    change: AccountChange, run_id: uuid.UUID, action: Row, *, is_undone: bool
) -> None:
    if not await rows.settle(
        change.connection,
        account=change.account,
        run_id=run_id,
        action_id=action["action_id"],
        undone=rows.UNDONE if is_undone else rows.SKIPPED,
    ):
        raise _Settled


def _is_as_left(action: Row, left: dict[uuid.UUID, Row], *, is_said: bool) -> bool:
    """Return true if the memories of an action are as it left them.

    With `is_said`, what the first of them says holds, if only in the words of another that it was
    merged into since.
    """
    row = left.get(action["memory_id"])
    if row is None or row["stored_at"] > action["created_at"]:
        return False
    # What was said since was said of what is there, and would be nowhere.
    untouched = not row["pinned"] and row["seen_count"] == 1
    match action["action"]:
        case rows.MERGE:
            [other] = action["other_ids"]
            merged = other in left and left[other]["superseded_by"] == action["memory_id"]
            # What does not hold in the words of the one does not hold in those of the other.
            return merged and is_said
        case rows.STALE:
            return bool(row["stale"])
        case rows.PROCEDURE:
            return row["review"] == PENDING and untouched
        case _:
            in_force = row["review"] is None and row["superseded_at"] is None
            return in_force and untouched
