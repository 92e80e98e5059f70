"""Accounts founded again from what lies beside their blobs, when the database is lost.

Not here: giving memories their rows (`recovery/restore.py`), which takes their keys: a custodian's
are at hand, all others come with the next requests. Source: SPEC §17.

- Only signatures count. Grants lead back to the founder, what was erased and what holds of a
  memory is signed by this relayer under any key that it has had.
- What the journal names and does not have stops an account: half a chain of grants could leave out
  a revocation.
- An account that cannot be founded again keeps no other one from it, whatever the reason.
- Only the founder's key belongs to the account at once; others once they sign a request for it.
"""

import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from relayer.blobs.store import BlobStore, select_unread
from relayer.clock import Clock, from_claimed_ms, from_ms, to_ms
from relayer.database import accounts as account_rows
from relayer.database import queue
from relayer.database import rebuild as rows
from relayer.database import requests as request_rows
from relayer.database.pool import Database, UniqueViolation
from relayer.errors import Corrupted, Unavailable
from relayer.journal.outbox import Outbox
from relayer.logs import describe
from relayer.memories.eraser import ERASURES, EXPIRE
from relayer.recovery.chain_replay import continue_chain
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.grants import Chain, parse_any
from relayer.sealed.keys import AccountId, Identity, Namespace, PublicKey, account_text
from relayer.sealed.named import NamedKey, open_namespace
from relayer.sealed.objects import claimed
from relayer.sealed.primitives import CryptoError
from relayer.sealed.receipts import (
    FIRST_PREVIOUS,
    REBUILD,
    Receipt,
    chain_hash,
    open_receipt,
    sign_receipt,
)
from relayer.sealed.states import open_state
from relayer.sealed.succession import open_next
from relayer.storage import Storage
from relayer.tenants.closing import CLOSE

log = logging.getLogger("relayer.rebuild")

REBUILT: Final = "rebuilt"
CLOSED: Final = "closed"
READ_AT_ONCE: Final = 16  # objects in memory; each may have a mebibyte
TOMBSTONES_AT_ONCE: Final = 1_000


@dataclass
class Journal:
    """The contents of an account's objects that begin like signed ones, and verify."""

    history: list[bytes] = field(default_factory=list)  # grants, and what they rest on
    receipts: list[tuple[Receipt, bytes]] = field(default_factory=list)
    namespaces: dict[tuple[Namespace, int], tuple[NamedKey, bytes]] = field(default_factory=dict)
    seq: int = 0  # the highest receipt number that any of them names, or the store was told of
    blobs: int = 0  # objects that are none of these: memories, episodes, uploads


@dataclass(frozen=True)
class Rebuilt:
    """The outcome for an account: `rebuilt`, `closed` (it was erased), or why it was not."""

    account: AccountId
    outcome: str
    blobs: int

    def as_json(self) -> dict[str, Any]:
        """Return the outcome for scripts."""
        return {
            "account_id": account_text(self.account),
            "outcome": self.outcome,
            "ok": self.outcome in (REBUILT, CLOSED),
            "blobs": self.blobs,
        }


