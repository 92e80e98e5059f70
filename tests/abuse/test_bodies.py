"""Bodies: all that are read at once have one bound, whoever sent them, signed or not."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
from litestar.types import ASGIApp, Receive, ReceiveMessage

from relayer.app import build_app
from relayer.errors import BadRequest, Unavailable
from relayer.http import bodies
from relayer.http.middleware import Bodies, RequestMiddleware
from relayer.routes.memories import RememberBody
from relayer.settings import Limits, Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.framework import framework, transport_to
from tests.signing import client_of, signer_of, well_formed

ROOM = 1000
REFUSED = 401


def receiving(*parts: bytes) -> Receive:
    """A client that sends these and hangs up."""
    left = iter(parts)

    async def receive() -> ReceiveMessage:
        part = next(left, None)
        if part is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": True}

    return receive


async def read(bodies: Bodies, *parts: bytes) -> None:
    with bodies.count(receiving(*parts)) as receive:
        for _ in parts:
            await receive()


async def test_as_many_bytes_as_there_is_room_for_are_read() -> None:
    bodies = Bodies(10, free=0)
    with (
        bodies.count(receiving(b"four", b"")) as one,
        bodies.count(receiving(b"sixsix")) as two,
    ):
        assert (await one())["type"] == (await two())["type"] == "http.request"
        await one()  # nothing more takes no room
        assert (await one())["type"] == "http.disconnect"
        with pytest.raises(Unavailable) as refused:
            await read(bodies, b"1")
    assert refused.value.code == "server.full"
    assert "retry-after" in refused.value.headers
    await read(bodies, b"ten ten te")


@pytest.mark.parametrize("parts", [[b"eleven byte"], [b"ten ten te", b"1"], [b"1"] * 11])
async def test_one_byte_more_is_not(parts: Sequence[bytes]) -> None:
    bodies = Bodies(10, free=0)
    with pytest.raises(Unavailable):
        await read(bodies, *parts)
    await read(bodies, b"ten ten te")  # nothing stays counted of what was refused


async def test_short_bodies_find_room_beside_long_ones_that_do_not_end() -> None:
    bodies = Bodies(4, free=6)
    with bodies.count(receiving(b"sixsix", b"four", b"")) as long:
        await long()
        await long()
        await read(bodies, b"sixsix")
        with pytest.raises(Unavailable):
            await read(bodies, b"sixsix", b"1")
        await read(bodies, b"six", b"six")  # what was refused has left nothing
    await read(bodies, b"ten ten te")


async def test_who_breaks_off_leaves_no_bytes_behind() -> None:
    bodies = Bodies(10, free=0)

    async def broken() -> None:
        with bodies.count(receiving(b"ten ten te")) as receive:
            await receive()
            await asyncio.Event().wait()

    task = asyncio.create_task(broken())
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await read(bodies, b"1")
    task.cancel()
    await asyncio.wait([task])
    await read(bodies, b"ten ten te")


# The application itself


@pytest.fixture
def client(storage: Storage, settings: Settings) -> httpx.AsyncClient:
    """A client of an application with little room for bodies."""
    app = framework(build_app(storage, replace(settings, embedder="none")))
    wrapped = RequestMiddleware(
        app, timeout_s=60, stopping=asyncio.Event(), bodies=Bodies(ROOM, free=0)
    )
    transport = transport_to(wrapped)
    return httpx.AsyncClient(transport=transport, base_url="http://relayer")


async def test_bodies_that_do_not_end_fill_the_room_and_no_more(
    client: httpx.AsyncClient,
) -> None:
    """Whoever comes then is told when to come back; with no body, or later, nobody notices."""
    sent, end = asyncio.Event(), asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b" " * ROOM
        sent.set()
        await end.wait()

    async with client:
        slow = asyncio.create_task(
            client.post("/v1/recall", content=endless(), headers=well_formed())
        )
        await sent.wait()
        for path in ("/v1/recall", "/v1/import", "/api/recall", "/sui"):
            full = await client.post(path, content=b"1", headers=well_formed())
            assert (full.status_code, full.json()["code"]) == (503, "server.full"), path
            assert full.headers["retry-after"] == "2"
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/v1/memories")).status_code == REFUSED
        end.set()
        assert (await slow).status_code == REFUSED
        whole = await client.post("/v1/recall", content=b" " * ROOM, headers=well_formed())
        assert whole.status_code == REFUSED
        over = await client.post("/v1/recall", content=b" " * (ROOM + 1), headers=well_formed())
        assert over.status_code == 503


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-timestamp": str(int(time.time()) - 400)},
        {"x-timestamp": str(int(time.time()) + 3600)},
        {"x-signature": "cd"},
        {"x-nonce": ""},
    ],
)
async def test_no_body_is_read_of_a_request_that_nobody_can_have_signed_now(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    """Its headers, or the clock, already say so."""
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(3):
            sent += 1
            yield b" "

    async with client:
        given = well_formed() | headers if headers else {}
        answer = await client.post("/v1/recall", content=body(), headers=given)
    assert answer.status_code in {401, 426}
    assert sent == 0


@pytest.mark.parametrize(
    ("path", "bytes_max"),
    [
        ("/v1/recall", Limits.body_bytes_max),
        ("/v1/import", Limits.import_bytes_max),
        ("/sui", Limits.stand_in_bytes_max),
    ],
)
async def test_a_body_in_pieces_is_refused_as_soon_as_it_is_too_long(
    storage: Storage, settings: Settings, path: str, bytes_max: int
) -> None:
    """No length was announced: what came in is counted, against the bound of its route."""
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(10):
            sent += 1
            yield b" " * (bytes_max // 2)

    app = build_app(storage, replace(settings, embedder="none"))
    transport = transport_to(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://relayer") as client:
        answer = await client.post(path, content=endless(), headers=well_formed())
    assert (answer.status_code, answer.json()["code"]) == (413, "request.too_large")
    assert sent == 3


async def test_long_bodies_are_decoded_in_a_thread(
    app: ASGIApp, managed: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows their decoding is done in turns with other requests; so is that."""
    where: list[bool] = []
    decode = bodies.decode

    def noted(body: bytes, form: Any) -> Any:
        where.append(threading.current_thread() is threading.main_thread())
        return decode(body, form)

    monkeypatch.setattr(bodies, "decode", noted)
    async with client_of(app, signer_of(managed)) as client:
        for text in ("tea", "tea " * 30_000):
            assert (await client.post("/api/remember", json={"text": text})).status_code == 202
    assert where == [True, False]


def test_metadata_beyond_all_measure_are_read_once_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reading, for members that come twice, takes ten times as long as the first."""
    monkeypatch.setattr(bodies.json, "loads", None)  # type: ignore[attr-defined]
    metadata = {f"name{n}": "value" for n in range(100_000)}
    body = json.dumps({"relayer": 64 * "0", "text": "tea", "metadata": metadata}).encode()
    with pytest.raises(BadRequest, match="out of range"):
        bodies.decode(body, RememberBody)
