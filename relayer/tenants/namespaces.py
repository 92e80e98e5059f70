"""Namespaces by name: their number in the account and the key ids of their epochs.

Not here: the keys themselves (`custody.py`). A row, once written, never changes its number or its
key ids, so what was found is cached.
"""

from collections import OrderedDict
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from relayer.clock import Clock
from relayer.database import namespaces as namespace_rows
from relayer.database.index_steps import IndexMark
from relayer.database.pool import Database
from relayer.errors import BadRequest, NotAllowed
from relayer.journal.outbox import Outbox
from relayer.sealed.envelope import blob_hash, blob_id
from relayer.sealed.keys import AccountId, Identity, Namespace, NamespaceKey
from relayer.sealed.named import NamedKey, sign_namespace
from relayer.settings import Limits
from relayer.telemetry.instruments import looked_up
from relayer.tenants.access import Access
from relayer.tenants.accounts import Accounts

CACHED_MAX: Final = 50_000


@dataclass(frozen=True)
class NamespaceEntry:
    """A namespace's number, and epoch → key id."""

    namespace_id: int
    key_ids: dict[int, bytes]
    looked_at: IndexMark | None = None  # when epochs were missed in it last


class Namespaces:
    """Finds and creates namespaces."""

    def __init__(
        self,
        *,
        database: Database,
        accounts: Accounts,
        outbox: Outbox,
        identity: Identity,
        clock: Clock,
    ) -> None:
        self._database = database
        self._accounts = accounts
        self._outbox = outbox
        self._identity = identity
        self._clock = clock
        self._known: OrderedDict[tuple[AccountId, Namespace], NamespaceEntry] = OrderedDict()

    async def find(self, account: AccountId, namespace: Namespace) -> NamespaceEntry | None:
        """The namespace, or None before its first memory."""
        known = self._known.get((account, namespace))
        looked_up("namespaces", known is not None)
        return known or await self._load(account, namespace)

    async def with_epochs(
        self, access: Access, namespace: Namespace, epochs: Set[int]
    ) -> NamespaceEntry | None:
        """The namespace with those of these epochs that it has by now; None as for `find`.

        Another process may have begun an epoch since the namespace was looked up here. Nothing is
        sealed under one without moving the index's mark.
        """
        known = await self.find(access.account, namespace)
        if known is None or epochs <= known.key_ids.keys():
            return known
        if known.looked_at is not None and known.looked_at == access.index_mark:
            return known
        entry = await self._load(access.account, namespace)
        if entry is not None:
            entry = replace(entry, looked_at=access.index_mark)
            self._known[access.account, namespace] = entry
        return entry

    async def numbers(self, account: AccountId, namespaces: Iterable[Namespace]) -> list[int]:
        """The numbers of those of these namespaces that are there."""
        entries = [await self.find(account, name) for name in namespaces]
        return [entry.namespace_id for entry in entries if entry is not None]

    async def key_id(self, account: AccountId, namespace: Namespace, epoch: int) -> bytes | None:
        """The key id the account has for this namespace and epoch."""
        entry = await self.find(account, namespace)
        if entry is not None and epoch not in entry.key_ids:
            entry = await self._load(account, namespace)
        return None if entry is None else entry.key_ids.get(epoch)

    async def ensure(self, access: Access, key: NamespaceKey) -> NamespaceEntry:
        """The namespace with this key's epoch, created if it is new.

        Raises:
            BadRequest: the account has as many namespaces as it may.
            NotAllowed: the namespace has another key in this epoch, or is new, and who asks may
                write there no more.
            NotAuthenticated: it is new, and who asks may do nothing any more.
        """
        account = access.account
        if await self.key_id(account, key.namespace, key.epoch) is None:
            await self.create(access, key.namespace, key.epoch, key.key_id)
        entry = await self.find(account, key.namespace)
        if entry is None or key.epoch not in entry.key_ids:
            entry = await self._load(account, key.namespace)
        if entry is None or key.epoch not in entry.key_ids:
            raise BadRequest("The account has too many namespaces.", code="namespace.too_many")
        if entry.key_ids[key.epoch] != key.key_id:
            raise NotAllowed("The unlock header was rejected.", code="unlock_rejected")
        return entry

    async def create(self, access: Access, namespace: Namespace, epoch: int, key_id: bytes) -> None:
        """The namespace with the key of this id in an epoch, unless there is one.

        The journal learns its name: without that, nobody could find what is sealed in it.

        Raises:
            NotAllowed, NotAuthenticated: who asks may write there no more.
        """
        account = access.account
        named = NamedKey(account, namespace, epoch, key_id)
        signed = sign_namespace(self._identity, named)
        await namespace_rows.create_namespace(
            self._database,
            lock=partial(self._accounts.locked, access=access, namespaces=[namespace]),
            account=account,
            name=namespace,
            epoch=epoch,
            key_id=key_id,
            signed=signed,
            object_id=blob_hash(blob_id(signed)),
            now=self._clock(),
            namespaces_max=Limits.namespaces_max,
        )
        await self._outbox.publish_soon()

    async def _load(self, account: AccountId, namespace: Namespace) -> NamespaceEntry | None:
        rows = await namespace_rows.find_namespaces(self._database, account, [namespace])
        if not rows:
            return None
        entry = NamespaceEntry(rows[0]["namespace_id"], {r["epoch"]: r["key_id"] for r in rows})
        self._known[account, namespace] = entry
        if len(self._known) > CACHED_MAX:
            self._known.popitem(last=False)
        return entry
