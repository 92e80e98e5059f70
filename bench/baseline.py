"""Servers that relayers are compared with, on the same framework and the same server's settings.

    python -m bench.baseline KIND --data-dir FOLDER

Not here: the requests (`presigned.py`), the comparison (`signing.py`, `remember.py`).

- `bare` has two Litestar handlers and nothing else: one answers at once, one reads a recall's body
  first and answers at its length. `insert` has the relayer's own checks and middleware in front of
  a handler that inserts one row and commits. `embeddings` runs the relayer's
  model behind the route of OpenAI's API, for those that cannot run it by themselves.
"""

import argparse
import asyncio
import socket
import uuid
from pathlib import Path
from typing import Any, Final

import msgspec
import uvicorn
import uvloop
from litestar import Litestar, Request, get, post
from litestar.params import JSONBody

from bench.running import settings_in
from relayer.clock import utc_now
from relayer.embedding.builtin import BuiltinEmbedder
from relayer.errors import RelayerError
from relayer.http import dispatch, middleware
from relayer.http.checks import Guard
from relayer.installation import open_storage
from relayer.logs import configure
from relayer.routes.memwal_manual import ManualRecallBody
from relayer.serve import server_config
from relayer.settings import Settings
from relayer.storage import Storage

BARE: Final = "/bare"
BARE_MANUAL: Final = "/bare/manual"
INSERT: Final = "/insert"
_CREATE: Final = """
CREATE TABLE IF NOT EXISTS baseline_rows (
    account_id bigint NOT NULL, row_id uuid NOT NULL, bytes bytea NOT NULL,
    PRIMARY KEY (account_id, row_id))
"""
_INSERT: Final = "INSERT INTO baseline_rows (account_id, row_id, bytes) VALUES ($1, $2, $3)"


def bare_app() -> Litestar:
    """Handlers that know the answer."""
    hits = [{"blob_id": "x" * 43, "distance": 0.123456789} for _ in range(10)]

    @get(BARE)
    async def bare() -> dict[str, str]:
        return {"status": "ok"}

    @post(BARE_MANUAL, status_code=200)
    async def manual(data: JSONBody[ManualRecallBody]) -> dict[str, Any]:
        return {"results": hits[: data.limit], "total": len(hits)}

    return Litestar([bare, manual], openapi_config=None, logging_config=None)


def insert_app(storage: Storage, settings: Settings) -> middleware.RequestMiddleware:
    """The relayer's checks, then one INSERT, which commits by itself."""

    @post(INSERT, status_code=202)
    async def insert(request: Request[Any, Any, Any]) -> dict[str, str]:
        row, account = uuid.uuid4(), request.state.access.account
        await storage.database.execute(_INSERT, account, row, await request.body())
        return {"id": str(row)}

    guard = Guard(
        database=storage.database,
        accounts=storage.accounts,
        key_uses=storage.key_uses,
        settings=settings,
        clock=utc_now,
    )
    app = Litestar(
        [insert],
        guards=[guard],
        request_class=dispatch.JsonRequest,
        exception_handlers={RelayerError: middleware.relayer_error},
        openapi_config=None,
        logging_config=None,
    )
    return middleware.RequestMiddleware(
        app, timeout_s=settings.request_timeout_s, stopping=asyncio.Event()
    )


class EmbeddingsBody(msgspec.Struct):
    """POST /v1/embeddings."""

    model: str
    input: str | list[str]


def embeddings_app(embedder: BuiltinEmbedder) -> Litestar:
    """Vectors of texts, as OpenAI's API gives them."""

    @post("/v1/embeddings", status_code=200)
    async def embeddings(data: JSONBody[EmbeddingsBody]) -> dict[str, Any]:
        texts = [data.input] if isinstance(data.input, str) else data.input
        vectors = await embedder.embed(texts)
        items = [
            {"object": "embedding", "index": n, "embedding": vector.tolist()}
            for n, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return {"object": "list", "data": items, "model": data.model, "usage": usage}

    return Litestar([embeddings], openapi_config=None, logging_config=None)


async def serve_insert(settings: Settings) -> None:
    """Serve `insert` on the database of a data folder, until SIGTERM."""
    async with open_storage(settings) as storage:
        await storage.database.execute(_CREATE)
        await serve(insert_app(storage, settings), settings)


async def serve(app: Any, settings: Settings) -> None:
    """Serve on a free port with a relayer's settings, until SIGTERM; prints where."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(app, settings))
    print(f"ready at http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    await server.serve(sockets=[listener])


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=["bare", "insert", "embeddings"])
    parser.add_argument("--data-dir", type=Path, required=True)
    arguments = parser.parse_args()
    settings = settings_in(arguments.data_dir)
    configure(settings.log_level)
    if arguments.kind == "bare":
        uvloop.run(serve(bare_app(), settings))
    elif arguments.kind == "insert":
        uvloop.run(serve_insert(settings))
    else:
        embedder = BuiltinEmbedder(folder=Path(settings.model_dir))
        uvloop.run(serve(embeddings_app(embedder), settings))


if __name__ == "__main__":
    main()
