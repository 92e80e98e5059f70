"""Conversations that are kept sealed beside their facts: listed and read.

Not here: keeping and analyzing them (`analysis.py`), erasing them (`eraser.py`). Source: SPEC §13.

- They hold what was said, so they go when anything that came from them is erased.
"""

import uuid
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from relayer.database import episodes as rows
from relayer.database import listing
from relayer.database import states as state_rows
from relayer.database.memories import KEPT, PENDING
from relayer.database.pool import Database, Row
from relayer.errors import Corrupted, NotFound
from relayer.memories.opener import Caller, Opener
from relayer.record import Draft
from relayer.sealed.keys import Namespace
from relayer.tenants.accounts import Access
from relayer.tenants.namespaces import Namespaces

PagePosition = tuple[datetime, uuid.UUID]
FIRST_PAGE: Final[PagePosition] = (datetime.max.replace(tzinfo=UTC), uuid.UUID(int=2**128 - 1))


@dataclass(frozen=True)
class Episode:
    """A conversation that is kept or waits for its facts.

    `occurred_at`, `source` and `text` are None where its blob is lost or altered. `extractor` found
    its facts last; `failure` is why the language model did not find them when it was asked last.
    """

    id: uuid.UUID
    namespace: str
    state: str
    created_at: datetime
    occurred_at: datetime | None
    source: str | None = field(repr=False)
    fact_ids: Sequence[uuid.UUID]
    text: str | None = field(repr=False)
    extractor: str | None = None
    failure: str | None = None


async def readable_episode(
    database: Database, access: Access, episode_id: uuid.UUID, *, states: Set[str]
) -> Row:
    """Return the row of an episode in one of these states that a key may know of.

    Raises:
        NotFound: absent, somebody else's, or in a namespace the key may not read.
    """
    row = await rows.find_episode(
        database, account=access.account, episode_id=episode_id, now=access.time
    )
    if (
        row is None
        or row["state"] not in states
        or not access.strength(Namespace(row["namespace"]))
    ):
        raise NotFound("No such episode.")
    return row


class Episodes:
    """Shows the episodes of one account at a time."""

    def __init__(self, *, database: Database, opener: Opener, namespaces: Namespaces) -> None:
        self._database = database
        self._opener = opener
        self._namespaces = namespaces

    async def newest(
        self,
        caller: Caller,
        namespaces: Sequence[Namespace],
        *,
        before: PagePosition = FIRST_PAGE,
        limit: int,
    ) -> list[Episode]:
        """Return a page of episodes, newest first, from that position on.

        Raises:
            NotAllowed: not a reader of a namespace, or its key is missing.
        """
        account = caller.access.account
        for namespace in namespaces:
            caller.access.require(namespace, "reader")
        found = await listing.episodes(
            self._database,
            account=account,
            namespace_ids=await self._namespaces.numbers(account, namespaces),
            before=before,
            limit=limit,
            now=caller.access.time,
        )
        return await self._open(caller, found)

    async def get(self, caller: Caller, episode_id: uuid.UUID) -> Episode:
        """Return one episode.

        Raises:
            NotFound: absent, somebody else's, or in a namespace the key may not read.
            Corrupted: its blob is lost or altered.
        """
        row = await readable_episode(
            self._database, caller.access, episode_id, states={PENDING, KEPT}
        )
        [episode] = await self._open(caller, [row])
        if episode.text is None:
            raise Corrupted("A kept episode is missing or altered.")
        return episode

    async def failures(self, access: Access) -> rows.Failures:
        """Count the waiting episodes that a key may know of, and the model's late failures."""
        account, names = access.account, access.namespaces
        numbers = None if names is None else await self._namespaces.numbers(account, names)
        return await rows.failures(
            self._database, account=account, namespace_ids=numbers, now=access.time
        )

    async def _open(self, caller: Caller, found: Sequence[Row]) -> list[Episode]:
        account = caller.access.account
        ids = [row["episode_id"] for row in found]
        drafts = await self._opener.episodes(caller, found)
        links = await state_rows.links_of(self._database, account=account, memory_ids=ids)
        facts: dict[uuid.UUID, list[uuid.UUID]] = {i: [] for i in ids}
        for link in links:
            if link.relation == state_rows.TURN and link.other_id in facts:
                facts[link.other_id].append(link.memory_id)
        return [
            _episode(row, draft, facts[row["episode_id"]])
            for row, draft in zip(found, drafts, strict=True)
        ]


def _episode(row: Row, draft: Draft | None, facts: Sequence[uuid.UUID]) -> Episode:
    return Episode(
        id=row["episode_id"],
        namespace=row["namespace"],
        state=row["state"],
        created_at=row["created_at"],
        occurred_at=None if draft is None else draft.event_time,
        source=None if draft is None else draft.source,
        fact_ids=facts,
        text=None if draft is None else draft.text,
        extractor=row["extractor"],
        failure=row["failure"],
    )
