"""Namespaces by name: their number in the account and the key ids of their epochs.

Not here: the keys themselves (`custody.py`).

- Whoever may write first may name a key, and nobody here can tell whether it comes from the root.
  So a key id that an owner, or the custodian, named stands; any other gives way to theirs.
- A request that only reads does not replace a key: that is done behind it.
- A row never changes its number, and its key ids only so: what was found is cached, and read again
  before a key is refused.
- What was sealed under a key that gave way stays where it is, and opens no more.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from relayer.clock import Clock, to_ms
from relayer.database import namespaces as namespace_rows
from relayer.database.index_steps import IndexMark
from relayer.database.pool import Database
from relayer.errors import BadRequest, NotAllowed, NotFound
from relayer.logs import warn
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.grants import Chain
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey, PublicKey
from relayer.sealed.named import NamedKey
from relayer.settings import Limits
from relayer.telemetry.instruments import count_lookups
from relayer.tenants.accounts import Access, Accounts
from relayer.tenants.ledger import Ledger

CACHED_MAX: Final = 50_000
SETTLING_MAX: Final = 64  # keys at a time that are settled behind requests

log = logging.getLogger("relayer.namespaces")


@dataclass(frozen=True)
class NamespaceEntry:
    """A namespace's number, epoch → key id, and epoch → who named that, where it is known.

    Attributes:
        looked_at: when epochs were missed in it last.
        sealed_index: whether what finds its memories is sealed, too.
        index_moves: whether some are still found by the other index.
        choices: how often the account had chosen an index by then.
    """

    namespace_id: int
    key_ids: dict[int, bytes]
    named_by: dict[int, PublicKey | None]
    looked_at: IndexMark | None = None
    sealed_index: bool = False
    index_moves: bool = False
    choices: int = 0

    @property
    def has_records(self) -> bool:
        """Return true if some memories are found by sealed records, which no statement searches."""
        return self.sealed_index or self.index_moves


class Namespaces:
    """Finds and creates namespaces."""

    def __init__(
        self,
        *,
        database: Database,
        accounts: Accounts,
        ledger: Ledger,
        clock: Clock,
    ) -> None:
        self._database = database
        self._accounts = accounts
        self._ledger = ledger
        self._clock = clock
        self._settling: dict[tuple[AccountId, Namespace, int], asyncio.Task[None]] = {}
        self._known: OrderedDict[tuple[AccountId, Namespace], NamespaceEntry] = OrderedDict()

    async def find(self, account: AccountId, namespace: Namespace) -> NamespaceEntry | None:
        """Return the namespace, or None before its first memory."""
        known = self._known.get((account, namespace))
        count_lookups("namespaces", known is not None)
        return known or await self._load(account, namespace)

    async def find_now(self, access: Access, namespace: Namespace) -> NamespaceEntry | None:
        """Return the namespace with the index that it has by the time of the request.

        Another process may have let it choose another since it was looked up here.
        """
        known = await self.find(access.account, namespace)
        if known is None or known.choices == access.index_choices:
            return known
        return await self._load(access.account, namespace)

    async def with_epochs(
        self, access: Access, namespace: Namespace, epochs: Set[int]
    ) -> NamespaceEntry | None:
        """Return the namespace with those of these epochs that it has by now; None as for `find`.

        Another process may have begun an epoch since the namespace was looked up here. Nothing is
        sealed under one without moving the index's mark.
        """
        known = await self.find_now(access, namespace)
        if known is None or epochs <= known.key_ids.keys():
            return known
        if known.looked_at is not None and known.looked_at == access.index_mark:
            return known
        entry = await self._load(access.account, namespace)
        if entry is not None:
            entry = replace(entry, looked_at=access.index_mark)
            self._known[access.account, namespace] = entry
        return entry

    async def stored_keys(
        self, account: AccountId, names: Sequence[Namespace]
    ) -> list[tuple[Namespace, int, bytes]]:
        """Return (name, epoch, key id) of each key that one of these namespaces has by now."""
        found = await namespace_rows.find_namespaces(self._database, account, names)
        return [(Namespace(row["name"]), row["epoch"], row["key_id"]) for row in found]

    async def numbers(self, account: AccountId, namespaces: Iterable[Namespace]) -> list[int]:
        """Return the numbers of those of these namespaces that are there."""
        entries = [await self.find(account, name) for name in namespaces]
        return [entry.namespace_id for entry in entries if entry is not None]

    async def key_id(self, account: AccountId, namespace: Namespace, epoch: int) -> bytes | None:
        """Return the key id the account has for this namespace and epoch."""
        entry = await self.find(account, namespace)
        if entry is not None and epoch not in entry.key_ids:
            entry = await self._load(account, namespace)
        return None if entry is None else entry.key_ids.get(epoch)

    async def ensure(
        self, access: Access, key: NamespaceKey, by: PublicKey | None
    ) -> NamespaceEntry:
        """Return the namespace with this key's epoch; create it if it is new. `by` lends the key.

        Raises:
            BadRequest: the account has as many namespaces as it may.
            NotAllowed: the namespace has another key in this epoch, or is new, and who asks may
                write there no more.
            NotAuthenticated: it is new, and who asks may do nothing any more.
        """
        account = access.account
        if await self.key_id(account, key.namespace, key.epoch) is None:
            await self.create(access, key.namespace, key.epoch, key.key_id, by)
        entry = await self.find_now(access, key.namespace)
        if entry is None or key.epoch not in entry.key_ids:
            entry = await self._load(account, key.namespace)
        if entry is None or key.epoch not in entry.key_ids:
            raise BadRequest("The account has too many namespaces.", code="namespace.too_many")
        if entry.key_ids[key.epoch] != key.key_id:
            return await self.settle(account, key, by)
        return await self._vouch(account, key, by, entry)

    async def settle(
        self, account: AccountId, key: NamespaceKey | NamedKey, by: PublicKey | None
    ) -> NamespaceEntry:
        """Return the namespace with this key in its epoch, which it has or gets.

        It gets it if an owner or the custodian lends or grants it, and the other one was named by
        nobody who is that.

        Raises:
            NotAllowed: it has another one.
        """
        entry = await self._load(account, key.namespace)  # another process may have settled it
        chain = await self._accounts.chain(account)
        if entry is not None and self._gives_way(entry, chain, key, by):
            await self._replace(chain, key, by, entry)
            entry = await self._load(account, key.namespace)
        return _require_key(entry, key)

    async def check(self, account: AccountId, key: NamespaceKey, by: PublicKey | None) -> None:
        """Return when a namespace has this key in its epoch, or when `settle` would give it that.

        It is settled behind the request then, which may be one that only reads. When too many are,
        the next request with the key has it settled.

        Raises:
            NotAllowed: it has another one.
        """
        entry = await self._load(account, key.namespace)  # another process may have settled it
        chain = await self._accounts.chain(account)
        if entry is None or not self._gives_way(entry, chain, key, by):
            _require_key(entry, key)
            return
        place = (account, key.namespace, key.epoch)
        if place not in self._settling and len(self._settling) < SETTLING_MAX:
            task = asyncio.create_task(self._settle_quietly(account, key, by))
            self._settling[place] = task  # the loop keeps no strong reference
            task.add_done_callback(lambda _: self._settling.pop(place))

    async def _settle_quietly(
        self, account: AccountId, key: NamespaceKey, by: PublicKey | None
    ) -> None:
        try:
            await self.settle(account, key, by)
        except Exception as error:
            warn(log, "a namespace's key waits", "namespace.wait", error)

    async def wait_settled(self) -> None:
        """Wait for what is being settled behind requests."""
        await asyncio.gather(*self._settling.values())

    def _gives_way(
        self,
        entry: NamespaceEntry,
        chain: Chain,
        key: NamespaceKey | NamedKey,
        by: PublicKey | None,
    ) -> bool:
        """Return true if another key of this epoch gives way to one that `by` lends."""
        known = entry.key_ids.get(key.epoch)
        granted = chain.key_ids.get((key.namespace, key.epoch))
        return (
            known not in (None, key.key_id)
            and granted in (None, key.key_id)
            and self._holds_all(chain, by)
            and not self._holds_all(chain, entry.named_by.get(key.epoch))
        )

    def _holds_all(self, chain: Chain, key: PublicKey | None) -> bool:
        """Return true if a key is an owner's or a custodian's now."""
        live = () if key is None else chain.live(key, to_ms(self._clock()))
        return any(grant.role in ("owner", "custodian") for grant in live)

    async def _replace(
        self,
        chain: Chain,
        key: NamespaceKey | NamedKey,
        by: PublicKey | None,
        entry: NamespaceEntry,
    ) -> None:
        assert by is not None
        account = chain.account
        named = NamedKey(account, key.namespace, key.epoch, key.key_id)
        with suppress(NotFound):  # closed meanwhile
            async with self._ledger.change(self._ledger.unasked(account)) as change:
                if change.grant_serial != chain.serial:
                    return  # it was judged by an older chain
                signed = change.sign_namespace(named)
                change.has_objects = await namespace_rows.replace_key(
                    change.connection,
                    account=account,
                    namespace_id=entry.namespace_id,
                    epoch=key.epoch,
                    before=entry.key_ids[key.epoch],
                    after=namespace_rows.NamedAnew(
                        key_id=key.key_id,
                        signed=signed,
                        object_id=blob_hash(blob_id(signed)),
                        named_by=by,
                        now=change.time,
                        outside=change.outside_store,
                    ),
                )
            if change.has_objects:
                event = {"event": "namespace.key"}
                log.warning("an owner's key took a writer's place", extra=event)

    async def _vouch(
        self, account: AccountId, key: NamespaceKey, by: PublicKey | None, entry: NamespaceEntry
    ) -> NamespaceEntry:
        """Return the namespace; who lends its key for a write vouches for it from now on.

        That is so if an owner or the custodian lends it.
        """
        named_by = entry.named_by.get(key.epoch)
        if by is None or by == named_by:
            return entry
        chain = self._accounts.chain_at_hand(account)
        if self._holds_all(chain, named_by) or not self._holds_all(chain, by):
            return entry
        await namespace_rows.vouch(
            self._database,
            account=account,
            namespace_id=entry.namespace_id,
            epoch=key.epoch,
            key_id=key.key_id,
            named_by=by,
        )
        return await self._load(account, key.namespace) or entry

    async def create(
        self,
        access: Access,
        namespace: Namespace,
        epoch: int,
        key_id: bytes,
        by: PublicKey | None,
    ) -> None:
        """Create the namespace with the key of this id in an epoch, unless there is one.

        It is named by the key `by`.

        The journal learns its name: without that, nobody could find what is sealed in it.

        Raises:
            NotAllowed, NotAuthenticated: who asks may write there no more.
        """
        named = NamedKey(access.account, namespace, epoch, key_id)
        async with self._ledger.change(access, [namespace]) as change:
            signed = change.sign_namespace(named)
            await namespace_rows.create_namespace(
                change.connection,
                account=access.account,
                name=namespace,
                epoch=epoch,
                key_id=key_id,
                signed=signed,
                object_id=blob_hash(blob_id(signed)),
                now=change.time,
                namespaces_max=Limits.namespaces_max,
                named_by=by,
            )
            change.has_objects = True

    async def _load(self, account: AccountId, namespace: Namespace) -> NamespaceEntry | None:
        rows = await namespace_rows.find_namespaces(self._database, account, [namespace])
        if not rows:
            return None
        entry = NamespaceEntry(
            rows[0]["namespace_id"],
            {r["epoch"]: r["key_id"] for r in rows},
            {r["epoch"]: r["named_by"] for r in rows},
            sealed_index=rows[0]["sealed_index"],
            index_moves=rows[0]["index_moves"],
            choices=rows[0]["index_choices"],
        )
        self._known[account, namespace] = entry
        if len(self._known) > CACHED_MAX:
            self._known.popitem(last=False)
        return entry


def _require_key(entry: NamespaceEntry | None, key: NamespaceKey | NamedKey) -> NamespaceEntry:
    """Return the namespace, if it has this key in its epoch.

    Raises:
        NotAllowed: it has another one.
    """
    if entry is None or entry.key_ids.get(key.epoch) != key.key_id:
        raise NotAllowed(
            f"Namespace '{key.namespace}' has another key in epoch {key.epoch}, sent by whoever"
            " wrote there first. If that one is wrong, a request there by an owner replaces"
            " it.",
            code="unlock_rejected",
        )
    return entry
