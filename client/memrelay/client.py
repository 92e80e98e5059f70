"""The two clients: one awaits, one blocks; both carry out the same operations.

It does not own any operation (`operations/`), nor listening to events (`listening.py`).
"""

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, NotRequired, ParamSpec, Self, TypedDict, TypeVar, Unpack

import httpx

from memrelay import listening, webhooks
from memrelay.answers import onward
from memrelay.config import Settings, certificates_for, check_url, connecting, is_loopback
from memrelay.deadline import Deadline
from memrelay.errors import MemrelayError
from memrelay.events import Event, listen
from memrelay.exchange import (
    Each,
    Incoming,
    Keep,
    Operation,
    Repeating,
    Send,
    Sleep,
    Step,
)
from memrelay.models import Memory, NewAccount
from memrelay.operations import consolidating, moving, opening
from memrelay.operations.keyholders import Keyholders
from memrelay.operations.listing import Filters
from memrelay.operations.rotation import Rotating
from memrelay.sealed.keys import Identity, account_id_of, account_text
from memrelay.session import Session
from memrelay.signing import RequestSigner

P = ParamSpec("P")
T = TypeVar("T")

_CONNECT_TIMEOUT_S = 5.0
_PAGE_LIMIT = 100


class Limits(TypedDict, total=False):
    """Times: of one attempt, of a call with all its attempts, and that a relayer keeps keys.

    `attempts_max` 1 never repeats a request; `repeating` is told why one is about to be.
    """

    timeout_s: float
    deadline_s: float
    hold_s: int
    attempts_max: int
    repeating: Repeating | None


class Choices(Limits, total=False):
    """What has a default; the words are those of `Settings`."""

    namespace: str
    aliases: Mapping[str, Sequence[str]]
    relayer_key: str | None
    allow_insecure: bool
    seen_path: Path | None


class Options(Choices):
    """The arguments of both clients."""

    url: str
    account_id: str
    private_key: str
    custody: NotRequired[str]


class _Client:
    """What both clients share: settings, session and the request of a step."""

    def __init__(self, **options: Unpack[Options]) -> None:
        values: dict[str, Any] = dict(options)
        names = Limits.__annotations__
        limits = {name: values.pop(name) for name in names if name in values}
        self.settings = Settings(**values)
        self._url = check_url(self.settings.url, allow_insecure=self.settings.allow_insecure)
        self._session = Session(self.settings, **limits)
        self._operations = Rotating(self._session)
        self._listen = functools.partial(
            listen,
            relayer=self.settings.url,
            monotonic=self._session.monotonic,
            repeating=limits.get("repeating"),
        )
        prefix = self._url.raw_path.decode("ascii").rstrip("/")
        self._base = f"{self._url.scheme}://{self._url.netloc.decode('ascii')}{prefix}"
        # It asks for few, again and again.
        self._parsed = functools.lru_cache(maxsize=64)(httpx.URL)
        self._signer = RequestSigner(
            self._session.identity, account_id=self.settings.account_id, path_prefix=prefix
        )

    @property
    def receipt_seq(self) -> int:
        """The number of the newest receipt that was followed; 0 before the first."""
        return self._session.seen.value.checked_seq

    @classmethod
    def from_settings(cls, settings: Settings, **options: Any) -> Self:
        """Return a client of these settings; `options` are the constructor's other arguments."""
        values = {name: getattr(settings, name) for name in Settings.__dataclass_fields__}
        return cls(**values, **options)

    @classmethod
    def from_profile(cls, profile: str | Path | None = None, **options: Any) -> Self:
        """Return a client of the environment, completed by a profile file.

        Raises:
            ConfigError: something is missing, malformed or readable by others.
        """
        return cls.from_settings(Settings.load(profile), **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.url!r}, key={self.settings.masked_key})"

    def _request(self, step: Send) -> httpx.Request:
        url = self._parsed(self._base + step.target)
        headers = {"accept": "application/json", "accept-encoding": "identity", **step.headers}
        if step.body:
            headers["content-type"] = "application/json"
        if step.signed:
            # httpx would let `auth` set each of them in the finished request, which takes longer.
            headers |= self._signer.headers(step.method, url, step.body)
        timeout = httpx.Timeout(step.timeout_s, connect=min(_CONNECT_TIMEOUT_S, step.timeout_s))
        return httpx.Request(
            step.method,
            url,
            content=step.body or None,
            headers=headers,
            extensions={"timeout": timeout.as_dict()},
        )

    def _incoming(self, response: httpx.Response, step: Send) -> Incoming:
        until_s = self._session.monotonic() + step.timeout_s
        return Incoming(
            response,
            left_s=lambda: until_s - self._session.monotonic(),
            bytes_max=step.answer_bytes_max,
        )

    def _proxied(self) -> bool:
        # A proxy from the environment has no business between two ends of one machine.
        return not is_loopback(self._url.host)


