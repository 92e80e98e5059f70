"""What the gateway's tests play with: accounts, agents' profiles, and a network that can fail."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from memrelay import MemoryClient, Settings, SyncMemoryClient
from memrelay.gateway import Context, GatewaySettings
from tests.accepting import close_server
from tests.processes import lasting_port

TEA = "I prefer green tea over coffee in the morning."
NOWHERE = Settings(url="http://127.0.0.1:9", account_id=f"0x{'1' * 64}", private_key="1" * 64)
PATIENT = GatewaySettings(recall_deadline_s=15, capture_retry_s=0.05)
ANNA = Context(session_key="agent:main:main", session_id="first")


async def founded(url: str, custody: str = "sealed") -> Settings:
    """The settings of a new account's owner."""
    new = await MemoryClient.create_account(url, custody=custody)
    return Settings(url=url, account_id=new.account_id, private_key=new.private_key)


def write_profile(path: Path, settings: Settings) -> None:
    """Write a profile as `memrelay init` does."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = ("url", "account_id", "private_key", "namespace")
    path.touch(mode=0o600)
    path.write_text(json.dumps({name: getattr(settings, name) for name in names}))


async def agent_settings(
    owner: Settings, name: str, *shared: str, expires: timedelta | None = None
) -> Settings:
    """The settings of an agent that holds a namespace of its own and shared ones."""
    async with MemoryClient.from_settings(owner) as client:
        key = await client.add_key(namespaces=[name, *shared], label=name, expires=expires)
    return Settings(
        url=owner.url, account_id=owner.account_id, private_key=key.private_key, namespace=name
    )


class Network:
    """A way to a relayer that can be cut, or swallow everything."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = lasting_port()  # the same after an outage
        self.silent = False
        self.breaks = 0  # so many connections are broken at their first byte
        self.answer = b""  # what every request gets instead of the relayer's answer
        self.connections_seen = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def up(self) -> None:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", self.port)

    async def down(self) -> None:
        assert self._server is not None
        await close_server(self._server)
        while self._tasks:
            self.cut()
            await asyncio.wait(self._tasks, timeout=0.05)

    def cut(self) -> None:
        """Break every connection; new ones are accepted."""
        for writer in self._connections:
            writer.transport.abort()
        self._connections.clear()

    async def __aenter__(self) -> "Network":
        await self.up()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.down()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections.add(writer)
        self.connections_seen += 1
        try:
            if self.breaks:
                self.breaks -= 1
                await reader.read(1)
                return
            if self.silent:
                await reader.read()
                return
            if self.answer:
                await _read_request(reader)
                writer.write(self.answer)
                await writer.drain()
                writer.write_eof()
                await reader.read()  # the last word is the other side's: nothing may be lost
                return
            there = await asyncio.open_connection(self._target.hostname, self._target.port)
            self._connections.add(there[1])
            with suppress(OSError):
                await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))
        finally:
            self._tasks.discard(task)
            writer.transport.abort()


async def _read_request(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = [line.partition(":")[2] for line in head.splitlines() if line.startswith("content-l")]
    await reader.readexactly(int(length[0]) if length else 0)


def refusal(status: int, body: str, kind: str = "text/html") -> bytes:
    """An HTTP answer as it stands on the wire."""
    head = f"HTTP/1.1 {status} No\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
    return f"{head}connection: close\r\n\r\n{body}".encode()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(120):
        while not holds():
            await asyncio.sleep(0.02)


async def texts_of(settings: Settings, namespace: str | None = None) -> list[str | None]:
    """The texts of a namespace, newest first."""
    async with MemoryClient.from_settings(settings) as client:
        page = await client.list(namespace=namespace, limit=100)
    return [memory.text for memory in page.memories]


def conversation(*texts: str, success: bool = True) -> dict[str, object]:
    """An `agent_end` event: the texts are of the user and the assistant in turn."""
    roles = ("user", "assistant")
    return {
        "success": success,
        "messages": [
            {"role": roles[n % 2], "content": [{"type": "text", "text": text}]}
            for n, text in enumerate(texts)
        ],
    }


CTX = {"agentId": "main", "sessionKey": "agent:main:main", "sessionId": "first"}


def founded_blocking(url: str) -> Settings:
    """The settings of a new sealed account's owner, for tests without an event loop."""
    new = SyncMemoryClient.create_account(url)
    return Settings(url=url, account_id=new.account_id, private_key=new.private_key)


def texts_of_blocking(settings: Settings) -> list[str | None]:
    """The texts of the settings' namespace, newest first, for tests without an event loop."""
    with SyncMemoryClient.from_settings(settings) as client:
        return [memory.text for memory in client.list(limit=100).memories]
