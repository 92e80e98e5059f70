"""An application lets go of its models' endpoints at its end.

Not here: which models are closed (`embedding/test_reindex_queries.py`).
"""

import asyncio
from dataclasses import replace

from relayer.app import build_app
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.life import WAIT_S_MAX
from tests.lifespan import living
from tests.openai_server import openai_server
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
