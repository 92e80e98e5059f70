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
from relayer.database.pool import Row, UniqueViolation
from relayer.database.revisions import set_life
from relayer.errors import Conflict
from relayer.journal.changes import AccountChange
from relayer.record import State, state_of
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.keys import Namespace
from relayer.sealed.receipts import Item
from relayer.sealed.states import SignedState

STATE: Final = "state"
Receipts = list[tuple[int, bytes]]


class Change(TypedDict, total=False):
    """The state that is to hold from now on; what is not named stays.

    `expires_at` is as given, unless said with `has_default_life`: then it comes of the kind.
    `merged`, said with `superseded_by`, says whether it is what the memory is merged into.
    """

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


async def change_states(
    account_change: AccountChange, changes: Mapping[uuid.UUID, Change]
) -> list[bytes]:
    """Change what holds of memories of one account; the receipts.

    Memories that are gone, and those of which it holds already, are passed over.

    Raises:
        Conflict: one is brought back whose fact another memory holds now.
    """
    if not changes:
        return []
    connection, account = account_change.connection, account_change.account
    found = await rows.lock_states(connection, account=account, memory_ids=sorted(changes))
    wanted = [_wanted(row, changes[i]) for i, row in found.items()]
    wanted = [new for new in wanted if not new.is_standing]
    if not wanted:
        return []
    changed, receipts = _sign(account_change, wanted)
    try:
        await rows.set_states(
            connection,
            account=account,
            changed=changed,
            now=account_change.time,
            receipts=receipts,
            receipt_head=account_change.receipt_head,
            outside_store=account_change.outside_store,
        )
    except UniqueViolation:
        raise Conflict("Another memory says the same by now.", code="memory.duplicate") from None
    if back := [new.row["memory_id"] for new in wanted if new.comes_back]:
        await rows.part(connection, account=account, memory_ids=back)
    for new in wanted:
        if new.state.pinned != new.row["pinned"] or new.lives_otherwise:
            await set_life(
                connection,
                account=account,
                memory_id=new.row["memory_id"],
                expires_at=new.expires_at,
                is_default=new.has_default_life,
            )
    return [signed for _, signed in receipts]


def _sign(
    account_change: AccountChange, wanted: Iterable[_Wanted]
) -> tuple[list[rows.NewState], Receipts]:
    """Return one object each, and one receipt per namespace and epoch, which its objects name."""
    changed: list[rows.NewState] = []
    receipts: Receipts = []
    ordered = sorted(wanted, key=lambda new: new.place)
    for _, group in groupby(ordered, key=lambda new: new.place[:2]):
        members = list(group)
        own = [_object(account_change, new) for new in members]
        items = [
            Item(new.row["memory_id"], new.row["revision"], blob_id(stated.signed))
            for new, stated in zip(members, own, strict=True)
        ]
        first = members[0].row
        receipts.append(
            account_change.sign_items(
                items, Namespace(first["namespace"]), first["epoch"], op=STATE
            )
        )
        changed += own
    account_change.has_objects = True
    return changed, receipts


def _object(account_change: AccountChange, wanted: _Wanted) -> rows.NewState:
    """Return the object that the next receipt names."""
    row, state = wanted.row, wanted.state
    said = SignedState(
        account=account_change.account,
        memory=row["memory_id"],
        revision=row["revision"],
        seq=account_change.receipt_seq + 1,
        time_ms=to_ms(account_change.time),
        pinned=state.pinned,
        review=state.review,
        stale=state.stale,
        superseded_ms=to_ms(state.superseded_at),
        superseded_by=state.superseded_by,
        merged=wanted.merged,
        expires_ms=to_ms(wanted.expires_at),
        has_default_life=wanted.has_default_life,
    )
    signed = account_change.sign_state(said)
    object_id = blob_hash(blob_id(signed))
    return rows.NewState(row["memory_id"], state, object_id, signed)


def state_after(row: Row, change: Change) -> State:
    """Return the state that a memory's row says, with what is to hold from now on."""
    beside = ("expires_at", "has_default_life", "merged")
    said = {n: value for n, value in change.items() if n not in beside}
    return replace(state_of(row), **said)  # type: ignore[arg-type]  # a Change names members of State


def _wanted(row: Row, change: Change) -> _Wanted:
    state = state_after(row, change)
    stays = state.superseded_by == row["superseded_by"]
    merged = change.get("merged", stays and row["merged"])
    if "expires_at" not in change:
        return _Wanted(row, state, merged, row["given_expires_at"], row["has_default_life"])
    is_default = change.get("has_default_life", False)
    return _Wanted(row, state, merged, change["expires_at"], is_default)