class _NoCookies(httpx.Cookies):
    # They would never be sent back, and whoever answers could set more of them without end. A jar
    # that takes none does so as well, but only after reading each request and answer once more.

    def extract_cookies(self, response: httpx.Response) -> None:
        pass


def _founder(url: str, choices: Choices, identity: Identity | None) -> Options:
    founder = identity or Identity.generate()
    account_id = account_text(account_id_of(founder.public_key))
    seed = founder.seed_hex()
    return {**choices, "url": url, "account_id": account_id, "private_key": seed, "custody": "auto"}


def _awaited(
    operation: Callable[Concatenate[Rotating, P], Operation[T]],
) -> Callable[Concatenate["MemoryClient", P], Coroutine[Any, Any, T]]:
    @functools.wraps(operation)
    async def method(self: "MemoryClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(operation(self._operations, *args, **kwargs))

    return method


def _blocking(
    operation: Callable[Concatenate[Rotating, P], Operation[T]],
) -> Callable[Concatenate["SyncMemoryClient", P], T]:
    @functools.wraps(operation)
    def method(self: "SyncMemoryClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(operation(self._operations, *args, **kwargs))

    return method


class MemoryClient(_Client):
    """The memory of an agent, for asyncio; use it in `async with`, or call `close`.

    `relayer_key` pins the relayer's identity; without it, the first one that answers is trusted.
    """

    def __init__(
        self, *, transport: httpx.AsyncBaseTransport | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(**options)
        # Not the loop's threads: names are looked up there, and a resolver may hang.
        self._keeping = ThreadPoolExecutor(1, "memrelay-seen")
        with connecting():
            self._http = httpx.AsyncClient(
                transport=transport,
                verify=certificates_for(self._url),
                trust_env=self._proxied(),
            )
        self._http._cookies = _NoCookies()  # httpx has no parameter for it

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
        async with cls(transport=transport, **_founder(url, choices, identity)) as client:
            operation = client._operations.create_account(custody=custody, label=label, token=token)
            return await client._run(operation)

    remember = _awaited(Keyholders.remember)
    remember_many = _awaited(Keyholders.remember_many)
    wait = _awaited(Keyholders.wait)
    status = _awaited(Keyholders.status)
    recall = _awaited(Keyholders.recall)
    analyze = _awaited(Keyholders.analyze)
    ask = _awaited(Keyholders.ask)
    restore = _awaited(Keyholders.restore)
    list = _awaited(Keyholders.list)
    get = _awaited(Keyholders.get)
    opened = _awaited(opening.opened)
    history = _awaited(Keyholders.history)
    review = _awaited(Keyholders.review)
    episodes = _awaited(Keyholders.episodes)
    episode = _awaited(Keyholders.episode)
    edit = _awaited(Keyholders.edit)
    pin = _awaited(Keyholders.pin)
    unpin = _awaited(Keyholders.unpin)
    approve = _awaited(Keyholders.approve)
    reject = _awaited(Keyholders.reject)
    resolve = _awaited(Keyholders.resolve)
    supersede = _awaited(Keyholders.supersede)
    reinstate = _awaited(Keyholders.reinstate)
    set_state = _awaited(Keyholders.set_state)
    analyze_episode = _awaited(Keyholders.analyze_episode)
    forget = _awaited(Keyholders.forget)
    forget_many = _awaited(Keyholders.forget_many)
    forget_matching = _awaited(Keyholders.forget_matching)
    forgettable = _awaited(Keyholders.forgettable)
    forget_namespace = _awaited(Keyholders.forget_namespace)
    set_ttl = _awaited(Keyholders.set_ttl)
    stats = _awaited(Keyholders.stats)
    usage = _awaited(Keyholders.usage)
    namespaces = _awaited(Keyholders.namespaces)
    granted = _awaited(Keyholders.granted)
    held_by_others = _awaited(Keyholders.held_by_others)
    cannot_write = _awaited(Keyholders.cannot_write)
    keys = _awaited(Keyholders.keys)
    grants = _awaited(Keyholders.grants)
    add_key = _awaited(Keyholders.add_key)
    revoke_key = _awaited(Keyholders.revoke_key)
    rotate = _awaited(Rotating.rotate)
    reseal = _awaited(Rotating.reseal)
    retire_epochs = _awaited(Rotating.retire_epochs)
    live_epochs = _awaited(Rotating.live_epochs)
    rotation = _awaited(Rotating.rotation)
    receipts = _awaited(Keyholders.receipts)
    checkpoint = _awaited(Keyholders.checkpoint)
    verify = _awaited(Keyholders.verify)
    account = _awaited(Keyholders.account)
    close_account = _awaited(Keyholders.close_account)
    account_settings = _awaited(Keyholders.account_settings)
    change_settings = _awaited(Keyholders.change_settings)
    new_archive = _awaited(moving.new_archive)
    export_page = _awaited(moving.export_page)
    check_exported = _awaited(moving.check_exported)
    found_again = _awaited(moving.found_again)
    import_page = _awaited(moving.import_page)
    give_custody = _awaited(moving.give_custody)
    consolidate = _awaited(consolidating.consolidate)
    plan_consolidation = _awaited(consolidating.plan_consolidation)
    consolidations = _awaited(consolidating.consolidations)
    consolidation = _awaited(consolidating.consolidation)
    undo_consolidation = _awaited(consolidating.undo_consolidation)
    list_webhooks = _awaited(webhooks.list_webhooks)
    put_webhook = _awaited(webhooks.put_webhook)
    remove_webhook = _awaited(webhooks.remove_webhook)
    try_webhook = _awaited(webhooks.try_webhook)
    statement = _awaited(Keyholders.statement)
    health = _awaited(Keyholders.health)
    version = _awaited(Keyholders.version)

    async def memories(
        self, *, namespace: str | None = None, **filters: Unpack[Filters]
    ) -> AsyncIterator[Memory]:
        """Yield all memories that `list` would show, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(namespace=namespace, limit=_PAGE_LIMIT, cursor=cursor, **filters)
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
        return listening.awaited(self._http, self._request, self._listen(after, follow=follow))

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

    async def _run(self, operation: Operation[T]) -> T:
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
                    incoming = self._incoming(response, step)
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
                results[number] = await self._run(operation)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(step.limit):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [results[number] for number in sorted(results)]


class SyncMemoryClient(_Client):
    """The memory of an agent, blocking; use it in `with`, or call `close`. One per thread.

    `relayer_key` pins the relayer's identity; without it, the first one that answers is trusted.
    """

    def __init__(
        self, *, transport: httpx.BaseTransport | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(**options)
        with connecting():
            self._http = httpx.Client(
                transport=transport,
                verify=certificates_for(self._url),
                trust_env=self._proxied(),
            )
        self._http._cookies = _NoCookies()  # httpx has no parameter for it
        self._deadline = Deadline(self._session.monotonic)
        self._deadline.watch(self._http)

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
        with cls(transport=transport, **_founder(url, choices, identity)) as client:
            operation = client._operations.create_account(custody=custody, label=label, token=token)
            return client._run(operation)

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
            page = self.list(namespace=namespace, limit=_PAGE_LIMIT, cursor=cursor, **filters)
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

    def close(self) -> None:
        """Save what was seen and close the connections."""
        try:
            self._session.save()
        finally:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, operation: Operation[T]) -> T:
        reply: Any = None
        failure: Exception | None = None
        try:
            while True:
                step = operation.send(reply) if failure is None else operation.throw(failure)
                reply, failure = None, None
                try:
                    reply = self._perform(step)
                except (httpx.HTTPError, MemrelayError) as error:
                    failure = error
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            operation.close()

    def _perform(self, step: Step) -> Any:
        if isinstance(step, Sleep):
            return time.sleep(step.seconds)
        if isinstance(step, Keep):
            return step.work()
        if isinstance(step, Each):
            return [self._run(operation) for operation in step.operations]
        return self._deadline.send(
            self._http,
            self._request(step),
            timeout_s=step.timeout_s,
            bytes_max=step.answer_bytes_max,
        )
