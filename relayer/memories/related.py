"""Memories that are known where a conversation is analyzed: those it touches, and the newest.

Not here: which facts say the same as one of them (`conversations.py`).
"""

import asyncio
from typing import Final

from relayer.database import listing
from relayer.database.pool import Database
from relayer.memories.conversations import Conversation
from relayer.memories.memory import LAST_SEQ
from relayer.memories.opener import Caller, Opener, has_key
from relayer.memories.recall import RecallService
from relayer.query.query import Query
from relayer.record import ACTIVE, PENDING_REVIEW, REJECTED, Memory
from relayer.sealed.keys import Namespace
from relayer.tenants.namespaces import Namespaces

RELATED_MAX: Final = 10
NEWEST_MAX: Final = 20  # as many facts as one window may have given
RELATED_QUERY_CHARACTERS: Final = 2_000  # the end of a conversation says what it is about
RELATED_S_MAX: Final = 3.0


class RelatedMemories:
    """Finds the memories of a namespace that facts may repeat or contradict."""

    def __init__(
        self,
        *,
        recaller: RecallService,
        opener: Opener,
        database: Database,
        namespaces: Namespaces,
    ) -> None:
        self._recaller = recaller
        self._opener = opener
        self._database = database
        self._namespaces = namespaces

    async def related(self, caller: Caller, conversation: Conversation) -> list[Memory]:
        """Return memories the conversation touches, and the newest, so that the model knows them.

        Windows of a session overlap: the newest memories are what its earlier messages gave.
        """
        query = Query(
            text=conversation.text[-RELATED_QUERY_CHARACTERS:],
            namespaces=[conversation.namespace],
            limit=RELATED_MAX,
        )
        try:
            # They are a help; the time of the request belongs to the model.
            async with asyncio.timeout(RELATED_S_MAX):
                recalled = await self._recaller.recall(caller, query)
                newest = await self.newest(caller, conversation.namespace)
        except TimeoutError:
            return []
        related = [found.memory for found in recalled.found if found.memory.text is not None]
        return list({memory.id: memory for memory in [*related, *newest]}.values())

    async def newest(
        self, caller: Caller, namespace: Namespace, state: str = ACTIVE
    ) -> list[Memory]:
        """Return the newest memories of a namespace that open to text."""
        account = caller.access.account
        if (entry := await self._namespaces.find(account, namespace)) is None:
            return []
        found = await listing.newest(
            self._database,
            account=account,
            namespace_ids=[entry.namespace_id],
            before_seq=LAST_SEQ,
            limit=NEWEST_MAX,
            now=caller.access.time,
            filters=listing.Filters(state=state),
        )
        found = [row for row in found if has_key(caller.keys, row)]
        return [m for m in await self._opener.open_rows(caller, found) if m and m.text is not None]

    async def list_held_back(self, caller: Caller, namespace: Namespace) -> list[Memory]:
        """Return the newest that were rejected, and that wait for approval."""
        states = (REJECTED, PENDING_REVIEW)
        return [m for state in states for m in await self.newest(caller, namespace, state)]
