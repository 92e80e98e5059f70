"""Every error the client raises: one tree, branched by who must act.

    MemrelayError
    ├── ConfigError              a setting, profile or argument is missing or wrong
    ├── Starting                 no failure: the local relayer is being started
    ├── NotGranted               this key holds no grant for the namespace that was asked for
    ├── TransportError           the relayer was not reached, or its answer got lost
    │   ├── NotStarted           the local relayer could not be started, or not in time
    │   └── TimedOut             no answer within the time allowed
    ├── Invalid                  bytes that do not verify, open or parse (`.code` says which check)
    │   ├── UntrustedGrant       a grant, revocation or chain that does not lead to the founder
    │   └── UntrustedRelayer     another relayer, a rollback, or a false statement or receipt
    └── ServerError              the relayer answered with an error: `.status`, `.code`
        ├── BadRequest      400
        ├── NotAuthenticated 401
        ├── QuotaExceeded   402
        ├── NotAllowed      403
        ├── NotFound        404
        ├── Conflict        409
        ├── TooLarge        413
        ├── Misdirected     421
        ├── UpgradeRequired 426
        ├── RateLimited     429  `.retry_after_s`
        ├── NotOffered      501
        └── Unavailable     502, 503, 504  `.retry_after_s`

It does not own retries (`session.py` does). No message holds a memory's text, a query or a key.
"""

from collections.abc import Mapping


class MemrelayError(Exception):
    """Anything this package raises on purpose."""


class ConfigError(MemrelayError):
    """A setting, a profile or an argument is missing or wrong."""


class NotGranted(MemrelayError):
    """This key holds no valid grant for what was asked; the relayer was not even tried."""


class TransportError(MemrelayError):
    """The relayer was not reached, or the connection broke before its answer was complete.

    `sent` is False when the request certainly never left this machine.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class Starting(MemrelayError):
    """Notice that the local relayer is being started, for whoever is told of repetitions."""


class NotStarted(TransportError):
    """The local relayer did not start, or not in time; nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class TimedOut(TransportError):
    """No answer, or no final state, within the time allowed."""


class Invalid(MemrelayError):
    """Bytes that do not verify, open or parse; `code` is a fixed word naming the failed check."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class UntrustedGrant(Invalid):
    """A grant, a revocation or a chain of them that does not hold up against the founder's key."""


class UntrustedRelayer(Invalid):
    """The relayer is another one than the pinned one, rolls back, or signed something false."""


class ServerError(MemrelayError):
    """The relayer's own answer to a request that it did not carry out."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str = "unknown",
        request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.request_id = request_id
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        reference = f", request {self.request_id}" if self.request_id else ""
        return f"{self.message} ({self.status} {self.code}{reference})"


class BadRequest(ServerError):
    """400: the request is malformed or out of range."""


class NotAuthenticated(ServerError):
    """401: unknown key, wrong signature, or a clock more than 300 s off."""


class QuotaExceeded(ServerError):
    """402: the account's storage is used up."""


class NotAllowed(ServerError):
    """403: this key lacks a role, a namespace or an unlock."""


class NotFound(ServerError):
    """404: absent, or somebody else's; what is no relayer, and knows no route, is not meant."""


class Conflict(ServerError):
    """409: an idempotency key came back with another body, or a serial is taken."""


class TooLarge(ServerError):
    """413: a limit of the relayer."""


class Misdirected(ServerError):
    """421: the unlock header names a key that the relayer no longer holds."""


class UpgradeRequired(ServerError):
    """426: this client is too old for the relayer."""


class RateLimited(ServerError):
    """429: too many requests; `retry_after_s` says when to come back."""


class NotOffered(ServerError):
    """501: the relayer was set up without what that takes, such as a language model."""


class Unavailable(ServerError):
    """502, 503, 504: the relayer or something behind it is away."""


_BY_STATUS: Mapping[int, type[ServerError]] = {
    400: BadRequest,
    401: NotAuthenticated,
    402: QuotaExceeded,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    421: Misdirected,
    426: UpgradeRequired,
    429: RateLimited,
    501: NotOffered,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}

_MESSAGE_CHARS_MAX = 300


def server_error(status: int, body: object, headers: Mapping[str, str]) -> ServerError:
    """Return the error for an answer: `body` is its parsed JSON, or anything when it had none."""
    known = body if isinstance(body, dict) else {}
    message = (
        _read_line(known, "message")
        or _read_line(known, "error")
        or f"The relayer answered {status}."
    )
    if headers.get("x-auth-error") == "ERR_TIMESTAMP_OUT_OF_BOUNDS":
        message = f"{message} This machine's clock differs from the relayer's by more than 300 s."
    return _BY_STATUS.get(status, ServerError)(
        message,
        status=status,
        code=_read_line(known, "code") or f"http.{status}",
        request_id=_read_line(known, "request_id") or None,
        retry_after_s=_retry_after_s(headers.get("retry-after")),
    )


def _read_line(known: Mapping[str, object], name: str) -> str:
    """One line of text, empty where there is none: a terminal must not obey what is sent."""
    text = known.get(name)
    if not isinstance(text, str):
        return ""
    cut = text[:_MESSAGE_CHARS_MAX]
    return "".join(char if char.isprintable() else " " for char in cut).strip()


def _retry_after_s(value: str | None) -> float | None:
    if value is None or not value.strip().isdecimal():
        return None
    return min(float(value.strip()), 86_400.0)
