"""Defines the relayer's answers as frozen values.

It does not own requests or the reading of JSON (`answers.py`). Field names are the HTTP API's own.

Source: SPEC.md §11.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from memrelay.answers import ABSENT, Answer, rfc3339, sometimes

KINDS = (
    "fact",
    "preference",
    "decision",
    "event",
    "working",
    "episodic",
    "semantic",
    "procedural",
    "summary",
)
MODES = ("hybrid", "keyword", "vector", "keyword_first")
STATES_FINAL = frozenset({"done", "failed", "not_found"})


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A memory to be remembered; times are RFC 3339 text or have a time zone.

    Raises:
        ValueError: `tags` is a text, which would be taken for a list of its letters.
    """

    text: str
    namespace: str | None = None
    kind: str | None = None
    tags: Iterable[str] | None = None
    source: str | None = None
    event_time: datetime | str | None = None
    metadata: Mapping[str, Any] | None = None
    importance: str | None = None
    confidence: str | None = None
    expires_at: datetime | str | None = None
    idempotency_key: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.tags, str):
            raise ValueError("tags is a list of texts, not one text.")
        if self.tags is not None:  # an iterator would be empty the second time
            object.__setattr__(self, "tags", tuple(self.tags))

    def body(self) -> dict[str, Any]:
        """Return the request's members, without those that were not given."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("event_time", "expires_at"):
            if values[name] is not None:
                values[name] = rfc3339(values[name])
        if values["tags"] is not None:
            values["tags"] = list(values["tags"])
        return {name: value for name, value in values.items() if value is not None}


def relevance_percent(distance: float) -> int:
    """Return 1 − distance in per cent, from 0 to 100: what people and models are shown.

    It is how near a memory is to a query, by meaning or by words, whichever says more.
    """
    return round(100 * min(1.0, max(0.0, 1 - distance)))


def secrets_in(redacted: Mapping[str, Any] | None) -> int:
    """Return how many secrets were taken out of a text, as far as an answer says it in numbers."""
    return sum(number for number in (redacted or {}).values() if type(number) is int)


@dataclass(frozen=True, kw_only=True)
class Remembered(Answer):
    """One accepted memory: durable and found by keyword; `status` tells about the vector.

    One of many that was refused has no id and the status `rejected`, with `code` and `message`.
    """

    id: str
    status: str
    namespace: str
    duplicate: bool = False
    redacted: Mapping[str, Any] | None = None  # how many secrets of each sort were taken out
    receipt: str | None = sometimes()
    code: str | None = sometimes()
    message: str | None = sometimes()


@dataclass(frozen=True, kw_only=True)
class Explanation(Answer):
    """The reasons why a memory was found: measures, and the parts whose sum is its score.

    `cosine` is the similarity of the nearest passage, None without a vector yet; `keyword` the
    relevance by words, 0 to 1; `matched` the words of the query that it has. Of a recall with
    further looks, `look` is the number of the one that found it, 0 of the query itself.
    """

    cosine: float | None = None
    keyword: float = 0.0
    matched: tuple[str, ...] = ()
    parts: Mapping[str, float]  # meaning, words, neighbours, speaker, period, …
    look: int | None = sometimes()


@dataclass(frozen=True, kw_only=True)
class Memory(Answer):
    """A memory; `distance` (in [0, 2], less is nearer) and `score` only come from a recall.

    `state` is active, superseded, pending_review or rejected; a `stale` one is still recalled.
    `tokens` is the length of its text, where a recall had a budget of tokens.
    `text` is None for what another client sealed under a key of its own. `recall_count` and the day
    (UTC) of the last recall come from `get`, where the account counts recalls.
    """

    id: str
    namespace: str
    text: str | None
    blob_id: str | None = None
    kind: str | None = None
    tags: tuple[str, ...] = ()
    source: str | None = None
    event_time: datetime | None = None
    metadata: Mapping[str, Any] | None = None
    importance: str | None = None
    confidence: str | None = None
    writer: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    updated_at: datetime | None = None  # when this revision was stored
    revision: int | None = None
    seq: int | None = None
    status: str | None = None
    state: str | None = None
    pinned: bool = False
    review: str | None = None
    stale: bool = False
    seen_count: int = 1
    last_seen_at: datetime | None = None
    superseded_at: datetime | None = None
    superseded_by: str | None = None
    writer_label: str | None = sometimes()
    distance: float | None = sometimes()
    score: float | None = sometimes()
    tokens: int | None = sometimes()
    recall_count: int | None = sometimes()
    last_recalled_on: str | None = sometimes()
    explain: Explanation | None = field(default=None, metadata={ABSENT: True})


@dataclass(frozen=True, kw_only=True)
class FurtherLooks(Answer):
    """The further looks that a language model planned for a query: how many were taken.

    `degraded` says why they are not all, None if they are. Explained, `texts` are what was looked
    for, the first look first.
    """

    looks: int
    degraded: str | None = None
    texts: tuple[str, ...] | None = sometimes()

    @property
    def shortfall(self) -> str | None:
        """Say how many looks were taken and the relayer's reason, for people and models."""
        if self.degraded is None:
            return None
        looks = (
            "One further look was"
            if self.looks == 1
            else f"{self.looks or 'No'} further looks were"
        )
        return f"{looks} taken: {self.degraded}."


