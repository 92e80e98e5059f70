"""Reads JSON, answers it, and calls handlers that take a body and parts of the application alone.

Not here: the parts (`app.py`), the checks (`checks.py`), the members of a body (`bodies.py`).

- The framework looks each part up, checks it against its annotation and keeps room for cleaning up
  after it, for every request anew. Ours are there from the beginning, but for who asks; a body has
  been decoded as its form already.
- Guards come first, as everywhere: what is called here has passed them.
- The framework's own parts are changed here alone: `tests/project/test_insides.py` names them.
- Handlers with parameters in their path or query are called by the framework, which reads these. So
  are those with anything of their own that is not known of here: it would be left out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Final

from litestar import Litestar, Request, Response
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, ValidationException
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute
from litestar.serialization import encode_json
from litestar.types import ASGIApp, Empty, Receive, Scope, Send

from relayer.errors import BadRequest
from relayer.http import bodies
from relayer.http.checks import ACCESS
from relayer.http.requests import header
from relayer.memories.opener import Caller
from relayer.sealed.keys import AccountId, Namespace
from relayer.tenants.accounts import Access
from relayer.tenants.custody import Custody

Made = Callable[[Request[Any, Any, Any]], Awaitable[Any]]
_GIVEN: Final = frozenset({"request", "data"})
UNLOCK_HEADER: Final = b"x-memrelay-unlock"
DECODED_AT_ONCE: Final = 64 * 2**10  # bytes of a body; longer ones in a thread


class JsonRequest(Request[Any, Any, Any]):
    """A request whose body is decoded once, strictly: the framework alone would convert types."""

    async def body(self) -> bytes:
        """Return the whole body, read once; the framework's stream costs more than the reading.

        Raises:
            HTTPException: 413, it is longer than its route takes, or says so.
            BadRequest: the same of a route of MemWal's; `request.unfinished`, it ends too early.
        """
        if self._body is Empty:
            bytes_max = self.route_handler.resolve_request_max_body_size() or 0  # all have one
            announced = header(self.scope, b"content-length") or ""
            if announced.isdecimal() and int(announced) > bytes_max:
                raise self._too_long(bytes_max)
            self._body = await self._read(bytes_max)
        return self._body

    async def _read(self, bytes_max: int) -> bytes:
        parts: list[bytes] = []
        left, more = bytes_max, True
        while more:
            message = await self.receive()
            if message["type"] != "http.request":
                # The client is gone, which is no failure of ours.
                raise BadRequest("The body ended too early.", code="request.unfinished")
            parts.append(message.get("body", b""))
            left, more = left - len(parts[-1]), message.get("more_body", False)
            if left < 0:
                raise self._too_long(bytes_max)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _too_long(self, bytes_max: int) -> Exception:
        if self.scope["path"].startswith(bodies.MEMWAL_PREFIX):
            return BadRequest(f"The body exceeds maximum length of {bytes_max} bytes.")
        return HTTPException(status_code=413)

    async def json(self) -> Any:
        """Return the body in the form that the route takes.

        Raises:
            BadRequest: it has another.
            HTTPException: 415, it says that it is no JSON, or packed.
        """
        if not _says_json(self.scope):
            raise HTTPException(status_code=415)
        field = self.route_handler.parsed_data_field
        body, form = await self.body(), Any if field is None else field.annotation
        if len(body) <= DECODED_AT_ONCE:
            return bodies.decode(body, form)
        return await asyncio.to_thread(bodies.decode, body, form)


class JsonResponse(Response[Any]):
    """A route's answer as JSON; for a dictionary, without the framework's two objects.

    A dictionary goes without headers, cookies or work of its own; who has any returns a `Response`.
    """

    def to_asgi_response(self, app: Any, request: Request[Any, Any, Any], **options: Any) -> Any:
        """Return an application that sends it."""
        if type(self.content) is not dict:
            return super().to_asgi_response(app, request, **options)
        return json_answer(self.content, self.status_code or 200)


def json_answer(content: dict[str, Any], status: int) -> ASGIApp:
    """Return an application that answers with a dictionary."""
    body = encode_json(content)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    return answer


def _says_json(scope: Scope) -> bool:
    """Return true if a body is declared as plain JSON in UTF-8, or not declared at all."""
    said = header(scope, b"content-type")
    packed = header(scope, b"content-encoding") not in (None, "identity")
    if said is None or said == "application/json":
        return not packed
    media_type, _, parameters = said.partition(";")
    charset = parameters.lower().replace('"', "").partition("charset=")[2].strip()
    return (
        media_type.strip().lower() == "application/json" and charset in ("", "utf-8") and not packed
    )


class Callers:
    """Tells of each request who asks: the key's access, and the keys that it may use."""

    def __init__(
        self,
        *,
        custody: Custody,
        resume_soon: Callable[[AccountId, Sequence[Namespace]], None],
        note: Callable[..., None],
    ) -> None:
        """`note` is told of each request, and whether it `has_lent` a key."""
        self._custody = custody
        self._resume_soon = resume_soon
        self._note = note

    async def provide(self, request: Request[Any, Any, Any]) -> Caller:
        """Return who asks; what waited for keys that the request lends goes on soon."""
        access: Access = request.scope["state"][ACCESS]
        keys, learned = await self._custody.keys(access, header(request.scope, UNLOCK_HEADER))
        if learned:
            held = await self._custody.held_namespaces(access.account)
            self._resume_soon(access.account, held)
        self._note(access, has_lent=learned)
        return Caller(access, keys)


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
