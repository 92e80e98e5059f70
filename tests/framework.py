"""An application in this process: a transport to it, its framework, its HTTP handlers."""

from collections.abc import Iterator
from typing import Any

import httpx
from litestar import Litestar, Router
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute
from litestar.types import ASGIApp

from relayer.routes.router import all_routes


def transport_to(app: ASGIApp) -> httpx.ASGITransport:
    """Return what carries requests of httpx to an application in this process."""
    return httpx.ASGITransport(app=app)  # type: ignore[arg-type]  # its own name of one protocol


def framework(app: ASGIApp) -> Litestar:
    """Return the application inside its middleware."""
    inner: Any = app
    while not isinstance(inner, Litestar):
        inner = inner._app
    return inner


def handlers(app: ASGIApp) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    """Yield method, path and handler of everything that an application serves."""
    for route in framework(app).routes:
        assert isinstance(route, HTTPRoute), route.path
        for handler in route.route_handlers:
            for method in handler.http_methods:
                yield method, route.path, handler


def listed_handlers() -> Iterator[tuple[str, HTTPRouteHandler]]:
    """Yield path and handler of everything in the relayer's own table, without an application."""
    for entry in all_routes():
        if isinstance(entry, Router):
            for route in entry.routes:
                assert isinstance(route, HTTPRoute), route.path
                yield from ((route.path_format, handler) for handler in route.route_handlers)
        else:
            yield from ((path, entry) for path in entry.paths)
