"""The order of steps of correcting: edit, look at history and at what waits, change a state.

Not here: storing what is new (`writer.py`), erasing (`eraser.py`), SQL (`database.revisions`,
`database.listing`), receipts of state changes (`journal/states.py`). Source: SPEC §13.

- The revision before stays: out of recall, in the memory's history and in recalls of its time.
- An edit replaces what its editor saw: whatever came in between is seen first, or refuses it.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from relayer.clock import Clock, to_ms
from relayer.database import accounts as account_rows
from relayer.database import expiry, listing, queue
from relayer.database import memories as memory_rows
from relayer.database import revisions as rows
from relayer.database import states as state_rows
from relayer.database.pool import Connection, Database, Row, UniqueViolation
from relayer.errors import Conflict, Corrupted, NotFound, Unavailable
from relayer.journal.outbox import Outbox
from relayer.journal.receipts import Act, Subject, chained
from relayer.journal.states import STATE, Change, States, changed
from relayer.memories.apart import apart
from relayer.memories.eraser import Eraser
from relayer.memories.opening import Caller, Opener, Page, fitting, following, readable, size_of
from relayer.memories.recognition import idempotency_marks, marked_memory
from relayer.memories.sealing import fingerprint_of, new_memory, without_secrets
from relayer.memories.writer import RACES_MAX, Writer
from relayer.record import (
    ACTIVE,
    REJECTED,
    Draft,
    Memory,
    State,
    encode,
    revision_row_id,
    state_of,
)
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, Identity, Namespace, NamespaceKey
from relayer.settings import Limits
from relayer.tenants.access import Access, check_newest
from relayer.tenants.namespaces import NamespaceEntry, Namespaces
from relayer.words import INDEX_VERSION

EDIT: Final = "edit"
EVERY_REVISION: Final = 2**31 - 1
SAYING_MAX: Final = timedelta(minutes=1)  # from a request's moment until it is stored


@dataclass(frozen=True, kw_only=True)
class Edit:
    """What to change of a memory; members that are not in `changes` stay.

    Attributes:
        changes: names of `Draft`'s members → what they are to be.
        revision: the one that the editor saw; any for None.
    """

    changes: Mapping[str, Any] = field(repr=False)
    revision: int | None = None
    idempotency_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Edited:
    """What became of an edit; without a receipt, nothing had to be changed."""

    id: uuid.UUID
    revision: int
    status: str
    redacted: dict[str, int]
    receipt: bytes | None


@dataclass(frozen=True)
class History:
    """A page of revisions, newest first, and the memory's links; `cursor` begins the next page."""

    id: uuid.UUID
    revisions: Sequence[Memory]
    links: Sequence[state_rows.Link]
    cursor: int | None


@dataclass(frozen=True)
class Doubtful:
    """A memory that waits to be looked at: why, and those in force that it speaks against."""

    memory: Memory
    reason: str
    others: Sequence[Memory]


class _Changed(Exception):
    """The memory is not what was read of it."""


