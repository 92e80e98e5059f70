"""An application lets go of its models' endpoints at its end.

Not here: which models are closed (`embedding/test_reindex_queries.py`).
"""

import asyncio
from dataclasses import replace

import openai
import pytest

from relayer.app import build_app
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.life import WAIT_S_MAX
from tests.lifespan import living
from tests.openai_server import API_KEY, CHAT_MODEL, openai_server
from tests.optional import unwrap
from tests.signing import client_of, signer_of


async def test_no_connection_to_an_endpoint_outlives_it(
    storage: Storage, settings: Settings, managed: NewKey
) -> None:
    with openai_server() as server:
        async with (
            living(build_app(storage, replace(settings, **server.as_embedder))) as app,
            client_of(app, signer_of(managed)) as client,
        ):
            answer = await client.post("/api/embed", json={"text": "Anna prefers tea."})
            assert answer.status_code == 200
            assert server.connections
        async with asyncio.timeout(WAIT_S_MAX):
            while server.connections:
                await asyncio.sleep(0.01)


async def test_one_that_cannot_be_closed_keeps_no_other_open(
    storage: Storage, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two endpoints of the embedding model, and the language model behind them."""
    closed = []

    async def fail(client: openai.AsyncOpenAI) -> None:
        closed.append(unwrap(client.base_url.port))
        raise OSError

    monkeypatch.setattr(openai.AsyncOpenAI, "close", fail)
    app = build_app(
        storage,
        replace(
            settings,
            embedding_model="any",
            embedding_base_urls="http://127.0.0.1:1/v1, http://127.0.0.1:2/v1",
            llm_model=CHAT_MODEL,
            openai_base_url="http://127.0.0.1:3/v1",
            openai_api_key=API_KEY,
        ),
    )
    with pytest.raises(AssertionError):  # its end is told as failed
        async with living(app):
            pass
    assert sorted(closed) == [1, 2, 3]
