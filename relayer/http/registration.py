"""The rule of who may found an account over HTTP.

Not here: founding itself (`tenants/granting.py`).

- Open without a token only where nobody but this machine can ask: bound to loopback, public URL
  unset or loopback, no forwarding header on the request, and a Host that is loopback too: a web
  page can make its own name point here, but its browser still says that name.
- A proxy on this machine that says nothing of whom it asks for, and sends its own Host, cannot be
  told from somebody here; `relayer serve` and `relayer doctor` say so.
"""

import hmac
from typing import Any, Final
from urllib.parse import urlsplit

from litestar import Request
from litestar.connection import ASGIConnection

from relayer.errors import NotAllowed
from relayer.settings import Settings, is_local, is_loopback

_FORWARDING: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


class Registration:
    """Decides about one request to found an account."""

    def __init__(self, *, settings: Settings) -> None:
        self._mode = settings.registration
        self._token = settings.registration_token
        self._local = is_local(settings)

    def check(self, request: Request[Any, Any, Any], token: str) -> None:
        """Return when the request may found an account.

        Raises:
            NotAllowed: registration is closed, or the token is missing or wrong.
        """
        if self._mode == "closed":
            raise NotAllowed("Registration is closed.", code="registration.closed")
        if self._mode == "open" or (self._mode == "auto" and self._local and is_direct(request)):
            return
        if not self._token or not hmac.compare_digest(token.encode(), self._token.encode()):
            raise NotAllowed("Registration needs a token.", code="registration.token")


def is_direct(request: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Return true if the request came to this machine by one of its own names, through no proxy."""
    if any(name in request.headers for name in _FORWARDING):
        return False
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)
