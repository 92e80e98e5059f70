"""The order of steps of deciding what holds of a memory: pins, reviews, staleness, successions.

Not here: what waits for a decision (`reviews.py`), erasing (`eraser.py`), receipts of state
changes (`journal/states.py`), edits (`revisions.py`). Source: SPEC §13.
"""

import uuid
from collections.abc import Mapping
from datetime import datetime

from relayer.database import expiry
from relayer.database import states as state_rows
from relayer.database.pool import Database, Row
from relayer.errors import Conflict, NotFound
from relayer.journal.changes import AccountChange
from relayer.journal.states import STATE, Change, change_states, state_after
from relayer.memories.eraser import Eraser, erase_made_of
from relayer.memories.opener import readable
from relayer.record import ACTIVE, REJECTED, State, state_of
from relayer.sealed.keys import Namespace
from relayer.tenants.accounts import Access
from relayer.tenants.ledger import Ledger


class StateChanger:
    """Changes the states of memories of one account at a time, as somebody decides."""

    def __init__(
        self,
        *,
        database: Database,
        ledger: Ledger,
        eraser: Eraser,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._eraser = eraser

    async def set_state(
        self, access: Access, memory_id: uuid.UUID, change: Change
    ) -> tuple[State, bytes | None]:
        """Set a memory's state; return all of it from now on, and the receipt if that is new.

        `superseded_at` follows from `superseded_by`; a pin takes an end away that nobody asked for.

        Raises:
            NotFound: the memory, or the one that is to supersede it, is absent or not to be read.
            NotAllowed: the key only reads.
            NotAuthenticated: the key was revoked meanwhile.
            Conflict: `memory.duplicate`: what is brought back is said by another memory now;
                `memory.superseded`: what is to supersede it is not in force, or another memory
                supersedes it already; or it is to be rejected, and another one says the same.
        """
        row = await readable(self._database, access, memory_id)
        namespace = Namespace(row["namespace"])
        access.require(namespace, "writer")
        if row["superseded_at"] is not None:
            over = await expiry.find_expired_equals(
                self._database, account=access.account, memory_id=memory_id, now=access.time
            )
            await self._eraser.expire(access.account, over)
        async with self._ledger.change(access, [namespace], op=STATE) as account_change:
            by = change.get("superseded_by")
            living = await _lock(account_change, memory_id, by)
            if memory_id not in living:
                raise NotFound("No such memory.")
            current = state_of(living[memory_id])
            _check_said_alone(living[memory_id], change)
            if by is not None:
                _check_successor(living[memory_id], by, living, account_change.time)
            if "superseded_by" in change:
                at = None if by is None else current.superseded_at or account_change.time
                change = change | Change(superseded_at=at)
            if change.get("pinned") and living[memory_id]["has_default_life"]:
                change = change | Change(expires_at=None)
            if by is not None or change.get("review") == REJECTED:
                await erase_made_of(account_change, [memory_id])
            receipts = await change_states(account_change, {memory_id: change})
        return state_after(living[memory_id], change), receipts[0] if receipts else None


async def _lock(account_change: AccountChange, *named: uuid.UUID | None) -> dict[uuid.UUID, Row]:
    """Lock the states of these memories and of their successors; return them by id.

    The account is locked: before that, another request might have given one a successor.
    """
    connection, account = account_change.connection, account_change.account
    ids = {i for i in named if i is not None}
    found = await state_rows.lock_states(connection, account=account, memory_ids=sorted(ids))
    further = {row["superseded_by"] for row in found.values()} - {None} - ids
    return found | await state_rows.lock_states(
        connection, account=account, memory_ids=sorted(further)
    )


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


def _is_there(row: Row, now: datetime) -> bool:
    """Return true if a memory has not expired."""
    return row["expires_at"] is None or bool(row["expires_at"] > now)
