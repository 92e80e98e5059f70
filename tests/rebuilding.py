"""A relayer that lost its database, and what comes back of it from its blobs."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from relayer.database.pool import Database
from relayer.embedding.embedders import Embedder
from relayer.memories.opener import Caller
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.upkeep import provision
from relayer.upkeep.rebuild import rebuild_lost
from tests.conftest import BenchMaker, database_copy
from tests.services import Bench, bench_on

ROWS = """
SELECT memory_id, revision, revision_of, kind, writer, created_at, stored_at, superseded_at,
       superseded_by, pinned, review, stale, blob_id, word_count, source, fingerprint, epoch,
       (SELECT array_agg(t ORDER BY t) FROM unnest(tokens) t) AS tokens
FROM memories ORDER BY memory_id
"""
Lose = Callable[[Bench], Awaitable[Bench]]
Leave = Callable[[Bench], Awaitable[Bench]]


@pytest.fixture
def bench(make_bench: BenchMaker, embedder: Embedder, tmp_path: Path) -> Bench:
    """Its blobs are in a folder."""
    return make_bench(embedder=embedder, blob_store=f"file:{tmp_path / 'blobs'}")


@asynccontextmanager
async def _successors(
    postgres: EmbeddedPostgres, template: str
) -> AsyncIterator[Callable[..., Awaitable[Bench]]]:
    """Makes relayers on databases of their own, like one that is there but for what is told."""
    async with AsyncExitStack() as stack:

        async def successor(bench: Bench, **how: Any) -> Bench:
            copy = await stack.enter_async_context(database_copy(postgres, template))
            database = await Database.connect(copy.connect_args, connections=5)
            stack.push_async_callback(database.close)
            return bench_on(
                bench.settings,
                copy.connect_args,
                database,
                embedder=bench.services.embedders.current,
                clock=bench.clock,
                **how,
            )

        yield successor


@pytest_asyncio.fixture
async def lose(postgres: EmbeddedPostgres, template: str) -> AsyncIterator[Lose]:
    """Makes the same relayer with its key and its blobs on an empty database."""
    async with _successors(postgres, template) as successor:
        yield lambda bench: successor(bench, identity=bench.storage.identity)


@pytest_asyncio.fixture
async def elsewhere(
    postgres: EmbeddedPostgres, template: str, tmp_path: Path
) -> AsyncIterator[Leave]:
    """Makes another relayer, with a key, a database and blobs of its own."""
    async with _successors(postgres, template) as successor:
        yield lambda bench: successor(bench, blob_store=f"file:{tmp_path / uuid.uuid4().hex}")


async def rebuilt(lost: Bench, bench: Bench) -> list[str]:
    lost.root |= bench.root
    return [one.outcome for one in await rebuild_lost(lost.storage, lost.clock)]


async def completed(lost: Bench, founder: provision.NewKey) -> None:
    """What the background does, as far as the keys at hand go."""
    keys = await lost.storage.custody.job_keys(founder.account)
    assert keys is not None
    await lost.services.restore.complete(founder.account, keys)


async def embed_all(bench: Bench, caller: Caller) -> None:
    ids = [r["memory_id"] for r in await bench.sql("SELECT memory_id FROM memories")]
    await bench.services.indexer.embed(caller.access.account, caller.keys, ids)


async def every(bench: Bench, founder: provision.NewKey) -> list[bytes]:
    names = [name async for name in bench.storage.blobs.names(founder.account)]
    found = await bench.storage.blobs.get_many(founder.account, names)
    return [data for data in found.values() if isinstance(data, bytes)]
