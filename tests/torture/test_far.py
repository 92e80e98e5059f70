"""The wire to the object store: what it carries, and how it fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio

from tests.torture.far import Wire, wire_to

SAID = b"x" * 100_000


@pytest_asyncio.fixture
async def wire() -> AsyncIterator[Wire]:
    """One to a server that says everything again."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, wire_to(server.sockets[0].getsockname()[1]) as wire:
        yield wire


async def heard(wire: Wire, said: bytes = SAID) -> bytes:
    """What comes back of it until the end of the connection, however it ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
    answer = b""
    try:
        writer.write(said)
        writer.write_eof()
        while data := await reader.read(1 << 16):
            answer += data
    except OSError:
        pass
    finally:
        writer.transport.abort()
    return answer


@pytest.mark.parametrize("lag_s", [0.0, 0.01])
async def test_bytes_pass_unchanged(wire: Wire, lag_s: float) -> None:
    wire.lag_s = lag_s
    assert await heard(wire) == SAID


@pytest.mark.parametrize("passes", [0, 1, 1000, len(SAID) - 1])
async def test_it_is_cut_after_so_many(wire: Wire, passes: int) -> None:
    wire.passes = passes
    assert len(await heard(wire)) <= passes
    wire.heal()
    assert await heard(wire) == SAID


async def test_nobody_is_let_in(wire: Wire) -> None:
    wire.away = True
    assert await heard(wire) == b""
    wire.heal()
    assert await heard(wire) == SAID


async def test_who_waits_in_silence_is_cut_off(wire: Wire) -> None:
    wire.silent = True
    waiting = asyncio.create_task(heard(wire))
    while not wire._writers:
        await asyncio.sleep(0.01)
    wire.heal()
    assert await waiting == b""
    assert await heard(wire) == SAID
