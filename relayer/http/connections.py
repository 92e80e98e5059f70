"""Connections of the serving process: how long each part may take, how large a head is, how many.

Not here: what a request may hold and how long it is worked on (`middleware.py`, `checks.py`).

- A request's head, the rest of a body behind an early answer, the taking of an answer and the time
  between two requests all have an end, so that a client that is slow on purpose holds a connection
  for so long and no longer. A body that an answer waits for has the deadline of its request.
- When there are too many, a new connection takes the place of the one that has been without a
  whole request for longest; only when all the others are being answered is it refused.
- Trailers are not read: they would become headers that nobody expects.
- A head that two programs could read in two ways is refused: a proxy in front of this relayer may
  be the other one.
"""

import asyncio
import json
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relayer.affinity import ALONE, Affinity
from relayer.telemetry.instruments import Rejection, count_rejection

_Refusal = tuple[int, str, str, str]  # status, phrase, code, message
_TOO_LARGE: Final[_Refusal] = (
    431,
    "Request Header Fields Too Large",
    "request.head_too_large",
    "The request's head is too large.",
)
_FULL: Final[_Refusal] = (
    503,
    "Service Unavailable",
    "server.full",
    "Too many connections are open.",
)
_UNPARSED: Final[_Refusal] = (
    400,
    "Bad Request",
    "request.invalid",
    "That is no HTTP/1.1 request.",
)
_AMBIGUOUS: Final[_Refusal] = (
    400,
    "Bad Request",
    "request.invalid",
    "Send one Host header, a name or an address, and no transfer encoding but chunked.",
)
_CAUSES: Final[dict[int, Rejection]] = {
    400: "malformed",
    431: "head_too_large",
    503: "server_full",
}


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits of a connection: seconds, bytes and number.

    Attributes:
        head_s: from the beginning of a connection or request until its head is there, and from an
            early answer until the rest of the body is.
        taking_s: until an answer that does not fit into the system's buffers is taken.
        head_bytes_max: request line and headers.
        connections_max: of this process.
    """

    head_s: float
    taking_s: float
    head_bytes_max: int
    connections_max: int


class _HeadRefusedError(Exception):
    pass


# Names, also those with an underscore that people give to machines, and addresses. Not a list.
_AUTHORITY: Final = re.compile(rb"(?:[A-Za-z0-9._~%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


def is_unambiguous(headers: Sequence[tuple[bytes, bytes]], version: str) -> bool:
    """Return whether a head says once who is meant, and in one way where its body ends.

    `headers` have names in small letters. Source: RFC 9112 §3.2 and §6.
    """
    hosts = [value for name, value in headers if name == b"host"]
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if version == "1.0":  # which knows neither
        return not codings and all(map(_AUTHORITY.fullmatch, hosts[:1])) and len(hosts) < 2
    return (
        len(hosts) == 1
        and _AUTHORITY.fullmatch(hosts[0]) is not None
        and codings in ([], [b"chunked"])
    )


class _Alarm:
    """Calls once, so many seconds after it was started first, unless it is stopped before."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, after_s: float, call: Callable[[], None]
    ) -> None:
        self._loop, self._after_s, self._call = loop, after_s, call
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._after_s, self._call)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Joining:
    """A transport that sends an answer's head together with the beginning of its body.

    The server writes them one after the other: two calls of the system, and a client that is woken
    for a head alone.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head: bytes | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send this, and the head before it; a head waits until the end of the loop's turn."""
        if self._head is not None:
            head, self._head = self._head, None
            self._transport.writelines([head, data])
        elif data.startswith(b"HTTP/1."):
            self._head = data
            self._loop.call_soon(self._send_head)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close when everything is sent."""
        self._send_head()
        self._transport.close()

    def _send_head(self) -> None:
        if self._head is not None and not self._transport.is_closing():
            self._transport.write(self._head)
        self._head = None


class Connection(HttpToolsProtocol):
    """One connection within `bounds`; idle ones are uvicorn's own concern."""

    bounds: Bounds
    affinity: Affinity = ALONE

    def __init__(self, *arguments: Any, handed: bytes = b"", **named: Any) -> None:
        """`handed` was read of it by the process that handed it over."""
        super().__init__(*arguments, **named)
        self._handed = handed
        self._is_in_request = False  # as the parser has it: some of it came in, not all
        self._arriving = _Alarm(self.loop, self.bounds.head_s, self._cut)
        self._taking = _Alarm(self.loop, self.bounds.taking_s, self._cut)
        self._in_head = True
        self._head_bytes = 0  # of what the parser has told of
        self._unfinished_bytes = 0  # of what came in for a head that is not there yet
        self._refusal = _UNPARSED  # of what the parser does not take
        self.without_request_since: float | None = None  # None: a whole request is being answered

    # uvicorn narrows asyncio's own signature in the same way: it serves streams only.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, perhaps in the place of another connection."""
        joining: Any = _Joining(transport, self.loop)
        super().connection_made(joining)
        # Every byte that the system does not take at once makes the answer a waiting one.
        transport.set_write_buffer_limits(high=0)
        self.without_request_since = self.loop.time()
        self._arriving.start()
        if len(self.connections) > self.bounds.connections_max:
            self._make_room()
        if self._handed and not self.transport.is_closing():
            self._feed(self._handed)
            self._handed = b""

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget every deadline."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._arriving.stop()
        self._taking.stop()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, unless another process is to answer what begins here."""
        if not self._is_in_request and self._has_answered:
            its = self.transport.get_extra_info("socket")
            if self.affinity.hand_over(data, its):
                self.transport.close()
                return
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        """Feed the parser; what comes in while nothing is being answered has to end in time."""
        super().data_received(data)
        if self._in_head:
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > self.bounds.head_bytes_max + len(data):
                self._refusal = _TOO_LARGE
                self.send_400_response("")
        if self._has_answered:
            self._arriving.start()

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        super().on_message_begin()
        self._is_in_request = True
        self._in_head, self._head_bytes, self._unfinished_bytes = True, 0, 0

    def on_url(self, url: bytes) -> None:
        """Note a part of the request line."""
        self._head_bytes += len(url)
        if self._head_bytes > self.bounds.head_bytes_max:
            self._stop(_TOO_LARGE)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header; leave out a trailer."""
        self._head_bytes += len(name) + len(value)  # here: of a dozen a request, a call less each
        if self._head_bytes > self.bounds.head_bytes_max:
            self._stop(_TOO_LARGE)
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Note that the request begins; its own deadline counts from here on."""
        if not is_unambiguous(self.headers, self.parser.get_http_version()):
            self._stop(_AMBIGUOUS)
        self._in_head = False
        self._arriving.stop()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that a whole request is there."""
        super().on_message_complete()
        self._is_in_request = False
        self._in_head, self._unfinished_bytes = True, 0
        self._arriving.stop()
        self.without_request_since = self.loop.time() if self._has_answered else None

    def on_response_complete(self) -> None:
        """Wait for the next request; what is left of this one has to come in time."""
        super().on_response_complete()
        self.without_request_since = self.loop.time() if self._has_answered else None
        if not self._in_head:
            self._arriving.start()

    def pause_writing(self) -> None:
        """Note that the client has to take what it was sent."""
        super().pause_writing()
        self._taking.start()

    def resume_writing(self) -> None:
        """Note that the client has taken it."""
        super().resume_writing()
        self._taking.stop()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection: too long without a request; what was not taken by now never is."""
        self._cut()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, or has a head that is refused."""
        self._refuse(*self._refusal)

    @property
    def _has_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _stop(self, refusal: _Refusal) -> NoReturn:
        """Refuse a head: the parser stops, and has it answered."""
        self._refusal = refusal
        raise _HeadRefusedError

    def _make_room(self) -> None:
        longest, longest_since = self, self.loop.time()
        for other in self.connections:
            assert isinstance(other, Connection)
            since = other.without_request_since
            if since is not None and since < longest_since and not other.transport.is_closing():
                longest, longest_since = other, since
        if longest is self:
            self._refuse(*_FULL)
        else:
            longest._cut()

    def _cut(self) -> None:
        self.transport.abort()

    def _refuse(self, status: int, phrase: str, code: str, message: str) -> None:
        count_rejection(_CAUSES[status])
        request_id = str(uuid.uuid4())
        named = {"error": message, "message": message, "code": code, "request_id": request_id}
        body = json.dumps(named).encode()
        lines = [
            f"HTTP/1.1 {status} {phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            *(["retry-after: 2"] if status == 503 else []),
            f"x-request-id: {request_id}",
            "connection: close",
        ]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()


def bind_limits(bounds: Bounds, affinity: Affinity = ALONE) -> type[Connection]:
    """Return the kind of connection that has these bounds, as uvicorn takes it."""

    class Bounded(Connection):
        pass

    Bounded.bounds, Bounded.affinity = bounds, affinity
    return Bounded
