"""Loading of namespaces before anybody asks for them: those of accounts that make requests.

Not here: how one is loaded, and how much room there is for it (`sealed.py`, `index.py`).

- A start reads nothing. An account's first request begins it, and each one that lends a new key.
- Those that were written last are taken, as far as the key may read them: one at a time, a moment
  later and with a pause behind each page, into room that nothing else takes.
- Nothing is opened but by keys that the process holds for background work, under the ids that the
  account knows for them. Until one is lent, records stay sealed.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from relayer.database.namespaces import find_latest
from relayer.database.pool import Database
from relayer.errors import NotAllowed, RelayerError
from relayer.logs import describe
from relayer.memory_index.index import MemoryIndex
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey
from relayer.tenants.accounts import Access
from relayer.tenants.custody import Keys
from relayer.tenants.namespaces import NamespaceEntry, Namespaces

log = logging.getLogger("relayer.memory_index")

DELAY_S: Final = 0.1  # in which the request that begins it may be answered
KNOWN_MAX: Final = 20_000  # accounts that have made a request
WAITING_MAX: Final = 100  # of them, whose namespaces are not loaded yet
NAMESPACES_MAX: Final = 8  # of one account


class AheadLoader:
    """Loads namespaces ahead of the first recall."""

    def __init__(
        self,
        *,
        database: Database,
        namespaces: Namespaces,
        index: MemoryIndex,
        job_keys: Callable[[AccountId], Awaitable[Keys | None]],
    ) -> None:
        """`job_keys` tells the keys that background work may use."""
        self._database = database
        self._namespaces = namespaces
        self._index = index
        self._job_keys = job_keys
        self._known: OrderedDict[AccountId, None] = OrderedDict()
        self._waiting: deque[Access] = deque()
        self._loading: asyncio.Task[None] | None = None
        self._is_closed = False

    def note(self, access: Access, *, has_lent: bool = False) -> None:
        """Load namespaces of whoever makes the account's first request, or has lent a key."""
        if not self._index.has_room_for(access.account):
            return
        is_known = access.account in self._known
        self._known[access.account] = None
        self._known.move_to_end(access.account)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        if (is_known and not has_lent) or self._is_closed or len(self._waiting) >= WAITING_MAX:
            return
        self._waiting.append(access)
        if self._loading is None:
            self._loading = asyncio.create_task(self._load_all())

    async def settle(self) -> None:
        """Wait until nothing is left to be loaded."""
        if self._loading is not None:
            await asyncio.wait({self._loading})

    async def close(self) -> None:
        """Load nothing any more."""
        self._is_closed = True
        self._waiting.clear()
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait({self._loading})

    async def _load_all(self) -> None:
        try:
            await asyncio.sleep(DELAY_S)
            while self._waiting:
                await self._load(self._waiting.popleft())
        finally:
            self._loading = None

    async def _load(self, access: Access) -> None:
        try:
            keys = await self._job_keys(access.account)
            for name in await find_latest(self._database, access.account, NAMESPACES_MAX):
                namespace = Namespace(name)
                if access.strength(namespace) and self._index.has_room_for(access.account):
                    entry = await self._namespaces.find_now(access, namespace)
                    if entry is not None:
                        await self._load_one(access, entry, _usable(keys, namespace, entry))
        except RelayerError:  # the database is away, or the account is gone: a recall loads it
            return
        except Exception as error:
            extra = {"event": "resident.failed", "exception": describe(error)}
            log.error("nothing is loaded ahead", extra=extra)

    async def _load_one(
        self, access: Access, entry: NamespaceEntry, keys: Sequence[NamespaceKey]
    ) -> None:
        if entry.has_records:
            await self._index.sealed.load_ahead(access.account, entry.namespace_id, keys)
        else:
            await self._index.load_ahead(access.account, entry.namespace_id)


def _usable(
    keys: Keys | None, namespace: Namespace, entry: NamespaceEntry
) -> Sequence[NamespaceKey]:
    """Return those of the keys that the account knows for the namespace: others open nothing."""
    try:
        held = () if keys is None else keys.of(namespace)
    except NotAllowed:  # none is at hand
        return ()
    return [key for key in held if entry.key_ids.get(key.epoch) == key.key_id]
