"""The order of steps of analyze and ask, and of an extraction that had to wait.

Not here: how facts are found (`extraction`), how a model is asked (`llm`), storing (`writer.py`).

- A turn that was accepted is never lost: when the model is away it is sealed as a pending episode
  and extracted later.
- No database connection is held while a model thinks.
- A fact that contradicts a memory is stored beside it and names it; nothing is overwritten.
"""

import asyncio
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from relayer.accounts import Access
from relayer.blobs import BlobStore
from relayer.clock import Clock, from_ms, to_ms
from relayer.custody import Keys
from relayer.database import episodes as episode_rows
from relayer.database import memories as rows
from relayer.database.pool import Database, Row, UniqueViolation
from relayer.errors import Corrupted, NotFound, Unavailable
from relayer.extraction.facts import Extractor, Fact, Turn
from relayer.llm import LanguageModel, ask_prompt
from relayer.memory import LAST_SEQ
from relayer.namespaces import Namespaces
from relayer.opening import Caller, Opener, has_key
from relayer.recall import Found, Query, RecallService
from relayer.recognition import Stored, idempotency_marks, marked_memory
from relayer.record import Draft, Memory, decode, encode
from relayer.redact import redact
from relayer.sealed import envelope, index
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey, PublicKey
from relayer.sealed.primitives import CryptoError, to_base64url
from relayer.settings import Limits
from relayer.writer import Remembered, Writer, apart

RELATED_MAX: Final = 10
NEWEST_MAX: Final = 20  # as many facts as one window may have given
RELATED_QUERY_CHARACTERS: Final = 2_000  # the end of a conversation says what it is about
RELATED_S_MAX: Final = 3.0
ASK_TEXT_CHARACTERS_MAX: Final = 4_000  # of one memory, in a prompt
ASK_CHARACTERS_MAX: Final = 32_000  # of all together: about 8,000 tokens
ATTEMPTS_MAX: Final = 3  # useless answers to one turn before the rules take over
ROUTE: Final = "analyze"
CONTRADICTS: Final = "contradicts"  # metadata: the id of the memory that a fact speaks against
ALTERED: Final = "episode.altered"

log = logging.getLogger("relayer.analysis")


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """What to analyze."""

    text: str = field(repr=False)
    namespace: Namespace
    occurred_at: datetime | None = None
    source: str | None = field(default=None, repr=False)
    idempotency_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Analyzed:
    """The facts that were stored, or the episode that waits for the model."""

    facts: Sequence[Stored]
    episode: uuid.UUID | None
    receipts: Sequence[bytes]
    redacted: dict[str, int]


@dataclass(frozen=True)
class Answer:
    """A model's answer and the memories it was given."""

    text: str = field(repr=False)
    memories: Sequence[Found] = field(repr=False)


