"""Fixtures: the built-in model, and endpoints that misbehave."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from relayer.embedding.builtin import BuiltinEmbedder
from relayer.embedding.openai import OpenAIEmbedder
from tests.embeddings_server import EmbeddingsServer, embedder_of
from tests.model_fixture import model_folder


@pytest.fixture(scope="module")
def folder() -> Path:
    return model_folder()


@pytest.fixture(scope="module")
def builtin(folder: Path) -> Iterator[BuiltinEmbedder]:
    embedder = BuiltinEmbedder(folder=folder)
    yield embedder
    asyncio.run(embedder.close())


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingsServer]:
    async with EmbeddingsServer() as running:
        yield running
        assert running.complaints == []


@pytest.fixture
async def second() -> AsyncIterator[EmbeddingsServer]:
    async with EmbeddingsServer() as running:
        yield running
        assert running.complaints == []


@pytest.fixture
async def remote(server: EmbeddingsServer) -> AsyncIterator[OpenAIEmbedder]:
    embedder = embedder_of(server)
    yield embedder
    await embedder.close()


@pytest.fixture
async def pair(server: EmbeddingsServer, second: EmbeddingsServer) -> AsyncIterator[OpenAIEmbedder]:
    embedder = embedder_of(server, second)
    yield embedder
    await embedder.close()
