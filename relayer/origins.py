"""Origins of web pages, as browsers write them: a scheme, a host and perhaps a port.

Not here: what a page of an origin may do (`http/cross_origin.py`).

Source: RFC 6454, section 6; HTML Standard, serialization of an origin.
"""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

ORIGINS_MAX: Final = 64
_ORIGIN: Final = re.compile(
    r"[a-z][a-z0-9+.-]{0,31}://(?:[a-z0-9_](?:[a-z0-9_.-]{0,252})|\[[0-9a-f:.]{2,45}\])(?::[1-9][0-9]{0,4})?"
)
_USUAL_PORTS: Final = {"http": 80, "https": 443}


def parse_origins(listed: str) -> Sequence[str]:
    """Return the origins of a list with commas between them.

    A browser's `Origin` is compared with them byte for byte. So a spelling that no browser sends
    is refused: it would be a page that is let in by nobody's doing.

    Raises:
        ValueError: what is wrong with one of them, and how it is written.
    """
    origins = [one for one in map(str.strip, listed.split(",")) if one]
    if len(origins) > ORIGINS_MAX:
        raise ValueError(f"lists {len(origins)} origins, {ORIGINS_MAX} at most")
    for one in origins:
        _check(one)
    return tuple(dict.fromkeys(origins))


def _check(origin: str) -> None:
    if "*" in origin or origin == "null":
        raise ValueError(f"{origin} would let in pages that nobody named: list each origin")
    if not _ORIGIN.fullmatch(origin) or origin.startswith("file:"):
        raise ValueError(f"{origin} is no origin: https://app.example.org{_advise(origin)}")
    parts = urlsplit(origin)
    try:
        port = parts.port
    except ValueError:
        raise ValueError(f"{origin} has no port that there is") from None
    if port == _USUAL_PORTS.get(parts.scheme, 0):
        plain = origin.rpartition(":")[0]
        raise ValueError(f"{origin} is written {plain} by browsers: its port is the usual one")


def _advise(origin: str) -> str:
    """Return how an address is written whose path, case or slash no origin has."""
    try:
        parts = urlsplit(origin)
        host = f"{parts.scheme}://{parts.netloc.lower()}"
    except ValueError:
        return ""
    fits = bool(parts.scheme) and host != origin and _ORIGIN.fullmatch(host)
    return f"; write {host}" if fits else ""


def is_plain(origin: str) -> bool:
    """Return true if the pages of an origin can be altered on their way: plain http, not here."""
    parts = urlsplit(origin)
    host = parts.hostname or ""
    here = host in ("localhost", "::1") or host.endswith(".localhost") or host.startswith("127.")
    return parts.scheme == "http" and not here