class Rebuild:
    """Founds accounts again that the store knows and the database does not."""

    def __init__(
        self,
        *,
        database: Database,
        blobs: BlobStore,
        outbox: Outbox,
        identity: Identity,
        relayers: Sequence[PublicKey],
        clock: Clock,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._outbox = outbox
        self._identity = identity
        self._relayers = relayers
        self._clock = clock

    async def rebuild(self, *, only_if_empty: bool = False) -> list[Rebuilt]:
        """Rebuild every account of the store that the database does not know, one after the other.

        With `only_if_empty` nothing, if an account was ever founded here in another way: what has
        only rebuilt ones is what an interrupted rebuild leaves, or one that another replica is at.
        """
        stored = await self._blobs.accounts()  # first: a new account is published after its rows
        known = await rows.find_accounts(self._database)
        lost = [account for account in stored if account not in known]
        if not lost:
            return []
        if only_if_empty and not await self._has_only_rebuilt(known):
            extra = {"event": "rebuild.needed", "accounts": len(lost)}
            log.warning("accounts are not in the database", extra=extra)
            return []
        done = [await self._rebuild_alone(account) for account in lost]
        await self._outbox.publish_soon()
        return done

    async def _has_only_rebuilt(self, known: Iterable[AccountId]) -> bool:
        """Return true if all these accounts, if any, were founded again, or are erased."""
        for account in known:
            first = await account_rows.receipts_after(self._database, account, 0, 1)
            if not first or claimed(first[0], "op") not in (REBUILD, CLOSE):
                return False
        return True

    async def _rebuild_alone(self, account: AccountId) -> Rebuilt:
        """Rebuild one account, and return its outcome whatever its tenant's objects are like.

        Raises:
            Unavailable: database or store are away.
        """
        try:
            return await self._rebuild_one(account)
        except Unavailable:
            raise
        except Exception as error:
            extra = {"event": "rebuild.failed", "exception": describe(error)}
            log.error("an account could not be rebuilt", extra=extra)
            return Rebuilt(account, f"not rebuilt: {type(error).__name__}, see the log", 0)

    async def _rebuild_one(self, account: AccountId) -> Rebuilt:
        journal = await self._read(account)
        closed = next((found for found in journal.receipts if found[0].op == CLOSE), None)
        try:
            # Of an account that was erased, nothing is left but that.
            chain, grants = (Chain(account), []) if closed else _chain(account, journal)
            # Which requests it had accepted, nobody knows any more.
            await request_rows.restore_nonces(self._database)
            await self._restore_account(account, journal, chain, grants, closed)
        except CryptoError as error:
            return Rebuilt(account, f"not rebuilt: {error}", journal.blobs)
        except UniqueViolation:
            return Rebuilt(account, "not rebuilt: it is there by now", journal.blobs)
        return Rebuilt(account, CLOSED if closed else REBUILT, journal.blobs)

    async def _read(self, account: AccountId) -> Journal:
        # Else it would be behind what the store was told of, and have to catch up at every start.
        journal = Journal(seq=await self._blobs.read_mark(account))
        page: list[str] = []
        async for name in self._blobs.names(account):
            page.append(name)
            if len(page) == READ_AT_ONCE:
                await self._read_page(account, page, journal)
                page = []
        await self._read_page(account, page, journal)
        return journal

    async def _read_page(self, account: AccountId, names: list[str], journal: Journal) -> None:
        read = await self._blobs.get_many(account, names)
        if await select_unread(self._blobs, account, names, read):
            raise Corrupted("An object cannot be read, which may be a revocation or an erasure.")
        for data in read.values():
            known = isinstance(data, bytes) and self._note(account, data, journal)
            journal.blobs += not known

    def _note(self, account: AccountId, data: bytes, journal: Journal) -> bool:
        """Note an object if it is one of the journal's; true if it is."""
        if not data.startswith(b"{"):
            return False
        for read in (self._note_grant, self._note_receipt, self._note_state, self._note_namespace):
            try:
                if read(account, data, journal):
                    return True
            except CryptoError:
                continue
        try:
            open_next(data)
        except CryptoError:
            return False
        journal.history.append(data)
        return True

    def _note_grant(self, account: AccountId, data: bytes, journal: Journal) -> bool:
        item = parse_any(data)
        if item.account == account:
            journal.history.append(data)
        return item.account == account

    def _note_receipt(self, account: AccountId, data: bytes, journal: Journal) -> bool:
        receipt = open_receipt(data, *self._relayers)
        if receipt.account == account:
            journal.receipts.append((receipt, data))
            journal.seq = max(journal.seq, receipt.seq)
        return receipt.account == account

    def _note_state(self, account: AccountId, data: bytes, journal: Journal) -> bool:
        said = open_state(data, *self._relayers)
        if said.account == account:
            journal.seq = max(journal.seq, said.seq)
        return said.account == account

    def _note_namespace(self, account: AccountId, data: bytes, journal: Journal) -> bool:
        named = open_namespace(data, *self._relayers)
        if named.account == account:
            journal.namespaces[named.namespace, named.epoch] = (named, data)
        return named.account == account

    async def _restore_account(
        self,
        account: AccountId,
        journal: Journal,
        chain: Chain,
        grants: list[rows.JournalGrant],
        closed: tuple[Receipt, bytes] | None,
    ) -> None:
        """Restore all of the account but its memories, in one transaction.

        Of one that was erased, its last receipt stays the last: the next loss finds it, too.
        """
        now = self._clock()
        seq, receipt = journal.seq + 1, self._receipt(account, journal, chain, now)
        if closed is not None:
            seq, receipt = closed[0].seq, closed[1]
        names = sorted({name for name, _ in journal.namespaces} | _find_erased_names(journal))
        numbers = {name: number for number, name in enumerate(names, 1)}
        tombstones = _tombstones(journal, numbers)
        async with self._database.transaction() as connection:
            await rows.insert_account(
                connection,
                account=account,
                created_at=grants[0].created_at if grants else now,
                epoch=max(chain.epoch, 1),
                grants=grants,
                receipt_seq=seq,
                receipt=receipt,
                receipt_head=chain_hash(receipt),
                receipt_blob_id=blob_hash(blob_id(receipt)),
                now=now,
                closed_at=None if closed is None else from_ms(closed[0].time_ms),
            )
            await rows.insert_namespaces(
                connection,
                account,
                names,
                [
                    (numbers[name], epoch, named.key_id, signed)
                    for (name, epoch), (named, signed) in journal.namespaces.items()
                ],
                now,
            )
            for at in range(0, len(tombstones), TOMBSTONES_AT_ONCE):
                page = tombstones[at : at + TOMBSTONES_AT_ONCE]
                await rows.insert_tombstones(connection, account, page, now)
            if chain.founder is not None:
                await account_rows.claim_key(connection, key=chain.founder, account=account)
                await queue.enqueue(connection, queue.RESTORE, account, [])

    def _receipt(self, account: AccountId, journal: Journal, chain: Chain, now: datetime) -> bytes:
        """Return the first receipt of the account's new chain: what came before is not proven."""
        newest = next((data for r, data in journal.receipts if r.seq == journal.seq), None)
        return sign_receipt(
            self._identity,
            Receipt(
                account=account,
                seq=journal.seq + 1,
                previous=FIRST_PREVIOUS if newest is None else chain_hash(newest),
                time_ms=to_ms(now),
                op=REBUILD,
                actor=self._identity.public_key,
                namespace=None,
                epoch=None,
                items=(),
                serial=chain.serial,
            ),
        )


async def rebuild_lost(
    storage: Storage, clock: Clock, *, only_if_empty: bool = False
) -> list[Rebuilt]:
    """Rebuild the lost accounts of a storage, and log the outcome of each."""
    rebuild = Rebuild(
        database=storage.database,
        blobs=storage.blobs,
        outbox=storage.outbox,
        identity=storage.identity,
        relayers=storage.relayers,
        clock=clock,
    )
    done = await rebuild.rebuild(only_if_empty=only_if_empty)
    for one in done:
        log.warning("an account was lost", extra={"event": "rebuild", "outcome": one.outcome})
    return done


def _chain(account: AccountId, journal: Journal) -> tuple[Chain, list[rows.JournalGrant]]:
    """Return the verified chain of grants, and what is stored of it.

    Raises:
        CryptoError: there is none, one is missing, or there are two for one place.
    """
    chain = Chain(account)
    steps, due = continue_chain(chain, [], journal.history)
    if due > chain.serial:
        raise CryptoError(f"the journal has none or several grants of serial {chain.serial + 1}")
    if not steps:
        raise CryptoError("the journal has no grants")
    if any(receipt.serial > chain.serial for receipt, _ in journal.receipts):
        raise CryptoError("the journal lacks its newest grants")
    return chain, [
        rows.JournalGrant(
            serial=item.serial,
            recipient=item.recipient,
            signed=item.signed,
            created_at=from_claimed_ms(item.created_ms),
            succession=succession,
        )
        for item, _, succession in steps
    ]


def _find_erased_names(journal: Journal) -> set[Namespace]:
    return {r.namespace for r, _ in journal.receipts if r.namespace is not None}


def _tombstones(journal: Journal, numbers: dict[Namespace, int]) -> list[rows.Tombstone]:
    """Return a tombstone for each memory and episode that some receipt says was erased."""
    blobs: dict[uuid.UUID, set[bytes]] = {}
    last: dict[uuid.UUID, Receipt] = {}
    for receipt, _ in sorted(journal.receipts, key=lambda found: found[0].seq):
        if receipt.op in ERASURES:
            for item in receipt.items:
                blobs.setdefault(item.memory, set()).add(blob_hash(item.blob_id))
                last[item.memory] = receipt
    return [
        rows.Tombstone(
            memory_id,
            None if receipt.namespace is None else numbers[receipt.namespace],
            sorted(blobs[memory_id]),
            from_ms(receipt.time_ms),
            receipt.op == EXPIRE,
        )
        for memory_id, receipt in last.items()
    ]
