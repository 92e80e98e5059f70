"""The order of steps of analyze, and of an extraction that had to wait.

Not here: how facts are found (`extraction`), what is known already (`related.py`), storing them, or
an episode until then (`episode_facts.py`), answers from memories (`answerer.py`).

- An episode that was accepted is never lost: when the model is away, or slower than a request may
  be, it is sealed and waits for its facts. A model that is known to be slow lets no request wait.
- No database connection is held while a model thinks.
- A fact that contradicts a memory names it; nothing is overwritten (`contradictions.py`).
"""

import asyncio
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from relayer.errors import Corrupted, Unavailable
from relayer.extraction.facts import Excerpt, Extractor, Fact
from relayer.llm import LanguageModel
from relayer.memories.conversations import (
    RULES_AFTER,
    Analyzed,
    Conversation,
    Extracted,
    cause_of,
    drafts_of,
    excerpt_of,
    from_draft,
    outcome,
)
from relayer.memories.episode_facts import EpisodeFacts, problem_of
from relayer.memories.intake import Answered, Submission
from relayer.memories.opener import Caller
from relayer.memories.related import RelatedMemories
from relayer.memories.sealed_drafts import without_secrets
from relayer.memories.sealed_episodes import ALTERED, SealedEpisodes
from relayer.memories.writer import CONTENDED, Origin, Overtaken
from relayer.record import Draft, Memory
from relayer.sealed.keys import AccountId, Namespace, PublicKey
from relayer.tenants.accounts import Accounts
from relayer.tenants.custody import Keys
from relayer.tenants.ledger import Stale, retry_stale

_log = logging.getLogger(__name__)

THINKING_SHARE: Final = 0.85  # of a request's time, until the model's answer; the rest is to store
SLOW: Final = "slow"  # why an episode waits about which the model was not asked
FOUND_BYTES_MAX: Final = 100_000  # of the facts of an episode and their words, of twenty facts


@dataclass(frozen=True)
class Extractors:
    """The extractors of facts.

    Attributes:
        first: finds them while a request waits.
        patient: finds them for an episode that waits.
        rules: find them where the model's answer is of no use.
        model: whom `first` and `patient` ask, if that is a model.
    """

    first: Extractor
    patient: Extractor
    rules: Extractor
    model: LanguageModel | None


