"""Calls handlers that take a body and parts of the application, and no other parameters.

Not here: the parts (`app.py`), the checks (`checks.py`), how a body is read (`middleware.py`).

- The framework looks each part up, checks it against its annotation and keeps room for cleaning up
  after it, for every request anew. Ours are there from the beginning, but for who asks; a body has
  been decoded as its form already.
- Guards come first, as everywhere: what is called here has passed them.
- The framework's own parts are changed here alone: `tests/project/test_insides.py` names them.
- Handlers with parameters in their path or query are called by the framework, which reads these. So
  are those with anything of their own that is not known of here: it would be left out.
"""

from collections.abc import Awaitable, Callable, Mapping, Set
from functools import partial
from typing import Any, Final

from litestar import Litestar, Request
from litestar.connection import ASGIConnection
from litestar.exceptions import ValidationException
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute
from litestar.types import Receive, Scope, Send

from relayer.http.middleware import JsonRequest, JsonResponse, json_answer

Made = Callable[[Request[Any, Any, Any]], Awaitable[Any]]
_GIVEN: Final = frozenset({"request", "data"})


def spare_work(app: Litestar) -> None:
    """Let every route do without two things that the framework does for others.

    It starts a task for each of several parts that a handler is given, which takes as long as a
    bare request; ours are there already, but for one. It copies the handler for each guard; ours
    only look at it.
    """
    routes = [route for route in app.routes if isinstance(route, HTTPRoute)]
    for handler, model in (each for one in routes for each in one.route_handler_map.values()):
        batches = model.dependency_batches
        model.dependency_batches = [{part} for batch in batches for part in batch]
        if hasattr(handler, "__dict__"):  # those that answer OPTIONS have no room for it
            # Of each handler for itself: to subclass their classes is deprecated.
            handler.authorize_connection = partial(  # type: ignore[method-assign]
                _authorize, handler
            )


async def _authorize(
    handler: HTTPRouteHandler, connection: ASGIConnection[Any, Any, Any, Any]
) -> None:
    for guard in handler.resolve_guards():
        await guard(connection, handler)  # type: ignore[misc]  # each was made awaitable


def call_plainly(app: Litestar, parts: Mapping[str, Any], made: Mapping[str, Made]) -> None:
    """Call handlers so where that is enough; `parts` by name, and those `made` for each request."""
    enough = _GIVEN | parts.keys() | made.keys()
    paths = app.asgi_router.root_route_map_node.children
    for route in app.routes:
        if not isinstance(route, HTTPRoute) or route.path_parameters:
            continue
        called = paths[route.path].asgi_handlers
        for method, (handler, _) in route.route_handler_map.items():
            # Middleware would stand around it.
            if called[method].asgi_app == route.handle and _is_plain(handler, enough):
                names = handler.parsed_fn_signature.parameters
                plain = _Plain(
                    handler,
                    parts={name: parts[name] for name in names if name in parts},
                    made={name: made[name] for name in names if name in made},
                )
                called[method] = called[method]._replace(asgi_app=plain)


def _is_plain(handler: HTTPRouteHandler, enough: Set[str]) -> bool:
    """Return true if a handler needs nothing but what `_Plain` does."""
    parameters = handler.parsed_fn_signature.parameters
    return (
        parameters.keys() <= enough
        and not any(parameter.has_default for parameter in parameters.values())
        and not any(layer.dependencies for layer in handler.ownership_layers[1:])
        and not handler.has_sync_callable
        and handler.resolve_request_class() is JsonRequest
        and handler.resolve_response_class() is JsonResponse
        and handler.resolve_after_response() is None
        and not any(layer.after_request for layer in handler.ownership_layers)
    )


class _Plain:
    """One handler, and what it is given."""

    def __init__(
        self, handler: HTTPRouteHandler, *, parts: Mapping[str, Any], made: Mapping[str, Made]
    ) -> None:
        self._handler = handler
        self._guards: Any = handler.resolve_guards()  # each was made awaitable
        self._before: Any = handler.resolve_before_request()
        self._work: Any = handler.fn
        self._parts = parts
        self._made = tuple(made.items())
        self._given = _GIVEN & handler.parsed_fn_signature.parameters.keys()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request, call the handler, and answer what it returns."""
        request: Any = JsonRequest(scope, receive, send)
        for guard in self._guards:
            await guard(request, self._handler)
        found = self._before and await self._before(request)
        if not found:  # else that is the answer
            found = await self._work(**await self._arguments(request))
        answer = await self._answer(request, found)
        await answer(scope, receive, send)

    async def _arguments(self, request: JsonRequest) -> dict[str, Any]:
        arguments = dict(self._parts)
        if "data" in self._given:
            if not await request.body():
                raise ValidationException(extra=[{"key": "data"}])  # as the framework says it
            arguments["data"] = await request.json()
        if "request" in self._given:
            arguments["request"] = request
        for name, make in self._made:
            arguments[name] = await make(request)
        return arguments

    async def _answer(self, request: JsonRequest, found: Any) -> Any:
        if type(found) is dict:
            return json_answer(found, self._handler.status_code)
        return await self._handler.to_response(app=request.app, data=found, request=request)
