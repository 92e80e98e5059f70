"""States that hold of memories at another relayer, taken over here where they say the same.

Not here: states that come with a row (`row_importer.py`), what people decide here
(`memories/states.py`). Source: SPEC §17.2.

- What follows from a state was done where it was decided: its erasures come as tombstones.
- A receipt `import` names the memories first: by it, whoever reads the chain knows that the states
  behind it were decided elsewhere.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime

from relayer.archives.row_importer import IMPORT
from relayer.archives.validation import DIFFERS, ERASED, IMPORTED, REFUSED, UNCHANGED, unique
from relayer.clock import is_lasting
from relayer.database import imports as rows
from relayer.database import states as state_rows
from relayer.database.pool import Row
from relayer.journal.changes import AccountChange, ReceiptItem
from relayer.journal.states import STATE, Change, change_states, state_after
from relayer.portable import MovedState
from relayer.record import state_of
from relayer.sealed.keys import Namespace
from relayer.tenants.accounts import Access
from relayer.tenants.ledger import Ledger


async def take_states(
    ledger: Ledger, access: Access, moved: Sequence[MovedState]
) -> tuple[list[tuple[uuid.UUID, str]], list[bytes]]:
    """Let these states hold here; return the outcome for each memory, and the receipts.

    Raises:
        BadRequest: an id stands there twice.
        NotAllowed: the key owns the account no longer.
    """
    ids = unique([one.id for one in moved])
    async with ledger.change(access, op=STATE, as_owner=True) as change:
        connection, account = change.connection, change.account
        living = await state_rows.lock_states(connection, account=account, memory_ids=sorted(ids))
        erased = await rows.find_erased(connection, account, ids)
        outcomes = {one.id: _outcome(one, living.get(one.id), erased) for one in moved}
        wanted = [one for one in moved if outcomes[one.id] == IMPORTED]
        receipts = await _sign_arrival(change, [living[one.id] for one in wanted])
        # What gives way comes first: of two that say the same, one is known by its words.
        going = [one for one in wanted if one.superseded_at is not None]
        staying = [one for one in wanted if one.superseded_at is None]
        receipts += await change_states(change, {one.id: _change(one) for one in going})
        await _link_merged(change, [one for one in going if one.merged])
        for one in staying:
            if living[one.id]["superseded_at"] is not None:
                await state_rows.give_up_words(connection, account=account, memory_id=one.id)
        receipts += await change_states(change, {one.id: _change(one) for one in staying})
    return list(outcomes.items()), receipts


async def _sign_arrival(change: AccountChange, found: Sequence[Row]) -> list[bytes]:
    """Store receipts that name these memories as they are."""
    if not found:
        return []
    here = await rows.present(change.connection, change.account, [r["memory_id"] for r in found])
    items = [
        ReceiptItem(
            row["memory_id"],
            row["revision"],
            here[row["memory_id"]]["blob_id"],
            row["namespace_id"],
            row["epoch"],
        )
        for row in found
    ]
    names = {row["namespace_id"]: Namespace(row["namespace"]) for row in found}
    receipts = change.sign(items, names, op=IMPORT)
    page = rows.Page(
        memories=[],
        turns=[],
        vouched=rows.Vouched(receipts, change.receipt_seq, change.receipt_head),
        now=change.time,
        blobs_here=not change.outside_store,
    )
    await rows.arrive(change.connection, change.account, page)
    return [signed for _, signed in receipts]


async def _link_merged(change: AccountChange, merged: Sequence[MovedState]) -> None:
    links = [
        state_rows.Link(one.superseded_by, state_rows.MERGED, one.id)
        for one in merged
        if one.superseded_by is not None
    ]
    if links:
        await state_rows.link(
            change.connection, account=change.account, links=links, now=change.time
        )


def _outcome(moved: MovedState, row: Row | None, erased: set[uuid.UUID]) -> str:
    if moved.id in erased:
        return ERASED
    if row is None or not all(map(is_lasting, _moments(moved))):
        return REFUSED
    if row["revision"] != moved.revision:
        return DIFFERS
    life = (row["given_expires_at"], row["has_default_life"])
    holds = state_after(row, _change(moved)) == state_of(row)
    return UNCHANGED if holds and life == (moved.expires_at, moved.default_life) else IMPORTED


def _moments(moved: MovedState) -> list[datetime]:
    return [at for at in (moved.superseded_at, moved.expires_at) if at is not None]


def _change(moved: MovedState) -> Change:
    return Change(
        pinned=moved.pinned,
        review=moved.review,
        stale=moved.stale,
        superseded_at=moved.superseded_at,
        superseded_by=moved.superseded_by,
        merged=moved.merged,
        expires_at=moved.expires_at,
        has_default_life=moved.default_life,
    )
