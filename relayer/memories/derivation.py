"""Making new memories of others in a consolidation: summaries, and procedures to be approved.

Not here: what they say (`extraction`), finding what they are made of (`consolidation_plan.py`),
the order of a run's steps (`consolidation.py`). Source: SPEC §19.

- What is made is linked to what it was made of, and listed in the same transaction, if that still
  says what was read of it.
- No database connection is held while a model thinks.
"""

import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from relayer.clock import Clock, to_ms
from relayer.database import consolidation as rows
from relayer.database import runs as run_rows
from relayer.database import states as state_rows
from relayer.database.pool import Connection, Database
from relayer.database.runs import Action
from relayer.errors import UpstreamOverloaded
from relayer.extraction.procedure import ProcedureFinder
from relayer.extraction.summary import Summariser
from relayer.memories.consolidation_plan import (
    EPISODES_MIN,
    GoOn,
    OpenedEpisode,
    Planner,
    Work,
    record_actions,
)
from relayer.memories.opener import Caller
from relayer.memories.sealed_drafts import new_memory
from relayer.memories.writer import Effects, Writer
from relayer.record import PENDING, SOURCES, Draft, encode, new_id
from relayer.sealed import envelope
from relayer.tenants.ledger import Stale

SUMMARIES_MAX: Final = 20  # of one run, since each may be a paid model call
FAILURES_MAX: Final = 3  # of a model that answers others, before it is asked no more of the same
MADE_BYTES_MAX: Final = 100_000  # of a summary or a procedure with its tags, sources and words
T = TypeVar("T")


class Deriver:
    """Makes summaries and procedures for a namespace of one account at a time."""

    def __init__(
        self,
        *,
        planner: Planner,
        database: Database,
        writer: Writer,
        summariser: Summariser,
        finder: ProcedureFinder,
        clock: Clock,
    ) -> None:
        self._planner = planner
        self._database = database
        self._writer = writer
        self._summariser = summariser
        self._finder = finder
        self._clock = clock

    async def summarise(self, work: Work, go_on: GoOn) -> bool:
        """Put a summary beside the episodes of an old week and source."""
        assert work.row is not None
        made = work.row["summaries"]
        async for place, ids in self._planner.groups(work):
            if made >= SUMMARIES_MAX:
                break
            made += await self._summarise(work, ids)
            await run_rows.note_group(
                self._database, account=work.scope.account, run_id=work.run_id, place=place
            )
            if not go_on():
                return False
        return True

    async def _summarise(self, work: Work, ids: Sequence[uuid.UUID]) -> bool:
        """Summarise these episodes; true if they have a summary now."""
        read = await self._planner.episodes(work, ids)
        if len(read) < EPISODES_MIN:
            return False
        if self._summariser.is_paid:
            await self._writer.refuse_full(work.scope.account, MADE_BYTES_MAX)
        text = await self._ask(work, self._summariser.summarise([r.episode for r in read]))
        if text is None:
            return False
        common = set.intersection(*(set(r.draft.tags) for r in read))
        draft = Draft(
            text=text,
            namespace=work.namespace,
            kind="summary",
            tags=sorted(common),
            event_time=max(r.episode.moment for r in read),
            confidence="medium",
        )
        return await self._store(work, draft, read, run_rows.SUMMARY)

    async def _ask(self, work: Work, answer: Awaitable[T]) -> T | None:
        """Return a model's answer, or None where it never answers this, though it answers others.

        Raises:
            Unavailable: it is away, or may answer this another time.
        """
        try:
            return await answer
        except UpstreamOverloaded:
            failures = await run_rows.count_failure(
                self._database, account=work.scope.account, run_id=work.run_id
            )
            if failures < FAILURES_MAX:
                raise
        return None

    async def propose(self, work: Work, go_on: GoOn) -> bool:
        """Propose what was done in the same way again and again; somebody has to approve it."""
        assert work.row is not None
        new = await rows.episodes_since(self._database, work.scope, since=work.since)
        if not new or work.row["procedures"]:
            return True
        if self._finder.is_paid:
            await self._writer.refuse_full(work.scope.account, MADE_BYTES_MAX)
        episodes = await self._planner.newest_episodes(work)
        found_by = self._finder.find([e.episode for e in episodes])
        for found in await self._ask(work, found_by) or ():
            draft = Draft(
                text=found.text,
                namespace=work.namespace,
                kind="procedural",
                confidence="low",
                review=PENDING,
            )
            await self._store(
                work, draft, [episodes[n] for n in found.episodes], run_rows.PROCEDURE
            )
        return True

    async def _store(
        self, work: Work, draft: Draft, sources: Sequence[OpenedEpisode], action: str
    ) -> bool:
        """Store what was made of these, unless they changed or somebody made it meanwhile; whether
        it was stored."""
        scope, now, actor = work.scope, self._clock(), work.access.key
        ids = [r.row["memory_id"] for r in sources]
        draft = replace(draft, metadata={SOURCES: " ".join(map(str, ids))})
        key = work.keys.of(work.namespace)[0]
        entry = await self._writer.place(Caller(work.access, work.keys), work.namespace)
        kind = envelope.SUMMARY if action == run_rows.SUMMARY else envelope.MEMORY
        address = envelope.Address(kind, scope.account, new_id(), 1)
        blob = envelope.seal(key, address, encode(draft, actor), created_ms=to_ms(now))
        memory = new_memory(
            draft, key, entry, address=address, blob=blob, writer=actor, created_at=now
        )
        made = memory.memory_id

        async def listed(connection: Connection) -> None:
            living = await rows.lock_unchanged(
                connection, replace(scope, now=now), read=[r.source for r in sources]
            )
            if len(living) < len(sources) or await rows.are_used(
                connection, account=scope.account, memory_ids=ids, kind=draft.kind, but=made
            ):
                raise Stale
            await record_actions(connection, work, [Action(new_id(), action, made, ids)], now)

        try:
            await self._writer.store(
                work.access,
                [memory],
                op="consolidate",
                names={entry.namespace_id: work.namespace},
                effects=Effects(
                    reviews={} if draft.review is None else {made: draft.review},
                    links=[state_rows.Link(made, state_rows.SOURCE, i) for i in ids],
                ),
                beside=listed,
            )
        except Stale:
            return False  # the next run looks again
        return True