@dataclass(frozen=True, kw_only=True)
class Recalled(Answer):
    """The memories that fit a query, best first; `dropped_count` could not be opened.

    With a budget, `tokens` is what the texts have together, and `left_out` how many did not fit.
    `estimated` is true where distances of memories that are not shown were estimates. `deep` is
    there where further looks were asked for.
    """

    results: tuple[Memory, ...]
    total: int
    dropped_count: int = 0
    degraded: bool = False
    estimated: bool = False
    tokens: int | None = sometimes()
    left_out: int | None = sometimes()
    deep: FurtherLooks | None = field(default=None, metadata={ABSENT: True})


@dataclass(frozen=True, kw_only=True)
class Fact(Answer):
    """One fact found in a text; `duplicate` when it was known already.

    `contradicts` are memories that it speaks against, `superseded` those whose place it took.
    `review` is pending or contradiction, if somebody should look at it.
    """

    id: str
    text: str
    kind: str | None = None
    event_time: datetime | None = None
    importance: str | None = None
    confidence: str | None = None
    duplicate: bool = False
    review: str | None = None
    contradicts: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Analysis(Answer):
    """The facts of a text; none yet, and a pending episode, when the model is away.

    `turn_id` is that of the conversation, if it was kept; `reinforced` are memories that it says
    once more. `other_receipts` are for changed states of memories that were there. `problem` says
    why nothing could be read of a text that looks like a transcript. `extractor` is who found the
    facts: model, rules, or rules after the model failed and why; None of older relayers, while they
    are yet to be found, and of a repeated request. `failure` is why they are.
    """

    facts: tuple[Fact, ...]
    fact_count: int
    status: str
    episode_id: str | None = None
    turn_id: str | None = None
    reinforced: tuple[str, ...] = ()
    extractor: str | None = None
    failure: str | None = None
    redacted: Mapping[str, Any] | None = None  # how many secrets of each sort were taken out
    receipts: tuple[str, ...] = ()
    other_receipts: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reply(Answer):
    """An answer to a question.

    Attributes:
        memories: what the model was shown, by the numbers that `answer` cites, from 1 on.
        supported: whether the memories hold an answer; None from a relayer that does not say so.
        cited: ids of the memories that the answer rests on.
        deep: the further looks, where they were asked for.
    """

    answer: str
    memories_used: int
    memories: tuple[Memory, ...] = ()
    supported: bool | None = None
    cited: tuple[str, ...] = ()
    deep: FurtherLooks | None = field(default=None, metadata={ABSENT: True})


@dataclass(frozen=True, kw_only=True)
class Restored(Answer):
    """The result of a restore from the stored objects of a namespace."""

    restored: int
    skipped: int
    total: int
    namespace: str
    failed: int = 0
    truncated: bool = False


@dataclass(frozen=True, kw_only=True)
class Page(Answer):
    """Memories, newest first; `next_cursor` leads to the next page.

    `unrestored` tells that the relayer lost its database and may not have all back yet.
    """

    memories: tuple[Memory, ...]
    next_cursor: str | None = None
    unrestored: bool = False


@dataclass(frozen=True, kw_only=True)
class Forgotten(Answer):
    """An erased memory; `already` before this request, whose receipt was given then.

    `pending` while an outside store has not confirmed. `receipts` are also for what went along.
    """

    id: str
    erased: bool
    already: bool = False
    pending: bool = False
    receipt: str | None = None
    receipts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MemoryStatus(Answer):
    """The progress of a memory: pending, running, uploaded, done, failed or not_found.

    `extractor` is who found the facts of a pending text that is done by now. `matches` are ids that
    begin with the digits that were asked about.
    """

    id: str
    status: str
    extractor: str | None = sometimes()
    matches: tuple[str, ...] | None = sometimes()


@dataclass(frozen=True, kw_only=True)
class Stats(Answer):
    """The size of a namespace, or of the account."""

    memory_count: int
    storage_bytes: int
    namespace: str | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class WriterCount(Answer):
    """The number of memories by one key."""

    writer: str
    memory_count: int
    writer_label: str | None = sometimes()
    never_recalled_count: int | None = sometimes()


@dataclass(frozen=True, kw_only=True)
class KindCount(Answer):
    """The number of memories of one kind."""

    kind: str
    memory_count: int
    never_recalled_count: int | None = sometimes()


@dataclass(frozen=True, kw_only=True)
class MostRecalled(Answer):
    """One of the memories that were recalled most; the day is one of UTC, as 2026-05-04."""

    id: str
    namespace: str
    recall_count: int
    last_recalled_on: str


@dataclass(frozen=True, kw_only=True)
class RecallCounts(Answer):
    """Counts of the memories that recalls showed since a day of UTC, and of those that none did."""

    since: str
    never_recalled_count: int
    most: tuple[MostRecalled, ...]


