"""A relayer whose embedding model changes, and what its tests ask of its vectors."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from relayer.database import vectors as vector_rows
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.openai import OpenAIEmbedder
from relayer.memories.opener import Caller
from relayer.memories.recall import Recalled
from relayer.memories.recognition import Stored
from relayer.query.query import Query
from relayer.upkeep import check
from tests.conftest import BenchMaker
from tests.embeddings_server import KEY, EmbeddingsServer, unit
from tests.services import TEAM, Bench

OLD, NEW, WIDE = "old-model", "new-model", "wide-model"
MODELS = {OLD: 6, NEW: 6, WIDE: 16}
TEXTS = [f"Note {n}: the {thing} is green." for n, thing in enumerate("abcdefghij")]
BY_MODEL = "SELECT count(*) FROM vectors WHERE model = $1"
JOBS = "SELECT count(*) FROM pgqueuer"


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingsServer]:
    async with EmbeddingsServer(models=MODELS) as running:
        yield running
        assert running.complaints == []


@pytest.fixture
def old(make_bench: BenchMaker, server: EmbeddingsServer) -> Bench:
    """A relayer with the old model; those made from it know the same endpoint."""
    return make_bench(
        embedder=embedder(server, OLD),
        embedding_base_urls=server.url,
        embedding_model=OLD,
        openai_api_key=KEY,
    )


def embedder(server: EmbeddingsServer, model: str, **options: Any) -> OpenAIEmbedder:
    return OpenAIEmbedder(
        endpoints=[Endpoint(server.url, KEY)], model=model, dim=MODELS[model], **options
    )


def changed(bench: Bench, server: EmbeddingsServer, model: str = NEW, **options: Any) -> Bench:
    """The relayer after a restart with another model, later."""
    bench.clock.advance(121)
    return bench.another(embedder=embedder(server, model, **options))


async def written(bench: Bench, *texts: str, **members: Any) -> tuple[Caller, list[Stored]]:
    """Texts of a new managed account with their vectors."""
    caller = await bench.caller(await bench.account())
    stored = await bench.remember(caller, *(texts or TEXTS), **members)
    await bench.embed(caller, stored)
    await bench.sql("DELETE FROM pgqueuer")
    return caller, stored


async def finish(bench: Bench) -> None:
    """What a worker does after its start, to the end."""
    await bench.services.sweeper.sweep()
    async with bench.working():
        await bench.until(JOBS, 0)


async def recalled(bench: Bench, caller: Caller, text: str, **members: Any) -> Recalled:
    asked = Query(**{"text": text, "namespaces": [TEAM], "mode": "vector", "limit": 50, **members})
    return await bench.services.recaller.recall(caller, asked)


async def models_of(bench: Bench) -> dict[str, int]:
    rows = await bench.sql("SELECT model, count(*) AS n FROM vectors GROUP BY model")
    return {r["model"]: r["n"] for r in rows}


async def progress(bench: Bench, caller: Caller) -> vector_rows.Progress:
    return await vector_rows.progress(
        bench.storage.database,
        account=caller.access.account,
        versions=bench.services.indexer.versions,
    )


async def assert_holds(bench: Bench) -> None:
    report = await check.check(bench.storage)
    assert report.problems == []


def cosine(model: str, one: str, other: str) -> float:
    return float(unit(one, model, MODELS[model]) @ unit(other, model, MODELS[model]))
