"""A socket that several processes listen by: each connection enters once, by whoever is there."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from relayer.http.acceptor import Acceptor
from tests.processes import lasting_port

GREETING = b"come in"
Guests = list[asyncio.Transport]


@dataclass
class Shared:
    """A socket, and the descriptors that others have of it."""

    own: socket.socket
    held: ExitStack

    def getsockname(self) -> tuple[str, int]:
        host, port = self.own.getsockname()
        return host, port

    def dup(self) -> socket.socket:
        return self.held.enter_context(self.own.dup())


@pytest.fixture
def shared() -> Iterator[Shared]:
    with ExitStack() as held, socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        yield Shared(one, held)


class Host(asyncio.Protocol):
    """Greets, and remembers who came."""

    def __init__(self, guests: Guests) -> None:
        self._guests = guests

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(GREETING)
        transport.close()
        self._guests.append(transport)


def acceptor(shared: Shared, guests: Guests, *, waits: bool = False) -> Acceptor:
    """One as another process would have it, by a descriptor of its own."""
    return Acceptor(shared.dup(), protocol=lambda: Host(guests), inside=lambda: 1000 * waits)


async def visit(shared: Shared) -> bytes:
    reader, writer = await asyncio.open_connection(*shared.getsockname())
    said = await reader.read()
    writer.close()
    await writer.wait_closed()
    return said


async def visits(shared: Shared, times: int) -> None:
    said = await asyncio.wait_for(asyncio.gather(*(visit(shared) for _ in range(times))), 60)
    assert said == [GREETING] * times


async def test_each_enters_once(shared: Shared) -> None:
    one: Guests = []
    other: Guests = []
    acceptors = [acceptor(shared, one), acceptor(shared, other, waits=True)]
    await visits(shared, 30)
    assert len(one) + len(other) == 30
    for each in acceptors:
        await each.close()


async def test_a_closed_door_leaves_them_to_the_other(shared: Shared) -> None:
    one: Guests = []
    other: Guests = []
    closed, opened = acceptor(shared, one), acceptor(shared, other, waits=True)
    await closed.close()
    await visits(shared, 10)
    assert (len(one), len(other)) == (0, 10)
    await opened.close()


async def test_a_port_is_free_once_the_last_door_is_closed() -> None:
    """However long those inside stay: whoever begins anew finds it so."""
    with socket.create_server(("127.0.0.1", lasting_port())) as one:
        shared = Shared(one, ExitStack())
        acceptors = [acceptor(shared, []), acceptor(shared, [])]
        host, port = shared.getsockname()
    with socket.create_connection((host, port)):
        for each in acceptors:
            await each.close()
        with socket.create_server((host, port)):
            pass


async def test_they_wait_while_nobody_is_there(shared: Shared) -> None:
    first: Guests = []
    successor: Guests = []
    before = acceptor(shared, first)
    await visits(shared, 1)
    await before.close()
    early = asyncio.create_task(visits(shared, 5))
    await asyncio.sleep(0)
    after = acceptor(shared, successor)
    await early
    assert (len(first), len(successor)) == (1, 5)
    await after.close()


class Counted(Acceptor):
    """One that notes how many it lets in each time."""

    taken: tuple[int, ...] = ()

    def _take(self) -> None:
        before = len(self._entering)
        super()._take()
        self.taken += (len(self._entering) - before,)


async def test_more_and_more_enter_at_once_by_whoever_waited_for_others_in_vain(
    shared: Shared,
) -> None:
    """Those who come in numbers and ask for nothing keep nobody out; who has less has its turns in
    between."""
    opened = Counted(shared.dup(), protocol=lambda: Host([]), inside=lambda: 1000)
    with ExitStack() as held:
        for number in (150, 2):
            for _ in range(number):
                held.enter_context(socket.create_connection(shared.getsockname()))
            taken = sum(opened.taken) + number
            while sum(opened.taken) < taken:
                await asyncio.sleep(0)
    assert opened.taken == (1, 2, 4, 8, 16, 32, 64, 23, 1, 1)
    await opened.close()


async def test_whoever_went_away_at_the_door_is_no_harm(shared: Shared) -> None:
    guests: Guests = []
    for _ in range(3):
        gone = socket.create_connection(shared.getsockname())
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        gone.close()  # with a reset
    opened = acceptor(shared, guests)
    await visits(shared, 2)
    await opened.close()