class Analysis:
    """Takes facts out of conversations."""

    def __init__(
        self,
        *,
        facts: EpisodeFacts,
        known: RelatedMemories,
        episodes: SealedEpisodes,
        extractors: Extractors,
        accounts: Accounts,
        request_timeout_s: float,
    ) -> None:
        self._facts = facts
        self._known = known
        self._episodes = episodes
        self._extractor = extractors.first
        self._patient = extractors.patient
        self._rules = extractors.rules
        self._model = extractors.model
        self._accounts = accounts
        self._thinking_s = THINKING_SHARE * request_timeout_s

    @property
    def extractor(self) -> str:
        """Return the name of who finds facts here, as long as it does not fail."""
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
        if (before := await self._facts.find_answer(caller, conversation, redacted)) is not None:
            return before
        if self._model is not None and self._model.is_slow(self._thinking_s):
            return await self._facts.keep(caller, conversation, redacted, SLOW)
        related = await self._known.related(caller, conversation)
        excerpt = await self._excerpt(caller, conversation, related)
        try:
            async with asyncio.timeout_at(until_s):
                facts = await self._extractor.extract(excerpt)
        except (Unavailable, TimeoutError) as error:
            return await self._facts.keep(caller, conversation, redacted, cause_of(error))
        drafts = await self._drafts(caller, conversation, facts, related)
        submission = await self._facts.submission(caller, conversation, drafts)
        attempt = partial(self._attempt, caller, conversation, facts, submission, redacted)
        return await retry_stale(attempt, CONTENDED)

    async def again(self, caller: Caller, episode_id: uuid.UUID) -> Analyzed:
        """Take the facts out of a kept episode once more; it stays.

        Raises:
            NotFound: there is no such episode, or the key may not read its namespace.
            NotAllowed: the key only reads there, or the namespace's key is missing.
            Unavailable: the model is away.
            Corrupted: its blob is missing or altered.
        """
        row = await self._episodes.find_kept(caller.access, episode_id)
        caller.access.require(Namespace(row["namespace"]), "writer")
        draft = await self._episodes.open(caller.access.account, caller.keys, row)
        conversation = from_draft(draft, row["created_at"])
        related = await self._known.related(caller, conversation)
        facts = await self._extractor.extract(await self._excerpt(caller, conversation, related))
        drafts = await self._drafts(caller, conversation, facts, related)
        names = {row["namespace_id"]: conversation.namespace}
        origin = Origin(episode_id, kept=True, names=names)
        extractor = self._extractor.name
        submission = await self._facts.submission(caller, conversation, drafts)
        remember = partial(
            self._facts.remember, caller, conversation, submission, origin, extractor
        )
        stored = await retry_stale(partial(remember, is_counted=False), CONTENDED)
        answer = outcome(stored, episode_id, {}, extractor)
        return replace(answer, problem=await problem_of(conversation, facts))

    async def _excerpt(
        self, caller: Caller, conversation: Conversation, related: Sequence[Memory]
    ) -> Excerpt:
        """Return the excerpt for the extractor; only a model has a use for what is known."""
        return await excerpt_of(caller, conversation, related if self._model is not None else ())

    async def _origin(self, caller: Caller, conversation: Conversation) -> Origin | None:
        """Return the episode that facts come from. Without a model none waits."""
        may_wait = self._model is not None
        return await self._facts.origin(caller, conversation, may_wait=may_wait)

    async def _attempt(
        self,
        caller: Caller,
        conversation: Conversation,
        facts: Sequence[Fact],
        submission: Submission,
        redacted: dict[str, int],
    ) -> Analyzed:
        """Store facts, and the episode that is kept beside them. If it waits already, it is done.

        Raises:
            Stale: somebody came in between.
        """
        origin, extractor = await self._origin(caller, conversation), self._extractor.name
        try:
            stored = await self._facts.remember(caller, conversation, submission, origin, extractor)
        except Overtaken:
            raise Stale from None
        except Answered:
            before = await self._facts.find_answer(caller, conversation, redacted)
            if before is None or await self._facts.waits(caller, before):
                raise Stale from None
            return before
        kept = origin.id if origin is not None and origin.kept else None
        answer = outcome(stored, kept, redacted, extractor)
        return replace(answer, problem=await problem_of(conversation, facts))

    async def _drafts(
        self,
        caller: Caller,
        conversation: Conversation,
        facts: Sequence[Fact],
        related: Sequence[Memory],
    ) -> list[Draft]:
        """Return facts as they are to be stored; comparing them takes a while."""
        held_back = (
            await self._known.list_held_back(caller, conversation.namespace) if facts else []
        )
        settings = caller.access.settings
        return await asyncio.to_thread(drafts_of, conversation, facts, related, held_back, settings)

    async def extract_episode(self, account: AccountId, keys: Keys, episode_id: uuid.UUID) -> None:
        """Take the facts out of an episode that waits; nothing when it is done or gone.

        Raises:
            Unavailable: the model is still away.
            NotFound: it was erased meanwhile; what was found in it is dropped.
            NotAllowed: the namespace's key is missing.
            QuotaExceeded: the account is full, or nearly: then no model is asked.
            Corrupted: the blob is missing, or altered; then it is not tried again.
        """
        if (row := await self._episodes.find_pending(account, episode_id)) is None:
            return
        await self._facts.refuse_full(account, FOUND_BYTES_MAX)
        try:
            draft = await self._episodes.open(account, keys, row)
        except Corrupted as error:
            if await self._episodes.find_pending(account, episode_id) is None:
                return  # its blob went with it meanwhile
            if error.code == ALTERED:
                await self._episodes.fail(account, episode_id)
            raise
        access = await self._accounts.unasked(account, PublicKey(row["writer"]))
        caller, conversation = Caller(access, keys), from_draft(draft, row["created_at"])
        # Without the writer's grants nothing can be recalled, but what came last can be opened.
        related = await self._known.newest(caller, conversation.namespace)
        excerpt = await excerpt_of(caller, conversation, related)
        found = await self._patient_facts(account, episode_id, excerpt)
        drafts = await self._drafts(caller, conversation, found.facts, related)
        names = {row["namespace_id"]: conversation.namespace}
        origin = Origin(episode_id, waiting=True, kept=access.settings.keep_turns, names=names)
        submission = await self._facts.submission(caller, conversation, drafts)
        await retry_stale(
            partial(
                self._facts.remember, caller, conversation, submission, origin, found.extractor
            ),
            CONTENDED,
        )

    async def _patient_facts(
        self, account: AccountId, episode_id: uuid.UUID, excerpt: Excerpt
    ) -> Extracted:
        """Return the model's facts, or the rules' when its answer is of no use."""
        try:
            return Extracted(await self._patient.extract(excerpt), self._patient.name)
        except Unavailable as error:
            cause = cause_of(error)
            await self._episodes.note_failure(account, episode_id, cause)
            # One that is away says nothing about the turn. The request had a useless answer, too,
            # and at temperature 0 more of them would be alike.
            if error.code != "llm.invalid_output":
                raise
        _log.warning(
            "facts of an episode come from rules: the language model failed",
            extra={"event": "analysis.rules", "cause": cause},
        )
        return Extracted(await self._rules.extract(excerpt), RULES_AFTER + cause)
