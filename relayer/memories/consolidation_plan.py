"""Plans of consolidation: the work in a namespace and what a run would do, without any change.

Not here: doing it (`consolidation.py`), which memories say the same (`duplicates.py`), beginning,
listing and undoing runs (`runs.py`), SQL (`database.consolidation`). Source: SPEC §19.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from relayer.clock import EPOCH
from relayer.database import consolidation as rows
from relayer.database import memories as memory_rows
from relayer.database import runs as run_rows
from relayer.database.pool import Connection, Database, Row
from relayer.database.runs import Action, Scope
from relayer.extraction.old_memories import OldMemory
from relayer.extraction.procedure import procedures_by_rules
from relayer.memories.duplicates import Candidate, Merge, merges_of, telling_words
from relayer.memories.opener import Caller, Opener, has_key
from relayer.memories.record_search import RecordSearch
from relayer.memories.sealed_drafts import without_secrets
from relayer.record import Draft, new_id
from relayer.sealed import index
from relayer.sealed.keys import Namespace
from relayer.tenants.accounts import Access
from relayer.tenants.custody import Keys

COMPARED_AT_ONCE: Final = 20  # in one statement
FLAGGED_AT_ONCE: Final = 100
ALIKE_MAX: Final = 8  # of one memory; more come when these are merged
LOOKED_AT_MAX: Final = 500  # memories that have a memory's rarest word, the newest of them
OVERLAP: Final = timedelta(days=1)  # before the last run, for what it could not open
UNSEEN: Final = timedelta(days=180)  # after which what is trivial may no longer hold
WORKED_ON: Final = timedelta(days=7)  # after which what was for the work at hand may not
OVER: Final = timedelta(days=30)  # after which a trivial event is of no consequence
OLD: Final = timedelta(days=30)  # since the end of a week whose episodes are summarised
LASTING: Final = timedelta(days=7)  # what they have left at least: a summary ends with the first
EPISODES_MIN: Final = 5  # of one week and source, to be worth a summary
EPISODES_MAX: Final = 50  # in one summary
GROUPS_AT_ONCE: Final = 20  # of episodes, in one statement
NEWEST_MAX: Final = 200  # episodes that are looked through for procedures
PLANNED_S_MAX: Final = 8.0  # of comparing, for a plan that a request waits for
GoOn = Callable[[], bool]


@dataclass(frozen=True)
class Work:
    """One run at work: in whose name, with which keys, on what; `row` is the run's."""

    access: Access
    keys: Keys = field(repr=False)
    namespace: Namespace
    scope: Scope
    row: Row | None = None
    last: datetime | None = None

    @property
    def run_id(self) -> uuid.UUID:
        """Return the id of the run; a plan has none."""
        assert self.row is not None
        return uuid.UUID(str(self.row["run_id"]))

    @property
    def since(self) -> datetime:
        """Return the time from when on what was stored is compared with everything."""
        return EPOCH if self.last is None else self.last - OVERLAP


@dataclass(frozen=True)
class OpenedEpisode:
    """An episode that was opened, and its row."""

    row: Row
    draft: Draft = field(repr=False)
    episode: OldMemory = field(repr=False)

    @property
    def source(self) -> tuple[uuid.UUID, bytes]:
        """Return its id and the blob that was read."""
        return self.row["memory_id"], self.row["blob_id"]


@dataclass(frozen=True)
class Plan:
    """The actions that a run would take, without a model's proposals, as far as was looked."""

    actions: Sequence[Action]
    more: bool


class RunEnded(Exception):
    """Somebody ended the run by undoing it."""


async def record_actions(
    connection: Connection, work: Work, done: Sequence[Action], now: datetime
) -> None:
    """List what a run did, in the transaction that does it.

    Raises:
        RunEnded: it was undone meanwhile.
    """
    account = work.scope.account
    if not await run_rows.lock_unfinished(connection, account=account, run_id=work.run_id):
        raise RunEnded
    await run_rows.record(connection, account=account, run_id=work.run_id, done=done, now=now)


