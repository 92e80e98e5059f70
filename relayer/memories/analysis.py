"""The order of steps of analyze, and of an extraction that had to wait.

Not here: how facts are found (`extraction`), what is known already (`known.py`), sealing turns
(`sealed_turns.py`), answers from memories (`asking.py`), storing (`intake.py`, `writer.py`).

- A turn that was accepted is never lost: when the model is away, or slower than a request may be,
  it is sealed and waits for its facts. A model that is known to be slow lets no request wait.
- No database connection is held while a model thinks.
- A fact that contradicts a memory names it; nothing is overwritten (`contradictions.py`).
- What is said again, in these or nearly these words, is counted, not stored once more.
"""

import asyncio
import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from relayer.clock import Clock
from relayer.database import accounts as account_rows
from relayer.database import episodes as episode_rows
from relayer.database import memories as rows
from relayer.database.pool import Connection, Database
from relayer.errors import Corrupted, Unavailable
from relayer.extraction.facts import Excerpt, Extractor, Fact
from relayer.extraction.transcripts import transcript_problem
from relayer.llm import LanguageModel
from relayer.memories.conversations import (
    NOTHING,
    ROUTE,
    RULES_AFTER,
    WHOLE,
    Analyzed,
    Conversation,
    Extracted,
    cause_of,
    drafts_of,
    excerpt_of,
    from_draft,
    marks_of,
    marks_under,
    outcome,
)
from relayer.memories.intake import Answered, Intake, Remembered, Submission
from relayer.memories.known import KnownMemories
from relayer.memories.opening import Caller, Opener
from relayer.memories.recognition import Stored, marked_memory
from relayer.memories.sealed_turns import ALTERED, SealedTurns
from relayer.memories.sealing import without_secrets
from relayer.memories.turns import readable_turn
from relayer.memories.writer import Writer
from relayer.memories.writes import CONTENDED, Origin, Overtaken
from relayer.record import Draft, Memory
from relayer.sealed.keys import AccountId, Namespace, PublicKey
from relayer.settings import Limits
from relayer.telemetry.instruments import count_turn, count_waiting_turn
from relayer.tenants.access import unasked
from relayer.tenants.accounts import Accounts
from relayer.tenants.custody import Keys
from relayer.tenants.ledger import Stale, retry_stale

_log = logging.getLogger(__name__)

THINKING_SHARE: Final = 0.85  # of a request's time, until the model's answer; the rest is to store
SLOW: Final = "slow"  # why a turn waits about which the model was not asked
FOUND_BYTES_MAX: Final = 100_000  # of the facts of a turn and their words, of twenty facts