class Analysis:
    """Takes facts out of conversations and answers questions from memories."""

    def __init__(
        self,
        *,
        recaller: RecallService,
        opener: Opener,
        writer: Writer,
        extractor: Extractor,
        rules: Extractor,
        model: LanguageModel | None,
        database: Database,
        blobs: BlobStore,
        namespaces: Namespaces,
        clock: Clock,
    ) -> None:
        self._recaller = recaller
        self._opener = opener
        self._writer = writer
        self._extractor = extractor
        self._rules = rules
        self._model = model
        self._database = database
        self._blobs = blobs
        self._namespaces = namespaces
        self._clock = clock

    async def analyze(self, caller: Caller, conversation: Conversation) -> Analyzed:
        """Store the facts of a conversation, or the conversation itself until they can be found.

        Raises:
            NotAllowed: not a writer of the namespace, or its key is missing.
            Conflict: the idempotency key came back with another text.
            QuotaExceeded: the account is full.
        """
        caller.access.require(conversation.namespace, "writer")
        text, redacted = await apart(len(conversation.text), redact, conversation.text)
        conversation = replace(conversation, text=text)
        if (before := await self._answered(caller, conversation)) is not None:
            return Analyzed(before, None, (), redacted)
        related = await self._related(caller, conversation)
        try:
            facts = await self._extractor.extract(_turn(conversation, related))
        except Unavailable:
            episode, receipts = await self._keep(caller, conversation)
            return Analyzed((), episode, receipts, redacted)
        drafts = _drafts(conversation, facts, related)
        stored = await self._remember_turn(caller, conversation, drafts)
        return Analyzed(stored.items, None, stored.receipts, redacted)

    async def _remember_turn(
        self, caller: Caller, conversation: Conversation, drafts: Sequence[Draft]
    ) -> Remembered:
        """Store facts; the same turn, if it was kept while the model was away, is done with it."""
        key = caller.keys.of(conversation.namespace)[0]
        episode = _episode_id(key, conversation)
        if self._model is not None and await self._pending(caller.access.account, episode):
            try:
                return await self._remember(caller, conversation, drafts, episode=episode)
            except NotFound:
                log.debug("a waiting turn was extracted meanwhile")
        return await self._remember(caller, conversation, drafts)

    async def _answered(self, caller: Caller, conversation: Conversation) -> list[Stored] | None:
        """The facts of an earlier request with the same idempotency key."""
        if conversation.idempotency_key is None:
            return None
        epochs = caller.keys.of(conversation.namespace)
        by_item = [
            idempotency_marks(
                caller.access,
                epochs,
                conversation.idempotency_key,
                conversation.text,
                route=ROUTE,
                item=n,
            )
            for n in range(Limits.facts_max)
        ]
        stored = await rows.find_marks(
            self._database,
            account=caller.access.account,
            marks=[mark for marks in by_item for mark, _ in marks],
        )
        found = [marked_memory(marks, stored) for marks in by_item]
        ids = [row["memory_id"] for row in found if row is not None]
        if not ids:
            return None
        living = await rows.find_memories(
            self._database, account=caller.access.account, memory_ids=ids, now=self._clock()
        )
        opened = await self._opener.open_rows(caller, living)
        return [
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

    async def _related(self, caller: Caller, conversation: Conversation) -> list[Memory]:
        """Memories the conversation touches, and the newest, so that none is extracted again.

        Windows of a session overlap: the newest memories are what its earlier messages gave.
        """
        query = Query(
            text=conversation.text[-RELATED_QUERY_CHARACTERS:],
            namespaces=[conversation.namespace],
            limit=RELATED_MAX,
        )
        try:
            # They are a help; the time of the request belongs to the model.
            async with asyncio.timeout(RELATED_S_MAX):
                recalled = await self._recaller.recall(caller, query)
                newest = await self._newest(caller, conversation.namespace)
        except TimeoutError:
            return []
        related = [found.memory for found in recalled.found if found.memory.text is not None]
        return list({memory.id: memory for memory in [*related, *newest]}.values())

    async def _newest(self, caller: Caller, namespace: Namespace) -> list[Memory]:
        """The newest memories of a namespace that open to text."""
        account = caller.access.account
        if (entry := await self._namespaces.find(account, namespace)) is None:
            return []
        found = await rows.newest(
            self._database,
            account=account,
            namespace_ids=[entry.namespace_id],
            before_seq=LAST_SEQ,
            kind=None,
            limit=NEWEST_MAX,
            now=self._clock(),
        )
        found = [row for row in found if has_key(caller.keys, row)]
        return [m for m in await self._opener.open_rows(caller, found) if m and m.text is not None]

    async def _remember(
        self,
        caller: Caller,
        conversation: Conversation,
        drafts: Sequence[Draft],
        *,
        episode: uuid.UUID | None = None,
    ) -> Remembered:
        return await self._writer.write(
            caller.access,
            caller.keys,
            drafts,
            op="analyze",
            route=ROUTE,
            marked_text=conversation.text,
            episode=episode,
        )

    async def _keep(
        self, caller: Caller, conversation: Conversation
    ) -> tuple[uuid.UUID, list[bytes]]:
        """Seal the conversation as a pending episode; equal ones are one."""
        key = caller.keys.of(conversation.namespace)[0]
        entry = await self._namespaces.ensure(caller.access.account, key)
        draft = Draft(
            text=conversation.text,
            namespace=conversation.namespace,
            kind="episodic",
            event_time=conversation.occurred_at,
            source=conversation.source,
        )
        episode_id = _episode_id(key, conversation)
        address = envelope.Address(envelope.EPISODE, caller.access.account, episode_id, 1)
        blob = envelope.seal(
            key, address, encode(draft, caller.access.key), created_ms=to_ms(self._clock())
        )
        episode = rows.NewEpisode(
            episode_id=episode_id,
            namespace_id=entry.namespace_id,
            epoch=key.epoch,
            writer=caller.access.key,
            blob_id=envelope.blob_hash(envelope.blob_id(blob)),
            blob=blob,
        )
        try:
            receipts = await self._writer.store(
                caller.access,
                [],
                op="analyze",
                names={entry.namespace_id: conversation.namespace},
                episodes=[episode],
            )
        except UniqueViolation:
            return episode_id, []  # the same turn waits already
        return episode_id, receipts

    async def extract_episode(self, account: AccountId, keys: Keys, episode_id: uuid.UUID) -> None:
        """Take the facts out of a pending episode; nothing when it is done or gone.

        Raises:
            Unavailable: the model is still away.
            NotFound: it was erased meanwhile; what was found in it is dropped.
            NotAllowed: the namespace's key is missing.
            Corrupted: the blob is missing, or altered; then it is not tried again.
        """
        if (row := await self._pending(account, episode_id)) is None:
            return
        try:
            draft = await self._open_episode(account, keys, row)
        except Corrupted as error:
            if await self._pending(account, episode_id) is None:
                return  # its blob went with it meanwhile
            if error.code == ALTERED:
                await episode_rows.fail_episode(
                    self._database, account=account, episode_id=episode_id
                )
            raise
        writer = PublicKey(row["writer"])
        caller = Caller(Access(account, writer, grants=(), custody="sealed", serial=0), keys)
        conversation = Conversation(
            text=draft.text,
            namespace=draft.namespace,
            occurred_at=draft.event_time,
            source=draft.source,
        )
        # Without the writer's grants nothing can be recalled, but what came last can be opened.
        related = await self._newest(caller, conversation.namespace)
        facts = await self._patient_facts(account, episode_id, _turn(conversation, related))
        drafts = _drafts(conversation, facts, related)
        await self._remember(caller, conversation, drafts, episode=episode_id)

    async def _patient_facts(
        self, account: AccountId, episode_id: uuid.UUID, turn: Turn
    ) -> list[Fact]:
        """The model's facts, or the rules' when the model keeps answering uselessly."""
        try:
            return await self._extractor.extract(turn)
        except Unavailable as error:
            if error.code != "llm.invalid_output":
                raise  # it is away: that says nothing about the turn
            attempts = await episode_rows.count_attempt(
                self._database, account=account, episode_id=episode_id
            )
            if attempts < ATTEMPTS_MAX:
                raise
        return await self._rules.extract(turn)

    async def _pending(self, account: AccountId, episode_id: uuid.UUID) -> Row | None:
        row = await episode_rows.find_episode(
            self._database, account=account, episode_id=episode_id
        )
        return row if row is not None and row["state"] == "pending" else None

    async def _open_episode(self, account: AccountId, keys: Keys, row: Row) -> Draft:
        name = to_base64url(row["blob_id"])
        blob = (await self._blobs.get_many(account, [name])).get(name)
        if blob is None:
            raise Corrupted("A pending episode is missing.")  # perhaps its whole store is, for now
        try:
            return self._opened_episode(account, keys, row, blob)
        except CryptoError:
            raise Corrupted("A pending episode was altered.", code=ALTERED) from None

    def _opened_episode(
        self, account: AccountId, keys: Keys, row: Row, blob: bytes | Corrupted
    ) -> Draft:
        if not isinstance(blob, bytes):
            raise CryptoError("altered")
        address = envelope.Address(envelope.EPISODE, account, row["episode_id"], 1)
        for key in keys.of(Namespace(row["namespace"])):
            if key.epoch == row["epoch"]:
                return decode(envelope.open_envelope(key, address, blob))[0]
        raise CryptoError("no key of that epoch")

    async def ask(self, caller: Caller, query: Query) -> Answer:
        """A model's answer to a question, from what is recalled for it.

        Raises:
            Unavailable: `llm.not_configured`, or the model is away.
            NotAllowed: not a reader of the namespace, or its key is missing.
        """
        if self._model is None:
            raise Unavailable(
                "This relayer has no language model; recall works without one.",
                code="llm.not_configured",
                retry_after_s=3600,
            )
        recalled = await self._recaller.recall(caller, query)
        shown = _shown(recalled.found)
        system, user = ask_prompt(query.text, [text for _, text in shown])
        answer = await self._model.answer(system=system, user=user)
        return Answer(answer, [found for found, _ in shown])


def _shown(found: Sequence[Found]) -> list[tuple[Found, str]]:
    """The best memories with as much of their text as a prompt has room for."""
    shown, room = [], ASK_CHARACTERS_MAX
    for one in found:
        text = (one.memory.text or "")[: min(ASK_TEXT_CHARACTERS_MAX, room)]
        if text:
            shown.append((one, text))
            room -= len(text)
    return shown


def _turn(conversation: Conversation, related: Sequence[Memory]) -> Turn:
    """What an extractor is shown."""
    texts = [memory.text for memory in related if memory.text is not None]
    return Turn(conversation.text, conversation.occurred_at, texts)


def _drafts(
    conversation: Conversation, facts: Sequence[Fact], related: Sequence[Memory]
) -> list[Draft]:
    """Facts as they are to be stored; `related` as the extractor was shown them."""
    return [
        Draft(
            text=fact.text,
            namespace=conversation.namespace,
            kind=fact.kind,
            source=conversation.source,
            event_time=from_ms(fact.event_time_ms),
            metadata=_contradicted(fact, related),
            importance=fact.importance,
            confidence=fact.confidence,
            idempotency_key=conversation.idempotency_key,
        )
        for fact in facts
    ]


def _contradicted(fact: Fact, related: Sequence[Memory]) -> dict[str, str]:
    return {} if fact.contradicts is None else {CONTRADICTS: str(related[fact.contradicts].id)}


def _episode_id(key: NamespaceKey, conversation: Conversation) -> uuid.UUID:
    """The name of a kept turn: its keyed fingerprint, so that equal turns are one."""
    return uuid.UUID(
        bytes=index.fingerprint(
            key,
            kind="episodic",
            event_time_ms=to_ms(conversation.occurred_at),
            text=conversation.text,
        )
    )
