"""The composition root: HTTP on top of the services, from the settings.

Not here: the parts. Nothing else in the package knows all of them, but `services.py`.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from typing import Any

from litestar import Litestar, Request
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp

from relayer.affinity import ALONE, Affinity
from relayer.clock import Clock, utc_now
from relayer.database.pool import Database
from relayer.embedding.building import build_embedder
from relayer.embedding.embedders import Embedder, close_all
from relayer.embedding.models import Embedders
from relayer.errors import RelayerError
from relayer.events.streams import Streams
from relayer.http import middleware
from relayer.http.checks import ACCESS, Guard
from relayer.http.cross_origin import CrossOrigin
from relayer.http.dispatch import (
    Callers,
    JsonRequest,
    JsonResponse,
    Made,
    call_plainly,
    spare_work,
)
from relayer.http.openapi import Document
from relayer.http.pages import Pages
from relayer.http.public_url import PublicUrl, StripPrefix
from relayer.http.registration import Registration
from relayer.http.requests import RequestCounts
from relayer.llm import LanguageModel
from relayer.monitoring.exposition import Exposition
from relayer.monitoring.readiness import Readiness
from relayer.origins import parse_origins
from relayer.routes.metrics import metrics
from relayer.routes.router import all_routes
from relayer.sealed.keys import Identity
from relayer.services import Services, build_language_model, build_services
from relayer.settings import Limits, Settings
from relayer.storage import Storage
from relayer.tenants.accounts import Access, Accounts
from relayer.tenants.granting import Granting
from relayer.tenants.recall_counts import RecallCounts
from relayer.tenants.unlock_directory import UnlockDirectory


@dataclass(frozen=True)
class Web:
    """Arguments of routes beside the services."""

    accounts: Accounts
    granting: Granting
    announcements: UnlockDirectory
    recall_counts: RecallCounts
    database: Database
    identity: Identity
    settings: Settings
    embedder: Embedder | None
    public_url: PublicUrl
    readiness: Readiness
    exposition: Exposition
    document: Document
    registration: Registration
    streams: Streams


def parts_of(services: Services, web: Web) -> dict[str, Any]:
    """Name → part, of all that a handler may ask for: it is asked for as the field is called."""
    return {
        field.name: getattr(holder, field.name)
        for holder in (services, web)
        for field in fields(holder)
    }


def build_app(
    storage: Storage,
    settings: Settings,
    clock: Clock = utc_now,
    stopping: asyncio.Event | None = None,
    affinity: Affinity = ALONE,
) -> ASGIApp:
    """Build the application; its worker and its models end with it.

    `stopping` ends its streams, and every connection behind its answer. By `affinity` other
    processes answer for accounts with a large index.
    """
    stopping = stopping or asyncio.Event()
    embedder, language_model = build_embedder(settings), build_language_model(settings)
    services = build_services(
        storage,
        settings,
        embedder=embedder,
        language_model=language_model,
        clock=clock,
        affinity=affinity,
    )
    models = [model for model in (services.embedders, language_model) if model is not None]
    public_url = PublicUrl(settings=settings)
    readiness = Readiness(
        database=storage.database,
        blobs=storage.blobs,
        settings=settings,
        works=services.worker.works,
    )
    exposition = Exposition(
        database=storage.database,
        readiness=readiness,
        index_bytes=lambda: services.memory_index.size_bytes,
    )

    callers = Callers(
        custody=storage.custody,
        resume_soon=services.sweeper.resume_soon,
        note=services.ahead_loader.note,
    )

    async def provide_access(request: Request[Any, Any, Any]) -> Access:
        access: Access = request.scope["state"][ACCESS]
        services.ahead_loader.note(access)
        return access

    web = Web(
        accounts=storage.accounts,
        granting=storage.granting,
        announcements=storage.announcements,
        recall_counts=storage.recall_counts,
        database=storage.database,
        identity=storage.identity,
        settings=settings,
        embedder=embedder,
        public_url=public_url,
        readiness=readiness,
        exposition=exposition,
        document=Document(),
        registration=Registration(settings=settings),
        streams=Streams(
            database=storage.database,
            accounts=storage.accounts,
            relayers=storage.relayers,
            embeds=embedder is not None,
            stopping=stopping,
            clock=clock,
        ),
    )
    made: dict[str, Made] = {"caller": callers.provide, "access": provide_access}
    parts = parts_of(services, web)
    counts = RequestCounts()
    app = Litestar(
        route_handlers=[*all_routes(), metrics(settings)],
        guards=[
            counts.begin,
            Guard(
                database=storage.database,
                accounts=storage.accounts,
                key_uses=storage.key_uses,
                settings=settings,
                clock=clock,
            ),
        ],
        dependencies={
            **{name: Provide(make) for name, make in made.items()},
            **{name: _provide(part) for name, part in parts.items()},
        },
        exception_handlers={
            RelayerError: middleware.relayer_error,
            HTTPException: middleware.http_error,
            Exception: middleware.unexpected_error,
        },
        request_class=JsonRequest,
        response_class=JsonResponse,
        request_max_body_size=Limits.body_bytes_max,
        openapi_config=None,  # it is a route of ours
        lifespan=[_lifespan(storage, services, readiness, exposition, models)],
        debug=False,
        logging_config=None,
        pdb_on_exception=False,
    )
    spare_work(app)
    call_plainly(app, parts, made)
    pages = Pages(
        app,
        document=lambda: web.document.of(app.routes),
        is_well=readiness.write_ready,
        public_url=public_url,
    )
    origins = parse_origins(settings.cors_origins)
    wrapped = middleware.RequestMiddleware(
        CrossOrigin(pages, origins=origins) if origins else pages,
        timeout_s=settings.request_timeout_s,
        stopping=stopping,
        counts=counts,
    )
    return StripPrefix(wrapped, prefix=public_url.prefix) if public_url.prefix else wrapped


def _provide(part: Any) -> Provide:
    return Provide(lambda: part, sync_to_thread=False)


def _lifespan(
    storage: Storage,
    services: Services,
    readiness: Readiness,
    exposition: Exposition,
    models: Sequence[Embedders | LanguageModel],
) -> Any:
    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        await storage.announcements.announce()
        tasks = [
            asyncio.create_task(services.worker.run()),
            asyncio.create_task(services.delivery.run()),
            asyncio.create_task(storage.announcements.run()),
            asyncio.create_task(storage.key_uses.run()),
            asyncio.create_task(storage.recall_counts.run()),
            asyncio.create_task(readiness.watch()),
            asyncio.create_task(exposition.keep_published()),
            asyncio.create_task(services.memory_index.prepare()),
        ]
        try:
            yield
        finally:
            services.worker.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await close_all([services.ahead_loader, services.memory_index, *models])

    return lifespan
