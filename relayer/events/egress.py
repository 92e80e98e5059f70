"""Posting to an address that somebody else named, without becoming their way into our network.

Not here: what is posted and when (`delivery.py`).

- The host is resolved once, every address it has is checked, and the connection goes to the very
  address that was checked: a name that points elsewhere a moment later changes nothing.
- TLS is to the name, whatever the address. Without TLS, only private networks are reached, where
  the operator allowed them.
- Names are looked up in threads of their own, so many at once: a name that is never answered holds
  one of them, and none that the rest of the relayer works with. Addresses need none.
- No proxy, redirect, cookie or kept connection; of the answer, only its status is looked at.
"""

import asyncio
import ipaddress
import re
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, Literal, TypeAlias

import httpx2

from relayer.errors import BadRequest
from relayer.sealed.keys import AccountId
from relayer.settings import Limits

Reach: TypeAlias = Literal["public", "private", "none"]
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

POST_S: Final = 5.0
LOOKUPS_MAX: Final = 8  # names at once
TURN_S: Final = 0.05  # between two looks for a thread
LOOKUPS_EACH: Final = 2  # of an account: a resolver that hangs keeps its threads for long
_URL: Final = re.compile(
    r"(https?)://([a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::([1-9][0-9]{0,4}))?(/[!-~]*)?",
    re.ASCII | re.IGNORECASE,  # else ſ and the Kelvin sign would be letters
)
_LABEL: Final = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")
_PORTS: Final[Mapping[str, int]] = {"https": 443, "http": 80}
_FREE_PORT_MIN: Final = 1_024  # below it, only a web server's: no mail or shell is spoken to
# The registries of special-purpose addresses, as of November 2026: no entry is a place for
# a webhook, reachable or not. The language's own list depends on the patch release that runs here.
# Source: the IANA IPv4 and IPv6 Special-Purpose Address Registries, and RFC 5771 for 224/4.
_SPECIAL: Final = tuple(
    ipaddress.ip_network(n)
    for n in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24",
        "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15",
        "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
    )
)  # fmt: skip
# Version 6 has given out no other unicast addresses (RFC 4291, and the registry of its space).
_UNICAST_6: Final = ipaddress.ip_network("2000::/3")
_PRIVATE: Final = tuple(
    ipaddress.ip_network(n)
    for n in (
        "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10",
        "::1/128", "fc00::/7",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """The address to post to; the path may hold a secret."""

    scheme: str
    host: str
    port: int
    path: str = field(repr=False)

    @property
    def authority(self) -> str:
        """Return host and port as a Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


class Undelivered(Exception):
    """It was not taken; `problem` is a fixed word, or the status of the answer."""

    def __init__(self, problem: str, *, gone: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.gone = gone


class Busy(Undelivered):
    """Nothing was tried: too many names are being looked up."""

    def __init__(self) -> None:
        super().__init__("busy")


def parse_target(url: str, reach: Reach) -> Target:
    """Parse a URL into the target that it names.

    Raises:
        BadRequest: it is none that this relayer may post to, whatever its name resolves to.
    """
    parts = _URL.fullmatch(url)
    if parts is None or len(url) > Limits.webhook_url_characters_max or "#" in url or "\\" in url:
        raise _refuse("The URL must be https://host[:port][/path], without a user or a fragment.")
    scheme, host = parts[1].lower(), parts[2].lower().strip("[]")
    target = Target(scheme, host, int(parts[3] or _PORTS[scheme]), parts[4] or "/")
    if reach == "none":
        raise _refuse("This relayer has no webhooks.")
    if scheme == "http" and reach != "private":
        raise _refuse("The URL must be https.")
    if target.port > 65_535:
        raise _refuse("The URL's port is out of range.")
    if reach == "public" and not _is_web_port(target.port):
        raise _refuse("The URL's port must be 443, or from 1024 on.")
    bracketed = parts[2].startswith("[")
    if (literal := _literal(host)) is not None and bracketed == (literal.version == 6):
        if not is_permitted(literal, target, reach):
            raise _refuse("The URL's address may not be called from here.")
    elif bracketed or not _is_name(host):
        raise _refuse("The URL's host is neither a name nor a plainly written address.")
    return target


def _refuse(message: str) -> BadRequest:
    return BadRequest(message, code="webhook.url")


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_name(host: str) -> bool:
    """Return true if a host is a DNS name; one that ends in a number is an address."""
    labels = host.split(".")
    number = re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1]) is not None
    return not number and all(_LABEL.fullmatch(label) for label in labels)


def is_permitted(address: Address, target: Target, reach: Reach) -> bool:
    """Return true if a connection to this address may be made."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return False
        address = address.ipv4_mapped or address
    if any(address in network for network in _PRIVATE):
        return reach == "private"
    public = address.version == 4 or address in _UNICAST_6
    special = any(address in network for network in _SPECIAL)
    safe = target.scheme == "https" and _is_web_port(target.port)
    return public and not special and reach != "none" and safe


def _is_web_port(port: int) -> bool:
    return port == _PORTS["https"] or port >= _FREE_PORT_MIN


class Poster:
    """Posts to targets that were checked; `tls` only replaces whose certificates are believed."""

    def __init__(self, *, reach: Reach, tls: ssl.SSLContext | None = None) -> None:
        self.reach = reach
        self._tls = tls
        self._lookups = ThreadPoolExecutor(LOOKUPS_MAX, thread_name_prefix="lookup")
        self._asking: Counter[AccountId] = Counter()  # lookups whose threads have not come back
        self._counting = threading.Lock()

    @cached_property
    def _transport(self) -> httpx2.AsyncHTTPTransport:
        # A kept connection belongs to an address: the next name there would not be asked for.
        return httpx2.AsyncHTTPTransport(
            verify=self._tls or httpx2.create_ssl_context(),  # those of SSL_CERT_FILE, if it is set
            trust_env=False,
            limits=httpx2.Limits(max_keepalive_connections=0),
        )

    async def post(
        self, target: Target, body: bytes, headers: Mapping[str, str], *, account: AccountId
    ) -> int:
        """Post once, for an account; return the status of an answer that takes it.

        Raises:
            Undelivered: it was not taken, or may not be posted there.
            Busy: it was not tried.
        """
        literal = _literal(target.host)
        if literal is None:
            await self._turn(account)
        try:
            async with asyncio.timeout(POST_S):
                found = await self._resolve(target, account) if literal is None else [literal]
                address = self._choose_address(found, target)
                status = await self._post(target, address, body, headers)
        except (TimeoutError, httpx2.TimeoutException):
            raise Undelivered("timeout") from None
        except (httpx2.HTTPError, OSError):  # the latter of a file without certificates
            raise Undelivered("unreachable") from None
        if not 200 <= status < 300:
            raise Undelivered(f"status {status}", gone=status == 410)
        return status

    async def _turn(self, account: AccountId) -> None:
        """Return when a name may be looked up for an account.

        Raises:
            Busy: not within `POST_S`.
        """
        try:
            async with asyncio.timeout(POST_S):
                while not self._is_free(account):  # noqa: ASYNC110  # threads tell no event
                    await asyncio.sleep(TURN_S)
        except TimeoutError:
            raise Busy from None

    async def _resolve(self, target: Target, account: AccountId) -> list[Address]:
        try:
            found = await asyncio.wrap_future(self._look_up(target, account))
        except (OSError, UnicodeError):
            raise Undelivered("unresolved") from None
        return [ipaddress.ip_address(entry[4][0]) for entry in found]

    def _choose_address(self, addresses: Sequence[Address], target: Target) -> Address:
        """Return the address to connect to; all that a name has must be permitted."""
        if not addresses or not all(is_permitted(a, target, self.reach) for a in addresses):
            raise Undelivered("address refused")
        return min(addresses, key=lambda a: a.version)  # not every machine reaches version 6

    def _is_free(self, account: AccountId) -> bool:
        """Return true if there is a thread to look up a name for this account."""
        with self._counting:
            return self._asking.total() < LOOKUPS_MAX and self._asking[account] < LOOKUPS_EACH

    def _look_up(self, target: Target, account: AccountId) -> "Future[list[Any]]":
        """Look up the addresses of a name, in a thread that counts until it has come back."""
        with self._counting:
            self._asking[account] += 1
        ask = partial(socket.getaddrinfo, target.host, target.port, type=socket.SOCK_STREAM)
        asked = self._lookups.submit(ask)
        asked.add_done_callback(lambda _: self._come_back(account))
        return asked

    def _come_back(self, account: AccountId) -> None:
        with self._counting:
            self._asking[account] -= 1
            self._asking += Counter()  # forgets whom there is nothing to count of

    async def _post(
        self, target: Target, address: Address, body: bytes, headers: Mapping[str, str]
    ) -> int:
        host = f"[{address}]" if address.version == 6 else str(address)
        request = httpx2.Request(
            "POST",
            f"{target.scheme}://{host}:{target.port}{target.path}",
            headers={**headers, "host": target.authority, "accept-encoding": "identity"},
            content=body,
            extensions={
                "timeout": httpx2.Timeout(POST_S).as_dict(),
                "sni_hostname": target.host,
            },
        )
        response = await self._transport.handle_async_request(request)
        await response.aclose()
        return response.status_code

    async def close(self) -> None:
        """Close what is open; a lookup that hangs is not waited for."""
        self._lookups.shutdown(wait=False, cancel_futures=True)
        if "_transport" in self.__dict__:
            await self._transport.aclose()
