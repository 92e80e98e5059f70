"""Handlers are given parts of the relayer by a field's name, which has the type they expect."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_type_hints

from litestar import Router
from litestar.handlers import BaseRouteHandler

from relayer.app import Web
from relayer.routes.router import all_routes
from relayer.services import Services

PARTS = {name: kind for holder in (Services, Web) for name, kind in get_type_hints(holder).items()}


def handlers(routes: Any) -> Iterator[BaseRouteHandler]:
    """All handlers, also those of routers."""
    for route in routes:
        if isinstance(route, Router):
            for path in route.routes:
                # Not those that the framework answers OPTIONS with.
                ours = (h for h in path.route_handlers if h.fn.__module__.startswith("relayer."))
                yield from ours
        else:
            yield route


def test_no_two_parts_have_one_name() -> None:
    assert len(PARTS) == sum(len(fields(holder)) for holder in (Services, Web))


def test_each_part_is_of_the_type_that_is_asked_for() -> None:
    asked = 0
    for handler in handlers(all_routes()):
        for name, kind in get_type_hints(handler.fn).items():
            if name in PARTS:
                assert kind == PARTS[name], (handler, name)
                asked += 1
    assert asked > 80
