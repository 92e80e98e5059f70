"""The order of steps of giving a memory a new revision.

Not here: looking at earlier ones (`history.py`), changing a state (`states.py`), storing what is
new (`writer.py`), SQL (`database.revisions`). Source: SPEC §13.

- The revision before stays: out of recall, in the memory's history and in recalls of its time.
- An edit replaces what its editor saw: whatever came in between is seen first, or refuses it.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from relayer.clock import to_ms
from relayer.concurrency import offload
from relayer.database import memories as memory_rows
from relayer.database import revisions as rows
from relayer.database.pool import Database, Row
from relayer.errors import Conflict, Corrupted, NotFound
from relayer.journal.changes import AccountChange
from relayer.memories.eraser import Eraser, erase_made_of
from relayer.memories.opener import Caller, Opener, readable
from relayer.memories.recognition import idempotency_marks, marked_memory
from relayer.memories.sealed_drafts import check_words, fingerprint_of, new_memory, without_secrets
from relayer.memories.writer import Writer, item_of_memory
from relayer.record import Draft, encode, revision_row_id
from relayer.sealed import envelope
from relayer.sealed.keys import Namespace, NamespaceKey
from relayer.settings import Limits
from relayer.tenants.accounts import Access, check_newest
from relayer.tenants.ledger import Ledger, Stale, retry_stale
from relayer.tenants.namespaces import NamespaceEntry
from relayer.words.tokens import INDEX_VERSION

EDIT: Final = "edit"


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Changes to a memory; members that are not in `changes` stay.

    Attributes:
        changes: names of `Draft`'s members → what they are to be.
        revision: the one that the editor saw; any for None.
    """

    changes: Mapping[str, Any] = field(repr=False)
    revision: int | None = None
    idempotency_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Edited:
    """The outcome of an edit; without a receipt, nothing had to be changed."""

    id: uuid.UUID
    revision: int
    status: str
    redacted: dict[str, int]
    receipt: bytes | None