class Reviser:
    """Corrects memories of one account at a time."""

    def __init__(
        self,
        *,
        database: Database,
        outbox: Outbox,
        opener: Opener,
        namespaces: Namespaces,
        writer: Writer,
        states: States,
        eraser: Eraser,
        identity: Identity,
        embeds: bool,
        clock: Clock,
    ) -> None:
        self._database = database
        self._outbox = outbox
        self._opener = opener
        self._namespaces = namespaces
        self._writer = writer
        self._states = states
        self._eraser = eraser
        self._identity = identity
        self._embeds = embeds
        self._clock = clock

    async def edit(self, caller: Caller, memory_id: uuid.UUID, edit: Edit) -> Edited:
        """Give a memory a new revision; found by keyword when this returns.

        Raises:
            NotFound: absent, somebody else's, or in a namespace the key may not read.
            NotAllowed: the key only reads, or a namespace key is missing.
            Conflict: `memory.revision`: another revision is the current one by now;
                `memory.duplicate`: another memory says exactly this; `memory.superseded`;
                `memory.revisions`: there are too many; `memory.opaque`: a manual upload.
            Corrupted: the stored revision is lost or altered.
        """
        access = caller.access
        changes, redacted = dict(edit.changes), dict[str, int]()
        if "text" in changes:
            changes["text"], redacted = await without_secrets(access, changes["text"])
        edit = replace(edit, changes=changes)
        for _ in range(RACES_MAX):
            row = await self._row(access, memory_id)
            access.require(Namespace(row["namespace"]), "writer")
            marks = self._marks(caller, row, edit)
            if await self._came_before(access, marks, memory_id):
                return await self._unchanged(access, memory_id, redacted)
            before = await self._before(caller, row, edit)
            after = replace(before, **changes)
            if _said(after) == _said(before):
                await self._note(access, marks, memory_id)
                return _edited(row, redacted)
            try:
                return await self._revise(caller, row, before, after, marks, redacted)
            except (_Changed, UniqueViolation):
                continue  # another edit, or the same words elsewhere, came in between: look again
        raise Unavailable("Too many edits of one memory at once.", code="write.contended")

    async def _row(self, access: Access, memory_id: uuid.UUID) -> Row:
        return await readable(self._database, access, memory_id, self._clock())

    def _marks(self, caller: Caller, row: Row, edit: Edit) -> list[tuple[bytes, bytes]]:
        """The marks of an edit's idempotency key, for what it says of which memory."""
        # No source at all is not a source that is called None.
        said = {n: v if v is None else str(_in_order(v)) for n, v in edit.changes.items()}
        return idempotency_marks(
            caller.access,
            caller.keys.of(Namespace(row["namespace"])),
            edit.idempotency_key,
            json.dumps([str(row["memory_id"]), edit.revision, said], sort_keys=True),
            route=EDIT,
            item=0,
        )

    async def _came_before(
        self, access: Access, marks: Sequence[tuple[bytes, bytes]], memory_id: uuid.UUID
    ) -> bool:
        if not marks:
            return False
        stored = await memory_rows.find_marks(
            self._database, account=access.account, marks=[mark for mark, _ in marks]
        )
        return marked_memory(marks, stored) is not None

    async def _unchanged(
        self, access: Access, memory_id: uuid.UUID, redacted: dict[str, int]
    ) -> Edited:
        return _edited(await self._row(access, memory_id), redacted)

    async def _note(
        self, access: Access, marks: Sequence[tuple[bytes, bytes]], memory_id: uuid.UUID
    ) -> None:
        if marks:
            await rows.remember_marks(
                self._database,
                account=access.account,
                marks=[memory_rows.Mark(*marks[0], memory_id)],
                expire_at=self._clock() + timedelta(seconds=Limits.idempotency_life_s),
            )

    async def _before(self, caller: Caller, row: Row, edit: Edit) -> Draft:
        """What the memory says now, if it may be edited."""
        if edit.revision is not None and edit.revision != row["revision"]:
            raise Conflict(
                f"The memory is at revision {row['revision']} by now.", code="memory.revision"
            )
        if row["format"] == memory_rows.OPAQUE:
            raise Conflict("A manual upload cannot be edited.", code="memory.opaque")
        if row["superseded_at"] is not None:
            raise Conflict("The memory was superseded.", code="memory.superseded")
        if row["revision"] >= Limits.revisions_max:
            raise Conflict(
                f"A memory may have {Limits.revisions_max} revisions.", code="memory.revisions"
            )
        drafts = await self._opener.drafts(caller.access.account, caller.keys, [row])
        if not drafts.opened:
            await self._row(caller.access, row["memory_id"])  # its blob goes when it is forgotten
            raise Corrupted("A stored memory does not match its name or its row.")
        # It may have been said again for longer than it was sealed for; and what an edit says, it
        # says now.
        return replace(drafts.opened[0][1], expires_at=row["given_expires_at"], said_at=None)

    async def _revise(
        self,
        caller: Caller,
        row: Row,
        before: Draft,
        draft: Draft,
        marks: Sequence[tuple[bytes, bytes]],
        redacted: dict[str, int],
    ) -> Edited:
        epochs = caller.keys.of(draft.namespace)
        entry = await self._namespaces.ensure(caller.access.account, epochs[0])
        await self._check_alone(caller, row, draft, epochs, entry)
        memory = await apart(len(draft.text), self._sealed, caller, row, draft, epochs[0], entry)
        receipt = await self._store(
            caller.access,
            row,
            memory,
            keeps_vectors=draft.text == before.text and epochs[0].epoch == row["epoch"],
            marks=[memory_rows.Mark(*marks[0], memory.memory_id)] if marks else [],
        )
        status = "uploaded" if self._embeds else "done"
        return Edited(memory.memory_id, memory.revision, status, redacted, receipt)

    async def _check_alone(
        self,
        caller: Caller,
        row: Row,
        draft: Draft,
        epochs: Sequence[NamespaceKey],
        entry: NamespaceEntry,
    ) -> None:
        """Return when no other living memory says exactly this; what has expired is erased."""
        known = await memory_rows.known_facts(
            self._database,
            account=caller.access.account,
            namespace_ids=[entry.namespace_id],
            fingerprints=[fingerprint_of(key, draft) for key in epochs],
        )
        others = {f["memory_id"]: f["expires_at"] for f in known.values()}
        others.pop(row["memory_id"], None)
        over = [i for i, end in others.items() if end is not None and end <= self._clock()]
        # Before housekeeping does: nobody may be told of it.
        await self._eraser.expire(caller.access.account, over)
        if standing := others.keys() - set(over):
            raise Conflict(
                f"Another memory says exactly this: {min(standing)}.", code="memory.duplicate"
            )

    def _sealed(
        self, caller: Caller, row: Row, draft: Draft, key: NamespaceKey, entry: NamespaceEntry
    ) -> memory_rows.NewMemory:
        now, writer = self._clock(), caller.access.key
        address = envelope.Address(
            row["type"], caller.access.account, row["memory_id"], row["revision"] + 1
        )
        record = encode(draft, writer, row["created_at"])
        blob = envelope.seal(key, address, record, created_ms=to_ms(now))
        return new_memory(
            draft,
            key,
            entry,
            address=address,
            blob=blob,
            writer=writer,
            created_at=row["created_at"],
            stored_at=now,
        )

    async def _store(
        self,
        access: Access,
        row: Row,
        memory: memory_rows.NewMemory,
        *,
        keeps_vectors: bool,
        marks: Sequence[memory_rows.Mark],
    ) -> bytes:
        """The revision in one transaction; its receipt."""
        account = access.account
        archive_id = revision_row_id(memory.memory_id, row["revision"])
        blobs = [(memory.blob_id, memory.blob)]
        async with self._outbox.putting(account, blobs) as connection:
            heads = await account_rows.locked_heads(connection, account)
            now = heads.time(self._clock())
            check_newest(heads, [memory.epoch])
            current = await rows.lock_current(
                connection, account=account, memory_id=memory.memory_id
            )
            if current is None:
                raise NotFound("No such memory.")
            if current["blob_id"] != row["blob_id"] or current["superseded_at"] is not None:
                raise _Changed
            # Said again for longer: that was acknowledged, and this edit would take it back.
            if current["given_expires_at"] != row["given_expires_at"]:
                raise _Changed
            self._writer.check_room(heads, len(memory.blob))
            subject = Subject(
                memory.memory_id,
                memory.revision,
                memory.blob_id,
                memory.namespace_id,
                memory.epoch,
            )
            names = {memory.namespace_id: Namespace(row["namespace"])}
            act = Act(account, access.key, EDIT, now)
            made, heads = await self._eraser.erase_made_of(
                connection, act, heads, [memory.memory_id]
            )
            [receipt], after = chained(self._identity, act, heads, [subject], names)
            await rows.revise(
                connection,
                account,
                rows.Revision(
                    memory=memory,
                    archive_id=archive_id,
                    keeps_vectors=keeps_vectors,
                    index_version=INDEX_VERSION,
                    memory_seq=heads.memory_seq,
                    marks=marks,
                    marks_expire_at=now + timedelta(seconds=Limits.idempotency_life_s),
                    changed_at=now,
                    receipt=receipt,
                    receipt_head=after.receipt_head,
                    blob_here=not self._outbox.outside,
                ),
            )
            if self._embeds:
                # The archive's id comes first: a job of the revision before may still run.
                ids = [archive_id, memory.memory_id]
                place = await queue.behind_memories(
                    connection, account, index_version=INDEX_VERSION
                )
                await queue.enqueue(connection, queue.EMBED, account, ids, priority=place)
        if made:
            await self._outbox.publish_soon()
        return receipt[1]

    async def history(
        self, caller: Caller, memory_id: uuid.UUID, *, before: int = EVERY_REVISION
    ) -> History:
        """A memory's revisions, newest first, as many as fit into one answer, and its links.

        Raises:
            NotFound: absent, somebody else's, or in a namespace the key may not read.
        """
        account = caller.access.account
        await self._row(caller.access, memory_id)
        found = await rows.history(
            self._database,
            account=account,
            memory_id=memory_id,
            before=before,
            limit=Limits.revisions_max,
            now=self._clock(),
        )
        page = fitting(found)
        links = await state_rows.links_of(self._database, account=account, memory_ids=[memory_id])
        cursor = page[-1]["revision"] if len(page) < len(found) else None
        return History(memory_id, await self._opener.open_all(caller, page), links, cursor)

    async def revision(self, caller: Caller, memory_id: uuid.UUID, revision: int) -> Memory:
        """One revision of a memory.

        Raises:
            NotFound: absent, somebody else's, or in a namespace the key may not read.
            Corrupted: its blob is lost or altered.
        """
        await self._row(caller.access, memory_id)
        found = await rows.history(
            self._database,
            account=caller.access.account,
            memory_id=memory_id,
            before=revision + 1,
            limit=1,
            now=self._clock(),
        )
        if not found or found[0]["revision"] != revision:
            raise NotFound("No such revision.")
        [memory] = await self._opener.open_rows(caller, found)
        if memory is None:
            await self._row(caller.access, memory_id)
            raise Corrupted("A stored memory does not match its name or its row.")
        return memory

    async def set_state(
        self, access: Access, memory_id: uuid.UUID, change: Change
    ) -> tuple[State, bytes | None]:
        """The whole state of a memory from now on, and the receipt if that is new.

        `superseded_at` follows from `superseded_by`; a pin takes an end away that nobody asked for.

        Raises:
            NotFound: the memory, or the one that is to supersede it, is absent or not to be read.
            NotAllowed: the key only reads.
            Conflict: `memory.duplicate`: what is brought back is said by another memory now;
                `memory.superseded`: what is to supersede it is not in force, or another memory
                supersedes it already; or it is to be rejected, and another one says the same.
        """
        row = await self._row(access, memory_id)
        access.require(Namespace(row["namespace"]), "writer")
        if row["superseded_at"] is not None:
            over = await expiry.expired_equals(
                self._database, account=access.account, memory_id=memory_id, now=self._clock()
            )
            await self._eraser.expire(access.account, over)
        async with self._database.transaction() as connection:
            heads = await account_rows.locked_heads(connection, access.account)
            now = heads.time(self._clock())
            by = change.get("superseded_by")
            living = await self._locked(connection, access, memory_id, by)
            if memory_id not in living:
                raise NotFound("No such memory.")
            current = state_of(living[memory_id])
            _check_said_alone(living[memory_id], change)
            if by is not None:
                _check_successor(living[memory_id], by, living, now)
            if "superseded_by" in change:
                at = None if by is None else current.superseded_at or now
                change = change | Change(superseded_at=at)
            if change.get("pinned") and _has_default_life(living[memory_id]):
                change = change | Change(expires_at=None)
            act = Act(access.account, access.key, STATE, now)
            if by is not None or change.get("review") == REJECTED:
                _, heads = await self._eraser.erase_made_of(connection, act, heads, [memory_id])
            receipts, _ = await self._states.change_within(
                connection, act, heads, {memory_id: change}
            )
        if receipts:
            await self._outbox.publish_soon()
        return changed(living[memory_id], change), receipts[0] if receipts else None

    async def _locked(
        self, connection: Connection, access: Access, *named: uuid.UUID | None
    ) -> dict[uuid.UUID, Row]:
        """The states of these memories and of those that supersede them, by id, under the account's
        lock: before it, another request might have given one a successor."""
        ids = {i for i in named if i is not None}
        found = await state_rows.lock_states(
            connection, account=access.account, memory_ids=sorted(ids)
        )
        further = {row["superseded_by"] for row in found.values()} - {None} - ids
        return found | await state_rows.lock_states(
            connection, account=access.account, memory_ids=sorted(further)
        )

    async def waiting(
        self, caller: Caller, namespaces: Sequence[Namespace], *, before_seq: int, limit: int
    ) -> Page[Doubtful]:
        """A page of memories that wait for approval or contradict others, newest first.

        Raises:
            NotAllowed: not a reader of a namespace, or its key is missing.
        """
        account, now = caller.access.account, self._clock()
        for namespace in namespaces:
            caller.access.require(namespace, "reader")
        found = await listing.waiting(
            self._database,
            account=account,
            namespace_ids=await self._namespaces.numbers(account, namespaces),
            before_seq=before_seq,
            limit=limit,
            now=now,
        )
        others = await self._contradicted(account, found, now)

        def size_in(row: Row) -> int:
            return sum(map(size_of, (row, *others[row["memory_id"]])))

        page = fitting(found, size_in=size_in)
        contradicted = {o["memory_id"]: o for row in page for o in others[row["memory_id"]]}
        opened = await self._opener.open_all(caller, [*page, *contradicted.values()])
        known = dict(zip(contradicted, opened[len(page) :], strict=True))
        doubtful = [
            Doubtful(m, row["review"], [known[o["memory_id"]] for o in others[row["memory_id"]]])
            for row, m in zip(page, opened, strict=False)
        ]
        return Page(doubtful, following(found, page, limit))

    async def _contradicted(
        self, account: AccountId, found: Sequence[Row], now: datetime
    ) -> Mapping[uuid.UUID, Sequence[Row]]:
        """For each of these rows, by its id, those that it contradicts and that stand."""
        others = dict[uuid.UUID, list[Row]]((row["memory_id"], []) for row in found)
        links = await state_rows.links_of(self._database, account=account, memory_ids=list(others))
        links = [one for one in links if one.relation == state_rows.CONTRADICTS]
        rows = await memory_rows.find_memories(
            self._database, account=account, memory_ids=[o.other_id for o in links], now=now
        )
        stand = {row["memory_id"]: row for row in rows if row["superseded_at"] is None}
        for one in links:
            if one.memory_id in others and one.other_id in stand:
                others[one.memory_id].append(stand[one.other_id])
        return others


