"""Conversations, the episodes they are sealed as, and the drafts that their facts become; pure.

Not here: the order of steps (`analysis.py`), how facts are found (`extraction`).

- An episode is a conversation that is sealed: until its facts are found, or kept beside them.
  Members of the API and of records that are called `turn` mean an episode (SPEC §14).
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Final

from relayer.clock import from_ms
from relayer.database import memories as rows
from relayer.database.pool import Row
from relayer.errors import Corrupted, RelayerError
from relayer.extraction.facts import KNOWN_CHARS_MAX, Excerpt, Fact, content
from relayer.memories.intake import Remembered
from relayer.memories.opener import Caller
from relayer.memories.recognition import Stored, idempotency_marks
from relayer.memories.sealed_drafts import beginning_without_secrets, without_secrets
from relayer.preferences import AccountSettings
from relayer.record import (
    AGAINST,
    CONFIDENCES,
    IMPORTANCES,
    PENDING,
    REJECTED,
    Draft,
    Memory,
    decode,
)
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, Namespace
from relayer.sealed.primitives import CryptoError
from relayer.tenants.custody import Keys

Contents = Mapping[str, object]  # text → its content: compared often, found out once
ROUTE: Final = "analyze"
NOTHING: Final = uuid.UUID(int=0)  # what a mark leads to where no episode waits
WHOLE: Final = 2**32 - 1  # item of a conversation, beside those of its facts
RULES_AFTER: Final = "rules after the model failed: "  # how the name of such rules begins


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """A conversation to analyze; `kept_at` is since when it is kept as an episode."""

    text: str = field(repr=False)
    namespace: Namespace
    occurred_at: datetime | None = None
    source: str | None = field(default=None, repr=False)
    idempotency_key: str | None = field(default=None, repr=False)
    kept_at: datetime | None = None

    @property
    def said_at(self) -> datetime | None:
        """Return when it was said, as far as that is known; None for now."""
        return self.occurred_at or self.kept_at


@dataclass(frozen=True)
class Extracted:
    """The facts that were found in a conversation, and who found them: `model`, `rules`, or
    `rules after the model failed: ` and why, in fixed words."""

    facts: Sequence[Fact]
    extractor: str


def cause_of(error: RelayerError | TimeoutError) -> str:
    """Return the cause of a language model's failure, in fixed words."""
    if isinstance(error, TimeoutError):
        return "deadline"
    return error.cause or "unavailable"


@dataclass(frozen=True)
class Analyzed:
    """The facts that were stored, or the episode that waits for the model.

    Attributes:
        pending: the episode that waits.
        kept: the episode that stays beside its facts.
        reinforced: memories that it said again, in these or nearly these words.
        others: receipts of what else came of it, as for `Remembered`.
        problem: why nothing of it could be read, in words for whoever sent it.
        extractor: who found the facts, as for `Extracted`; None while the episode waits, and where
            a repeated request finds the facts of one that had not to wait.
        failure: why the language model did not find them yet, in fixed words.
    """

    facts: Sequence[Stored]
    pending: uuid.UUID | None
    receipts: Sequence[bytes]
    redacted: dict[str, int]
    kept: uuid.UUID | None = None
    reinforced: Sequence[uuid.UUID] = ()
    others: Sequence[bytes] = ()
    problem: str | None = None
    extractor: str | None = None
    failure: str | None = None


def from_draft(draft: Draft, kept_at: datetime) -> Conversation:
    """Return the conversation that was sealed as an episode."""
    return Conversation(
        text=draft.text,
        namespace=draft.namespace,
        occurred_at=draft.event_time,
        source=draft.source,
        kept_at=kept_at,
    )


async def excerpt_of(
    caller: Caller, conversation: Conversation, related: Sequence[Memory]
) -> Excerpt:
    """Return the excerpt for an extractor, redacted by today's setting.

    A kept episode and memories may be older than the setting.
    """
    said, _ = await without_secrets(caller.access, conversation.text)
    known = [memory.text for memory in related if memory.text is not None]
    texts = [
        await beginning_without_secrets(caller.access, text, KNOWN_CHARS_MAX) for text in known
    ]
    return Excerpt(said, conversation.occurred_at, texts)


def as_draft(conversation: Conversation) -> Draft:
    """Return the draft that is sealed as an episode."""
    return Draft(
        text=conversation.text,
        namespace=conversation.namespace,
        kind="episodic",
        event_time=conversation.occurred_at,
        source=conversation.source,
    )


def open_episode(account: AccountId, keys: Keys, row: Row, blob: bytes | Corrupted) -> Draft:
    """Return the draft that was sealed as an episode.

    Raises:
        CryptoError: altered, or the key of its epoch is missing.
    """
    if not isinstance(blob, bytes):
        raise CryptoError("altered")
    address = envelope.Address(envelope.EPISODE, account, row["episode_id"], 1)
    for key in keys.of(Namespace(row["namespace"])):
        if key.epoch == row["epoch"]:
            return decode(envelope.open_envelope(key, address, blob))[0]
    raise CryptoError("no key of that epoch")


