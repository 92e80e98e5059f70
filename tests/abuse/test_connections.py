"""Connections: slow heads, slow bodies, answers that nobody takes, heads without end, and too many.

Deadlines are short here; nothing is measured, a connection is only awaited to end.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn

from relayer.concurrency import STATE, ConcurrencyLimit
from relayer.http.connections import Bounds, _Joining, bind_limits
from relayer.http.middleware import RequestMiddleware
from tests.conftest import TestDatabase
from tests.processes import running_relayer
from tests.signing import well_formed

BOUNDS = Bounds(head_s=0.3, taking_s=0.3, head_bytes_max=200_000, connections_max=6)
PATIENT = Bounds(head_s=60, taking_s=60, head_bytes_max=2000, connections_max=6)
ENDS_S = 30  # generous: whoever is not cut would hang for ever
HEAD = b"GET / HTTP/1.1\r\nhost: a\r\n"
POST = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: "
BIG = 32 * 2**20  # more than the system's buffers take

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Says which headers came; `/early` before the body, `/big` at length, `/held` never."""
    path = scope["path"]
    while path == "/held" and (await receive())["type"] != "http.disconnect":
        pass
    while path != "/early" and (await receive()).get("more_body"):
        pass
    names = [name.decode() for name, _ in scope["headers"]]
    body = bytes(BIG) if path == "/big" else json.dumps(names).encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass
class Line:
    """Connections to a port, all of them closed in the end."""

    port: int
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def opened(self, sent: bytes = b"") -> Streams:
        """A connection on which this was sent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        writer.write(sent)
        return reader, writer

    async def dripped(self, first: bytes, drop: bytes) -> bytes:
        """What a client is told that sends something again and again until it is cut."""
        reader, writer = await self.opened(first)
        told = asyncio.create_task(everything(reader))
        while not told.done():
            writer.write(drop)
            await asyncio.sleep(0.02)
        return await told

    async def close(self) -> None:
        for writer in self.writers:
            writer.close()
        for writer in self.writers:
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def serving(bounds: Bounds, app: Any = answer) -> AsyncIterator[Line]:
    """A server with these bounds."""
    config = uvicorn.Config(
        app,
        port=0,
        http=bind_limits(bounds),
        ws="none",
        log_config=None,
        lifespan="off",
        timeout_keep_alive=1,
    )
    server = uvicorn.Server(config)
    server.capture_signals = suppress  # type: ignore[method-assign,assignment]  # pytest's own
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    line = Line(server.servers[0].sockets[0].getsockname()[1])
    try:
        yield line
    finally:
        await line.close()
        server.should_exit = server.force_exit = True
        await task


async def everything(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection ends, which it has to."""
    taken = bytearray()
    async with asyncio.timeout(ENDS_S):
        with suppress(ConnectionError):
            while part := await reader.read(2**16):
                taken += part
    return bytes(taken)


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        pytest.param(b"", b"", id="says nothing"),
        pytest.param(b"", b"\r\n", id="empty lines only"),
        pytest.param(b"", b"G", id="a method without end"),
        pytest.param(HEAD, b"a", id="a header's name byte by byte"),
        pytest.param(HEAD, b"a: b\r\n", id="header after header"),
        pytest.param(HEAD + b"\r\n", b"", id="a second request that never comes"),
        pytest.param(HEAD + b"\r\n", b"\r\n", id="empty lines behind a request"),
        pytest.param(HEAD + b"\r\n" + HEAD, b"a", id="a second head byte by byte"),
        pytest.param(
            POST.replace(b"/ ", b"/early ") + b"99999\r\n\r\n", b"a", id="a body behind its answer"
        ),
        pytest.param(
            b"POST /early HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
            b"1\r\na\r\n",
            id="chunks behind the answer",
        ),
    ],
)
async def test_a_slow_client_is_cut(first: bytes, drop: bytes) -> None:
    async with serving(BOUNDS) as line:
        told = await line.dripped(first, drop)
    answers = told.count(b"HTTP/1.1 200")
    assert answers == (0 if first in (b"", HEAD) else 1), told


async def test_an_answer_that_nobody_takes_is_given_up() -> None:
    async with serving(BOUNDS) as line:
        reader, writer = await line.opened(HEAD.replace(b"/ ", b"/big ") + b"\r\n")
        async with asyncio.timeout(ENDS_S):
            with suppress(ConnectionError):
                while True:  # the server cuts it: writing fails in the end
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.05)
        assert len(await everything(reader)) < BIG


async def test_an_answer_that_is_taken_is_whole() -> None:
    async with serving(PATIENT) as line:
        reader, _ = await line.opened(HEAD.replace(b"/ ", b"/big ") + b"connection: close\r\n\r\n")
        taken = await everything(reader)
    assert len(taken.partition(b"\r\n\r\n")[2]) == BIG


