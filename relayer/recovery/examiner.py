"""Telling what stored objects are that no row refers to.

Not here: what becomes of them (`collection.py`, `replay.py`), verifying what rows refer to
(`upkeep/check.py`). Nothing has to be opened for any of this.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from relayer.blobs.cache import beneath
from relayer.blobs.store import BlobStore, select_unread
from relayer.clock import to_ms
from relayer.database import collection as rows
from relayer.database import rebuild as rebuild_rows
from relayer.database import replay as replay_rows
from relayer.database.pool import Database
from relayer.errors import Corrupted
from relayer.memories.eraser import ERASURES
from relayer.record import is_former_name
from relayer.recovery.journal_objects import is_history, named_of, receipt_of
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId, PublicKey
from relayer.sealed.named import NamedKey
from relayer.sealed.primitives import CryptoError, to_base64url
from relayer.sealed.receipts import Receipt
from relayer.sealed.states import SignedState, open_state
from relayer.tenants.closing import CLOSE

PAGE: Final = 500  # names that are looked up together
READ_AT_ONCE: Final = 16  # objects in memory; each may have a mebibyte


@dataclass
class Unreferred:
    """Objects that no row refers to, by name.

    Attributes:
        stray: nobody knows what for.
        useless: of something that was erased or done with, or that a newer object replaced, which
            can be read.
        unknown: receipts of erasures that the database does not know.
        serial: the highest serial of grants that a receipt of another database had seen, whether
            or not what it erased is erased here by now.
        ahead: other journal objects that it does not know.
        history: the bytes of those `ahead` that are grants, revocations, or what a grant rests on.
        names: the keys of namespaces that those `ahead` tell of.
        states: what those `ahead` say of memories, by name.
        memories: those `stray` that are sealed memories or episodes.
        altered: their bytes do not match their names.
        lasting: objects of the journal that are never collected, whatever else of this they are.
        unread: they are there and cannot be read now; they may be any of the others.
    """

    stray: list[str] = field(default_factory=list)
    useless: list[str] = field(default_factory=list)
    unknown: list[Receipt] = field(default_factory=list)
    serial: int = 0
    ahead: list[str] = field(default_factory=list)
    history: list[bytes] = field(default_factory=list)
    names: list[NamedKey] = field(default_factory=list)
    states: dict[str, SignedState] = field(default_factory=dict)
    memories: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    lasting: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


class Examiner:
    """Tells what objects are that no row refers to; changes nothing."""

    def __init__(
        self, *, database: Database, blobs: BlobStore, relayers: Sequence[PublicKey]
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._relayers = relayers

    async def pages(self, account: AccountId, after: str = "") -> AsyncIterator[list[str]]:
        """Yield the names of an account's objects, some at a time."""
        page: list[str] = []
        async for name in self._blobs.names(account, after=after):
            page.append(name)
            if len(page) == PAGE:
                yield page
                page = []
        if page:
            yield page

    async def examine(self, account: AccountId, names: Sequence[str]) -> Unreferred:
        """Examine these objects, and return those that no row refers to.

        The names must have been listed before: an object is put before its row is written.
        """
        hashes = {envelope.blob_hash(name): name for name in names}
        referred = await rows.find_referred(self._database, account=account, blob_ids=list(hashes))
        lonely = [name for blob, name in hashes.items() if blob not in referred]
        found = Unreferred()
        for at in range(0, len(lonely), READ_AT_ONCE):
            some = lonely[at : at + READ_AT_ONCE]
            objects = await self._blobs.get_many(account, some)
            found.unread += await select_unread(self._blobs, account, some, objects)
            await self._sort(account, objects, found)
        return found

    async def _sort(
        self, account: AccountId, objects: dict[str, bytes | Corrupted], found: Unreferred
    ) -> None:
        blobs: dict[str, envelope.Header | None] = {}
        journal: dict[str, bytes] = {}
        for name, data in objects.items():
            if isinstance(data, Corrupted):
                found.altered.append(name)
            elif data.startswith(b"{"):
                journal[name] = data
            else:
                blobs[name] = _header(data)
        if blobs:
            await self._sort_blobs(account, blobs, found)
        if journal:
            await self._sort_journal(account, journal, found)

    async def _sort_blobs(
        self, account: AccountId, blobs: dict[str, envelope.Header | None], found: Unreferred
    ) -> None:
        """Sealed memories and episodes, and foreign bytes."""
        ids = [header.address.memory for header in blobs.values() if header is not None]
        over = await rows.find_tombstoned(self._database, account=account, ids=ids)
        over |= await rows.find_extracted(self._database, account=account, ids=ids)
        replaced = await self._find_replaced(account, blobs)
        nameless = [
            envelope.blob_hash(name)
            for name, header in blobs.items()
            if header is None or is_former_name(header.address.memory)
        ]
        erased_blobs = (
            await rows.find_tombstoned_blobs(self._database, account=account, blob_ids=nameless)
            if nameless
            else set()
        )
        for name, header in blobs.items():
            gone = envelope.blob_hash(name) in erased_blobs or name in replaced
            if header is not None:
                gone |= header.address.memory in over
            (found.useless if gone else found.stray).append(name)
            if not gone and header is not None and header.address.account == account:
                found.memories.append(name)

    async def _find_replaced(
        self, account: AccountId, blobs: dict[str, envelope.Header | None]
    ) -> set[str]:
        """Return those that were sealed anew since: left of a database lost before its minute.

        What replaces them can be read. While it cannot, they may be all that is left.
        """
        places = {name: header for name, header in blobs.items() if header is not None}
        ids = [header.address.memory for header in places.values()]
        rows_here = await rebuild_rows.find_sealed(self._database, account, ids)
        here = {(row["id"], row["revision"]): row for row in rows_here}
        by: dict[str, str] = {}
        for name, header in places.items():
            row = here.get((header.address.memory, header.address.revision))
            if row is not None and header.epoch < row["epoch"]:
                by[name] = to_base64url(row["blob_id"])
        read = await beneath(self._blobs).get_many(account, sorted({*by.values()})) if by else {}
        return {name for name, newer in by.items() if isinstance(read.get(newer), bytes)}

    async def _sort_journal(
        self, account: AccountId, journal: dict[str, bytes], found: Unreferred
    ) -> None:
        known = await rows.find_signed_objects(
            self._database, account=account, objects=list(journal.values())
        )
        receipts: dict[str, Receipt] = {}
        foreign: dict[str, envelope.Header | None] = {}
        for name, data in journal.items():
            if data in known:
                found.lasting.append(name)
            elif (receipt := receipt_of(data, account, self._relayers)) is not None:
                found.lasting.append(name)
                receipts[name] = receipt
            elif (said := self._state(data, account)) is not None:
                newer = await self._is_of_since(said)
                (found.ahead if newer else found.useless).append(name)
                if newer:
                    found.states[name] = said
            elif (named := named_of(data, account, self._relayers)) is not None:
                found.lasting.append(name)
                found.ahead.append(name)
                found.names.append(named)
            elif is_history(data, account):
                found.lasting.append(name)
                found.ahead.append(name)
                found.history.append(data)
            else:
                foreign[name] = None  # an upload may begin like an object of ours
        if foreign:
            await self._sort_blobs(account, foreign, found)
        if receipts:
            await self._sort_receipts(account, journal, receipts, found)

    async def _sort_receipts(
        self,
        account: AccountId,
        journal: dict[str, bytes],
        receipts: dict[str, Receipt],
        found: Unreferred,
    ) -> None:
        """Erasures that another database answered for have to be known by what they erased."""
        here = await rows.receipts(
            self._database, account=account, seqs=[r.seq for r in receipts.values()]
        )
        others = {n: r for n, r in receipts.items() if here.get(r.seq) != journal[n]}
        ids = [i.memory for r in others.values() for i in r.items]
        living = await rows.find_living(self._database, account=account, ids=ids) if ids else set()
        erased = (
            await rows.find_tombstoned(self._database, account=account, ids=ids) if ids else set()
        )
        found.serial = max([found.serial, *(r.serial for r in others.values())])
        for receipt in others.values():
            named = {item.memory for item in receipt.items}
            if receipt.op == CLOSE or (
                receipt.op in ERASURES and (named & living or named - erased)
            ):
                found.unknown.append(receipt)

    async def _is_of_since(self, said: SignedState) -> bool:
        """Return true if a state was said after the newest change that the database knows.

        Also one with an earlier number may be: of a history that went on from an older copy.
        """
        return any(
            said.seq > row["receipt_seq"] or 0 < to_ms(row["changed_at"]) < said.time_ms
            for row in await replay_rows.newest(self._database, said.account)
        )

    def _state(self, data: bytes, account: AccountId) -> SignedState | None:
        try:
            said = open_state(data, *self._relayers)
        except CryptoError:
            return None
        return said if said.account == account else None


def _header(data: bytes) -> envelope.Header | None:
    """Return the header of a sealed blob; None for foreign bytes."""
    try:
        return envelope.read_header(data)
    except CryptoError:
        return None
