"""One deadline for a whole blocking request, where httpx counts anew for each piece that comes in.

It does not own how long a request may take (`exchange.py`).

- Whoever answers a byte at a time ends at the deadline as well, in the middle of a header, too.
- What is long may take a second more for each `SLOWEST_BYTES_S`, there or back: a body, that is.
  What comes before one may be without end, such as one interim answer after the other.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from memrelay.exchange import SLOWEST_BYTES_S, Incoming, Received
from memrelay.transport import connect_socket, httpx, wrap_backends

_PIECE_BYTES = 64 * 2**10


class Deadline:
    """The deadline of the requests of one client, which come one after the other."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._until_s: float | None = None
        self._in_body = False

    def watch(self, client: httpx.Client) -> None:
        """Let all connections of a client end at the deadline."""
        wrap_backends(client, lambda backend: _Backend(backend, self))

    def send(
        self,
        client: httpx.Client,
        request: httpx.Request,
        *,
        timeout_s: float,
        bytes_max: int,
    ) -> Received:
        """Return the whole answer to a request of a client that is watched.

        Raises:
            httpx.HTTPError: there was none in time, or a longer one.
        """
        until_s = self._monotonic() + timeout_s
        with self.within(timeout_s):
            response = client.send(request, stream=True)
            with closing(response):
                self._in_body = True
                incoming = Incoming(
                    response, left_s=lambda: until_s - self._monotonic(), bytes_max=bytes_max
                )
                for piece in response.iter_bytes():
                    incoming.take(piece)
                return incoming.whole()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Bound what is sent and read inside; outside, as for a stream, there is no deadline."""
        self._until_s, self._in_body = self._monotonic() + seconds, False
        try:
            yield
        finally:
            self._until_s = None

    def time_left_s(self, timeout_s: float | None) -> float | None:
        """Return how long the next piece may take, of `timeout_s` at most.

        Raises:
            httpx.ReadTimeout: the deadline is over.
        """
        if self._until_s is None:
            return timeout_s
        left_s = self._until_s - self._monotonic()
        if left_s <= 0:
            raise httpx.ReadTimeout("no complete answer in time")
        return left_s if timeout_s is None else min(left_s, timeout_s)

    def note_sent(self, count: int) -> None:
        """Note that bytes went out, for which there is more time."""
        if self._until_s is not None:
            self._until_s += count / SLOWEST_BYTES_S

    def note_received(self, count: int) -> None:
        """Note that bytes came in, for which there is more time if they are of a body."""
        if self._in_body:
            self.note_sent(count)


class _Stream:
    """A connection, as httpcore uses one."""

    def __init__(self, stream: Any, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = self._stream.read(max_bytes, self._deadline.time_left_s(timeout))
        self._deadline.note_received(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE_BYTES):
            piece = buffer[start : start + _PIECE_BYTES]
            self._stream.write(piece, self._deadline.time_left_s(timeout))
            self._deadline.note_sent(len(piece))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> "_Stream":
        left_s = self._deadline.time_left_s(timeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left_s), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend:
    """The part that connects, as httpcore uses it."""

    def __init__(self, backend: Any, deadline: Deadline) -> None:
        self._backend = backend
        self._deadline = deadline

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, **options: Any
    ) -> _Stream:
        stream = self._backend.connect_tcp(
            host, port, self._deadline.time_left_s(timeout), **options
        )
        return _Stream(stream, self._deadline)

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, **options: Any
    ) -> _Stream:
        left_s = self._deadline.time_left_s(timeout)
        return _Stream(connect_socket(self._backend, path, left_s), self._deadline)

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)
