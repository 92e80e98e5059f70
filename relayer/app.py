"""The composition root: every part is built here, once, from the settings.

Not here: the parts. Nothing else in the package knows all of them.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litestar import Litestar, Request, Router
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.plugins.prometheus import PrometheusConfig, PrometheusController
from litestar.types import ASGIApp

from relayer import __version__, memwal, surroundings
from relayer.accounts import Access
from relayer.analysis import Analysis
from relayer.checks import PUBLIC, Guard
from relayer.clock import Clock, utc_now
from relayer.embedding import model
from relayer.embedding.cache import CachedEmbedder, CoalescingEmbedder
from relayer.embedding.embedders import BuiltinEmbedder, Embedder, OpenAIEmbedder
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.models import Embedders
from relayer.embedding.passages import count_bytes
from relayer.eraser import Eraser
from relayer.errors import RelayerError
from relayer.extraction.facts import Extractor
from relayer.extraction.model import LlmExtractor
from relayer.extraction.rules import SentenceExtractor
from relayer.indexing import Indexer
from relayer.jobs import Worker
from relayer.llm import LanguageModel
from relayer.manual import Manual
from relayer.memory import MemoryService
from relayer.opening import Caller, Opener
from relayer.public_url import PublicUrl, StripPrefix
from relayer.query_vectors import QueryEmbedder
from relayer.recall import RecallService
from relayer.registration import Registration
from relayer.restore import Restore
from relayer.routes import UNLOCK_HEADER, v1_router
from relayer.settings import Limits, Settings
from relayer.storage import Storage
from relayer.writer import Writer

log = logging.getLogger("relayer")


def build_embedder(settings: Settings) -> Embedder | None:
    """The embedder the settings name, behind the cache; None for none."""
    if settings.embedder == "none":
        return None
    if settings.embedder == "openai" or (settings.embedder == "auto" and settings.embedding_model):
        inner = _endpoint_embedder(settings, settings.embedding_model, settings.embedding_dim)
    else:
        inner = _builtin_embedder(settings)
    return _cached(settings, inner)


def build_older_embedder(settings: Settings, model_id: str) -> Embedder | None:
    """The embedder of a model that memories still have vectors of.

    None unless the settings still let queries go to who serves it.
    """
    if model_id == model.MODEL_ID:
        return _cached(settings, _builtin_embedder(settings))
    name, _, dim = model_id.rpartition("/")
    away = settings.embedder in ("builtin", "none")  # whoever says so wants texts to stay here
    named = settings.embedding_base_urls or settings.embedding_model
    if away or not named or not dim.isdecimal():
        return None
    return _cached(settings, _endpoint_embedder(settings, name, int(dim)))


def _builtin_embedder(settings: Settings) -> Embedder:
    return CoalescingEmbedder(inner=BuiltinEmbedder(folder=model_folder(settings)))


def _endpoint_embedder(settings: Settings, name: str, dim: int) -> Embedder:
    urls = settings.embedding_base_urls or settings.openai_base_url
    return OpenAIEmbedder(
        endpoints=[
            Endpoint(url.strip(), settings.openai_api_key or None)
            for url in urls.split(",")
            if url.strip()
        ],
        model=name,
        dim=dim,
        timeout_s=settings.embedding_timeout_s,
    )


def _cached(settings: Settings, inner: Embedder) -> Embedder:
    return CachedEmbedder(
        inner=inner, entries_max=settings.embedding_cache_entries, secret=os.urandom(32)
    )


def model_folder(settings: Settings) -> Path:
    """Where the built-in model's files are."""
    return Path(settings.model_dir) if settings.model_dir else model.default_folder()


def build_language_model(settings: Settings) -> LanguageModel | None:
    """The chat model the settings name, or None."""
    if not settings.llm_model:
        return None
    return LanguageModel(
        base_url=settings.openai_base_url,
        api_key=settings.openai_api_key,
        model=settings.llm_model,
        timeout_s=settings.llm_timeout_s,
    )


@dataclass(frozen=True)
class Services:
    """What turns a checked request into an answer, and the worker that follows up."""

    embedder: Embedder | None
    memory: MemoryService
    recaller: RecallService
    indexer: Indexer
    analysis: Analysis
    restore: Restore
    manual: Manual
    worker: Worker


