"""The import from another relayer, in order: grants, account, namespaces, erasures, rows, states.

Not here: reading it there (`exporter.py`), judging and writing rows (`row_importer.py`), states
(`state_importer.py`), SQL (`database.imports`). Source: SPEC §17.2.

- Doing it all again changes nothing.
- Keys of the account elsewhere belong to nobody here until they sign a request of their own
  (`Accounts.claim`): an owner cannot bring a stranger's key into the account.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relayer.archives.grant_importer import GrantImporter
from relayer.archives.row_importer import PLACES_MAX, RowImporter
from relayer.archives.state_importer import take_states
from relayer.archives.validation import ERASED, UNCHANGED, hash_of, unique
from relayer.clock import Clock, is_lasting, to_ms
from relayer.database import episodes
from relayer.database import imports as rows
from relayer.database.index_choice import choose as choose_index
from relayer.errors import BadRequest, Conflict, QuotaExceeded
from relayer.journal.changes import AccountChange
from relayer.memories.eraser import FORGET, RECEIPT_ITEMS_MAX, erase_in
from relayer.portable import (
    MovedAccount,
    MovedEpisode,
    MovedGrant,
    MovedMemory,
    MovedNamespace,
    MovedState,
    MovedTombstone,
)
from relayer.preferences import DEFAULTS
from relayer.sealed import envelope
from relayer.sealed.grants import Chain
from relayer.sealed.keys import Namespace, settled_namespace
from relayer.sealed.primitives import CryptoError
from relayer.sealed.receipts import Item
from relayer.settings import Limits
from relayer.tenants.accounts import Access, Accounts
from relayer.tenants.ledger import Ledger, retry_stale
from relayer.tenants.namespaces import NamespaceEntry, Namespaces


@dataclass(frozen=True)
class Arrival:
    """The parts of an import request; each may be empty."""

    account: MovedAccount | None
    grants: Sequence[MovedGrant]
    namespaces: Sequence[MovedNamespace]
    tombstones: Sequence[MovedTombstone]
    memories: Sequence[MovedMemory]
    episodes: Sequence[MovedEpisode]
    states: Sequence[MovedState] = ()


@dataclass(frozen=True)
class Arrived:
    """The outcome for each row, by its id, and the receipts for what is new.

    Attributes:
        results: `imported`, `unchanged` (it is here), `differs` (it is here in a revision that is
            not known to be of those it had there, and stays), `erased` (here or there), `refused`
            (row and blob contradict each other, or its epoch is over).
    """

    grants: int
    results: Sequence[tuple[uuid.UUID, str]]
    receipts: Sequence[bytes]


class Importer:
    """Takes in what an owner brings from another relayer."""

    def __init__(
        self,
        *,
        grants: GrantImporter,
        accounts: Accounts,
        namespaces: Namespaces,
        ledger: Ledger,
        rows: RowImporter,
        clock: Clock,
    ) -> None:
        self._grants = grants
        self._accounts = accounts
        self._namespaces = namespaces
        self._ledger = ledger
        self._rows = rows
        self._clock = clock

    async def take_in(self, access: Access, arrival: Arrival) -> Arrived:
        """Write what is new of it.

        Raises:
            NotAllowed: the key does not own the account.
            NotAuthenticated: it was revoked meanwhile; what was taken in before stays.
            BadRequest: a grant, a namespace or a list breaks a rule; nothing of that part counts.
            Conflict: the account went another way here, or still needs an epoch that is over there.
            QuotaExceeded: the account is full, or its chain of grants.
        """
        access.require_owner()
        receipts = await self._grants.take_in(access, arrival.grants)
        accepted = len(receipts)
        if arrival.account is not None:
            await self._take_account(access, arrival.account)
        for namespace in arrival.namespaces:
            await self._take_namespace(access, namespace)
        results: list[tuple[uuid.UUID, str]] = []
        if arrival.tombstones:
            more, signed = await self._take_tombstones(access, arrival.tombstones)
            results += more
            receipts += signed
        if arrival.memories or arrival.episodes:
            more, signed = await self._take_rows(access, arrival.memories, arrival.episodes)
            results += more
            receipts += signed
        if arrival.states:
            more, signed = await take_states(self._ledger, access, arrival.states)
            results += more
            receipts += signed
        return Arrived(accepted, results, receipts)

    async def _take_rows(
        self, access: Access, memories: Sequence[MovedMemory], episodes: Sequence[MovedEpisode]
    ) -> tuple[list[tuple[uuid.UUID, str]], list[bytes]]:
        """Write what is new of these; what became of each, the receipts."""
        names = [*(m.namespace for m in memories), *(e.namespace for e in episodes)]
        entries = await self._entries(access, names)

        async def attempt() -> tuple[list[tuple[uuid.UUID, str]], list[bytes]]:
            chain = await self._accounts.chain(access.account)
            oldest = chain.oldest_alive(to_ms(self._clock()))
            return await self._rows.take_in(
                access, memories, episodes, entries, serial=chain.serial, oldest=oldest
            )

        return await retry_stale(attempt, "Too many changes of one account at once.")

    async def _take_account(self, access: Access, moved: MovedAccount) -> None:
        if access.settings == DEFAULTS:
            await self._accounts.choose(access, moved.settings)
        # What is stored here meanwhile must not take the places of what is on its way.
        through = min(moved.memory_seq, PLACES_MAX)
        async with self._ledger.change(access, as_owner=True) as change:
            await rows.keep_seqs(change.connection, access.account, through)

    async def _take_namespace(self, access: Access, moved: MovedNamespace) -> None:
        name = _namespace(moved.name)
        known = await self._namespaces.find(access.account, name)
        chain = await self._accounts.chain(access.account)
        for key in moved.keys:
            named = _key_id_of(chain, name, key.epoch)
            if key.epoch > chain.epoch or named not in (None, bytes.fromhex(key.key_id)):
                raise BadRequest(
                    "A namespace has another key than the grants say.", code="namespace.key"
                )
            key_id = bytes.fromhex(key.key_id)
            await self._namespaces.create(access, name, key.epoch, key_id, access.key)
            if await self._namespaces.key_id(access.account, name, key.epoch) != key_id:
                raise Conflict("A namespace has another key here.", code="namespace.key")
        entry = await self._namespaces.find(access.account, name)
        async with self._ledger.change(access, as_owner=True) as change:
            if moved.sealed_index and entry is not None:
                number = entry.namespace_id
                await choose_index(
                    change.connection, account=access.account, namespace_id=number, sealed=True
                )
            if moved.ttl_s is not None:
                await rows.set_ttl(change.connection, access.account, name, moved.ttl_s)
            elif known is None:
                # It may have been erased there; what is on its way lists it.
                await rows.unlist(change.connection, access.account, name, change.time)

    async def _take_tombstones(
        self, access: Access, named: Sequence[MovedTombstone]
    ) -> tuple[list[tuple[uuid.UUID, str]], list[bytes]]:
        """Erase what lives of these, and remember the others; what became of each, the receipts.

        An episode whose facts were taken elsewhere stays where somebody keeps it beside its own.
        """
        ids = unique([tombstone.id for tombstone in named])
        receipts: list[bytes] = []
        entries = await self._entries(access, [s.namespace for s in named if s.namespace])
        async with self._ledger.change(access, op=FORGET, as_owner=True) as change:
            connection = change.connection
            taken = [tombstone.id for tombstone in named if tombstone.taken]
            kept = await episodes.find_kept(connection, account=access.account, episode_ids=taken)
            tombstones = [tombstone for tombstone in named if tombstone.id not in kept]
            for expired in (False, True):
                part = [tombstone for tombstone in tombstones if tombstone.expired == expired]
                receipts += await erase_in(
                    change,
                    [tombstone.id for tombstone in part],
                    blob_ids=[hash_of(name) for tombstone in part for name in tombstone.blob_ids],
                    expired=expired,
                )
            known = await rows.find_erased(connection, access.account, ids)
            fresh = [tombstone for tombstone in tombstones if tombstone.id not in known]
            await _check_room(change, fresh)
            receipts += await _remember_erased(change, fresh, entries)
        return [(i, UNCHANGED if i in kept else ERASED) for i in ids], receipts

    async def _entries(self, access: Access, names: Sequence[str]) -> dict[str, NamespaceEntry]:
        """Name → namespace of those that the account has here."""
        found = {n: await self._namespaces.find(access.account, Namespace(n)) for n in set(names)}
        return {name: entry for name, entry in found.items() if entry is not None}


async def _remember_erased(
    change: AccountChange,
    tombstones: Sequence[MovedTombstone],
    entries: Mapping[str, NamespaceEntry],
) -> list[bytes]:
    """Return tombstones for what never was here, each named by a receipt of this relayer."""
    if not tombstones:
        return []
    receipts = _sign(change, tombstones, entries)
    await rows.insert_tombstones(
        change.connection,
        change.account,
        tombstones=[
            (
                tombstone.id,
                _number(entries.get(tombstone.namespace or "")),
                [hash_of(name) for name in tombstone.blob_ids],
                tombstone.erased_at if is_lasting(tombstone.erased_at) else change.time,
                tombstone.expired,
            )
            for tombstone in tombstones
        ],
        vouched=rows.Vouched(receipts, change.receipt_seq, change.receipt_head),
        journal_ids=[hash_of(envelope.blob_id(signed)) for _, signed in receipts],
        now=change.time,
    )
    change.has_objects = True
    return [signed for _, signed in receipts]


def _sign(
    change: AccountChange,
    tombstones: Sequence[MovedTombstone],
    entries: Mapping[str, NamespaceEntry],
) -> list[tuple[int, bytes]]:
    """Return receipts (seq, signed) of what was erased, of one namespace each."""
    receipts: list[tuple[int, bytes]] = []
    for name in sorted({tombstone.namespace or "" for tombstone in tombstones}):
        items = [
            Item(tombstone.id, number, blob)
            for tombstone in tombstones
            if (tombstone.namespace or "") == name
            for number, blob in enumerate(tombstone.blob_ids, 1)
        ]
        entry = entries.get(name)
        place = (None, None) if entry is None else (Namespace(name), max(entry.key_ids))
        for at in range(0, len(items), RECEIPT_ITEMS_MAX):
            receipts.append(change.sign_items(items[at : at + RECEIPT_ITEMS_MAX], *place))
    return receipts


async def _check_room(change: AccountChange, tombstones: Sequence[MovedTombstone]) -> None:
    """Return when the account may remember these, too.

    Raises:
        QuotaExceeded: there are as many erased blobs as any account may bring.
    """
    coming = sum(len(tombstone.blob_ids) for tombstone in tombstones)
    room = Limits.erased_blobs_max - coming
    # A receipt names each of them, and so many receipts hold no more; else they are counted.
    if not tombstones or change.receipt_seq * RECEIPT_ITEMS_MAX <= room:
        return
    if await rows.count_erased_blobs(change.connection, change.account) > room:
        raise QuotaExceeded("The account remembers too much that was erased to bring more.")


def _key_id_of(chain: Chain, name: Namespace, epoch: int) -> bytes | None:
    """Return the key id that any grant of the account names for a namespace and epoch."""
    grants = (grant for held in chain.grants.values() for grant in held)
    entries = (entry for grant in grants for entry in grant.scope)
    return next((e.key_id for e in entries if (e.namespace, e.epoch) == (name, epoch)), None)


def _number(entry: NamespaceEntry | None) -> int | None:
    return None if entry is None else entry.namespace_id


def _namespace(name: str) -> Namespace:
    try:
        return settled_namespace(name)
    except CryptoError as error:
        raise BadRequest(f"{error}.", code="namespace.invalid") from None
