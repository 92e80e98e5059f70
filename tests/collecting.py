"""Objects that lie astray in a relayer's store, and what is collected of them."""

import uuid

from relayer.memories.opener import Caller
from relayer.sealed import envelope
from relayer.upkeep import check
from tests.services import Bench

STRAY = "nothing refers to this blob"
LATER = b'{"v":2}'
FORMER = uuid.UUID("00000000-0000-8000-8000-000000000007")  # of a turn, from before random names


async def collect(bench: Bench) -> None:
    """Walk through everything once, as a relayer that has just started, and delete what is due."""
    await bench.another().services.collector.collect()
    await bench.storage.outbox.publish()
    await bench.storage.outbox.empty()


async def problems(bench: Bench) -> list[tuple[str, str]]:
    return [(p["problem"], p["id"]) for p in (await check.check(bench.storage)).problems]


async def put(bench: Bench, caller: Caller, blob: bytes) -> str:
    name = envelope.blob_id(blob)
    await bench.storage.blobs.put_many(caller.access.account, {name: blob})
    return name
