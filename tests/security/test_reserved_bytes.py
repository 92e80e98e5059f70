"""Bytes that have the form of an account's own objects come in by no door as somebody's upload."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import numpy as np
from litestar.types import ASGIApp

from relayer.archives.importer import Arrival
from relayer.clock import utc_now
from relayer.journal.states import Change
from relayer.memories.opener import Caller
from relayer.record import new_id
from relayer.sealed.envelope import MEMORY, Address, blob_id, seal
from relayer.storage import Storage
from tests.conftest import BenchMaker
from tests.moving import EMPTY, founded, here, moved, packed, there
from tests.rotator import all_bytes
from tests.services import TEAM, Bench
from tests.signing import client_of, signer_of

__all__ = ["here", "there"]  # fixtures

UPLOAD = b"a client's own ciphertext"


async def journal_of(bench: Bench, caller: Caller) -> list[bytes]:
    """One of each object that lies beside the blobs, and a sealed memory."""
    one, two = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
    await bench.services.state_changer.set_state(caller.access, one.id, Change(pinned=True))
    await bench.services.deletion.forget(caller.access, two.id)
    stored = (await all_bytes(bench, caller.access.account)).values()
    objects = [data for data in stored if data.startswith(b"{")]
    said = b"".join(objects)
    for member in (b'"grant":', b'"key_id":', b'"state":', b'"op":"forget"'):
        assert member in said
    return [*objects, *(data for data in stored if not data.startswith(b"{"))]


async def uploaded(bench: Bench, caller: Caller) -> None:
    await bench.services.manual.remember(caller, TEAM, UPLOAD, np.ones(6, np.float32))


async def arriving(there: Bench, caller: Caller, arrival: Arrival, blobs: Sequence[bytes]) -> Any:
    """What becomes of an upload's row with each of these bytes in turn."""
    [row] = [row for row in arrival.memories if row.format == "opaque"]
    for blob in blobs:
        changed = msgspec.structs.replace(row, blob=blob, blob_id=blob_id(blob))
        page = replace(EMPTY, memories=[changed])
        [(_, status)] = (await there.services.importer.take_in(caller.access, page)).results
        yield status


async def test_an_import_brings_none(here: Bench, there: Bench) -> None:
    """Neither those of the relayer that it leaves, nor those of the one where it arrives."""
    founder = await here.account()
    caller = await here.caller(founder)
    theirs = await journal_of(here, caller)
    await uploaded(here, caller)
    arrival = await packed(here, caller)
    new = await founded(here, there, founder)
    first = replace(arrival, memories=[], episodes=[])
    await there.services.importer.take_in(new.access, first)
    ours = list((await all_bytes(there, founder.account)).values())
    assert ours
    found = [status async for status in arriving(there, new, arrival, [*theirs, *ours])]
    assert set(found) == {"refused"}
    assert await there.sql("SELECT 1 FROM memories") == []
    assert [one async for one in arriving(there, new, arrival, [UPLOAD])] == ["imported"]


async def test_what_is_an_object_of_another_account_is_one_here_too(
    here: Bench, there: Bench
) -> None:
    """Whose signature an object has does not matter; an envelope is only reserved to its own."""
    founder, stranger = await here.account(), await here.account()
    caller, other = await here.caller(founder), await here.caller(stranger)
    await uploaded(here, caller)
    objects = await journal_of(here, other)
    arrival = await moved(here, there, founder)
    new = await there.caller(founder)
    foreign = [data for data in objects if data.startswith(b"{")]
    assert {s async for s in arriving(there, new, arrival, foreign)} == {"refused"}


async def test_the_route_for_uploads_refuses_them(
    app: ASGIApp, make_bench: BenchMaker, storage: Storage
) -> None:
    bench = make_bench(clock=utc_now, identity=storage.identity)
    founder = await bench.account()
    caller = await bench.caller(founder)
    objects = await journal_of(bench, caller)
    key = caller.keys.of(TEAM)[0]
    forged = seal(key, Address(MEMORY, founder.account, new_id(), 1), b"{}", created_ms=1)
    async with client_of(app, signer_of(founder)) as client:
        for data in (*objects, forged):
            answer = await upload(client, data)
            assert (answer.status_code, answer.json()["code"]) == (400, "upload.reserved")
        assert await bench.value("SELECT count(*) FROM memories WHERE format = 'opaque'") == 0
        assert (await upload(client, UPLOAD)).status_code == 200


async def upload(client: httpx.AsyncClient, data: bytes) -> httpx.Response:
    body = {"encrypted_data": base64.b64encode(data).decode(), "vector": [1.0, 2.0]}
    return await client.post("/api/remember/manual", json=body)
