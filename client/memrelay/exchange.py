"""One request and its repetitions, free of I/O: steps, deadlines, back-off, what may be repeated.

Operations are generators. They yield steps (`Send`, `Sleep`, `Keep`, `Each`) and are sent each
step's outcome. It does not own carrying steps out (`async_client.py`, `sync_client.py`), or trust
and unlock keys (`session.py`).

- A request is repeated only if it cannot have had an effect, or has the same effect twice.
- No repetition begins after the deadline, whatever Retry-After says.
"""

import secrets
import socket
import ssl
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from memrelay.answers import read_json_object
from memrelay.errors import (
    MemrelayError,
    NotStarted,
    RateLimited,
    ServerError,
    TimedOut,
    TransportError,
    Unavailable,
    server_error,
)
from memrelay.transport import httpx

ATTEMPTS_MAX = 5
SLOWEST_BYTES_S = 64 * 2**10  # a slower line carries no long answers
# Reading JSON holds up everything else in the process: a gateway's turns, for instance.
ANSWER_BYTES_MAX = 16 * 2**20
LONG_ANSWER_BYTES_MAX = 256 * 2**20  # whole chains of grants, and what has no bound by number
_MEMORY_BYTES_MAX = 2 * 2**20  # a text of the greatest length, with every line's end escaped

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """Send one request; the outcome is a `Received` or an `httpx.HTTPError`."""

    method: str
    target: str  # path and query
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    signed: bool = True
    timeout_s: float = 30.0
    answer_bytes_max: int = ANSWER_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Sleep:
    """Do nothing for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Keep:
    """Do what may have to wait for a disk, or for another process; the outcome is nothing."""

    work: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Each:
    """Run operations, at most `limit` at a time; the outcome is their results, in order."""

    operations: "Iterator[Operation[Any]]"
    limit: int


Step = Send | Sleep | Keep | Each
Operation = Generator[Step, Any, T]
Repeating = Callable[[MemrelayError], None]
# Has a relayer on this machine listen that did not; see `local_relayer.LocalRelayer.wake`.
Waking = Generator[Keep | Sleep, Any, None]
Wake = Callable[[TransportError, float, Repeating | None], Waking]


def memories_bytes_max(count: int) -> int:
    """Return how long an answer with so many memories may be."""
    return max(ANSWER_BYTES_MAX, min(count * _MEMORY_BYTES_MAX, LONG_ANSWER_BYTES_MAX))


@dataclass(frozen=True, slots=True)
class Received:
    """An answer with all of its body; another `httpx.Response` would take longer to make."""

    status_code: int
    headers: Mapping[str, str]  # whatever the case of a name
    content: bytes = field(repr=False)

    @property
    def is_success(self) -> bool:
        """True if the relayer carried out the request."""
        return 200 <= self.status_code < 300


class Incoming:
    """An answer as it comes in: only so much of it, and only so long.

    A long one, such as a page of an archive, may take a second more for each `SLOWEST_BYTES_S`.
    """

    def __init__(
        self,
        response: httpx.Response,
        *,
        left_s: Callable[[], float],
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        self._response = response
        self._bytes_max = bytes_max
        self._left_s = left_s
        self._data = bytearray()
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity"):
            # Nobody asked for it, and what is small may grow without end.
            raise httpx.DecodingError("The answer is compressed.")

    def take(self, piece: bytes) -> None:
        """Keep a piece of the body.

        Raises:
            httpx.HTTPError: the body is too long, or takes too long.
        """
        self._data += piece
        if len(self._data) > self._bytes_max:
            raise httpx.RemoteProtocolError("The answer is too long.")
        if self._left_s() + len(self._data) / SLOWEST_BYTES_S <= 0:
            raise httpx.ReadTimeout("no complete answer in time")

    def whole(self) -> Received:
        """Return the answer with all of its body."""
        response = self._response
        return Received(response.status_code, response.headers, bytes(self._data))


class Exchange:
    """Asks until there is an answer, an error that repeating cannot cure, or no time left.

    `relayer` is what messages call it: its URL, where that is known. `repeating` is told the error
    before each pause that another attempt follows. `wake` is asked when nobody listens.
    """

    def __init__(
        self,
        *,
        timeout_s: float,
        deadline_s: float,
        monotonic: Callable[[], float],
        attempts_max: int = ATTEMPTS_MAX,
        relayer: str = "The relayer",
        repeating: Repeating | None = None,
        wake: Wake | None = None,
    ) -> None:
        self._relayer = relayer
        self._repeating = repeating
        self._wake = wake
        self._attempts_max = attempts_max
        self._timeout_s = timeout_s
        self._deadline_s = deadline_s
        self._monotonic = monotonic

    def run(self, send: Send, repeatable: bool) -> Operation[Any]:
        """Return the JSON object that the relayer answers.

        Raises:
            ServerError: it refused; TransportError: it was not reached.
        """
        until = self._monotonic() + self._deadline_s
        for attempt in range(1, self._attempts_max + 1):
            try:
                return (yield from self._reply_awake(send, until))
            except (TransportError, RateLimited, Unavailable) as error:
                pause_s = _pause_s(error, attempt, repeatable)
                last = attempt == self._attempts_max
                if pause_s is None or last or self._monotonic() + pause_s >= until:
                    raise
                if self._repeating is not None:
                    self._repeating(error)
            yield Sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def _reply_awake(self, send: Send, until: float) -> Operation[Any]:
        try:
            return (yield from self._reply(send, until))
        except TransportError as error:
            if self._wake is None or error.sent:
                raise
            yield from self._wake(error, until, self._repeating)
        return (yield from self._reply(send, until))

    def _reply(self, send: Send, until: float) -> Operation[Any]:
        left_s = max(0.1, until - self._monotonic())
        try:
            received: Received = yield replace(send, timeout_s=min(self._timeout_s, left_s))
        except httpx.HTTPError as error:
            raise make_transport_error(error, self._relayer) from error
        if not received.is_success:
            raise refusal(received, self._relayer)
        return read_json_object(received.content)


def make_transport_error(error: httpx.HTTPError, relayer: str) -> TransportError:
    """Return the error for an answer that did not come, or not whole."""
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        return TransportError(f"{relayer} was not reached: {_why(error)}.", sent=False)
    if isinstance(error, httpx.TimeoutException):
        return TimedOut("The relayer did not answer in time.")
    return TransportError("The connection to the relayer broke.")


def _why(error: httpx.HTTPError) -> str:
    kinds = [type(cause) for cause in causes(error)]
    for kind, words in _WORDS.items():
        if any(issubclass(found, kind) for found in kinds):
            return words
    return "no connection came about"


# What is more particular comes first.
_WORDS: Mapping[type[BaseException], str] = {
    socket.gaierror: "no address is known for its name",
    ConnectionRefusedError: "connection refused",
    FileNotFoundError: "nobody listens at its socket",
    PermissionError: "its socket is another user's",
    ssl.SSLCertVerificationError: "its certificate does not hold",
    ssl.SSLError: "it does not speak TLS",
    httpx.TimeoutException: "no connection came about in time",
}


def is_refused(error: BaseException) -> bool:
    """Return whether nothing listens where the relayer should be."""
    nobody = (ConnectionRefusedError, FileNotFoundError)  # the latter where a socket should be
    return any(isinstance(cause, nobody) for cause in causes(error))


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what it came of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def refusal(received: Received, relayer: str) -> ServerError:
    """Return the error that an answer tells."""
    try:
        body = read_json_object(received.content)
    except ServerError:
        body = {}
    error = server_error(received.status_code, body, received.headers)
    if error.status == 404 and error.code != "not_found":
        # What is there does not know the path: another server, or another place on it.
        return ServerError(
            f"{relayer} has no such route: is that the relayer's URL?",
            status=404,
            code="http.404",
            request_id=error.request_id,
        )
    return error


def _pause_s(error: Exception, attempt: int, repeatable: bool) -> float | None:
    """Return how long to wait before another attempt, None when there must be none."""
    never_began = isinstance(error, RateLimited) or getattr(error, "sent", True) is False
    if isinstance(error, TimedOut | NotStarted) or not (never_began or repeatable):
        return None
    backoff_s: float = min(8.0, 0.25 * 2**attempt) * secrets.SystemRandom().uniform(0.5, 1.0)
    asked_s = error.retry_after_s if isinstance(error, ServerError) else None
    return max(backoff_s, asked_s or 0.0)