def build_services(
    storage: Storage,
    settings: Settings,
    *,
    embedder: Embedder | None,
    language_model: LanguageModel | None,
    clock: Clock,
) -> Services:
    """The services on a storage; the worker does not run yet."""
    eraser = Eraser(
        database=storage.database, outbox=storage.outbox, identity=storage.identity, clock=clock
    )
    writer = Writer(
        database=storage.database,
        outbox=storage.outbox,
        namespaces=storage.namespaces,
        eraser=eraser,
        identity=storage.identity,
        storage_bytes_max=settings.storage_bytes_max,
        embeds=embedder is not None,
        clock=clock,
    )
    opener = Opener(blobs=storage.blobs, embeds=embedder is not None)
    memory = MemoryService(
        database=storage.database,
        opener=opener,
        namespaces=storage.namespaces,
        writer=writer,
        eraser=eraser,
        embeds=embedder is not None,
        clock=clock,
    )
    recaller = RecallService(
        database=storage.database,
        opener=opener,
        namespaces=storage.namespaces,
        embedder=QueryEmbedder(
            database=storage.database,
            embedders=Embedders(
                current=embedder, load=lambda model_id: build_older_embedder(settings, model_id)
            ),
        ),
        count_tokens=count_bytes if embedder is None else embedder.count_tokens,
        clock=clock,
    )
    # The cache is for queries: what is stored is embedded once, and then perhaps by another file.
    uncached = embedder.inner if isinstance(embedder, CachedEmbedder) else embedder
    indexer = Indexer(database=storage.database, opener=opener, embedder=uncached)
    rules = SentenceExtractor()
    extractor: Extractor = rules if language_model is None else LlmExtractor(model=language_model)
    analysis = Analysis(
        recaller=recaller,
        opener=opener,
        writer=writer,
        extractor=extractor,
        rules=rules,
        model=language_model,
        database=storage.database,
        blobs=storage.blobs,
        namespaces=storage.namespaces,
        clock=clock,
    )
    worker = Worker(
        connect_args=storage.connect_args,
        database=storage.database,
        indexer=indexer,
        analysis=analysis,
        custody=storage.custody,
        namespaces=storage.namespaces,
        outbox=storage.outbox,
        clock=clock,
    )
    restore = Restore(
        database=storage.database,
        blobs=storage.blobs,
        namespaces=storage.namespaces,
        writer=writer,
    )
    manual = Manual(
        database=storage.database, namespaces=storage.namespaces, writer=writer, clock=clock
    )
    return Services(embedder, memory, recaller, indexer, analysis, restore, manual, worker)


def build_app(storage: Storage, settings: Settings, clock: Clock = utc_now) -> ASGIApp:
    """The application; its worker runs as long as it does."""
    services = build_services(
        storage,
        settings,
        embedder=build_embedder(settings),
        language_model=build_language_model(settings),
        clock=clock,
    )
    public_url = PublicUrl(settings=settings)

    async def provide_caller(request: Request[Any, Any, Any]) -> Caller:
        access: Access = request.state.access
        keys, learned = await storage.custody.keys(access, request.headers.get(UNLOCK_HEADER))
        if learned:
            held = await storage.custody.held(access.account)
            services.worker.resume_soon(access.account, held)
        return Caller(access, keys)

    def provide_access(request: Request[Any, Any, Any]) -> Access:
        access: Access = request.state.access
        return access

    parts: dict[str, Any] = {
        "memory": services.memory,
        "recaller": services.recaller,
        "analysis": services.analysis,
        "accounts": storage.accounts,
        "custody": storage.custody,
        "database": storage.database,
        "identity": storage.identity,
        "settings": settings,
        "embedder": services.embedder,
        "public_url": public_url,
        "registration": Registration(settings=settings),
        "restore": services.restore,
        "manual": services.manual,
    }
    app = Litestar(
        route_handlers=[v1_router(), *memwal.HANDLERS, _Metrics],
        guards=[
            Guard(
                database=storage.database,
                accounts=storage.accounts,
                settings=settings,
                clock=clock,
            )
        ],
        dependencies={
            "caller": Provide(provide_caller),
            "access": Provide(provide_access, sync_to_thread=False),
            **{name: _provide(part) for name, part in parts.items()},
        },
        middleware=[
            PrometheusConfig(app_name="memrelay", prefix="memrelay", group_path=True).middleware
        ],
        exception_handlers={
            RelayerError: surroundings.relayer_error,
            HTTPException: surroundings.http_error,
            Exception: surroundings.unexpected_error,
        },
        request_class=surroundings.JsonRequest,
        request_max_body_size=Limits.body_bytes_max,
        openapi_config=_openapi(),
        lifespan=[_lifespan(services.worker)],
        debug=False,
        logging_config=None,
        pdb_on_exception=False,
    )
    surrounded = surroundings.Surroundings(app, timeout_s=settings.request_timeout_s)
    return StripPrefix(surrounded, prefix=public_url.prefix)


def _provide(part: Any) -> Provide:
    return Provide(lambda: part, sync_to_thread=False)


class _Metrics(PrometheusController):
    """GET /metrics: counts and durations by route, nothing about tenants."""

    path = "/metrics"
    opt = {PUBLIC: True}  # noqa: RUF012  # the framework's own way to declare options


def _openapi() -> OpenAPIConfig:
    return OpenAPIConfig(
        title="memrelay",
        version=__version__,
        render_plugins=[JsonRenderPlugin()],
        openapi_router=Router(path="/schema", route_handlers=[], opt={PUBLIC: True}),
    )


def _lifespan(worker: Worker) -> Any:
    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        task = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return lifespan
