"""The order of steps of consolidating a namespace: merge, mark stale, summarise, propose.

Not here: finding what there is to do (`consolidation_plan.py`), making summaries and procedures
(`derivation.py`), beginning, listing and undoing runs (`runs.py`), when (`jobs.py`), SQL
(`database.consolidation`). Source: SPEC §19.

- Nothing is erased or overwritten: memories are superseded, flagged, or joined by new ones that are
  linked to what they were made of.
- Whatever is done is listed in the same transaction, and only to memories that still say what was
  read of them.
- Whoever runs it may run it again, and may be stopped anywhere: what is done is no longer found.
- No database connection is held while a model thinks.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from relayer.clock import Clock
from relayer.database import consolidation as rows
from relayer.database import runs as run_rows
from relayer.database import states as state_rows
from relayer.database.pool import Connection, Database, Row
from relayer.database.runs import Action, Scope
from relayer.errors import NotAllowed, NotAuthenticated, QuotaExceeded, Unavailable
from relayer.journal.states import STATE, Change, change_states
from relayer.memories.consolidation_plan import GoOn, Planner, RunEnded, Work, record_actions
from relayer.memories.derivation import Deriver
from relayer.memories.duplicates import Merge
from relayer.record import new_id
from relayer.sealed.keys import AccountId, Namespace, PublicKey
from relayer.tenants.accounts import Access, Accounts
from relayer.tenants.custody import Keys
from relayer.tenants.ledger import Ledger

_Chosen = tuple[Mapping[uuid.UUID, Change], Sequence[Action]]


class Consolidator:
    """Consolidates a namespace of one account at a time."""

    def __init__(
        self,
        *,
        planner: Planner,
        deriver: Deriver,
        database: Database,
        ledger: Ledger,
        accounts: Accounts,
        clock: Clock,
    ) -> None:
        self._planner = planner
        self._deriver = deriver
        self._database = database
        self._ledger = ledger
        self._accounts = accounts
        self._clock = clock

    async def work(self, account: AccountId, keys: Keys, run_id: uuid.UUID, go_on: GoOn) -> bool:
        """Go on with a run; whether it came to its end, or there is none that is unfinished.

        Raises:
            NotAllowed: the namespace's key is missing.
            Unavailable: the model or a store is away.
            QuotaExceeded: the account is full.
            NotFound: the account is gone.
        """
        row = await run_rows.find_run(self._database, account=account, run_id=run_id)
        if row is None or row["finished_at"] is not None:
            return True
        state = run_rows.REFUSED
        if (access := await self._access(account, row)) is not None:
            work, state = await self._begin(access, keys, row), run_rows.DONE
            try:
                makes = (self._deriver.summarise, self._deriver.propose)
                for step in (self._merge, self._flag, *makes):
                    if not await step(work, go_on):
                        return False
            except RunEnded:
                return True
            except (NotAuthenticated, NotAllowed):
                if await self._access(account, row) is not None:
                    raise
                state = run_rows.REFUSED  # its key lost its right meanwhile
            except (Unavailable, QuotaExceeded):
                await self._proceed(work, run_rows.WAITING)
                raise
        await run_rows.finish(
            self._database, account=account, run_id=run_id, state=state, now=self._clock()
        )
        return True

    async def _access(self, account: AccountId, row: Row) -> Access | None:
        """Return the access of who asked for a run, if it may still write there.

        The schedule needs no right.
        """
        actor = PublicKey(row["actor"])
        if actor == self._ledger.relayer:
            return await self._accounts.unasked(account, actor)
        access = await self._accounts.access(account, actor)
        may = access is not None and access.may_write(Namespace(row["namespace"]))
        return access if may else None

    async def _begin(self, access: Access, keys: Keys, row: Row) -> Work:
        namespace = Namespace(row["namespace"])
        keys.of(namespace)
        scope = Scope(access.account, row["namespace_id"], self._clock())
        work = Work(access, keys, namespace, scope, row, await self._planner.last_run(scope))
        await self._proceed(work, run_rows.RUNNING)
        return work

    async def _proceed(self, work: Work, state: str, position: int | None = None) -> None:
        await run_rows.proceed(
            self._database,
            account=work.scope.account,
            run_id=work.run_id,
            state=state,
            position=position,
        )

    async def _merge(self, work: Work, go_on: GoOn) -> bool:
        """Merge what says the same, page by page of what is new."""
        assert work.row is not None
        position = work.row["position"]
        while page := await self._planner.page(work, position):
            ids = [row["memory_id"] for row in page]
            while merges := await self._planner.merges(work, ids):
                if not await self._apply(work, merges):
                    break
            position = page[-1]["seq"]
            await self._proceed(work, run_rows.RUNNING, position)
            if not go_on():
                return False
        return True

    async def _apply(self, work: Work, merges: Sequence[Merge]) -> int:
        """Merge those that are still what was read; how many that were."""
        read = {c.id: c.blob_id for m in merges for c in (m.kept, m.merged)}

        def chosen(living: Mapping[uuid.UUID, Row], now: datetime) -> _Chosen:
            still = [m for m in merges if {m.kept.id, m.merged.id} <= living.keys()]
            still = [m for m in still if not living[m.merged.id]["pinned"]]
            changes = {
                m.merged.id: Change(superseded_at=now, superseded_by=m.kept.id, merged=True)
                for m in still
            }
            done = [Action(new_id(), run_rows.MERGE, m.kept.id, [m.merged.id]) for m in still]
            return changes, done

        return await self._change(work, list(read.items()), chosen)

    async def _change(
        self,
        work: Work,
        read: Sequence[tuple[uuid.UUID, bytes]],
        chosen: Callable[[Mapping[uuid.UUID, Row], datetime], _Chosen],
    ) -> int:
        """Do and list what is chosen of these (memory, blob), as far as they are still what was
        read; how much that was."""
        async with self._ledger.change(work.access, [work.namespace], op=STATE) as change:
            connection, now = change.connection, change.time
            living = await rows.lock_unchanged(connection, replace(work.scope, now=now), read=read)
            changes, done = chosen(living, now)
            await change_states(change, changes)
            merged = [(a.memory_id, living[i]) for a in done for i in a.other_ids]
            if merged:
                await self._join(connection, change.account, merged, now)
            await record_actions(connection, work, done, now)
        return len(done)

    async def _join(
        self,
        connection: Connection,
        account: AccountId,
        merged: Sequence[tuple[uuid.UUID, Row]],
        now: datetime,
    ) -> None:
        """Link what was kept to what was merged into it, and count that for it."""
        links = [state_rows.Link(kept, state_rows.MERGED, row["memory_id"]) for kept, row in merged]
        await state_rows.link(connection, account=account, links=links, now=now)
        await rows.count_merged(connection, account=account, pairs=merged)

    async def _flag(self, work: Work, go_on: GoOn) -> bool:
        """Mark what may no longer hold."""
        while found := await self._planner.stale(work):
            if not await self._flagged(work, found):
                break
            if not go_on():
                return False
        return True

    async def _flagged(self, work: Work, found: Sequence[Row]) -> int:
        seen = {row["memory_id"]: row["last_seen_at"] for row in found}

        def chosen(living: Mapping[uuid.UUID, Row], _: datetime) -> _Chosen:
            still = [
                memory
                for memory, row in living.items()
                if not row["pinned"] and not row["stale"] and row["last_seen_at"] == seen[memory]
            ]
            done = [Action(new_id(), run_rows.STALE, memory) for memory in still]
            return {memory: Change(stale=True) for memory in still}, done

        return await self._change(work, [(r["memory_id"], r["blob_id"]) for r in found], chosen)
