"""ASGI middleware around every route: ids, deadlines, room for bodies, access log, errors as JSON.

Not here: routes, and the checks before them.

- An error answer holds a message made for people, a stable code and a request id; nothing an
  outside library said, no stack, whatever went wrong.
- A body is read whole before its signature says anything, so all of them share one bound.
- A long answer takes memory until its client has taken it, and so long it keeps its account's
  slot: who reads nothing soon gets nothing more.
"""

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from litestar import Request, Response
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, Message, Receive, ReceiveMessage, Scope, Send

from relayer import concurrency, logs
from relayer.errors import RelayerError, Unavailable
from relayer.http import cross_origin, rate_limits
from relayer.http.requests import RequestCounts, method_of, route_of
from relayer.settings import Limits
from relayer.telemetry import tracing
from relayer.telemetry.instruments import count_rejection
from relayer.telemetry.rejections import cause_of, cause_of_status

log = logging.getLogger("relayer.http")

_CODES: Final = {
    400: "request.invalid",
    404: "route.unknown",
    405: "request.method",
    413: "request.too_large",
    415: "request.media_type",
}
_MESSAGES: Final = {
    400: "The request is malformed.",
    404: "No such route.",
    405: "That method is not allowed here.",
    413: "The request body is too large.",
    415: "Send application/json.",
}
TAKEN_BYTES: Final = 64 * 2**10  # of an answer, that systems take at once or that may wait
DEADLINE: Final = "deadline"  # in a request's state: what ends it, which a stream puts off
HEADERS: Final = "headers"  # in a request's state: headers that stand in place of `_HEADERS`
REFUSAL: Final = "refusal"  # in a request's state: what its line in the log says of an error
_HEADERS: Final = {
    b"x-content-type-options": b"nosniff",
    b"cache-control": b"no-store",
    b"referrer-policy": b"no-referrer",
    b"x-frame-options": b"DENY",
    b"cross-origin-resource-policy": b"same-origin",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
}
_HEADERS_SENT: Final = tuple(_HEADERS.items())


class Bodies:
    """The bytes of bodies in memory, of all requests that are under way together.

    The first `free` bytes of each do not count: as many as there may be connections take little,
    and who has a short request finds room beside any number of long ones that do not end.
    """

    def __init__(self, bytes_max: int, *, free: int = Limits.body_bytes_free) -> None:
        self._bytes_max = bytes_max
        self._free = free
        self._bytes = 0

    @contextmanager
    def count(self, receive: Receive) -> Iterator[Receive]:
        """Yield a request's `receive`, whose bytes take room until the request is done.

        It raises `Unavailable` for bytes that have none, and they are dropped.
        """
        own = counted = 0

        async def receive_counted() -> ReceiveMessage:
            nonlocal own, counted
            message = await receive()
            own += len(message.get("body", b"")) if message["type"] == "http.request" else 0
            more = max(0, own - self._free) - counted
            if more > self._bytes_max - self._bytes:
                raise Unavailable("Too much is being read at once.", code="server.full")
            self._bytes += more
            counted += more
            return message

        try:
            yield receive_counted
        finally:
            self._bytes -= counted