@pytest.mark.parametrize("taken", [True, False], ids=["taken late", "never"])
async def test_a_long_answer_keeps_its_place_until_it_is_taken(taken: bool) -> None:
    """Else an account could have any number of them in memory, by asking and reading nothing."""
    limit = ConcurrencyLimit(at_once=1, waiting_max=4)

    async def placed(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"][STATE] = await limit.acquire(b"an account")
        await answer(scope, receive, send)

    app: Any = placed
    wrapped = RequestMiddleware(app, timeout_s=60, stopping=asyncio.Event())
    async with serving(PATIENT, wrapped) as line:
        big = HEAD.replace(b"/ ", b"/big ") + b"connection: close\r\n\r\n"
        reader, writer = await line.opened(big)
        begun = await reader.read(100)
        second = asyncio.create_task(status_of((await line.opened(HEAD + b"\r\n"))[0]))
        account = vars(limit)["_queues"][b"an account"]
        while not (second.done() or account.waiting):
            await asyncio.sleep(0.01)
        assert not second.done()
        if taken:
            assert len(begun + await everything(reader)) > BIG
        else:
            writer.transport.abort()
        assert await second == 200


class Pieces(asyncio.Transport):
    """Remembers what was given to the system, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[bytes] = []
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.given.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.given.append(b"".join(list_of_data))

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing


class TestJoining:
    """A head goes to the system together with what follows it."""

    async def test_an_answer_is_given_in_one_piece(self) -> None:
        pieces = Pieces()
        joining = _Joining(pieces, asyncio.get_running_loop())
        for part in (b"HTTP/1.1 200 OK\r\n\r\n", b"one", b"two"):
            joining.write(part)
        await asyncio.sleep(0)
        assert pieces.given == [b"HTTP/1.1 200 OK\r\n\r\none", b"two"]

    async def test_a_head_alone_waits_for_no_more_than_the_loops_turn(self) -> None:
        pieces = Pieces()
        joining = _Joining(pieces, asyncio.get_running_loop())
        joining.write(b"HTTP/1.1 200 OK\r\n\r\n")
        assert pieces.given == []
        await asyncio.sleep(0)
        joining.write(b"later")
        assert pieces.given == [b"HTTP/1.1 200 OK\r\n\r\n", b"later"]

    async def test_a_head_is_given_before_the_end(self) -> None:
        pieces = Pieces()
        joining = _Joining(pieces, asyncio.get_running_loop())
        joining.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        joining.close()
        assert (pieces.given, pieces.closing) == ([b"HTTP/1.1 204 No Content\r\n\r\n"], True)

    async def test_nothing_is_given_after_the_end(self) -> None:
        pieces = Pieces()
        joining = _Joining(pieces, asyncio.get_running_loop())
        joining.write(b"HTTP/1.1 200 OK\r\n\r\n")
        pieces.closing = True
        await asyncio.sleep(0)
        assert pieces.given == []


async def test_answers_to_requests_sent_at_once_come_in_order_and_whole() -> None:
    async with serving(PATIENT) as line:
        reader, _ = await line.opened(
            (HEAD + b"\r\n") * 3 + HEAD + b"a: b\r\nconnection: close\r\n\r\n"
        )
        told = await everything(reader)
    bodies = [answer.partition(b"\r\n\r\n")[2] for answer in told.split(b"HTTP/1.1 200 ")[1:]]
    names = [json.loads(body) for body in bodies]
    assert names == [["host"], ["host"], ["host"], ["host", "a", "connection"]]


@pytest.mark.parametrize("close", [b"", b"connection: close\r\n"], ids=["kept", "closed"])
async def test_a_head_without_a_body_is_sent_all_the_same(close: bytes) -> None:
    async with serving(PATIENT) as line:
        reader, writer = await line.opened(HEAD.replace(b"GET", b"HEAD") + close + b"\r\n")
        async with asyncio.timeout(ENDS_S):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        if close:
            assert await everything(reader) == b""
        else:
            writer.write(HEAD + b"\r\n")
            assert b"host" in await reader.read(2**16)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (HEAD + b"a: " + b"b" * 1900, 200),
        (HEAD + b"a: " + b"b" * 2000, 431),
        (HEAD + b"a: b\r\n" * 1000 + b"c: d", 431),
        (HEAD + b"b" * 2000 + b": a", 431),
        (b"GET /" + b"b" * 2000 + b" HTTP/1.1\r\nhost: a", 431),
        (HEAD + b"a: " + b"b" * 2**20, 431),
    ],
    ids=["almost", "one value", "many", "a name", "a path", "a megabyte"],
)
async def test_a_head_has_a_size(head: bytes, status: int) -> None:
    async with serving(PATIENT) as line:
        reader, _ = await line.opened(head + b"\r\nconnection: close\r\n\r\n")
        told = await everything(reader)
    assert told.startswith(b"HTTP/1.1 %d " % status), told
    if status == 431:
        said = json.loads(told.partition(b"\r\n\r\n")[2])
        assert said["code"] == "request.head_too_large"
        assert said["request_id"].encode() in told.partition(b"\r\n\r\n")[0]


async def test_a_head_that_never_ends_is_refused_before_it_is_kept() -> None:
    async with serving(PATIENT) as line:
        told = await line.dripped(HEAD + b"a: ", b"b" * 500)
    assert told.startswith(b"HTTP/1.1 431 "), told


async def test_trailers_are_no_headers() -> None:
    chunked = b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n1\r\na\r\n0\r\n"
    async with serving(PATIENT) as line:
        reader, writer = await line.opened(HEAD + chunked)
        writer.write(b"x-account-id: b\r\n\r\n")
        told = await everything(reader)
        endless = await line.dripped(HEAD + chunked, b"a: b\r\n" * 100)
    assert json.loads(told.partition(b"\r\n\r\n")[2]) == ["host", "transfer-encoding", "connection"]
    assert endless.startswith(b"HTTP/1.1 431 "), endless


async def status_of(reader: asyncio.StreamReader) -> int:
    """The status of the next answer; 0 if the connection ends without one."""
    async with asyncio.timeout(ENDS_S):
        with suppress(ConnectionError):
            first = await reader.readline()
            return int(first.split()[1]) if first else 0
    return 0


async def test_a_new_connection_takes_the_place_of_the_idlest() -> None:
    async with serving(PATIENT) as line:
        slow = [await line.opened(HEAD) for _ in range(2)]
        used = await line.opened(HEAD + b"\r\n")
        assert await status_of(used[0]) == 200
        slow += [await line.opened(HEAD) for _ in range(3)]
        newest = await line.opened(HEAD + b"\r\n")
        assert await status_of(newest[0]) == 200
        assert await status_of(slow[0][0]) == 0, "the one that kept quiet for longest is gone"
        slow[1][1].write(b"\r\n")
        assert await status_of(slow[1][0]) == 200, "the others are not"


async def test_a_flood_of_silent_connections_stops_nobody() -> None:
    async with serving(PATIENT) as line:
        for _ in range(5):
            silent = [await line.opened(HEAD) for _ in range(20)]
            mine = await line.opened(HEAD + b"\r\n")
            assert await status_of(mine[0]) == 200
            assert len(silent) == 20


async def test_only_when_all_are_being_answered_one_is_refused() -> None:
    async with serving(PATIENT) as line:
        held = [await line.opened(HEAD.replace(b"/ ", b"/held ") + b"\r\n") for _ in range(6)]
        told = await everything((await line.opened())[0])
        held[0][1].close()
        async with asyncio.timeout(ENDS_S):
            while await status_of((await line.opened(HEAD + b"\r\n"))[0]) != 200:
                pass
    assert told.startswith(b"HTTP/1.1 503 "), told
    assert b"\r\nretry-after: 2\r\n" in told
    assert json.loads(told.partition(b"\r\n\r\n")[2])["code"] == "server.full"


# The relayer itself


async def test_slow_requests_end_and_stop_nobody(
    tmp_path: Path, model_dir: Path, fresh_database: TestDatabase
) -> None:
    """A body that comes byte by byte is answered at its deadline, a head is cut; ten of each."""
    with running_relayer(
        tmp_path,
        model_dir,
        database_url=fresh_database.url,
        RELAYER_EMBEDDER="none",
        RELAYER_REQUEST_TIMEOUT_S="1",
    ) as relayer:
        line = Line(int(urlsplit(relayer.url).port or 0))
        # What nobody can have signed is refused before its body.
        formed = "".join(f"{name}: {value}\r\n" for name, value in well_formed().items())
        body = (
            f"POST /v1/recall HTTP/1.1\r\nhost: a\r\n{formed}content-length: 99999\r\n\r\n".encode()
        )
        slow = [asyncio.create_task(line.dripped(first, b"a")) for first in (HEAD, body) * 10]
        async with httpx.AsyncClient(timeout=ENDS_S) as client:
            statuses = [(await client.get(f"{relayer.url}/health")).status_code for _ in range(20)]
        told = await asyncio.gather(*slow)
        await line.close()
    assert statuses == [200] * 20
    assert set(told[::2]) == {b""}
    for answer in told[1::2]:
        assert answer.startswith(b"HTTP/1.1 503 "), answer
        assert b'"code": "request.deadline"' in answer
