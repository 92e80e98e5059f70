"""Answers for web pages of other origins, where the operator listed these: CORS.

Not here: how an origin is written (`relayer/origins.py`); who may ask what: a signature, as of
anybody, under the same limits.

- Without a list there is nothing of this: a browser lets no page read an answer.
- A listed origin is compared byte for byte, and named by itself. No answer says `*`, and none lets
  cookies or other credentials of a browser along.
- A preflight is answered before its route is looked for: it says what pages may send, not what
  there is.
- Metrics are the operator's, and for no page.

Source: Fetch Standard, CORS protocol.
"""

from collections.abc import Sequence
from typing import Any, Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from relayer.http.requests import route_of

CROSS_ORIGIN: Final = "cross_origin"  # in a request's state: the listed origin that asks, or None

_SENT: Final = (
    b"content-type, last-event-id, x-account-id, x-memrelay-unlock, x-nonce, x-public-key,"
    b" x-request-id, x-seal-session, x-signature, x-timestamp"
)
_READ: Final = (
    b"allow, ratelimit-limit, ratelimit-remaining, ratelimit-reset, retry-after, x-auth-error,"
    b" x-request-id"
)
_PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
    (b"access-control-allow-headers", _SENT),
    (b"access-control-max-age", b"7200"),  # seconds; the longest that browsers keep it
)
_NOT_FOR_PAGES: Final = frozenset({"/metrics"})

Headers = list[tuple[bytes, bytes]]


class CrossOrigin:
    """ASGI middleware that notes which page asks, and answers the preflights of listed ones."""

    def __init__(self, app: ASGIApp, *, origins: Sequence[str]) -> None:
        self._app = app
        self._origins = frozenset(origin.encode() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a preflight of a listed origin; pass all else on."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        scope["state"][CROSS_ORIGIN] = origin = self._find_listed(scope)
        if origin is None or not _is_preflight(scope):
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 204, "headers": _PREFLIGHT})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _find_listed(self, scope: Scope) -> bytes | None:
        """Return the origin that the request names, if it is a listed one and the only one."""
        named = [value for name, value in scope["headers"] if name == b"origin"]
        return named[0] if len(named) == 1 and named[0] in self._origins else None


def answer_headers(scope: Scope) -> Headers:
    """Return what an answer says of origins, once its route is known: a path has many spellings.

    Of a request that `CrossOrigin` has seen.
    """
    # Whoever keeps an answer must not give it to a page of another origin.
    headers: Headers = [(b"vary", b"origin")]
    origin: bytes | None = scope["state"][CROSS_ORIGIN]
    if origin is not None and route_of(scope) not in _NOT_FOR_PAGES:
        headers += [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _READ),
        ]
    return headers


def _is_preflight(scope: Any) -> bool:
    """Return true if a browser asks what a page may send, before it does."""
    asks = any(name == b"access-control-request-method" for name, _ in scope["headers"])
    return scope["method"] == "OPTIONS" and asks