class Analysis:
    """Takes facts out of conversations."""

    def __init__(
        self,
        *,
        known: KnownMemories,
        turns: SealedTurns,
        opener: Opener,
        intake: Intake,
        writer: Writer,
        extractor: Extractor,
        patient: Extractor,
        rules: Extractor,
        model: LanguageModel | None,
        accounts: Accounts,
        database: Database,
        clock: Clock,
        request_timeout_s: float,
    ) -> None:
        self._accounts = accounts
        self._known = known
        self._turns = turns
        self._opener = opener
        self._intake = intake
        self._writer = writer
        self._extractor = extractor
        self._patient = patient
        self._rules = rules
        self._model = model
        self._database = database
        self._clock = clock
        self._thinking_s = THINKING_SHARE * request_timeout_s

    @property
    def extractor(self) -> str:
        """The name of who finds facts here, as long as it does not fail."""
        return self._extractor.name

    async def analyze(self, caller: Caller, conversation: Conversation) -> Analyzed:
        """Store the facts of a conversation, or the conversation itself until they can be found.

        Raises:
            NotAllowed: not a writer of the namespace, or its key is missing.
            Conflict: the idempotency key came back with another text.
            QuotaExceeded: the account is full.
        """
        until_s = asyncio.get_running_loop().time() + self._thinking_s
        caller.access.require(conversation.namespace, "writer")
        text, redacted = await without_secrets(caller.access, conversation.text)
        conversation = replace(conversation, text=text)
        if (before := await self._answered(caller, conversation, redacted)) is not None:
            return before
        if self._model is not None and self._model.is_slow(self._thinking_s):
            return await self._keep(caller, conversation, redacted, SLOW)
        related = await self._known.related(caller, conversation)
        excerpt = await self._excerpt(caller, conversation, related)
        try:
            async with asyncio.timeout_at(until_s):
                facts = await self._extractor.extract(excerpt)
        except (Unavailable, TimeoutError) as error:
            return await self._keep(caller, conversation, redacted, cause_of(error))
        drafts = await self._drafts(caller, conversation, facts, related)
        submission = await self._submission(caller, conversation, drafts)
        attempt = partial(self._attempt, caller, conversation, facts, submission, redacted)
        return await retry_stale(attempt, CONTENDED)

    async def again(self, caller: Caller, turn_id: uuid.UUID) -> Analyzed:
        """Take the facts out of a kept turn once more; it stays.

        Raises:
            NotFound: there is no such turn, or the key may not read its namespace.
            NotAllowed: the key only reads there, or the namespace's key is missing.
            Unavailable: the model is away.
            Corrupted: its blob is missing or altered.
        """
        row = await readable_turn(
            self._database, caller.access, turn_id, self._clock(), states={rows.KEPT}
        )
        caller.access.require(Namespace(row["namespace"]), "writer")
        draft = await self._turns.open(caller.access.account, caller.keys, row)
        conversation = from_draft(draft, row["created_at"])
        related = await self._known.related(caller, conversation)
        facts = await self._extractor.extract(await self._excerpt(caller, conversation, related))
        drafts = await self._drafts(caller, conversation, facts, related)
        names = {row["namespace_id"]: conversation.namespace}
        origin = Origin(turn_id, kept=True, names=names)
        extractor = self._extractor.name
        submission = await self._submission(caller, conversation, drafts)
        remember = partial(self._remember, caller, conversation, submission, origin, extractor)
        stored = await retry_stale(partial(remember, is_counted=False), CONTENDED)
        answer = outcome(stored, turn_id, {}, extractor)
        return replace(answer, problem=await _problem(conversation, facts))

    async def _excerpt(
        self, caller: Caller, conversation: Conversation, related: Sequence[Memory]
    ) -> Excerpt:
        """What the extractor is shown. Only a model has a use for what is known already."""
        return await excerpt_of(caller, conversation, related if self._model is not None else ())

    async def _attempt(
        self,
        caller: Caller,
        conversation: Conversation,
        facts: Sequence[Fact],
        submission: Submission,
        redacted: dict[str, int],
    ) -> Analyzed:
        """Store facts, and the turn that is kept beside them. If it waits already, it is done.

        Raises:
            Stale: somebody came in between.
        """
        origin, extractor = await self._origin(caller, conversation), self._extractor.name
        try:
            stored = await self._remember(caller, conversation, submission, origin, extractor)
        except Overtaken:
            raise Stale from None
        except Answered:
            before = await self._answered(caller, conversation, redacted)
            if before is None or await self._waits(caller, before):
                raise Stale from None
            return before
        kept = origin.id if origin is not None and origin.kept else None
        answer = outcome(stored, kept, redacted, extractor)
        return replace(answer, problem=await _problem(conversation, facts))

    async def _waits(self, caller: Caller, before: Analyzed) -> bool:
        """Whether the other request only let the conversation wait, whose facts are here."""
        turn, account = before.pending, caller.access.account
        return turn is not None and await self._turns.pending(account, turn) is not None

    async def _origin(self, caller: Caller, conversation: Conversation) -> Origin | None:
        """The turn that facts come from, if it waits, is kept or is to be kept."""
        keep = caller.access.settings.keep_turns
        if not keep and self._model is None:
            return None
        known = await self._turns.said_before(caller, conversation)
        names = {} if known is None else {known["namespace_id"]: conversation.namespace}
        if known is not None and known["state"] == rows.PENDING:
            return Origin(known["episode_id"], waiting=True, kept=keep, names=names)
        if not keep:
            return None
        if known is not None:
            return Origin(known["episode_id"], kept=True, names=names)
        new, entry = await self._turns.seal(caller, conversation, rows.KEPT)
        names = {entry.namespace_id: conversation.namespace}
        return Origin(new.episode_id, kept=True, new=new, names=names)

    async def _answered(
        self, caller: Caller, conversation: Conversation, redacted: dict[str, int]
    ) -> Analyzed | None:
        """What an earlier request with the same idempotency key led to: facts, or a turn that
        waited then."""
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
        turn = await episode_rows.find_episode(
            self._database,
            account=caller.access.account,
            episode_id=ids[0],
            now=self._clock(),
        )
        if turn is not None:
            waits = turn["state"] == rows.PENDING
            failure = turn["failure"] if waits else None
            by = turn["extractor"]
            return Analyzed((), ids[0], (), redacted, extractor=by, failure=failure)
        living = await rows.find_memories(
            self._database, account=caller.access.account, memory_ids=ids, now=self._clock()
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
            )
            for m in opened
            if m is not None
        ]
        problem = await _problem(conversation, facts)
        return Analyzed(facts, None, (), redacted, problem=problem)

    async def _drafts(
        self,
        caller: Caller,
        conversation: Conversation,
        facts: Sequence[Fact],
        related: Sequence[Memory],
    ) -> list[Draft]:
        """Facts as they are to be stored; comparing them takes a while."""
        held_back = await self._known.held_back(caller, conversation.namespace) if facts else []
        settings = caller.access.settings
        return await asyncio.to_thread(drafts_of, conversation, facts, related, held_back, settings)

    async def _submission(
        self, caller: Caller, conversation: Conversation, drafts: Sequence[Draft]
    ) -> Submission:
        return await self._intake.prepare(
            caller.access,
            caller.keys,
            drafts,
            op="analyze",
            route=ROUTE,
            marked_text=conversation.text,
        )

    async def _remember(
        self,
        caller: Caller,
        conversation: Conversation,
        submission: Submission,
        origin: Origin | None,
        extractor: str,
        *,
        is_counted: bool = True,
    ) -> Remembered:
        """Store what an extractor found; `is_counted` says that the turn had none found before.

        Raises:
            Stale: somebody came in between.
        """
        account, has_facts = caller.access.account, bool(submission.prepared)

        async def beside(connection: Connection) -> None:
            if is_counted:
                await account_rows.count_turn(connection, account=account, has_facts=has_facts)
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
        count_turn("facts" if is_new else "known" if has_facts else "nothing", extractor)
        return stored

    async def _keep(
        self, caller: Caller, conversation: Conversation, redacted: dict[str, int], cause: str
    ) -> Analyzed:
        """Seal the conversation as a turn that waits, since the model failed; equal ones are one.

        One that is kept has its facts: what is said once more may have others.
        """
        attempt = partial(self._attempt_to_keep, caller, conversation, redacted, cause)
        return await retry_stale(attempt, CONTENDED)

    async def _attempt_to_keep(
        self, caller: Caller, conversation: Conversation, redacted: dict[str, int], cause: str
    ) -> Analyzed:
        # The same request may have come twice, and the other one may be ready by now.
        if (before := await self._answered(caller, conversation, redacted)) is not None:
            return before
        known = await self._turns.said_before(caller, conversation)
        episodes = list[rows.NewEpisode]()
        if known is not None and known["state"] == rows.PENDING:
            turn, number = known["episode_id"], known["namespace_id"]
        else:
            new, entry = await self._turns.seal(caller, conversation, rows.PENDING)
            episodes, turn, number = [new], new.episode_id, entry.namespace_id
        waits = Analyzed((), turn, (), redacted, failure=cause)
        marks = marks_of(caller, conversation, turn)
        if not episodes and not marks:
            return waits
        note = partial(
            episode_rows.note_failure,
            account=caller.access.account,
            episode_id=turn,
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
            count_waiting_turn()
        return replace(waits, receipts=done.receipts)

    async def extract_turn(self, account: AccountId, keys: Keys, turn_id: uuid.UUID) -> None:
        """Take the facts out of a turn that waits; nothing when it is done or gone.

        Raises:
            Unavailable: the model is still away.
            NotFound: it was erased meanwhile; what was found in it is dropped.
            NotAllowed: the namespace's key is missing.
            QuotaExceeded: the account is full, or nearly: then no model is asked.
            Corrupted: the blob is missing, or altered; then it is not tried again.
        """
        if (row := await self._turns.pending(account, turn_id)) is None:
            return
        await self._writer.refuse_full(account, FOUND_BYTES_MAX)
        try:
            draft = await self._turns.open(account, keys, row)
        except Corrupted as error:
            if await self._turns.pending(account, turn_id) is None:
                return  # its blob went with it meanwhile
            if error.code == ALTERED:
                await episode_rows.fail_episode(self._database, account=account, episode_id=turn_id)
            raise
        settings = await self._accounts.settings(account)
        access = unasked(account, PublicKey(row["writer"]), settings)
        caller, conversation = Caller(access, keys), from_draft(draft, row["created_at"])
        # Without the writer's grants nothing can be recalled, but what came last can be opened.
        related = await self._known.newest(caller, conversation.namespace)
        excerpt = await excerpt_of(caller, conversation, related)
        found = await self._patient_facts(account, turn_id, excerpt)
        drafts = await self._drafts(caller, conversation, found.facts, related)
        names = {row["namespace_id"]: conversation.namespace}
        origin = Origin(turn_id, waiting=True, kept=settings.keep_turns, names=names)
        submission = await self._submission(caller, conversation, drafts)
        await retry_stale(
            partial(self._remember, caller, conversation, submission, origin, found.extractor),
            CONTENDED,
        )

    async def _patient_facts(
        self, account: AccountId, turn_id: uuid.UUID, excerpt: Excerpt
    ) -> Extracted:
        """The model's facts, or the rules' when its answer is of no use."""
        try:
            return Extracted(await self._patient.extract(excerpt), self._patient.name)
        except Unavailable as error:
            cause = cause_of(error)
            await episode_rows.note_failure(
                self._database, account=account, episode_id=turn_id, cause=cause
            )
            # One that is away says nothing about the turn. The request had a useless answer, too,
            # and at temperature 0 more of them would be alike.
            if error.code != "llm.invalid_output":
                raise
        _log.warning(
            "facts of a turn come from rules: the language model failed",
            extra={"event": "analysis.rules", "cause": cause},
        )
        return Extracted(await self._rules.extract(excerpt), RULES_AFTER + cause)


async def _problem(conversation: Conversation, facts: Sequence[object]) -> str | None:
    """Why a conversation without facts could not be read, if that is why it has none."""
    return None if facts else await asyncio.to_thread(transcript_problem, conversation.text)
