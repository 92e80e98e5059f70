"""A memory's revisions, earlier ones too, and its links.

Not here: making a revision (`revisions.py`), SQL (`database.revisions`). Source: SPEC §13.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from relayer.database import revisions as rows
from relayer.database import states as state_rows
from relayer.database.pool import Database, Row
from relayer.errors import Corrupted, NotFound
from relayer.memories.opener import Caller, Opener, readable, take_fitting
from relayer.record import Memory
from relayer.settings import Limits
from relayer.tenants.accounts import Access

EVERY_REVISION: Final = 2**31 - 1


@dataclass(frozen=True)
class History:
    """A page of revisions, newest first, and the memory's links; `cursor` begins the next page."""

    id: uuid.UUID
    revisions: Sequence[Memory]
    links: Sequence[state_rows.Link]
    cursor: int | None


class Histories:
    """Shows what memories of one account at a time have said."""

    def __init__(self, *, database: Database, opener: Opener) -> None:
        self._database = database
        self._opener = opener

    async def history(
        self, caller: Caller, memory_id: uuid.UUID, *, before: int = EVERY_REVISION
    ) -> History:
        """Return a memory's revisions, newest first, as many as fit into one answer, and its links.

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
            now=caller.access.time,
        )
        page = take_fitting(found)
        links = await state_rows.links_of(self._database, account=account, memory_ids=[memory_id])
        cursor = page[-1]["revision"] if len(page) < len(found) else None
        return History(memory_id, await self._opener.open_all(caller, page), links, cursor)

    async def revision(self, caller: Caller, memory_id: uuid.UUID, revision: int) -> Memory:
        """Return one revision of a memory.

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
            now=caller.access.time,
        )
        if not found or found[0]["revision"] != revision:
            raise NotFound("No such revision.")
        [memory] = await self._opener.open_rows(caller, found)
        if memory is None:
            await self._row(caller.access, memory_id)
            raise Corrupted("A stored memory does not match its name or its row.")
        return memory

    async def _row(self, access: Access, memory_id: uuid.UUID) -> Row:
        return await readable(self._database, access, memory_id)