@dataclass(frozen=True, kw_only=True)
class Counts(Answer):
    """Numbers of the newest memories in recall.

    `periods` has one for each bound: those stored from then to the next, of the last one on. In
    `repeated_count` are those that were stored more than once. `counted_since` is None if all were
    counted; else it is when the oldest of those that were counted was stored. `recalls` is None
    where the account does not count them.
    """

    memory_count: int
    repeated_count: int
    counted_since: datetime | None
    periods: tuple[int, ...]
    writers: tuple[WriterCount, ...]
    kinds: tuple[KindCount, ...]
    recalls: RecallCounts | None = None


@dataclass(frozen=True, kw_only=True)
class Extraction(Answer):
    """The relayer's way to find facts, model or rules, and what the account's turns gave.

    `waiting` turns have no facts yet; at `failed` ones, these and those of the last day, the
    language model failed, last for `failure`. The counts of turns are for keys of the account.
    """

    extractor: str
    with_facts: int | None = sometimes()
    without_facts: int | None = sometimes()
    waiting: int = 0
    failed: int = 0
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class Usage(Answer):
    """The account's usage beside its limits; earlier revisions use bytes, too.

    `storage_bytes` of sealed texts and `index_bytes` of what finds them count together.
    """

    memory_count: int
    storage_bytes: int
    revision_count: int = 0
    superseded_count: int = 0
    pending_count: int = 0
    rejected_count: int = 0
    index_bytes: int = 0
    storage_bytes_max: int | None = None
    grant_count: int = 0  # with revocations
    grants_max: int | None = None
    extraction: Extraction | None = None  # older relayers do not tell
    requests: Any = None
    unrestored: bool = False  # the relayer lost its database and may not have all back yet

    @property
    def used_bytes(self) -> int:
        """The bytes that count for `storage_bytes_max`."""
        return self.storage_bytes + self.index_bytes


@dataclass(frozen=True, kw_only=True)
class KeyInfo(Answer):
    """A key of the account; `namespaces` None means the whole account.

    `last_used_at` is the beginning of the hour in which it last asked the relayer.
    """

    public_key: str
    role: str
    label: str | None = None
    namespaces: tuple[str, ...] | None = None
    created_at: datetime | None = None
    last_used_at: datetime | None = None
    expires_at: datetime | None = None
    revoked: bool = False


@dataclass(frozen=True, kw_only=True)
class NamespaceInfo(Answer):
    """A namespace; what is stored there expires after `ttl_s` seconds, if it has any.

    Attributes:
        index: `sealed`, or `searchable` by statements in the relayer's database.
        index_moves: some of its memories are still in the other one.
    """

    name: str
    epoch: int | None = None
    key_id: str | None = None
    memory_count: int = 0
    revision_count: int = 0
    superseded_count: int = 0
    pending_count: int = 0
    rejected_count: int = 0
    storage_bytes: int = 0
    index_bytes: int = 0
    updated_at: datetime | None = None
    ttl_s: int | None = None
    index: str = "searchable"
    index_moves: bool = False


@dataclass(frozen=True, kw_only=True)
class Account(Answer):
    """An account as the relayer describes it."""

    account_id: str
    custody: str
    label: str | None = None
    grant_serial: int = 0
    created_at: datetime | None = None
    relayer_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class NewAccount(Answer):
    """A founded account; the private key exists nowhere else until the caller keeps it."""

    account_id: str
    public_key: str
    custody: str
    relayer_key: str
    label: str | None = None
    private_key: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class NewKey(Answer):
    """A key added to the account; the private key exists nowhere else unless it was given."""

    account_id: str
    public_key: str
    relayer_key: str
    role: str
    namespaces: tuple[str, ...] | None
    grant: str
    serial: int
    label: str | None = None
    private_key: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Revoked(Answer):
    """A withdrawn key; it still opens copies of what it could read before."""

    recipient: str
    serial: int
    receipt: str | None = None


@dataclass(frozen=True, kw_only=True)
class Rotated(Answer):
    """A new epoch; `receipts` are empty where only its acceptance, not the answer, came through."""

    epoch: int
    serial: int
    revoked: tuple[str, ...] = ()
    receipts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NamespaceRotation(Answer):
    """The progress of sealing a namespace anew; earlier revisions and turns count as well."""

    name: str
    total: int
    done: int
    remaining: int
    waiting_for_keys: int = 0


@dataclass(frozen=True, kw_only=True)
class BlockedMemory(Answer):
    """One that cannot be sealed anew for now: its bytes are `missing`, or of a `later` release."""

    id: str
    namespace: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class Rotation(Answer):
    """The progress of an account to its newest epoch.

    `older` is all that is still sealed under an older one, also where that is to stay so; `blocked`
    are those of the first 20 that remain, as far as sealing anew has come, that wait for more than
    a key or their turn. `unrestored` tells that the relayer lost its database and may not have
    restored everything yet; nothing counts what is still to come.
    """

    epoch: int
    started_at: datetime
    total: int
    done: int
    remaining: int
    waiting_for_keys: int
    older: int
    unrestored: bool = False
    blocked: tuple[BlockedMemory, ...] = ()
    namespaces: tuple[NamespaceRotation, ...] = ()
