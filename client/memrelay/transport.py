"""The HTTP library, imported here and nowhere else: to change it is to change one line.

`httpx2` is the maintained continuation of httpx and has the same names; all works with it. What we
need and the library has no public name for is reached here alone, too. It does not own what is sent
(`client.py`), or how long that may take (`deadline.py`).
"""

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

__all__ = [
    "async_socket_transport",
    "connect_socket",
    "httpx",
    "refuse_cookies",
    "socket_transport",
    "wrap_backends",
]


class _NoCookies(httpx.Cookies):
    """Cookies of a client that keeps none.

    They would never be sent back, and whoever answers could set more of them without end. A jar
    that takes none does so as well, but only after reading each request and answer once more.
    """

    def extract_cookies(self, response: httpx.Response) -> None:
        """Take none of an answer's."""


def refuse_cookies(client: httpx.Client | httpx.AsyncClient) -> None:
    """Let a client keep no cookies: the library has no parameter for it."""
    client._cookies = _NoCookies()


def socket_transport(path: Path | None) -> httpx.BaseTransport | None:
    """Return what connects by a Unix socket, None without one."""
    # There is no TLS on it: to read all authorities takes longer than a request.
    return None if path is None else httpx.HTTPTransport(uds=str(path), verify=False)


def async_socket_transport(path: Path | None) -> httpx.AsyncBaseTransport | None:
    """Return the same for a client that awaits."""
    return None if path is None else httpx.AsyncHTTPTransport(uds=str(path), verify=False)


def connect_socket(backend: Any, path: str, timeout_s: float | None) -> Any:
    """Return a connection by a Unix socket, of the kind that the library's part makes.

    That part itself leaves its socket open where nobody listens.

    Raises:
        httpx.ConnectError: nobody listens, or not in time.
    """
    line = socket.socket(socket.AF_UNIX)
    try:
        line.settimeout(timeout_s)
        line.connect(path)
    except OSError as error:
        line.close()
        kind = httpx.ConnectTimeout if isinstance(error, TimeoutError) else httpx.ConnectError
        raise kind(str(error)) from error
    return sys.modules[type(backend).connect_tcp.__module__].SyncStream(line)


def wrap_backends(client: httpx.Client, wrap: Callable[[Any], Any]) -> None:
    """Replace what connects in every pool of a client by what `wrap` makes of it.

    httpx has no parameter for what connects; httpcore, under it, has one.
    """
    for transport in (client._transport, *client._mounts.values()):
        pool = getattr(transport, "_pool", None)
        if pool is not None:
            pool._network_backend = wrap(pool._network_backend)