class Planner:
    """Finds what can be merged, marked as stale, summarised or proposed; of one namespace at a
    time."""

    def __init__(self, *, database: Database, opener: Opener, records: RecordSearch) -> None:
        self._database = database
        self._opener = opener
        self._records = records
        self._namespaces = records.namespaces

    async def plan(self, caller: Caller, namespace: Namespace) -> Plan:
        """Return the actions that a run would take now; change nothing and ask no model.

        Raises:
            NotAllowed: not a reader of the namespace, or its key is missing.
        """
        caller.access.require(namespace, "reader")
        caller.keys.of(namespace)
        entry = await self._namespaces.find(caller.access.account, namespace)
        if entry is None:
            return Plan((), more=False)
        scope = Scope(caller.access.account, entry.namespace_id, caller.access.time)
        work = Work(caller.access, caller.keys, namespace, scope, last=await self.last_run(scope))
        merges, more = await self._plan_merges(work)
        found = await self.stale(work)
        stale = [Action(new_id(), run_rows.STALE, row["memory_id"]) for row in found]
        groups = await self._page_of_groups(work, None)
        summaries = [Action(new_id(), run_rows.SUMMARY, new_id(), _ids(row)) for row in groups]
        episodes = await self.newest_episodes(work)
        recurring = await asyncio.to_thread(procedures_by_rules, [e.episode for e in episodes])
        procedures = [[episodes[n].row["memory_id"] for n in found.episodes] for found in recurring]
        proposed = [Action(new_id(), run_rows.PROCEDURE, new_id(), ids) for ids in procedures]
        more = more or len(found) == FLAGGED_AT_ONCE or len(groups) == GROUPS_AT_ONCE
        return Plan([*merges, *stale, *summaries, *proposed], more)

    async def _plan_merges(self, work: Work) -> tuple[list[Action], bool]:
        position, planned = 0, dict[uuid.UUID, Action]()
        until = time.monotonic() + PLANNED_S_MAX
        while page := await self.page(work, position):
            for merge in await self.merges(work, [row["memory_id"] for row in page]):
                action = Action(new_id(), run_rows.MERGE, merge.kept.id, [merge.merged.id])
                planned.setdefault(merge.merged.id, action)
            position = page[-1]["seq"]
            if time.monotonic() > until:
                return list(planned.values()), True
        return list(planned.values()), False

    async def last_run(self, scope: Scope) -> datetime | None:
        """Return when the namespace's last run that looked at all of it had begun."""
        return await run_rows.last_run(self._database, scope)

    async def page(self, work: Work, position: int) -> list[Row]:
        """Return the next (memory_id, seq) of what is to be compared with everything."""
        return await rows.page(
            self._database, work.scope, since=work.since, after=position, limit=COMPARED_AT_ONCE
        )

    async def merges(self, work: Work, ids: Sequence[uuid.UUID]) -> list[Merge]:
        """Return the merges of these memories with others of the namespace."""
        found = await self._open(work, ids)
        pairs = await self._alike(work, _blind_words(work, found))
        named = sorted({memory for pair in pairs for memory in pair})
        before = await rows.find_merged_pairs(
            self._database, account=work.scope.account, memory_ids=named
        )
        found += await self._open(work, sorted(set(named) - set(ids)))
        known = {row["memory_id"]: _candidate(row, draft) for row, draft in found}
        return merges_of(
            (known[one], known[other])
            for one, other in pairs
            if one in known and other in known and frozenset((one, other)) not in before
        )

    async def _alike(
        self, work: Work, words: Sequence[tuple[uuid.UUID, int, int]]
    ) -> list[tuple[uuid.UUID, uuid.UUID]]:
        """Return pairs of a memory and one of its kind that has all its words."""
        scope = work.scope
        entry = await self._namespaces.find_now(work.access, work.namespace)
        if entry is None or not entry.has_records:
            return await rows.alike(
                self._database, scope, words=words, among=LOOKED_AT_MAX, limit=ALIKE_MAX
            )
        keys = work.keys.of(work.namespace)
        pairs = await self._records.find_alike(
            scope.account, scope.namespace_id, keys, words, among=LOOKED_AT_MAX
        )
        return await rows.alike_numbered(self._database, scope, pairs=pairs, limit=ALIKE_MAX)

    async def _open(self, work: Work, ids: Sequence[uuid.UUID]) -> list[tuple[Row, Draft]]:
        """Return memories that open with the keys at hand, in the order of their ids here."""
        found = await memory_rows.find_memories(
            self._database, account=work.scope.account, memory_ids=ids, now=work.scope.now
        )
        readable = [row for row in found if has_key(work.keys, row)]
        drafts = await self._opener.drafts(work.scope.account, work.keys, readable)
        opened = {row["memory_id"]: (row, draft) for row, draft in drafts.opened}
        return [opened[i] for i in ids if i in opened]

    async def stale(self, work: Work) -> list[Row]:
        """Return memories that may no longer hold."""
        now = work.scope.now
        return await rows.stale(
            self._database,
            work.scope,
            unseen=now - UNSEEN,
            worked_on=now - WORKED_ON,
            over=now - OVER,
            limit=FLAGGED_AT_ONCE,
        )

    async def groups(
        self, work: Work
    ) -> AsyncIterator[tuple[run_rows.GroupCursor, list[uuid.UUID]]]:
        """Yield episodes that belong together and their place.

        The oldest that this run has not passed come first.
        """
        assert work.row is not None
        moment, seq = work.row["group_moment"], work.row["group_seq"]
        place = None if moment is None else (moment, seq)
        while page := await self._page_of_groups(work, place):
            for row in page:
                place = row["moment"], row["seq"]
                yield place, _ids(row)

    async def _page_of_groups(self, work: Work, after: run_rows.GroupCursor | None) -> list[Row]:
        return await rows.old_groups(
            self._database,
            work.scope,
            before=work.scope.now - OLD,
            until=work.scope.now + LASTING,
            epochs=[key.epoch for key in work.keys.of(work.namespace)],
            size_min=EPISODES_MIN,
            after=after,
            limit=GROUPS_AT_ONCE,
        )

    async def episodes(self, work: Work, ids: Sequence[uuid.UUID]) -> list[OpenedEpisode]:
        """Return episodes as a model may see them."""
        read = []
        for row, draft in await self._open(work, ids):
            text, _ = await without_secrets(work.access, draft.text)
            moment = row["event_time"] or row["created_at"]
            read.append(OpenedEpisode(row, draft, OldMemory(text, moment, draft.importance)))
        return read

    async def newest_episodes(self, work: Work) -> list[OpenedEpisode]:
        """Return the newest episodes, in which procedures are looked for."""
        ids = await rows.newest_episodes(self._database, work.scope, limit=NEWEST_MAX)
        return await self.episodes(work, ids)


