"""This relayer's URL as its clients reach it, and the path prefix that is not signed.

Not here: who is believed about it: only proxies the operator listed.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from litestar import Request
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from relayer.settings import Settings


class PublicUrl:
    """The setting if there is one, else what the request and a trusted proxy say."""

    def __init__(self, *, settings: Settings) -> None:
        self._fixed = settings.public_url.rstrip("/")
        self._trusted = frozenset(_split_list(settings.trusted_proxies))

    @property
    def prefix(self) -> str:
        """Return the path below which clients reach this relayer, "" at the root."""
        return urlsplit(self._fixed).path.rstrip("/")

    def of(self, request: Request[Any, Any, Any]) -> str:
        """Return the absolute URL without a slash at its end."""
        if self._fixed:
            return self._fixed
        scheme, host = request.url.scheme, request.headers.get("host", "localhost")
        if request.client is not None and request.client.host in self._trusted:
            scheme = _first(request.headers.get("x-forwarded-proto", scheme))
            host = _first(request.headers.get("x-forwarded-host", host))
        return f"{scheme}://{host}"


class StripPrefix:
    """ASGI middleware that removes the public URL's prefix where a proxy left it."""

    def __init__(self, app: ASGIApp, *, prefix: str) -> None:
        self._app = app
        self._prefix = unquote(prefix)
        self._parts = prefix.count("/") + 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with the path that clients signed."""
        if scope["type"] == ScopeType.HTTP:
            parts = (scope.get("raw_path") or b"").split(b"/", self._parts)
            # One prefix has several spellings: as it is, or with percent signs.
            before = unquote(b"/".join(parts[: self._parts]).decode("latin-1"))
            if len(parts) >= self._parts and before == self._prefix:
                rest = parts[self._parts :]  # none of the prefix without a slash at its end
                scope["raw_path"] = b"/" + b"".join(rest)
                scope["path"] = unquote(scope["raw_path"].decode("latin-1"))
        await self._app(scope, receive, send)


def _first(listed: str) -> str:
    """Return the first part of a header, which the proxy nearest to the client wrote."""
    return listed.partition(",")[0].strip()


def _split_list(text: str) -> Sequence[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
