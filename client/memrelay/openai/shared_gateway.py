"""Gateways that several clients share, in event loops and forked processes.

It does not own what a gateway does (`gateway/`).

- A gateway begins with its first use: a server that forks after the set-up would lose its thread.
- A child of a fork never touches what its parent goes on using.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from openai import AsyncOpenAI, OpenAI

from memrelay.gateway import BlockingGateway, Gateway, GatewaySettings

G = TypeVar("G", bound=Gateway | BlockingGateway)


@dataclass(eq=False)
class SharedGateway(Generic[G]):
    """A gateway, which begins with its first use, and the clients that use it.

    Not every client is closed, and a gateway for each would leave its thread behind. One that
    awaits is bound to an event loop: there is one for each `place` that is a loop, and it ends
    with it.
    """

    template: Gateway
    start: Callable[[Gateway], G]
    place: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None
    gateways: dict[asyncio.AbstractEventLoop | None, G] = field(default_factory=dict)
    users: "WeakSet[OpenAI | AsyncOpenAI]" = field(default_factory=WeakSet)
    lock: threading.Lock = field(default_factory=threading.Lock)
    closers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = field(
        default_factory=dict
    )
    is_used: bool = False

    def __post_init__(self) -> None:
        _shared_gateways.add(self)

    @property
    def gateway(self) -> G:
        """The gateway itself."""
        place = self.place()
        with self.lock:
            if place not in self.gateways:
                self._begin(place)
            return self.gateways[place]

    def _begin(self, place: asyncio.AbstractEventLoop | None) -> None:
        for loop in [loop for loop in self.closers if loop.is_closed()]:
            self.gateways.pop(loop, None)
            del self.closers[loop]
        self.template = self.template.anew() if self.is_used else self.template
        self.is_used = True
        self.gateways[place] = self.start(self.template)
        if place is not None:
            self.closers[place] = self._closer(place, self.template)
            with suppress(StopIteration):  # it begins without awaiting anything
                anext(self.closers[place]).send(None)

    async def _closer(
        self, place: asyncio.AbstractEventLoop, gateway: Gateway
    ) -> AsyncGenerator[None, None]:
        """End a gateway with its event loop, which then closes the generators it has begun.

        A loop may close them and go on: then the next use begins another gateway.
        """
        try:
            yield
        finally:
            with self.lock:
                if self.gateways.get(place) is gateway:
                    del self.gateways[place]
            await gateway.close()

    def begin_anew(self) -> None:
        """Begin anew in a child, and never touch what the parent goes on using."""
        # Were it finalised, its event loop would unregister the connections of the parent's.
        _of_parent.append((self.template, self.gateways, self.closers))
        self.gateways, self.closers = {}, {}
        self.lock = threading.Lock()  # which a thread of the parent may have held

    def is_unused(self) -> bool:
        """Return whether all clients are closed; copies may share one connection."""
        return all(user.is_closed() for user in list(self.users))


def share_gateway_of_each_loop(
    template: Gateway, user: OpenAI | AsyncOpenAI
) -> SharedGateway[Gateway]:
    """Return a gateway for a client that awaits: one for each event loop that uses it."""
    return SharedGateway(template, _itself, asyncio.get_running_loop, users=WeakSet([user]))


def share_blocking_gateway(
    template: Gateway, settings: GatewaySettings, key: Hashable, user: OpenAI | AsyncOpenAI
) -> SharedGateway[BlockingGateway]:
    """Return the gateway that all clients of the same `key` share, with one more user."""
    with _lock:
        shared = _blocking_gateways.setdefault(
            key, SharedGateway(template, lambda gateway: BlockingGateway(gateway, settings))
        )
        shared.users.add(user)
        return shared


def leave(shared: SharedGateway[BlockingGateway]) -> bool:
    """Forget a gateway that nobody uses any more; return whether that is so."""
    with _lock:
        is_last = shared.is_unused()
        for key in [key for key, value in _blocking_gateways.items() if value is shared]:
            if is_last:
                del _blocking_gateways[key]
        return is_last


def _itself(gateway: Gateway) -> Gateway:
    return gateway


_shared_gateways: "WeakSet[SharedGateway[Any]]" = WeakSet()
_blocking_gateways: dict[Hashable, SharedGateway[BlockingGateway]] = {}
_of_parent: list[object] = []
_lock = threading.Lock()


@atexit.register
def _close_all() -> None:
    """Deliver what was captured last: a script may end without a word."""
    for shared in list(_blocking_gateways.values()):
        for gateway in shared.gateways.values():
            gateway.close()


def _begin_anew_in_child() -> None:
    _lock.release()
    for shared in list(_shared_gateways):
        shared.begin_anew()


if hasattr(os, "register_at_fork"):  # the threads of what has begun stay with the parent
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_begin_anew_in_child
    )
