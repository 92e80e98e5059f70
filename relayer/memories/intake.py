"""The order of steps of a write: remember, and the facts of a conversation.

    1. `_prepare`: redact each draft; make its fingerprints and the marks of its idempotency key.
    2. `_recognise`: tell by those which drafts came before (`recognition.py`).
    3. `_seal`: an envelope, and index entries, for each that is new (`sealed_drafts.py`).
    4. `_store`: everything in one transaction (`writer.py`). Where another write came in between,
       it begins again with 2.

Not here: what a fact is (`analysis.py`).

- A memory is acknowledged only after everything it needs is committed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from relayer.clock import to_ms
from relayer.concurrency import offload
from relayer.database import memories as rows
from relayer.database import states as state_rows
from relayer.database.pool import Database
from relayer.errors import QuotaExceeded
from relayer.memories.opener import Caller
from relayer.memories.recognition import (
    Known,
    Prepared,
    Stored,
    find_said_elsewhere,
    first_of_each,
    idempotency_marks,
    new_marks,
    outcomes,
    recognise,
    without_same,
)
from relayer.memories.sealed_drafts import (
    check_words,
    fingerprints_of,
    new_memory,
    source_token,
    without_secrets,
)
from relayer.memories.writer import (
    CONTENDED,
    Beside,
    Committed,
    Effects,
    Gone,
    Origin,
    Writer,
)
from relayer.query.heading import read_heading
from relayer.record import PENDING, Draft, encode, new_id
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, Namespace
from relayer.telemetry.instruments import time_stage
from relayer.tenants.accounts import Access
from relayer.tenants.custody import Keys
from relayer.tenants.ledger import Stale, retry_stale
from relayer.tenants.namespaces import Namespaces


@dataclass(frozen=True)
class Remembered:
    """The outcome of a request, in its order.

    `receipts` are for what was new, `others` for what else came of it: memories that it superseded,
    approved, prolonged or replaced.
    """

    items: Sequence[Stored]
    receipts: Sequence[bytes]
    others: Sequence[bytes] = ()


@dataclass
class Submission:
    """The drafts to write for one request, as far as is known by now.

    `now` is its one time: what it looks by, and when its memories were made. An attempt that finds
    something gone takes that out of `prepared`, and moves `now` behind it.
    """

    access: Access
    op: str
    prepared: Sequence[Prepared]
    now: datetime


class Answered(Exception):
    """The same request came twice at once, and the other one was done first."""


class Intake:
    """Takes in what is to be remembered, for one account at a time."""

    def __init__(self, *, database: Database, namespaces: Namespaces, writer: Writer) -> None:
        self._database = database
        self._namespaces = namespaces
        self._writer = writer

    @time_stage("remember.whole")
    async def remember(self, caller: Caller, drafts: Sequence[Draft], *, route: str) -> Remembered:
        """Store what is new of these drafts; when this returns it is durable and found by keyword.

        Raises:
            NotAllowed: not a writer of a namespace, or its key is missing.
            Conflict: an idempotency key came back with another text.
            QuotaExceeded: the account is full.
            TooLarge: a text has too many different words.
            Unavailable: others said the same each time.
        """
        for draft in drafts:
            caller.access.require(draft.namespace, "writer")
        submission = await self.prepare(
            caller.access, caller.keys, drafts, op="remember", route=route
        )
        return await retry_stale(partial(self.attempt, submission), CONTENDED)

    async def prepare(
        self,
        access: Access,
        keys: Keys,
        drafts: Sequence[Draft],
        *,
        op: str,
        route: str,
        marked_text: str | None = None,
    ) -> Submission:
        """Make of drafts what may be attempted to be stored.

        `marked_text` is what the idempotency keys stand for when it is not each draft's own text.
        """
        prepared = [
            await self._prepare(access, keys, draft, route, n, marked_text)
            for n, draft in enumerate(drafts)
        ]
        return Submission(access, op, prepared, access.time)

    async def attempt(
        self,
        submission: Submission,
        *,
        origin: Origin | None = None,
        marks: Sequence[rows.Mark] = (),
        within: Collection[Namespace] = (),
        beside: Beside | None = None,
    ) -> Remembered:
        """Store what is new of a submission, unless somebody comes in between.

        `origin` is the turn that it comes from; `marks` are kept beside those of the drafts, and
        are of the namespaces `within`; `beside` is done in the same transaction.

        Raises:
            Stale: somebody came in between.
            Conflict: an idempotency key came back with another text.
            Answered: another request has left one of `marks`.
            Overtaken: the turn is gone, or the same one came in between.
            QuotaExceeded: the account is full.
            TooLarge: a text has too many different words.
        """
        access, op, prepared = submission.access, submission.op, submission.prepared
        if origin is not None and origin.kept:
            prepared = [replace(p, draft=replace(p.draft, turn=origin.id)) for p in prepared]
        known = await self._recognise(access.account, prepared, submission.now)
        fresh = first_of_each(prepared, known)
        now = submission.now
        memories = {n: await self._seal(access, p, now) for n, p in fresh.items()}
        try:
            done = await self._store(
                access, prepared, memories, known, op, origin, marks, within, beside
            )
        except Gone as gone:
            submission.prepared = [without_same(p, gone.memories) for p in submission.prepared]
            submission.now = max(submission.now, gone.at)
            raise
        except Stale:  # the same fact or key came in between
            if await self._are_there(access.account, marks):
                raise Answered from None
            raise
        except QuotaExceeded:
            # Perhaps the same words took the last room: then there is less to store by now.
            known = await self._recognise(access.account, prepared, submission.now)
            if len(first_of_each(prepared, known)) == len(fresh):
                raise
            raise Stale from None
        items = outcomes(prepared, memories, known, done.changes)
        return Remembered(items, done.receipts, done.others)

    @time_stage("remember.prepare")
    async def _prepare(
        self,
        access: Access,
        keys: Keys,
        draft: Draft,
        route: str,
        item: int,
        marked_text: str | None,
    ) -> Prepared:
        text, redacted = await without_secrets(access, draft.text)
        draft = _with_moment(replace(draft, text=text))
        epochs = keys.of(draft.namespace)
        fingerprints, other_kinds = await offload(len(text), fingerprints_of, epochs, draft)
        marks = idempotency_marks(
            access, epochs, draft.idempotency_key, marked_text or text, route=route, item=item
        )
        return Prepared(
            draft=draft,
            key=epochs[0],
            entry=await self._namespaces.ensure(access, epochs[0], keys.lender),
            fingerprints=fingerprints,
            other_kinds=other_kinds,
            marks=marks,
            redacted=redacted,
            source=source_token(epochs[0], draft),
        )

    async def _recognise(
        self, account: AccountId, prepared: Sequence[Prepared], now: datetime
    ) -> Known:
        """Return the drafts that came before: by idempotency key first, then by what they say.

        Raises:
            Conflict: an idempotency key came back with another text.
        """
        facts = await rows.find_facts(
            self._database,
            account=account,
            namespace_ids={p.entry.namespace_id for p in prepared},
            fingerprints=[f for p in prepared for f in (*p.fingerprints, *p.other_kinds)],
        )
        marks = [mark for p in prepared for mark, _ in p.marks]
        marked = (
            await rows.find_marks(self._database, account=account, marks=marks) if marks else {}
        )
        return recognise(prepared, facts, marked, now)

    async def _are_there(self, account: AccountId, marks: Sequence[rows.Mark]) -> bool:
        """Return true if another request has left one of these marks."""
        names = [mark.mark for mark in marks]
        return bool(await rows.find_marks(self._database, account=account, marks=names))

    async def _seal(self, access: Access, p: Prepared, now: datetime) -> rows.NewMemory:
        return await offload(len(p.draft.text), self._seal_one, access, p, now)

    def _seal_one(self, access: Access, p: Prepared, now: datetime) -> rows.NewMemory:
        memory_id = new_id()
        address = envelope.Address(envelope.MEMORY, access.account, memory_id, 1)
        blob = envelope.seal(p.key, address, encode(p.draft, access.key), created_ms=to_ms(now))
        return check_words(
            new_memory(
                *(p.draft, p.key, p.entry),
                address=address,
                blob=blob,
                writer=access.key,
                created_at=now,
            )
        )

    @time_stage("remember.write")
    async def _store(
        self,
        access: Access,
        prepared: Sequence[Prepared],
        memories: dict[int, rows.NewMemory],
        known: Known,
        op: str,
        origin: Origin | None,
        marks: Sequence[rows.Mark],
        within: Collection[Namespace],
        beside: Beside | None,
    ) -> Committed:
        """Store everything in one transaction."""
        marks = [*marks, *new_marks(prepared, memories, known)]
        effects = _effects(prepared, memories, known, op, origin)
        stores = memories or marks or origin is not None or not effects.are_none
        if not stores and beside is None:
            return Committed([])
        names = {p.entry.namespace_id: p.draft.namespace for p in prepared}
        return await self._writer.store(
            access,
            list(memories.values()),
            op=op,
            marks=marks,
            episodes=[] if origin is None or origin.new is None else [origin.new],
            origin=origin,
            names=names if origin is None else {**names, **origin.names},
            within=within,
            effects=effects,
            beside=beside,
        )


def _with_moment(draft: Draft) -> Draft:
    """Return a draft with the time that its text begins with, unless its caller gave one."""
    if draft.event_time is not None or (moment := read_heading(draft.text).moment) is None:
        return draft
    return replace(draft, event_time=moment)


def _effects(
    prepared: Sequence[Prepared],
    memories: Mapping[int, rows.NewMemory],
    known: Known,
    op: str,
    origin: Origin | None,
) -> Effects:
    """Return the side effects of storing these memories."""
    drafts = {memory.memory_id: prepared[n].draft for n, memory in memories.items()}
    links = [
        state_rows.Link(m, state_rows.CONTRADICTS, d.contradicts.id)
        for m, d in drafts.items()
        if d.contradicts is not None
    ]
    if origin is not None and origin.kept:
        of_turn = {*drafts, *(same.id for same in known.found.values())}
        links += [state_rows.Link(m, state_rows.TURN, origin.id) for m in sorted(of_turn)]
    waiting = {r["memory_id"] for r in known.facts.values() if r["review"] == PENDING}
    return Effects(
        same=known.revisions(prepared),
        replaced=known.expired if memories else (),
        longer=known.longer,
        seen=find_said_elsewhere(prepared, known),
        approved=sorted(waiting) if op == "remember" else (),
        reviews={m: d.review for m, d in drafts.items() if d.review is not None},
        contradicting={m: d for m, d in drafts.items() if d.contradicts is not None},
        links=links,
    )