def _has_default_life(row: Row) -> bool:
    """Whether a memory ends as what is for the work at hand does, counted from the moment of the
    request that said it last: nobody asked for that."""
    if row["kind"] != "working" or row["given_expires_at"] is None:
        return False
    said_at = row["last_seen_at"] or row["created_at"]
    left = row["given_expires_at"] - said_at
    life = timedelta(seconds=Limits.working_life_s)
    return bool(life - SAYING_MAX <= left <= life)


def _check_said_alone(row: Row, change: Change) -> None:
    """Return unless a memory is to be rejected whose words hold in what it was merged into."""
    stays = row["merged"] and "superseded_by" not in change
    if stays and change.get("review") == REJECTED:
        raise Conflict(
            f"It was merged into {row['superseded_by']}, which says the same.",
            code="memory.superseded",
        )


def _check_successor(
    row: Row, by: uuid.UUID, living: Mapping[uuid.UUID, Row], now: datetime
) -> None:
    """Return when a memory may be superseded by that one."""
    there = {i for i, one in living.items() if _is_there(one, now)}
    if by not in there or living[by]["namespace_id"] != row["namespace_id"]:
        raise NotFound("No such memory to supersede it.")
    if by == row["memory_id"] or state_of(living[by]).name != ACTIVE:
        raise Conflict("What supersedes a memory must be in force.", code="memory.superseded")
    if row["superseded_by"] != by and row["superseded_by"] in there:
        raise Conflict("Another memory supersedes it already.", code="memory.superseded")


def _in_order(value: object) -> object:
    """What an edit says, so that metadata in another order say the same."""
    return dict(sorted(value.items())) if isinstance(value, Mapping) else value


def _is_there(row: Row, now: datetime) -> bool:
    """Whether a memory has not expired."""
    return row["expires_at"] is None or bool(row["expires_at"] > now)


def _said(draft: Draft) -> tuple[Any, ...]:
    """What a draft says, as it comes back from where it was sealed."""
    return (
        draft.text,
        draft.kind,
        list(draft.tags),
        draft.source,
        to_ms(draft.event_time),
        dict(draft.metadata),
        draft.importance,
        draft.confidence,
        to_ms(draft.expires_at),
    )


def _edited(row: Row, redacted: dict[str, int]) -> Edited:
    """The answer to an edit that had nothing to change."""
    status = "uploaded" if row["embedding_model"] is None else "done"
    return Edited(row["memory_id"], row["revision"], status, redacted, None)
