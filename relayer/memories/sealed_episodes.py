"""Conversations as episodes: sealed, found again by what they say, opened.

Not here: storing them (`writer.py`), showing them (`episodes.py`), what they give (`analysis.py`).
"""

import uuid
from typing import Final

from relayer.blobs.store import BlobStore
from relayer.clock import Clock, to_ms
from relayer.database import episodes as episode_rows
from relayer.database import memories as rows
from relayer.database.pool import Database, Row
from relayer.errors import Corrupted
from relayer.memories.conversations import Conversation, as_draft, open_episode
from relayer.memories.episodes import readable_episode
from relayer.memories.opener import Caller
from relayer.memories.sealed_drafts import fingerprint_of
from relayer.record import Draft, encode, new_id
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId
from relayer.sealed.primitives import CryptoError, to_base64url
from relayer.tenants.accounts import Access
from relayer.tenants.custody import Keys
from relayer.tenants.namespaces import NamespaceEntry, Namespaces

ALTERED: Final = "episode.altered"


class SealedEpisodes:
    """Seals and opens the episodes of one account at a time."""

    def __init__(
        self, *, database: Database, blobs: BlobStore, namespaces: Namespaces, clock: Clock
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._namespaces = namespaces
        self._clock = clock

    async def seal(
        self, caller: Caller, conversation: Conversation, state: str
    ) -> tuple[rows.NewEpisode, NamespaceEntry]:
        """Seal a conversation as an episode in one of the states; return its namespace, too.

        The episode is not stored yet.
        """
        key = caller.keys.of(conversation.namespace)[0]
        entry = await self._namespaces.ensure(caller.access, key, caller.keys.lender)
        draft, episode_id = as_draft(conversation), new_id()
        address = envelope.Address(envelope.EPISODE, caller.access.account, episode_id, 1)
        blob = envelope.seal(
            key,
            address,
            encode(draft, caller.access.key, episode=True, kept=state == rows.KEPT),
            created_ms=to_ms(caller.access.time),
        )
        episode = rows.NewEpisode(
            episode_id=episode_id,
            namespace_id=entry.namespace_id,
            epoch=key.epoch,
            writer=caller.access.key,
            blob_id=envelope.blob_hash(envelope.blob_id(blob)),
            blob=blob,
            fingerprint=fingerprint_of(key, draft),
            state=state,
        )
        return episode, entry

    async def find_said(self, caller: Caller, conversation: Conversation) -> Row | None:
        """Return the episode that says the same and waits or is kept, under whichever epoch."""
        account, episode = caller.access.account, as_draft(conversation)
        if (entry := await self._namespaces.find(account, episode.namespace)) is None:
            return None
        places = [
            (entry.namespace_id, key.epoch, fingerprint_of(key, episode))
            for key in caller.keys.of(episode.namespace)
        ]
        found = await episode_rows.find_said(
            self._database, account=account, places=places, now=caller.access.time
        )
        return found[0] if found else None

    async def find_pending(self, account: AccountId, episode_id: uuid.UUID) -> Row | None:
        """Return the row of an episode that waits for its facts; None if it does not."""
        row = await episode_rows.find_episode(
            self._database, account=account, episode_id=episode_id, now=self._clock()
        )
        return row if row is not None and row["state"] == rows.PENDING else None

    async def find_kept(self, access: Access, episode_id: uuid.UUID) -> Row:
        """Return the row of an episode that is kept beside its facts.

        Raises:
            NotFound: there is no such episode, or the key may not read its namespace.
        """
        return await readable_episode(self._database, access, episode_id, states={rows.KEPT})

    async def fail(self, account: AccountId, episode_id: uuid.UUID) -> None:
        """Let an episode wait no longer: it cannot be opened."""
        await episode_rows.fail_episode(self._database, account=account, episode_id=episode_id)

    async def note_failure(self, account: AccountId, episode_id: uuid.UUID, cause: str) -> None:
        """Note why an episode's facts could not be found."""
        await episode_rows.note_failure(
            self._database, account=account, episode_id=episode_id, cause=cause
        )

    async def open(self, account: AccountId, keys: Keys, row: Row) -> Draft:
        """Open the blob of an episode's row.

        Raises:
            Corrupted: its blob is missing; or altered, with the code `ALTERED`.
        """
        name = to_base64url(row["blob_id"])
        blob = (await self._blobs.get_many(account, [name])).get(name)
        if blob is None:
            raise Corrupted("A pending episode is missing.")  # perhaps its whole store is, for now
        try:
            return open_episode(account, keys, row, blob)
        except CryptoError:
            raise Corrupted("A pending episode was altered.", code=ALTERED) from None
