"""The client that blocks: all operations, as methods.

It does not own any operation (`operations/`), or how one is carried out (`sync_connection.py`).
"""

import functools
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, TypeVar, Unpack

from memrelay import listening, webhooks
from memrelay.answers import onward
from memrelay.client import PAGE_LIMIT, Choices, Options, founder_options
from memrelay.events import Event
from memrelay.exchange import Operation
from memrelay.models import Memory, NewAccount
from memrelay.operations import consolidating, moving, opening
from memrelay.operations.keyholders import Keyholders
from memrelay.operations.listing import Filters
from memrelay.operations.rotation import Rotating
from memrelay.sealed.keys import Identity
from memrelay.sync_connection import SyncConnection
from memrelay.transport import httpx

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    operation: Callable[Concatenate[Rotating, P], Operation[T]],
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
        self._operations = Rotating(self._session)

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

    remember = _blocking(Keyholders.remember)
    remember_many = _blocking(Keyholders.remember_many)
    wait = _blocking(Keyholders.wait)
    status = _blocking(Keyholders.status)
    recall = _blocking(Keyholders.recall)
    analyze = _blocking(Keyholders.analyze)
    ask = _blocking(Keyholders.ask)
    restore = _blocking(Keyholders.restore)
    list = _blocking(Keyholders.list)
    get = _blocking(Keyholders.get)
    opened = _blocking(opening.opened)
    history = _blocking(Keyholders.history)
    review = _blocking(Keyholders.review)
    episodes = _blocking(Keyholders.episodes)
    episode = _blocking(Keyholders.episode)
    edit = _blocking(Keyholders.edit)
    pin = _blocking(Keyholders.pin)
    unpin = _blocking(Keyholders.unpin)
    approve = _blocking(Keyholders.approve)
    reject = _blocking(Keyholders.reject)
    resolve = _blocking(Keyholders.resolve)
    supersede = _blocking(Keyholders.supersede)
    reinstate = _blocking(Keyholders.reinstate)
    set_state = _blocking(Keyholders.set_state)
    analyze_episode = _blocking(Keyholders.analyze_episode)
    forget = _blocking(Keyholders.forget)
    forget_many = _blocking(Keyholders.forget_many)
    forget_matching = _blocking(Keyholders.forget_matching)
    forgettable = _blocking(Keyholders.forgettable)
    forget_namespace = _blocking(Keyholders.forget_namespace)
    set_ttl = _blocking(Keyholders.set_ttl)
    stats = _blocking(Keyholders.stats)
    usage = _blocking(Keyholders.usage)
    namespaces = _blocking(Keyholders.namespaces)
    granted = _blocking(Keyholders.granted)
    held_by_others = _blocking(Keyholders.held_by_others)
    cannot_write = _blocking(Keyholders.cannot_write)
    keys = _blocking(Keyholders.keys)
    grants = _blocking(Keyholders.grants)
    add_key = _blocking(Keyholders.add_key)
    revoke_key = _blocking(Keyholders.revoke_key)
    rotate = _blocking(Rotating.rotate)
    reseal = _blocking(Rotating.reseal)
    retire_epochs = _blocking(Rotating.retire_epochs)
    live_epochs = _blocking(Rotating.live_epochs)
    rotation = _blocking(Rotating.rotation)
    receipts = _blocking(Keyholders.receipts)
    checkpoint = _blocking(Keyholders.checkpoint)
    verify = _blocking(Keyholders.verify)
    account = _blocking(Keyholders.account)
    close_account = _blocking(Keyholders.close_account)
    account_settings = _blocking(Keyholders.account_settings)
    change_settings = _blocking(Keyholders.change_settings)
    new_archive = _blocking(moving.new_archive)
    export_page = _blocking(moving.export_page)
    check_exported = _blocking(moving.check_exported)
    found_again = _blocking(moving.found_again)
    import_page = _blocking(moving.import_page)
    give_custody = _blocking(moving.give_custody)
    consolidate = _blocking(consolidating.consolidate)
    plan_consolidation = _blocking(consolidating.plan_consolidation)
    consolidations = _blocking(consolidating.consolidations)
    consolidation = _blocking(consolidating.consolidation)
    undo_consolidation = _blocking(consolidating.undo_consolidation)
    list_webhooks = _blocking(webhooks.list_webhooks)
    put_webhook = _blocking(webhooks.put_webhook)
    remove_webhook = _blocking(webhooks.remove_webhook)
    try_webhook = _blocking(webhooks.try_webhook)
    statement = _blocking(Keyholders.statement)
    health = _blocking(Keyholders.health)
    version = _blocking(Keyholders.version)

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
        return listening.blocking(self._http, self._request, self._deadline, heard)