class Reviser:
    """Edits memories of one account at a time."""

    def __init__(
        self,
        *,
        database: Database,
        ledger: Ledger,
        opener: Opener,
        writer: Writer,
        eraser: Eraser,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._opener = opener
        self._writer = writer
        self._eraser = eraser

    async def edit(self, caller: Caller, memory_id: uuid.UUID, edit: Edit) -> Edited:
        """Give a memory a new revision; found by keyword when this returns.

        Raises:
            NotFound: absent, somebody else's, or in a namespace the key may not read.
            NotAllowed: the key only reads, or a namespace key is missing.
            NotAuthenticated: the key was revoked meanwhile.
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
        # Another edit, or the same words elsewhere, may come in between.
        return await retry_stale(
            partial(self._attempt, caller, memory_id, edit, redacted),
            "Too many edits of one memory at once.",
        )

    async def _attempt(
        self, caller: Caller, memory_id: uuid.UUID, edit: Edit, redacted: dict[str, int]
    ) -> Edited:
        access, changes = caller.access, edit.changes
        row = await self._row(access, memory_id)
        access.require(Namespace(row["namespace"]), "writer")
        marks = self._marks(caller, row, edit)
        if await self._came_before(access, marks, memory_id):
            return await self._read_unchanged(access, memory_id, redacted)
        before = await self._before(caller, row, edit)
        after = replace(before, **changes)
        if "expires_at" in changes:  # somebody asked for it, even if it is the same
            after = replace(after, has_default_life=False)
        if _said(after) == _said(before):
            await self._note(access, marks, row)
            return _unchanged_answer(row, redacted)
        return await self._revise(caller, row, before, after, marks, redacted)

    async def _row(self, access: Access, memory_id: uuid.UUID) -> Row:
        return await readable(self._database, access, memory_id)

    def _marks(self, caller: Caller, row: Row, edit: Edit) -> list[tuple[bytes, bytes]]:
        """Return the marks of an edit's idempotency key, for what it says of which memory."""
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

    async def _read_unchanged(
        self, access: Access, memory_id: uuid.UUID, redacted: dict[str, int]
    ) -> Edited:
        return _unchanged_answer(await self._row(access, memory_id), redacted)

    async def _note(self, access: Access, marks: Sequence[tuple[bytes, bytes]], row: Row) -> None:
        if marks:
            namespace = Namespace(row["namespace"])
            async with self._ledger.change(access, [namespace], op=EDIT) as change:
                await rows.remember_marks(
                    change.connection,
                    account=access.account,
                    marks=[memory_rows.Mark(*marks[0], row["memory_id"])],
                    expire_at=change.time + timedelta(seconds=Limits.idempotency_life_s),
                )

    async def _before(self, caller: Caller, row: Row, edit: Edit) -> Draft:
        """Return the memory's draft as it is now, if it may be edited."""
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
        return replace(
            drafts.opened[0][1],
            expires_at=row["given_expires_at"],
            has_default_life=row["has_default_life"],
            said_at=None,
        )

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
        entry = await self._writer.place(caller, draft.namespace)
        await self._check_alone(caller, row, draft, epochs, entry)
        memory = await offload(len(draft.text), self._seal, caller, row, draft, epochs[0], entry)
        receipt = await self._store(
            caller.access,
            row,
            memory,
            keeps_vectors=draft.text == before.text and epochs[0].epoch == row["epoch"],
            marks=[memory_rows.Mark(*marks[0], memory.memory_id)] if marks else [],
        )
        status = "uploaded" if self._opener.embeds else "done"
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
        known = await memory_rows.find_facts(
            self._database,
            account=caller.access.account,
            namespace_ids=[entry.namespace_id],
            fingerprints=[fingerprint_of(key, draft) for key in epochs],
        )
        others = {f["memory_id"]: f["expires_at"] for f in known.values()}
        others.pop(row["memory_id"], None)
        over = [i for i, end in others.items() if end is not None and end <= caller.access.time]
        # Before housekeeping does: nobody may be told of it.
        await self._eraser.expire(caller.access.account, over)
        if standing := others.keys() - set(over):
            raise Conflict(
                f"Another memory says exactly this: {min(standing)}.", code="memory.duplicate"
            )

    def _seal(
        self, caller: Caller, row: Row, draft: Draft, key: NamespaceKey, entry: NamespaceEntry
    ) -> memory_rows.NewMemory:
        now, writer = caller.access.time, caller.access.key
        address = envelope.Address(
            row["type"], caller.access.account, row["memory_id"], row["revision"] + 1
        )
        record = encode(draft, writer, row["created_at"])
        blob = envelope.seal(key, address, record, created_ms=to_ms(now))
        return check_words(
            new_memory(
                *(draft, key, entry),
                address=address,
                blob=blob,
                writer=writer,
                created_at=row["created_at"],
                stored_at=now,
            )
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
        """Store the revision in one transaction; return its receipt."""
        namespace = Namespace(row["namespace"])
        blobs = [(memory.blob_id, memory.blob)]
        async with self._ledger.change(access, [namespace], op=EDIT, blobs=blobs) as change:
            check_newest(change.epoch, [memory.epoch])
            await _check_unchanged(change, row)
            self._writer.check_room(change, len(memory.blob) + memory.index_bytes)
            await erase_made_of(change, [memory.memory_id])
            [receipt] = change.sign([item_of_memory(memory)], {memory.namespace_id: namespace})
            archive_id = revision_row_id(memory.memory_id, row["revision"])
            await rows.revise(
                change.connection,
                change.account,
                rows.Revision(
                    memory=memory,
                    archive_id=archive_id,
                    keeps_vectors=keeps_vectors,
                    index_version=INDEX_VERSION,
                    memory_seq=change.memory_seq,
                    marks=marks,
                    marks_expire_at=change.time + timedelta(seconds=Limits.idempotency_life_s),
                    changed_at=change.time,
                    receipt=receipt,
                    receipt_head=change.receipt_head,
                    blob_here=not change.outside_store,
                ),
            )
            await self._writer.embed_soon(change, [archive_id, memory.memory_id])
        return receipt[1]


async def _check_unchanged(change: AccountChange, row: Row) -> None:
    """Return when a memory is what was read of it.

    Raises:
        NotFound: it is gone.
        Stale: it is not.
    """
    current = await rows.lock_current(
        change.connection, account=change.account, memory_id=row["memory_id"]
    )
    if current is None:
        raise NotFound("No such memory.")
    if current["blob_id"] != row["blob_id"] or current["superseded_at"] is not None:
        raise Stale
    # Said again for longer: that was acknowledged, and this edit would take it back.
    life = ("given_expires_at", "has_default_life")
    if any(current[name] != row[name] for name in life):
        raise Stale


def _in_order(value: object) -> object:
    """Return an edited value with its keys in order, so that the same metadata are equal."""
    return dict(sorted(value.items())) if isinstance(value, Mapping) else value


def _said(draft: Draft) -> tuple[Any, ...]:
    """Return a draft's content, as it comes back from where it was sealed."""
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
        draft.has_default_life,
    )


def _unchanged_answer(row: Row, redacted: dict[str, int]) -> Edited:
    """Return the answer to an edit that had nothing to change."""
    status = "uploaded" if row["embedding_model"] is None else "done"
    return Edited(row["memory_id"], row["revision"], status, redacted, None)
