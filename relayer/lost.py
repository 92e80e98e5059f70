"""What lies in a store and no row speaks of: sealed blobs, and what the journal says of them.

Not here: giving it rows (`restore.py`), what becomes of the rest (`collection.py`).
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from relayer.blobs import BlobStore
from relayer.database import memories as rows
from relayer.database.pool import Database
from relayer.eraser import ERASURES
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, NamespaceKey, PublicKey
from relayer.sealed.primitives import CryptoError
from relayer.sealed.receipts import open_receipt
from relayer.sealed.states import SignedState, open_own_state

PAGE: Final = 200
READ_AT_ONCE: Final = 16  # blobs in memory; each may have a mebibyte
_MEMORIES: Final = frozenset({envelope.MEMORY, envelope.SUMMARY})
Blob = tuple[str, envelope.Header]


@dataclass
class Lost:
    """Blobs without rows, and what the journal says.

    Attributes:
        memories: (name, header) of memories that the keys at hand open.
        turns: the same of turns.
        others: how many are sealed under other keys.
        states: memory → the newest `state` object of it, and its name.
        erased: names of blobs that receipts say were erased.
    """

    memories: list[Blob] = field(default_factory=list)
    turns: list[Blob] = field(default_factory=list)
    altered: int = 0
    others: int = 0
    states: dict[uuid.UUID, tuple[SignedState, bytes]] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)


class Finder:
    """Looks through a store."""

    def __init__(
        self, *, database: Database, blobs: BlobStore, relayers: Sequence[PublicKey]
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._relayers = relayers

    async def lost(self, account: AccountId, keys: Mapping[bytes, NamespaceKey]) -> Lost:
        """What no row speaks of; `keys` by their ids.

        Only such blobs are read. An altered one does not say whose it was.
        """
        names = [name async for name in self._blobs.names(account)]
        lost = Lost()
        for page in _pages(names, PAGE):
            hashes = {envelope.blob_hash(n): n for n in page}
            known = await rows.known_blobs(self._database, account=account, blob_ids=list(hashes))
            unknown = [name for blob, name in hashes.items() if blob not in known]
            for some in _pages(unknown, READ_AT_ONCE):
                for name, data in (await self._blobs.get_many(account, some)).items():
                    if isinstance(data, bytes):
                        self._note(account, name, data, keys, lost)
                    else:
                        lost.altered += 1
        # A turn has no tombstone, since its id is a fingerprint.
        lost.turns = [turn for turn in lost.turns if turn[0] not in lost.erased]
        return lost

    def _note(
        self,
        account: AccountId,
        name: str,
        data: bytes,
        keys: Mapping[bytes, NamespaceKey],
        lost: Lost,
    ) -> None:
        if data.startswith(b"{"):
            self._note_state(account, name, data, lost)
            self._note_erasure(account, data, lost)
            return
        try:
            header = envelope.read_header(data)
        except CryptoError:
            return
        if header.address.account != account:
            return
        if header.key_id not in keys:
            lost.others += 1
        elif header.address.type in _MEMORIES:
            lost.memories.append((name, header))
        elif header.address.type == envelope.EPISODE:
            lost.turns.append((name, header))

    def _note_state(self, account: AccountId, name: str, data: bytes, lost: Lost) -> None:
        try:
            said = open_own_state(data, *self._relayers)
        except CryptoError:
            return
        before = lost.states.get(said.memory)
        if said.account == account and (before is None or before[0].seq < said.seq):
            lost.states[said.memory] = (said, envelope.blob_hash(name))

    def _note_erasure(self, account: AccountId, data: bytes, lost: Lost) -> None:
        try:
            receipt = open_receipt(data, *self._relayers)
        except CryptoError:
            return
        if receipt.account == account and receipt.op in ERASURES:
            lost.erased.update(item.blob_id for item in receipt.items)


def _pages(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[at : at + size] for at in range(0, len(names), size))