def _blind_words(
    work: Work, found: Sequence[tuple[Row, Draft]]
) -> list[tuple[uuid.UUID, int, int]]:
    """Return words that find others that say the same, by epoch: (memory, epoch, token)."""
    return [
        (row["memory_id"], key.epoch, index.token(key, "w", word))
        for row, draft in found
        for word in telling_words(draft)
        for key in work.keys.of(work.namespace)
    ]


def _ids(group: Row) -> list[uuid.UUID]:
    """Return those of a group that one summary is made of; what is left is worth another."""
    ids = list(group["ids"])
    return ids if len(ids) <= EPISODES_MAX else ids[: min(EPISODES_MAX, len(ids) - EPISODES_MIN)]


def _candidate(row: Row, draft: Draft) -> Candidate:
    return Candidate(
        id=row["memory_id"],
        blob_id=row["blob_id"],
        draft=draft,
        pinned=row["pinned"],
        seen_count=row["seen_count"],
        seq=row["seq"],
        created_at=row["created_at"],
        expires_at=_end(row),
    )


def _end(row: Row) -> datetime | None:
    """Return when a memory expires; if it is pinned, when it would without its pin."""
    end: datetime | None = row["expires_at"]
    if not row["pinned"] or row["ttl_s"] is None:
        return end
    aged: datetime = row["created_at"] + timedelta(seconds=row["ttl_s"])
    return aged if end is None else min(end, aged)
