"""The HTTP library, imported here and nowhere else: to change it is to change one line.

`httpx2` is the maintained continuation of httpx and has the same names; all works with it. What we
need and the library has no public name for is reached here alone, too. It does not own what is sent
(`client.py`), or how long that may take (`deadline.py`).
"""

from collections.abc import Callable
from typing import Any

import httpx

__all__ = ["httpx", "refuse_cookies", "wrap_backends"]


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


def wrap_backends(client: httpx.Client, wrap: Callable[[Any], Any]) -> None:
    """Replace what connects in every pool of a client by what `wrap` makes of it.

    httpx has no parameter for what connects; httpcore, under it, has one.
    """
    for transport in (client._transport, *client._mounts.values()):
        pool = getattr(transport, "_pool", None)
        if pool is not None:
            pool._network_backend = wrap(pool._network_backend)
