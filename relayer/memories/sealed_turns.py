"""Conversations as turns: sealed, found again by what they say, opened.

Not here: storing them (`writer.py`), showing them (`turns.py`), what they give (`analysis.py`).
"""

import uuid
from typing import Final

from relayer.blobs.store import BlobStore
from relayer.clock import Clock, to_ms
from relayer.database import episodes as episode_rows
from relayer.database import memories as rows
from relayer.database.pool import Database, Row
from relayer.errors import Corrupted
from relayer.memories.conversations import Conversation, as_draft, open_turn
from relayer.memories.opening import Caller
from relayer.memories.sealing import fingerprint_of
from relayer.memories.turns import readable_turn
from relayer.record import Draft, encode, new_id
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId
from relayer.sealed.primitives import CryptoError, to_base64url
from relayer.tenants.access import Access
from relayer.tenants.custody import Keys
from relayer.tenants.namespaces import NamespaceEntry, Namespaces

ALTERED: Final = "episode.altered"


class SealedTurns:
    """Seals and opens the turns of one account at a time."""

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
        """Seal a conversation as a turn in one of the states; return its namespace, too.

        The turn is not stored yet.
        """
        key = caller.keys.of(conversation.namespace)[0]
        entry = await self._namespaces.ensure(caller.access, key, caller.keys.lender)
        draft, turn_id = as_draft(conversation), new_id()
        address = envelope.Address(envelope.EPISODE, caller.access.account, turn_id, 1)
        blob = envelope.seal(
            key,
            address,
            encode(draft, caller.access.key, turn=True, kept=state == rows.KEPT),
            created_ms=to_ms(caller.access.time),
        )
        turn = rows.NewEpisode(
            episode_id=turn_id,
            namespace_id=entry.namespace_id,
            epoch=key.epoch,
            writer=caller.access.key,
            blob_id=envelope.blob_hash(envelope.blob_id(blob)),
            blob=blob,
            fingerprint=fingerprint_of(key, draft),
            state=state,
        )
        return turn, entry

    async def find_said(self, caller: Caller, conversation: Conversation) -> Row | None:
        """Return the turn that says the same and waits or is kept, under whichever epoch."""
        account, turn = caller.access.account, as_draft(conversation)
        if (entry := await self._namespaces.find(account, turn.namespace)) is None:
            return None
        places = [
            (entry.namespace_id, key.epoch, fingerprint_of(key, turn))
            for key in caller.keys.of(turn.namespace)
        ]
        found = await episode_rows.find_said(
            self._database, account=account, places=places, now=caller.access.time
        )
        return found[0] if found else None

    async def find_pending(self, account: AccountId, turn_id: uuid.UUID) -> Row | None:
        """Return the row of a turn that waits for its facts; None if it is done, failed or gone."""
        row = await episode_rows.find_episode(
            self._database, account=account, episode_id=turn_id, now=self._clock()
        )
        return row if row is not None and row["state"] == rows.PENDING else None

    async def find_kept(self, access: Access, turn_id: uuid.UUID) -> Row:
        """Return the row of a turn that is kept beside its facts.

        Raises:
            NotFound: there is no such turn, or the key may not read its namespace.
        """
        return await readable_turn(self._database, access, turn_id, states={rows.KEPT})

    async def fail(self, account: AccountId, turn_id: uuid.UUID) -> None:
        """Let a turn wait no longer: it cannot be opened."""
        await episode_rows.fail_episode(self._database, account=account, episode_id=turn_id)

    async def note_failure(self, account: AccountId, turn_id: uuid.UUID, cause: str) -> None:
        """Note why a turn's facts could not be found."""
        await episode_rows.note_failure(
            self._database, account=account, episode_id=turn_id, cause=cause
        )

    async def open(self, account: AccountId, keys: Keys, row: Row) -> Draft:
        """Open the blob of a turn's row.

        Raises:
            Corrupted: its blob is missing; or altered, with the code `ALTERED`.
        """
        name = to_base64url(row["blob_id"])
        blob = (await self._blobs.get_many(account, [name])).get(name)
        if blob is None:
            raise Corrupted("A pending episode is missing.")  # perhaps its whole store is, for now
        try:
            return open_turn(account, keys, row, blob)
        except CryptoError:
            raise Corrupted("A pending episode was altered.", code=ALTERED) from None
