"""Changing what holds of memories beside what they say, with a receipt and a signed object each.

Not here: who may change what (`memories/states.py`), what a write changes of older memories
(`memories/writer.py`), the object's format (`sealed.states`), SQL (`database.states`).

- The object lies in the journal beside the blobs, so that a pin or a rejection outlives a database.
- What is so already stays so: no object, no receipt.
- What comes back is not counted any more for the memory that it was merged into.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Final, TypedDict

from relayer.clock import to_ms
from relayer.database import states as rows
from relayer.database.accounts import Heads
from relayer.database.pool import Connection, Row, UniqueViolation
from relayer.database.revisions import set_life
from relayer.errors import Conflict
from relayer.journal.changes import AccountChange
from relayer.journal.outbox import Outbox
from relayer.journal.receipts import Act, next_receipt
from relayer.record import State, state_of
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.keys import Identity, Namespace
from relayer.sealed.receipts import Item
from relayer.sealed.states import SignedState, sign_state

STATE: Final = "state"
Receipts = list[tuple[int, bytes]]


class Change(TypedDict, total=False):
    """What is to hold from now on; what is not named stays. `expires_at` is as given,
    unless said with `has_default_life`: then it comes of the kind; `merged`, said with
    `superseded_by`, whether it is what the memory is merged into."""

    pinned: bool
    review: str | None
    stale: bool
    superseded_at: datetime | None
    superseded_by: uuid.UUID | None
    merged: bool
    expires_at: datetime | None
    has_default_life: bool


@dataclass(frozen=True)
class _Wanted:
    """A memory's row, and what is to hold of it."""

    row: Row
    state: State
    merged: bool
    expires_at: datetime | None
    has_default_life: bool

    @property
    def is_standing(self) -> bool:
        return self.state == state_of(self.row) and not self.lives_otherwise

    @property
    def lives_otherwise(self) -> bool:
        life = self.expires_at, self.has_default_life
        return life != (self.row["given_expires_at"], self.row["has_default_life"])

    @property
    def comes_back(self) -> bool:
        return self.row["superseded_by"] is not None and self.state.superseded_at is None

    @property
    def place(self) -> tuple[int, int, uuid.UUID]:
        return self.row["namespace_id"], self.row["epoch"], self.row["memory_id"]


class States:
    """Changes states of memories of one account at a time, inside others' transactions."""

    def __init__(self, *, outbox: Outbox, identity: Identity) -> None:
        self._outbox = outbox
        self._identity = identity

    async def apply(
        self, change: AccountChange, changes: Mapping[uuid.UUID, Change]
    ) -> list[bytes]:
        """The receipts of changing these memories in a change of their account.

        Raises:
            Conflict: as `change_within`.
        """
        receipts, change.heads = await self.change_within(
            change.connection, change.act(STATE), change.heads, changes
        )
        change.has_objects |= bool(receipts)
        return receipts

    async def change_within(
        self,
        connection: Connection,
        act: Act,
        heads: Heads,
        changes: Mapping[uuid.UUID, Change],
    ) -> tuple[list[bytes], Heads]:
        """The receipts of changing memories under the account's lock, and the heads after it.

        Memories that are gone, and those of which it holds already, are passed over. The caller
        publishes the journal after the transaction.

        Raises:
            Conflict: one is brought back whose fact another memory holds now.
        """
        if not changes:
            return [], heads
        found = await rows.lock_states(connection, account=act.account, memory_ids=sorted(changes))
        wanted = [_wanted(row, changes[i]) for i, row in found.items()]
        wanted = [new for new in wanted if not new.is_standing]
        if not wanted:
            return [], heads
        changed, receipts, heads = self._signed(act, heads, wanted)
        try:
            await rows.set_states(
                connection,
                account=act.account,
                changed=changed,
                now=act.time,
                receipts=receipts,
                receipt_head=heads.receipt_head,
                outside_store=self._outbox.outside,
            )
        except UniqueViolation:
            raise Conflict(
                "Another memory says the same by now.", code="memory.duplicate"
            ) from None
        if back := [new.row["memory_id"] for new in wanted if new.comes_back]:
            await rows.part(connection, account=act.account, memory_ids=back)
        for new in wanted:
            if new.state.pinned != new.row["pinned"] or new.lives_otherwise:
                await set_life(
                    connection,
                    account=act.account,
                    memory_id=new.row["memory_id"],
                    expires_at=new.expires_at,
                    is_default=new.has_default_life,
                )
        return [signed for _, signed in receipts], heads

    def _signed(
        self, act: Act, heads: Heads, wanted: Iterable[_Wanted]
    ) -> tuple[list[rows.NewState], Receipts, Heads]:
        """One object each, and one receipt per namespace and epoch, which its objects name."""
        changed: list[rows.NewState] = []
        receipts: Receipts = []
        ordered = sorted(wanted, key=lambda new: new.place)
        for _, group in groupby(ordered, key=lambda new: new.place[:2]):
            members = list(group)
            own = [self._object(act, heads.receipt_seq + 1, new) for new in members]
            items = tuple(
                Item(new.row["memory_id"], new.row["revision"], blob_id(stated.signed))
                for new, stated in zip(members, own, strict=True)
            )
            first = members[0].row
            signed, heads = next_receipt(
                self._identity, act, heads, items, Namespace(first["namespace"]), first["epoch"]
            )
            changed += own
            receipts.append((heads.receipt_seq, signed))
        return changed, receipts, heads

    def _object(self, act: Act, seq: int, wanted: _Wanted) -> rows.NewState:
        row, state = wanted.row, wanted.state
        said = SignedState(
            account=act.account,
            memory=row["memory_id"],
            revision=row["revision"],
            seq=seq,
            time_ms=to_ms(act.time),
            pinned=state.pinned,
            review=state.review,
            stale=state.stale,
            superseded_ms=to_ms(state.superseded_at),
            superseded_by=state.superseded_by,
            merged=wanted.merged,
            expires_ms=to_ms(wanted.expires_at),
            has_default_life=wanted.has_default_life,
        )
        signed = sign_state(self._identity, said)
        object_id = blob_hash(blob_id(signed))
        return rows.NewState(row["memory_id"], state, object_id, signed)


def changed(row: Row, change: Change) -> State:
    """The state that a memory's row says, with what is to hold from now on."""
    beside = ("expires_at", "has_default_life", "merged")
    said = {n: value for n, value in change.items() if n not in beside}
    return replace(state_of(row), **said)  # type: ignore[arg-type]  # a Change names members of State


def _wanted(row: Row, change: Change) -> _Wanted:
    state = changed(row, change)
    stays = state.superseded_by == row["superseded_by"]
    merged = change.get("merged", stays and row["merged"])
    if "expires_at" not in change:
        return _Wanted(row, state, merged, row["given_expires_at"], row["has_default_life"])
    is_default = change.get("has_default_life", False)
    return _Wanted(row, state, merged, change["expires_at"], is_default)
