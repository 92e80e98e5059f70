"""Storing what was found in a conversation, or the conversation until its facts can be found.

Not here: finding facts (`extraction`), the order of steps (`analysis.py`), sealing episodes
(`sealed_episodes.py`), storing (`intake.py`, `writer.py`).

- What an earlier request with the same idempotency key led to is answered again.
- What is said again, in these or nearly these words, is counted, not stored once more.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from relayer.database import accounts as account_rows
from relayer.database import episodes as episode_rows
from relayer.database import memories as rows
from relayer.database.pool import Connection, Database
from relayer.extraction.transcripts import transcript_problem
from relayer.memories.conversations import (
    NOTHING,
    ROUTE,
    WHOLE,
    Analyzed,
    Conversation,
    marks_of,
    marks_under,
)
from relayer.memories.intake import Intake, Remembered, Submission
from relayer.memories.opener import Caller, Opener
from relayer.memories.recognition import Stored, marked_memory
from relayer.memories.sealed_episodes import SealedEpisodes
from relayer.memories.writer import CONTENDED, Origin, Overtaken, Writer
from relayer.record import Draft
from relayer.sealed.keys import AccountId
from relayer.settings import Limits
from relayer.telemetry.instruments import count_episode, count_waiting_episode
from relayer.tenants.ledger import Stale, retry_stale


class EpisodeFacts:
    """Stores the facts of conversations, and conversations that wait for theirs."""

    def __init__(
        self,
        *,
        episodes: SealedEpisodes,
        opener: Opener,
        intake: Intake,
        writer: Writer,
        database: Database,
    ) -> None:
        self._episodes = episodes
        self._opener = opener
        self._intake = intake
        self._writer = writer
        self._database = database

    async def refuse_full(self, account: AccountId, room_bytes: int) -> None:
        """Return if an account has so much room by now.

        Raises:
            QuotaExceeded: it has not.
        """
        await self._writer.refuse_full(account, room_bytes)

    async def find_answer(
        self, caller: Caller, conversation: Conversation, redacted: dict[str, int]
    ) -> Analyzed | None:
        """Return what an earlier request with the same idempotency key led to.

        That is facts, or an episode that waited then.
        """
        if conversation.idempotency_key is None:
            return None
        # Its facts first: they may have come while another request let it wait.
        items = (*range(Limits.facts_max), WHOLE)
        by_item = [marks_under(caller, conversation, item) for item in items]
        stored = await rows.find_marks(
            self._database,
            account=caller.access.account,
            marks=[mark for marks in by_item for mark, _ in marks],
        )
        found = [marked_memory(marks, stored) for marks in by_item]
        ids = [row["memory_id"] for row in found if row is not None]
        if not ids:
            return None
        episode = await episode_rows.find_episode(
            self._database,
            account=caller.access.account,
            episode_id=ids[0],
            now=caller.access.time,
        )
        if episode is not None:
            waits = episode["state"] == rows.PENDING
            failure = episode["failure"] if waits else None
            by = episode["extractor"]
            return Analyzed((), ids[0], (), redacted, extractor=by, failure=failure)
        living = await rows.find_memories(
            self._database, account=caller.access.account, memory_ids=ids, now=caller.access.time
        )
        opened = await self._opener.open_rows(caller, living)
        facts = [
            Stored(
                m.id,
                conversation.namespace,
                m.text or "",
                m.kind,
                m.importance,
                m.confidence,
                duplicate=True,
                status=m.status,
                redacted={},
                event_time=m.event_time,
            )
            for m in opened
            if m is not None
        ]
        problem = await problem_of(conversation, facts)
        return Analyzed(facts, None, (), redacted, problem=problem)

    async def submission(
        self, caller: Caller, conversation: Conversation, drafts: Sequence[Draft]
    ) -> Submission:
        """Prepare the submission that stores a conversation's facts."""
        return await self._intake.prepare(
            caller.access,
            caller.keys,
            drafts,
            op="analyze",
            route=ROUTE,
            marked_text=conversation.text,
        )

    async def origin(
        self, caller: Caller, conversation: Conversation, *, may_wait: bool
    ) -> Origin | None:
        """Return the episode that facts come from, if it waits, is kept or is to be kept."""
        keep = caller.access.settings.keep_turns
        if not keep and not may_wait:
            return None
        known = await self._episodes.find_said(caller, conversation)
        names = {} if known is None else {known["namespace_id"]: conversation.namespace}
        if known is not None and known["state"] == rows.PENDING:
            return Origin(known["episode_id"], waiting=True, kept=keep, names=names)
        if not keep:
            return None
        if known is not None:
            return Origin(known["episode_id"], kept=True, names=names)
        new, entry = await self._episodes.seal(caller, conversation, rows.KEPT)
        names = {entry.namespace_id: conversation.namespace}
        return Origin(new.episode_id, kept=True, new=new, names=names)

    async def remember(
        self,
        caller: Caller,
        conversation: Conversation,
        submission: Submission,
        origin: Origin | None,
        extractor: str,
        *,
        is_counted: bool = True,
    ) -> Remembered:
        """Store what an extractor found; `is_counted` says that the episode had none found before.

        Raises:
            Stale: somebody came in between.
        """
        account, has_facts = caller.access.account, bool(submission.prepared)

        async def beside(connection: Connection) -> None:
            if is_counted:
                await account_rows.count_episode(connection, account=account, has_facts=has_facts)
            if origin is not None:
                await episode_rows.note_extractor(
                    connection, account=account, episode_id=origin.id, extractor=extractor
                )

        stored = await self._intake.attempt(
            submission,
            origin=origin,
            # The request that let it wait has left one.
            marks=[] if origin and origin.waiting else marks_of(caller, conversation, NOTHING),
            within=[conversation.namespace],
            beside=beside,
        )
        is_new = any(not item.duplicate for item in stored.items)
        count_episode("facts" if is_new else "known" if has_facts else "nothing", extractor)
        return stored

    async def keep(
        self, caller: Caller, conversation: Conversation, redacted: dict[str, int], cause: str
    ) -> Analyzed:
        """Seal the conversation as an episode that waits for the model; equal ones are one.

        One that is kept has its facts: what is said once more may have others.
        """
        attempt = partial(self._attempt_to_keep, caller, conversation, redacted, cause)
        return await retry_stale(attempt, CONTENDED)

    async def _attempt_to_keep(
        self, caller: Caller, conversation: Conversation, redacted: dict[str, int], cause: str
    ) -> Analyzed:
        # The same request may have come twice, and the other one may be ready by now.
        if (before := await self.find_answer(caller, conversation, redacted)) is not None:
            return before
        known = await self._episodes.find_said(caller, conversation)
        episodes = list[rows.NewEpisode]()
        if known is not None and known["state"] == rows.PENDING:
            episode, number = known["episode_id"], known["namespace_id"]
        else:
            new, entry = await self._episodes.seal(caller, conversation, rows.PENDING)
            episodes, episode, number = [new], new.episode_id, entry.namespace_id
        waits = Analyzed((), episode, (), redacted, failure=cause)
        marks = marks_of(caller, conversation, episode)
        if not episodes and not marks:
            return waits
        note = partial(
            episode_rows.note_failure,
            account=caller.access.account,
            episode_id=episode,
            cause=cause,
        )
        try:
            done = await self._writer.store(
                caller.access,
                [],
                op="analyze",
                names={number: conversation.namespace},
                marks=marks,
                episodes=episodes,
                beside=note,
            )
        except Overtaken:
            raise Stale from None
        if episodes:
            count_waiting_episode()
        return replace(waits, receipts=done.receipts)

    async def waits(self, caller: Caller, before: Analyzed) -> bool:
        """Return true if the other request only let the conversation wait, whose facts are here."""
        episode, account = before.pending, caller.access.account
        return (
            episode is not None and await self._episodes.find_pending(account, episode) is not None
        )


async def problem_of(conversation: Conversation, facts: Sequence[object]) -> str | None:
    """Return the reason why a conversation without facts could not be read, if there is one."""
    return None if facts else await asyncio.to_thread(transcript_problem, conversation.text)
