"""The client that awaits: it carries out the operations in asyncio.

It does not own any operation (`operations/`), or what both clients share (`client.py`).
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from memrelay import async_event_stream, webhooks
from memrelay.answers import onward
from memrelay.client import PAGE_LIMIT, Choices, Client, Options, founder_options
from memrelay.config import certificates_for, explain_connection_settings
from memrelay.errors import MemrelayError
from memrelay.events import Event
from memrelay.exchange import Each, Keep, Operation, Sleep, Step
from memrelay.models import Memory, NewAccount
from memrelay.operations import archives, decryption
from memrelay.operations import consolidation as runs
from memrelay.operations.keyholders import Keyholders
from memrelay.operations.lists import Filters
from memrelay.operations.rotation import Operations
from memrelay.sealed.keys import Identity
from memrelay.transport import async_socket_transport, httpx, refuse_cookies

P = ParamSpec("P")
T = TypeVar("T")


def _make_awaited(
    operation: Callable[Concatenate[Operations, P], Operation[T]],
) -> Callable[Concatenate["MemoryClient", P], Coroutine[Any, Any, T]]:
    @functools.wraps(operation)
    async def method(self: "MemoryClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(operation(self._operations, *args, **kwargs))

    return method


class MemoryClient(Client):
    """The memory of an agent, for asyncio; use it in `async with`, or call `close`.

    `relayer_key` pins the relayer's identity; without it, the first one that answers is trusted.
    """

    def __init__(
        self, *, transport: httpx.AsyncBaseTransport | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(**options)
        self._operations = Operations(self._session)
        # Not the loop's threads: names are looked up there, and a resolver may hang.
        self._keeping = ThreadPoolExecutor(1, "memrelay-seen")
        with explain_connection_settings():
            self._http = httpx.AsyncClient(
                transport=transport or async_socket_transport(self._socket),
                verify=certificates_for(self._url),
                trust_env=self._is_proxied(),
            )
        refuse_cookies(self._http)

    @classmethod
    async def create_account(
        cls,
        url: str,
        *,
        custody: str = "sealed",
        label: str | None = None,
        token: str | None = None,
        identity: Identity | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        **choices: Unpack[Choices],
    ) -> NewAccount:
        """Found an account at a relayer; keep the result's private key: nobody else has it.

        `choices` are the client's: `relayer_key`, `allow_insecure` ….
        """
        async with cls(transport=transport, **founder_options(url, choices, identity)) as client:
            operation = client._operations.create_account(custody=custody, label=label, token=token)
            return await client.run(operation)

    remember = _make_awaited(Keyholders.remember)
    remember_many = _make_awaited(Keyholders.remember_many)
    wait = _make_awaited(Keyholders.wait)
    status = _make_awaited(Keyholders.status)
    recall = _make_awaited(Keyholders.recall)
    analyze = _make_awaited(Keyholders.analyze)
    ask = _make_awaited(Keyholders.ask)
    restore = _make_awaited(Keyholders.restore)
    list = _make_awaited(Keyholders.list)
    get = _make_awaited(Keyholders.get)
    opened = _make_awaited(decryption.open_memory)
    history = _make_awaited(Keyholders.history)
    review = _make_awaited(Keyholders.review)
    episodes = _make_awaited(Keyholders.episodes)
    episode = _make_awaited(Keyholders.episode)
    edit = _make_awaited(Keyholders.edit)
    pin = _make_awaited(Keyholders.pin)
    unpin = _make_awaited(Keyholders.unpin)
    approve = _make_awaited(Keyholders.approve)
    reject = _make_awaited(Keyholders.reject)
    resolve = _make_awaited(Keyholders.resolve)
    supersede = _make_awaited(Keyholders.supersede)
    reinstate = _make_awaited(Keyholders.reinstate)
    set_state = _make_awaited(Keyholders.set_state)
    analyze_episode = _make_awaited(Keyholders.analyze_episode)
    forget = _make_awaited(Keyholders.forget)
    forget_many = _make_awaited(Keyholders.forget_many)
    forget_matching = _make_awaited(Keyholders.forget_matching)
    forgettable = _make_awaited(Keyholders.forgettable)
    forget_namespace = _make_awaited(Keyholders.forget_namespace)
    set_ttl = _make_awaited(Keyholders.set_ttl)
    set_index = _make_awaited(Keyholders.set_index)
    stats = _make_awaited(Keyholders.stats)
    counts = _make_awaited(Keyholders.counts)
    usage = _make_awaited(Keyholders.usage)
    namespaces = _make_awaited(Keyholders.namespaces)
    granted = _make_awaited(Keyholders.granted)
    held_by_others = _make_awaited(Keyholders.held_by_others)
    cannot_write = _make_awaited(Keyholders.cannot_write)
    keys = _make_awaited(Keyholders.keys)
    grants = _make_awaited(Keyholders.grants)
    add_key = _make_awaited(Keyholders.add_key)
    admit_key = _make_awaited(Keyholders.admit_key)
    check_request = _make_awaited(Keyholders.check_request)
    revoke_key = _make_awaited(Keyholders.revoke_key)
    rotate = _make_awaited(Operations.rotate)
    reseal = _make_awaited(Operations.reseal)
    retire_epochs = _make_awaited(Operations.retire_epochs)
    live_epochs = _make_awaited(Operations.live_epochs)
    rotation = _make_awaited(Operations.rotation)
    receipts = _make_awaited(Keyholders.receipts)
    receipt_page = _make_awaited(Keyholders.receipt_page)
    inventory_page = _make_awaited(Keyholders.inventory_page)
    checkpoint = _make_awaited(Keyholders.checkpoint)
    verify = _make_awaited(Keyholders.verify)
    account = _make_awaited(Keyholders.account)
    close_account = _make_awaited(Keyholders.close_account)
    account_settings = _make_awaited(Keyholders.account_settings)
    change_settings = _make_awaited(Keyholders.change_settings)
    new_archive = _make_awaited(archives.new_archive)
    export_page = _make_awaited(archives.export_page)
    check_exported = _make_awaited(archives.check_exported)
    found_again = _make_awaited(archives.found_account)
    import_page = _make_awaited(archives.import_page)
    give_custody = _make_awaited(archives.give_custody)
    consolidate = _make_awaited(runs.consolidate)
    plan_consolidation = _make_awaited(runs.plan_consolidation)
    consolidations = _make_awaited(runs.consolidations)
    consolidation = _make_awaited(runs.consolidation)
    undo_consolidation = _make_awaited(runs.undo_consolidation)
    list_webhooks = _make_awaited(webhooks.list_webhooks)
    put_webhook = _make_awaited(webhooks.put_webhook)
    remove_webhook = _make_awaited(webhooks.remove_webhook)
    try_webhook = _make_awaited(webhooks.try_webhook)
    statement = _make_awaited(Keyholders.statement)
    health = _make_awaited(Keyholders.health)
    version = _make_awaited(Keyholders.version)

    async def memories(
        self, *, namespace: str | None = None, **filters: Unpack[Filters]
    ) -> AsyncIterator[Memory]:
        """Yield all memories that `list` would show, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(namespace=namespace, limit=PAGE_LIMIT, cursor=cursor, **filters)
            for memory in page.memories:
                yield memory
            cursor = onward(cursor, page.next_cursor)
            if cursor is None:
                return

    def events(
        self, *, after: int | str | None = None, follow: bool = True
    ) -> AsyncIterator[Event]:
        """Yield what happens to the account, from now on or `after` a receipt, by ids alone.

        `after` is an event's `place` or a number; after what is unknown, all is told. What breaks
        is begun again where it stopped. Without `follow`, it ends with what happened so far.

        Raises:
            ServerError: the relayer refused, for instance because this key was revoked.
            TransportError: it was not reached before anything came, or its certificate is wrong.
        """
        heard = self._listen(after, follow=follow)
        return async_event_stream.iterate_async(self._http, self._request, heard)

    async def close(self) -> None:
        """Save what was seen and close the connections."""
        try:
            await self._keep(self._session.save)
        finally:
            self._keeping.shutdown(wait=False)
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def run(self, operation: Operation[T]) -> T:
        """Carry out an operation and return its result."""
        reply: Any = None
        failure: Exception | None = None
        try:
            while True:
                step = operation.send(reply) if failure is None else operation.throw(failure)
                reply, failure = None, None
                try:
                    reply = await self._perform(step)
                except (httpx.HTTPError, MemrelayError) as error:
                    failure = error
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            operation.close()

    async def _perform(self, step: Step) -> Any:
        if isinstance(step, Sleep):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Keep):
            return await self._keep(step.work)
        if isinstance(step, Each):
            return await self._perform_each(step)
        try:
            # httpx counts its timeouts per read; this one bounds the whole exchange.
            async with asyncio.timeout(step.timeout_s):
                response = await self._http.send(self._request(step), stream=True)
                async with contextlib.aclosing(response):
                    incoming = self._make_incoming(response, step)
                    async for piece in response.aiter_bytes():
                        incoming.take(piece)
                    return incoming.whole()
        except TimeoutError as error:
            raise httpx.ReadTimeout("no complete answer in time") from error

    async def _keep(self, work: Callable[[], None]) -> None:
        try:
            keeping = asyncio.get_running_loop().run_in_executor(self._keeping, work)
        except RuntimeError:  # closed, or the interpreter is ending and begins no thread any more
            return work()
        await keeping

    async def _perform_each(self, step: Each) -> Sequence[Any]:
        results: dict[int, Any] = {}
        # The workers share one iterator, so that operations are made only as they are begun.
        numbered = enumerate(step.operations)

        async def work() -> None:
            for number, operation in numbered:
                results[number] = await self.run(operation)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(step.limit):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [results[number] for number in sorted(results)]
