"""Bytes to a relayer over a connection of their own, and its answer: no HTTP library in between.

Not here: what is sent (`case.py`), what the answer has to be (`test_refusals.py`).
"""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.refusals.case import Cut

ANSWER_S_MAX = 30.0


@dataclass(frozen=True)
class Reply:
    """What came back until the relayer closed the connection; status 0 for nothing."""

    raw: bytes
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body; None where it is not JSON."""
        with suppress(ValueError):
            return json.loads(self.body)
        return None


async def exchange(host: str, port: int, raw: bytes) -> Reply:
    """Send, hang up if the bytes are cut, and read to the end."""
    async with asyncio.timeout(ANSWER_S_MAX):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            sending = asyncio.create_task(_send(writer, raw))
            received = await _receive(reader)
            await sending
        finally:
            writer.close()
    return parsed(received)


async def _send(writer: asyncio.StreamWriter, raw: bytes) -> None:
    with suppress(ConnectionError):  # it may answer before it has everything
        writer.write(raw)
        await writer.drain()
        if isinstance(raw, Cut):
            writer.write_eof()


async def _receive(reader: asyncio.StreamReader) -> bytes:
    received = b""
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            received += piece
    return received


def parsed(raw: bytes) -> Reply:
    """The first answer among the bytes."""
    if not raw:
        return Reply(raw, 0, {}, b"")
    head, _, rest = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    length = int(headers.get("content-length", "0"))
    return Reply(raw, int(first.split()[1]), headers, rest[:length])
