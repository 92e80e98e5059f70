"""A proxy of connections on loopback: each goes to the next relayer that takes it."""

import asyncio
import re
import ssl
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.accepting import close_server

_HEAD = re.compile(rb"HTTP/1\.1 (\d{3})[^\r]*\r\n(.*?)\r\n\r\n", re.DOTALL)
_READ_BYTES = 2**16
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Proxy:
    """Where it listens, whom it leads to, and which answers went through."""

    backends: list[str]
    tls: ssl.SSLContext | None = None  # between its clients and itself
    url: str = ""
    statuses: Counter[int] = field(default_factory=Counter)
    in_vain: list[bytes] = field(default_factory=list)  # 503 that do not say when to come again
    _turn: int = 0

    async def lead(self, near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        """Carry one connection to the next backend that takes it."""
        with suppress(OSError):
            if self.tls is not None:
                await answer.start_tls(self.tls)
            await relay((near, answer), await self._connected(), self._watch)

    async def _connected(self) -> Ends:
        for _ in self.backends:
            self._turn += 1
            parts = urlsplit(self.backends[self._turn % len(self.backends)])
            with suppress(OSError):
                return await asyncio.open_connection(parts.hostname, parts.port)
        raise ConnectionRefusedError

    def _watch(self, data: bytes) -> bytes:
        for status, head in _HEAD.findall(data):
            self.statuses[int(status)] += 1
            if status == b"503" and b"retry-after" not in head.lower():
                self.in_vain.append(head)
        return data


async def relay(near: Ends, far: Ends, answers: Callable[[bytes], bytes]) -> None:
    """Carry bytes both ways, answers as `answers` has them, until either end is gone."""
    ways = [
        asyncio.create_task(_carry(near[0], far[1], bytes)),
        asyncio.create_task(_carry(far[0], near[1], answers)),
    ]
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    far[1].close()
    near[1].close()
    await asyncio.gather(*ways, far[1].wait_closed(), return_exceptions=True)


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Callable[[bytes], bytes]
) -> None:
    while data := await reader.read(_READ_BYTES):
        writer.write(change(data))
        await writer.drain()


@contextmanager
def loopback_proxy(*backends: str, tls: ssl.SSLContext | None = None) -> Iterator[Proxy]:
    """A proxy that runs on a thread of its own."""
    proxy = Proxy(list(backends), tls)
    with loopback_server(proxy.lead) as port:
        proxy.url = f"http{'' if tls is None else 's'}://127.0.0.1:{port}"
        yield proxy


@contextmanager
def loopback_server(handle: Handler) -> Iterator[int]:
    """The port of a server of connections that runs on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    handled: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def handles(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handled[task] = writer
        try:
            await handle(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            del handled[task]

    async def begin() -> asyncio.Server:
        return await asyncio.start_server(handles, "127.0.0.1", 0)

    async def end() -> None:
        await close_server(server)
        # A connection that was just accepted may be no handler's yet: only its task is known.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for writer in handled.values():
                # One with TLS that has lost its connection has none to abort (Python 3.11).
                with suppress(AttributeError):
                    writer.transport.abort()
            await asyncio.wait(others, timeout=0.05)

    server = asyncio.run_coroutine_threadsafe(begin(), loop).result(timeout=30)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(timeout=30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