def marks_of(caller: Caller, conversation: Conversation, leads_to: uuid.UUID) -> list[rows.Mark]:
    """Return the marks of a whole conversation, lest a repeated request ask a model again.

    They lead to its turn, which waits for its facts, or to `NOTHING` but these.
    """
    marks = marks_under(caller, conversation, WHOLE)
    return [rows.Mark(*marks[0], leads_to)] if marks else []


def marks_under(caller: Caller, conversation: Conversation, item: int) -> list[tuple[bytes, bytes]]:
    """Return (mark, text mark) of a fact by its number, or of the `WHOLE`, under each epoch.

    There are none without an idempotency key.
    """
    return idempotency_marks(
        caller.access,
        caller.keys.of(conversation.namespace),
        conversation.idempotency_key,
        conversation.text,
        route=ROUTE,
        item=item,
    )


def drafts_of(
    conversation: Conversation,
    facts: Sequence[Fact],
    related: Sequence[Memory],
    held_back: Sequence[Memory],
    settings: AccountSettings,
) -> list[Draft]:
    """Return facts as they are to be stored; `related` as the extractor was shown them.

    Nobody is shown what is held back, but what says the same is not stored beside it.
    """
    doubted = settings.low_confidence == "review"
    known = [*related, *held_back]
    texts = {fact.text for fact in facts} | {memory.text or "" for memory in known}
    contents = {text: content(text) for text in texts}
    facts = [_consistent(fact, related) for fact in facts]
    return [
        Draft(
            text=fact.text,
            namespace=conversation.namespace,
            kind=fact.kind,
            source=conversation.source,
            event_time=from_ms(fact.event_time_ms),
            metadata=_find_contradicted(fact, related),
            importance=fact.importance,
            confidence=fact.confidence,
            idempotency_key=conversation.idempotency_key,
            same_as=_same(fact, known, contents),
            said_at=conversation.said_at,
            contradicts=None if fact.contradicts is None else related[fact.contradicts],
            review=PENDING
            if fact.is_unsupported or (doubted and fact.confidence == "low")
            else None,
        )
        for fact in facts
    ]


def _find_contradicted(fact: Fact, related: Sequence[Memory]) -> dict[str, str]:
    return {} if fact.contradicts is None else {AGAINST: str(related[fact.contradicts].id)}


def _consistent(fact: Fact, related: Sequence[Memory]) -> Fact:
    """Return a fact without the memory that it is to contradict, where that says it to the letter.

    Else the model saw what tells them apart, however little it is.
    """
    if fact.contradicts is None:
        return fact
    other = related[fact.contradicts]
    if not _to_the_letter(other, fact) or not _at_that_time(other, fact):
        return fact
    return replace(fact, contradicts=None)


def _same(fact: Fact, known: Sequence[Memory], contents: Contents) -> Memory | None:
    """Return the memory that says what a fact says, of the same time, if there is one."""
    said = contents[fact.text]
    if fact.contradicts is not None or said is None:
        return None
    alike = [m for m in known if contents[m.text or ""] == said and _at_that_time(m, fact)]
    return next((memory for memory in alike if _stands_for(memory, fact)), None)


def _stands_for(memory: Memory, fact: Fact) -> bool:
    """Return true if a memory that says what a fact says is as good as it.

    Storing sees to how long it lives. Something is said to the letter once only, and what was
    rejected is so in any words.
    """
    to_the_letter = memory.kind == fact.kind and _to_the_letter(memory, fact)
    if to_the_letter or memory.state.review == REJECTED:
        return True
    return (
        memory.kind != "working"
        # Both lists begin with the most.
        and IMPORTANCES.index(memory.importance) <= IMPORTANCES.index(fact.importance)
        and CONFIDENCES.index(memory.confidence) <= CONFIDENCES.index(fact.confidence)
    )


def _to_the_letter(memory: Memory, fact: Fact) -> bool:
    return fact.text.split() == (memory.text or "").split()


def _at_that_time(memory: Memory, fact: Fact) -> bool:
    """Tell whether a fact names no time, or the day of the memory's.

    Of one day, times differ by the offset where it was said, which summer time changes.
    """
    at = from_ms(fact.event_time_ms)
    return at is None or (memory.event_time is not None and _day(at) == _day(memory.event_time))


def _day(moment: datetime) -> date:
    return moment.astimezone(UTC).date()


def outcome(
    stored: Remembered, kept: uuid.UUID | None, redacted: dict[str, int], extractor: str
) -> Analyzed:
    """Return the answer; what was known is not among the facts.

    That holds also where another request stored it just before.
    """
    new = {item.id for item in stored.items if not item.duplicate}
    return Analyzed(
        [item for item in stored.items if item.id in new],
        None,
        stored.receipts,
        redacted,
        kept,
        [item.id for item in stored.items if item.id not in new],
        stored.others,
        extractor=extractor,
    )