class RequestMiddleware:
    """ASGI middleware: a request id, security headers, one log line and a deadline per request.

    Every answer of a process that is `stopping` closes its connection. Requests that `counts` saw
    begin are counted when they end.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        timeout_s: float,
        stopping: asyncio.Event,
        counts: RequestCounts | None = None,
        bodies: Bodies | None = None,
    ) -> None:
        self._app = app
        self._timeout_s = timeout_s
        self._stopping = stopping
        self._counts = counts or RequestCounts()
        self._bodies = bodies or Bodies(Limits.bodies_bytes_max)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and watch over it."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        request_id = tracing.request_id(
            [value for name, value in scope["headers"] if name == b"x-request-id"]
        )
        scope.setdefault("state", {})["request_id"] = request_id
        token = tracing.REQUEST.set(request_id)
        try:
            with tracing.span("request", **{"memrelay.request_id": request_id}) or nullcontext():
                await self._watch(scope, receive, send, request_id)
        finally:
            tracing.REQUEST.reset(token)

    async def _watch(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        started, took_s = time.monotonic(), 0.0
        status, slot = 0, None

        async def send_watched(message: Message) -> None:
            nonlocal status, slot, took_s
            if message["type"] == "http.response.body":
                took_s = time.monotonic() - started
                if slot and _is_long(message):
                    message = await self._send_alone(scope, message, send)
            elif message["type"] == "http.response.start":
                status = message["status"]
                own = scope["state"].get(HEADERS)
                extra = [
                    *((_HEADERS | own).items() if own else _HEADERS_SENT),
                    (b"x-request-id", request_id.encode()),
                ]
                slot = scope["state"].get(concurrency.STATE)
                if slot and not _is_long(message):
                    slot.release()
                extra += rate_limits.headers(scope["state"].get(rate_limits.STATE, ()))
                if cross_origin.CROSS_ORIGIN in scope["state"]:
                    extra += cross_origin.answer_headers(scope)
                if self._stopping.is_set():
                    extra.append((b"connection", b"close"))
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        try:
            async with asyncio.timeout(self._timeout_s) as deadline:
                scope["state"][DEADLINE] = deadline
                with self._bodies.count(receive) as counted:
                    await self._app(scope, counted, send_watched)
        except TimeoutError:
            if not status:
                scope["state"][REFUSAL] = {"code": "request.deadline"}
                await _send_overdue(send_watched, request_id)
        finally:
            _release_slot(scope)
            whole_s = time.monotonic() - started
            self._counts.end(scope, status, took_s or whole_s)
            _tell(scope, status, whole_s, request_id)

    async def _send_alone(self, scope: Scope, message: Any, send: Send) -> Message:
        """Send a long body and wait until it is taken; what ends the answer behind it.

        The server sends nothing further before, or never will; until when, is the connection's own
        concern.
        """
        whole: Any = {**message, "more_body": True}
        await send(whole)
        scope["state"][DEADLINE].reschedule(None)
        return {"type": "http.response.body", "body": b"", "more_body": False}


def _tell(scope: Scope, status: int, took_s: float, request_id: str) -> None:
    """Name the span and write the line in the log: the route is known by now."""
    method, route = method_of(scope), route_of(scope)
    tracing.name_request(method, route, status)
    said = {"event": "http.request", "method": method, "route": route, "status": status}
    said |= scope["state"].get(REFUSAL, {})
    ms = round(1000 * took_s, 1)
    logs.tell(log, "request", {**said, "ms": ms, "request_id": request_id})


def _is_long(message: Any) -> bool:
    """Return true if an answer's head or whole body is so large that it may wait for its client."""
    if message["type"] == "http.response.start":
        told = (v for name, v in message.get("headers", ()) if name == b"content-length")
        return int(next(told, 0)) > TAKEN_BYTES
    return not message.get("more_body") and len(message.get("body", b"")) > TAKEN_BYTES


def _release_slot(scope: Scope) -> None:
    """Let the account's next request begin: the work on this one is done."""
    if slot := scope["state"].get(concurrency.STATE):
        slot.release()


async def _send_overdue(send: Send, request_id: str) -> None:
    error = Unavailable("The request took too long.", code="request.deadline")
    count_rejection("deadline")
    body = json.dumps(_body(error.message, error.code, request_id)).encode()
    headers = [(b"content-type", b"application/json"), (b"retry-after", b"2")]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _body(message: str, code: str, request_id: str) -> dict[str, str]:
    return {"error": message, "message": message, "code": code, "request_id": request_id}


def _refusal(
    request: Request[Any, Any, Any],
    status: int,
    message: str,
    code: str,
    headers: dict[str, str] | None,
    *,
    cause: str = "",
) -> Response[Any]:
    """Return an error as it is answered; its code and cause are in the request's log line, too."""
    request.scope["state"][REFUSAL] = {"code": code} | ({"cause": cause} if cause else {})
    return Response(_body(message, code, _request_id(request)), status_code=status, headers=headers)


def _request_id(request: Request[Any, Any, Any]) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))


def relayer_error(request: Request[Any, Any, Any], error: RelayerError) -> Response[Any]:
    """Return the answer for one of our own errors."""
    if (cause := cause_of(error)) is not None:
        count_rejection(cause)
    return _refusal(
        request, error.status, error.message, error.code, error.headers, cause=error.cause
    )


def http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
    """Return the answer for an error of the framework, in our words: its own may quote the body."""
    status = error.status_code
    if status >= 500:
        return unexpected_error(request, error)
    if (cause := cause_of_status(status)) is not None:
        count_rejection(cause)
    message = _MESSAGES.get(status, "The request was refused.")
    if status == 400:
        message = _where(error)
    headers = error.headers if status == 405 else None  # which methods are
    return _refusal(request, status, message, _CODES.get(status, "request.refused"), headers)


def _where(error: HTTPException) -> str:
    """Return a message that names the wrong members, and none of their values."""
    extra = error.extra if isinstance(error.extra, list) else []
    keys = [e["key"] for e in extra if isinstance(e, dict) and isinstance(e.get("key"), str)]
    named = ", ".join(k for k in keys if k.replace(".", "").replace("_", "").isalnum())
    return f"The request is malformed: {named}." if named else _MESSAGES[400]


def unexpected_error(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Return the answer for a bug: logged by kind and place, told as nothing but that."""
    log.error(
        "unexpected error",
        exc_info=error,
        extra={"event": "http.bug", "request_id": _request_id(request)},
    )
    message = "The relayer failed; the request id is in its log."
    return _refusal(request, 500, message, "internal", None)
