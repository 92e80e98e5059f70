"""An account's means to check its relayer: a checkpoint, names and bytes of what is stored.

Not here: checking (the client's `verify`), the chain of receipts (`journal/changes.py`). Nothing
is opened here, so none of it needs a namespace's key. Source: SPEC §15.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from relayer import cursors
from relayer.blobs.cache import beneath
from relayer.blobs.store import BlobStore
from relayer.clock import Clock, to_ms
from relayer.database import accounts as account_rows
from relayer.database import blobs as staged_blobs
from relayer.database import inventory as rows
from relayer.database.pool import Database, Row
from relayer.errors import Corrupted, NotAllowed, NotFound
from relayer.sealed.envelope import blob_hash
from relayer.sealed.keys import Identity, Namespace
from relayer.sealed.primitives import to_base64url
from relayer.sealed.receipts import Checkpoint, sign_checkpoint
from relayer.settings import Limits
from relayer.tenants.accounts import Access

EPISODES: Final = "e"  # begins the cursor of an inventory's second part
_AT_ONCE: Final = 8  # blobs read before the size of an answer is looked at again


@dataclass(frozen=True)
class Inventory:
    """A page of stored revisions, or of episodes (without `seq`), and where the next begins."""

    revisions: list[Row]
    episodes: list[Row]
    cursor: str | None


@dataclass(frozen=True)
class Blobs:
    """Stored bytes by name, or the error of a blob that is not what its name says; what is left."""

    found: dict[str, bytes | Corrupted | None]
    left: list[str]


class Proof:
    """Shows an account what is stored of it."""

    def __init__(
        self,
        *,
        database: Database,
        blobs: BlobStore,
        identity: Identity,
        succession: tuple[bytes, ...],
        clock: Clock,
    ) -> None:
        self._database = database
        # A client that names blobs itself must not be given what another process has erased.
        self._blobs = beneath(blobs)
        self._identity = identity
        self._clock = clock
        self.succession = succession

    async def checkpoint(self, access: Access) -> bytes:
        """Return the signed `checkpoint` of this moment.

        Raises:
            NotAllowed: the key may not see the whole account.
        """
        require_whole(access)
        row = await account_rows.find_account(self._database, access.account)
        if row is None:
            raise NotFound("No such account.")
        return sign_checkpoint(
            self._identity,
            Checkpoint(
                account=access.account,
                seq=row["receipt_seq"],
                head=row["receipt_head"],
                grant_serial=row["grant_serial"],
                time_ms=to_ms(self._clock()),
            ),
        )

    async def inventory(
        self, access: Access, namespaces: Sequence[Namespace] | None, cursor: str, limit: int
    ) -> Inventory:
        """Return a page of what is stored in these namespaces, or (None) wherever the key may read.

        Raises:
            NotAllowed: it may not read one of them.
            BadRequest: another route's cursor.
        """
        for namespace in namespaces or ():
            access.require(namespace, "reader")
        named = access.namespaces if namespaces is None else list(namespaces)
        account = access.account
        if cursor.startswith(EPISODES):
            after = cursors.identifier(cursor.removeprefix(EPISODES))
            episodes = await rows.episodes_after(self._database, account, after, named, limit)
            full = len(episodes) == limit
            return Inventory([], episodes, f"{EPISODES}{episodes[-1]['id']}" if full else None)
        seq = cursors.number(cursor)
        page = await rows.revisions_after(self._database, account, seq, named, limit)
        return Inventory(page, [], str(page[-1]["seq"]) if len(page) == limit else EPISODES)

    async def blobs(self, access: Access, names: Sequence[str]) -> Blobs:
        """Return stored bytes: of any object of the account, or of namespaces the key may read.

        As many as fit into one answer, in the order asked, at least one.
        """
        allowed = set(names)
        if access.namespaces is not None:
            hashes = [blob_hash(name) for name in names]
            owned = await rows.blobs_of(self._database, access.account, hashes, access.namespaces)
            allowed = {to_base64url(blob_id) for blob_id in owned}
        found: dict[str, bytes | Corrupted | None] = {}
        room = Limits.blobs_bytes_max
        for at in range(0, len(names), _AT_ONCE):
            page = [name for name in names[at : at + _AT_ONCE] if name in allowed]
            read = await self._read(access, page)
            for name in names[at : at + _AT_ONCE]:
                data = read.get(name)
                room -= len(data) if isinstance(data, bytes) else 0
                if room < 0 and found:
                    return Blobs(found, [n for n in names if n not in found])
                found[name] = data
        return Blobs(found, [])

    async def _read(self, access: Access, names: Sequence[str]) -> dict[str, bytes | Corrupted]:
        """Return blobs of the store; journal objects that still wait to be published, too."""
        read = await self._blobs.get_many(access.account, names)
        if missing := [name for name in names if name not in read]:
            read |= await staged_blobs.find(self._database, access.account, missing)
        return read


def require_whole(access: Access) -> None:
    """Return when the key may see the whole account, and with it the chain of receipts.

    Raises:
        NotAllowed: it may not.
    """
    if access.namespaces is not None:
        raise NotAllowed("Receipts name every namespace; this key may not see them all.")
