"""Changing what holds of memories beside what they say, with a receipt and a signed object each.

Not here: who may change what (`memories/revising.py`), what a write changes of older memories
(`memories/writer.py`), the object's format (`sealed.states`), SQL (`database.states`).

- The object lies in the journal beside the blobs, so that a pin or a rejection outlives a database.
- What is so already stays so: no object, no receipt.
- What comes back is not counted any more for the memory that it was merged into.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import Final, TypedDict

from relayer.clock import to_ms
from relayer.database import states as rows
from relayer.database.accounts import Heads
from relayer.database.pool import Connection, Row, UniqueViolation
from relayer.database.revisions import set_life
from relayer.errors import Conflict
from relayer.journal.outbox import Outbox
from relayer.journal.receipts import Act, next_receipt
from relayer.record import State, state_of
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.keys import Identity, Namespace
from relayer.sealed.receipts import Item
from relayer.sealed.states import SignedState, sign_state

STATE: Final = "state"
Receipts = list[tuple[int, bytes]]
Wanted = tuple[Row, State, datetime | None]


class Change(TypedDict, total=False):
    """What is to hold from now on; what is not named stays. `expires_at` is as given."""

    pinned: bool
    review: str | None
    stale: bool
    superseded_at: datetime | None
    superseded_by: uuid.UUID | None
    expires_at: datetime | None


class States:
    """Changes states of memories of one account at a time, inside others' transactions."""

    def __init__(self, *, outbox: Outbox, identity: Identity) -> None:
        self._outbox = outbox
        self._identity = identity

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
        wanted = [new for new in wanted if new[1:] != _standing(new[0])]
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
        if back := [row["memory_id"] for row, state, _ in wanted if _comes_back(row, state)]:
            await rows.part(connection, account=act.account, memory_ids=back)
        for row, state, expires_at in wanted:
            if state.pinned != row["pinned"] or expires_at != row["given_expires_at"]:
                await set_life(
                    connection,
                    account=act.account,
                    memory_id=row["memory_id"],
                    expires_at=expires_at,
                )
        return [signed for _, signed in receipts], heads

    def _signed(
        self, act: Act, heads: Heads, wanted: Iterable[Wanted]
    ) -> tuple[list[rows.NewState], Receipts, Heads]:
        """One object each, and one receipt per namespace and epoch, which its objects name."""
        changed: list[rows.NewState] = []
        receipts: Receipts = []
        for _, group in groupby(sorted(wanted, key=_place), key=lambda w: _place(w)[:2]):
            members = list(group)
            own = [self._object(act, heads.receipt_seq + 1, *member) for member in members]
            items = tuple(
                Item(row["memory_id"], row["revision"], blob_id(new.signed))
                for (row, *_), new in zip(members, own, strict=True)
            )
            first = members[0][0]
            signed, heads = next_receipt(
                self._identity, act, heads, items, Namespace(first["namespace"]), first["epoch"]
            )
            changed += own
            receipts.append((heads.receipt_seq, signed))
        return changed, receipts, heads

    def _object(
        self, act: Act, seq: int, row: Row, state: State, expires_at: datetime | None
    ) -> rows.NewState:
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
            expires_ms=to_ms(expires_at),
        )
        signed = sign_state(self._identity, said)
        object_id = blob_hash(blob_id(signed))
        return rows.NewState(row["memory_id"], state, object_id, signed)


def changed(row: Row, change: Change) -> State:
    """The state that a memory's row says, with what is to hold from now on."""
    said = {name: value for name, value in change.items() if name != "expires_at"}
    return replace(state_of(row), **said)  # type: ignore[arg-type]  # a Change names members of State


def _wanted(row: Row, change: Change) -> Wanted:
    return row, changed(row, change), change.get("expires_at", row["given_expires_at"])


def _comes_back(row: Row, state: State) -> bool:
    return row["superseded_by"] is not None and state.superseded_at is None


def _standing(row: Row) -> tuple[State, datetime | None]:
    return state_of(row), row["given_expires_at"]


def _place(wanted: Wanted) -> tuple[int, int, uuid.UUID]:
    row = wanted[0]
    return row["namespace_id"], row["epoch"], row["memory_id"]
