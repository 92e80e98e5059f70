"""An object store at the end of a wire that lags, falls silent, or is cut.

Not here: the store itself (`tests/swift.py`), when what happens (`faults.py`).

- Bytes pass unchanged. What is cut stays cut: whoever was connected has to connect again.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import obstore

from tests.swift import Swift, running_swift

CHUNK_BYTES = 1 << 16


@dataclass
class Wire:
    """A port of 127.0.0.1 that leads to another one.

    Attributes:
        lag_s: how much later everything arrives.
        passes: how many bytes a connection still carries before it is cut; None is any number.
        away: nobody is let in.
        silent: what is sent goes nowhere, and nothing comes back.
    """

    target: int
    port: int = 0
    lag_s: float = 0.0
    passes: int | None = None
    away: bool = False
    silent: bool = False
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def heal(self) -> None:
        """Let everything pass; who waits in vain is cut off."""
        self.lag_s, self.passes, self.away = 0.0, None, False
        if self.silent:
            self.cut()
        self.silent = False

    def cut(self) -> None:
        """End every connection in the midst of what it carries."""
        for writer in self._writers:
            writer.transport.abort()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection, both ways."""
        if self.away:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
            ends = {writer, far_writer}
            self._writers |= ends
            try:
                await asyncio.gather(
                    self._carry(reader, far_writer), self._carry(far_reader, writer)
                )
            finally:
                self._writers -= ends
                for end in ends:
                    end.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        carried = 0
        while data := await reader.read(CHUNK_BYTES):
            await asyncio.sleep(self.lag_s)
            if self.silent:
                continue
            if self.passes is not None and carried + len(data) > self.passes:
                writer.write(data[: self.passes - carried])
                await writer.drain()
                raise ConnectionResetError
            carried += len(data)
            writer.write(data)
            await writer.drain()
        if not self.silent:
            writer.write_eof()


@asynccontextmanager
async def wire_to(port: int) -> AsyncIterator[Wire]:
    """A wire to a port of 127.0.0.1."""
    wire = Wire(port)
    server = await asyncio.start_server(wire.connected, "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        server.close()
        wire.cut()
        await server.wait_closed()


@dataclass
class FarStore:
    """A bucket that is reached through a wire, and without it by whoever looks from outside."""

    swift: Swift
    wire: Wire
    bucket: str

    def environment(self) -> dict[str, str]:
        """What relayers have to be told."""
        settings = self.swift.settings(self.bucket, url=self.wire.url)
        return {f"RELAYER_{name.upper()}": value for name, value in settings.items()}

    async def fetched(self, folder: Path) -> Path:
        """A folder with all that is in the bucket now, under the same names."""
        objects = self.swift.objects(self.bucket)
        async for page in obstore.list(objects):
            for path in (found["path"] for found in page):
                with contextlib.suppress(FileNotFoundError):  # deleted while we looked
                    got = await obstore.get_async(objects, path)
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    (folder / path).write_bytes(bytes(await got.bytes_async()))
        return folder


@asynccontextmanager
async def far_store(folder: Path) -> AsyncIterator[FarStore]:
    """A real one on this machine, with an empty bucket."""
    with running_swift(folder) as swift:
        async with wire_to(swift.port) as wire:
            yield FarStore(swift, wire, swift.bucket())
