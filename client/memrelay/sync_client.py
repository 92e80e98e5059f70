"""The client that blocks: all operations, as methods.

It does not own any operation (`operations/`), or how one is carried out (`sync_connection.py`).
"""

import functools
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, TypeVar, Unpack

from memrelay import event_stream, webhooks
from memrelay.answers import onward
from memrelay.client import PAGE_LIMIT, Choices, Options, founder_options
from memrelay.events import Event
from memrelay.exchange import Operation
from memrelay.models import Memory, NewAccount
from memrelay.operations import archives, decryption
from memrelay.operations import consolidation as runs
from memrelay.operations.keyholders import Keyholders
from memrelay.operations.lists import Filters
from memrelay.operations.rotation import Operations
from memrelay.sealed.keys import Identity
from memrelay.sync_connection import SyncConnection
from memrelay.transport import httpx

P = ParamSpec("P")
T = TypeVar("T")


def _make_blocking(
    operation: Callable[Concatenate[Operations, P], Operation[T]],
) -> Callable[Concatenate["SyncMemoryClient", P], T]:
    @functools.wraps(operation)
    def method(self: "SyncMemoryClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(operation(self._operations, *args, **kwargs))

    return method


class SyncMemoryClient(SyncConnection):
    """The memory of an agent, blocking; use it in `with`, or call `close`. One per thread.

    `relayer_key` pins the relayer's identity; without it, the first one that answers is trusted.
    """

    def __init__(
        self, *, transport: httpx.BaseTransport | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(transport=transport, **options)
        self._operations = Operations(self._session)

    @classmethod
    def create_account(
        cls,
        url: str,
        *,
        custody: str = "sealed",
        label: str | None = None,
        token: str | None = None,
        identity: Identity | None = None,
        transport: httpx.BaseTransport | None = None,
        **choices: Unpack[Choices],
    ) -> NewAccount:
        """Found an account at a relayer; keep the result's private key: nobody else has it.

        `choices` are the client's: `relayer_key`, `allow_insecure` ….
        """
        with cls(transport=transport, **founder_options(url, choices, identity)) as client:
            operation = client._operations.create_account(custody=custody, label=label, token=token)
            return client.run(operation)

    remember = _make_blocking(Keyholders.remember)
    remember_many = _make_blocking(Keyholders.remember_many)
    wait = _make_blocking(Keyholders.wait)
    status = _make_blocking(Keyholders.status)
    recall = _make_blocking(Keyholders.recall)
    analyze = _make_blocking(Keyholders.analyze)
    ask = _make_blocking(Keyholders.ask)
    restore = _make_blocking(Keyholders.restore)
    list = _make_blocking(Keyholders.list)
    get = _make_blocking(Keyholders.get)
    opened = _make_blocking(decryption.open_memory)
    history = _make_blocking(Keyholders.history)
    review = _make_blocking(Keyholders.review)
    episodes = _make_blocking(Keyholders.episodes)
    episode = _make_blocking(Keyholders.episode)
    edit = _make_blocking(Keyholders.edit)
    pin = _make_blocking(Keyholders.pin)
    unpin = _make_blocking(Keyholders.unpin)
    approve = _make_blocking(Keyholders.approve)
    reject = _make_blocking(Keyholders.reject)
    resolve = _make_blocking(Keyholders.resolve)
    supersede = _make_blocking(Keyholders.supersede)
    reinstate = _make_blocking(Keyholders.reinstate)
    set_state = _make_blocking(Keyholders.set_state)
    analyze_episode = _make_blocking(Keyholders.analyze_episode)
    forget = _make_blocking(Keyholders.forget)
    forget_many = _make_blocking(Keyholders.forget_many)
    forget_matching = _make_blocking(Keyholders.forget_matching)
    forgettable = _make_blocking(Keyholders.forgettable)
    forget_namespace = _make_blocking(Keyholders.forget_namespace)
    set_ttl = _make_blocking(Keyholders.set_ttl)
    set_index = _make_blocking(Keyholders.set_index)
    stats = _make_blocking(Keyholders.stats)
    counts = _make_blocking(Keyholders.counts)
    usage = _make_blocking(Keyholders.usage)
    namespaces = _make_blocking(Keyholders.namespaces)
    granted = _make_blocking(Keyholders.granted)
    held_by_others = _make_blocking(Keyholders.held_by_others)
    cannot_write = _make_blocking(Keyholders.cannot_write)
    keys = _make_blocking(Keyholders.keys)
    grants = _make_blocking(Keyholders.grants)
    add_key = _make_blocking(Keyholders.add_key)
    admit_key = _make_blocking(Keyholders.admit_key)
    check_request = _make_blocking(Keyholders.check_request)
    revoke_key = _make_blocking(Keyholders.revoke_key)
    rotate = _make_blocking(Operations.rotate)
    reseal = _make_blocking(Operations.reseal)
    retire_epochs = _make_blocking(Operations.retire_epochs)
    live_epochs = _make_blocking(Operations.live_epochs)
    rotation = _make_blocking(Operations.rotation)
    receipts = _make_blocking(Keyholders.receipts)
    receipt_page = _make_blocking(Keyholders.receipt_page)
    inventory_page = _make_blocking(Keyholders.inventory_page)
    checkpoint = _make_blocking(Keyholders.checkpoint)
    verify = _make_blocking(Keyholders.verify)
    account = _make_blocking(Keyholders.account)
    close_account = _make_blocking(Keyholders.close_account)
    account_settings = _make_blocking(Keyholders.account_settings)
    change_settings = _make_blocking(Keyholders.change_settings)
    new_archive = _make_blocking(archives.new_archive)
    export_page = _make_blocking(archives.export_page)
    check_exported = _make_blocking(archives.check_exported)
    found_again = _make_blocking(archives.found_account)
    import_page = _make_blocking(archives.import_page)
    give_custody = _make_blocking(archives.give_custody)
    consolidate = _make_blocking(runs.consolidate)
    plan_consolidation = _make_blocking(runs.plan_consolidation)
    consolidations = _make_blocking(runs.consolidations)
    consolidation = _make_blocking(runs.consolidation)
    undo_consolidation = _make_blocking(runs.undo_consolidation)
    list_webhooks = _make_blocking(webhooks.list_webhooks)
    put_webhook = _make_blocking(webhooks.put_webhook)
    remove_webhook = _make_blocking(webhooks.remove_webhook)
    try_webhook = _make_blocking(webhooks.try_webhook)
    statement = _make_blocking(Keyholders.statement)
    health = _make_blocking(Keyholders.health)
    version = _make_blocking(Keyholders.version)

    def memories(
        self, *, namespace: str | None = None, **filters: Unpack[Filters]
    ) -> Iterator[Memory]:
        """Yield all memories that `list` would show, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(namespace=namespace, limit=PAGE_LIMIT, cursor=cursor, **filters)
            yield from page.memories
            cursor = onward(cursor, page.next_cursor)
            if cursor is None:
                return

    def events(self, *, after: int | str | None = None, follow: bool = True) -> Iterator[Event]:
        """Yield what happens to the account, from now on or `after` a receipt, by ids alone.

        `after` is an event's `place` or a number; after what is unknown, all is told. What breaks
        is begun again where it stopped. Without `follow`, it ends with what happened so far.

        Raises:
            ServerError: the relayer refused, for instance because this key was revoked.
            TransportError: it was not reached before anything came, or its certificate is wrong.
        """
        heard = self._listen(after, follow=follow)
        return event_stream.iterate_blocking(self._http, self._request, self._deadline, heard)
