"""Every error the relayer answers with: one tree, one HTTP status a branch, one stable code each.

    RelayerError
    ├── BadRequest          400  the request is malformed or out of range
    ├── NotAuthenticated    401  constant answer; the cause is never told
    ├── QuotaExceeded       402  the account's storage is used up
    ├── NotAllowed          403  one's own valid key lacks a role, a namespace or an unlock
    ├── NotFound            404  absent, or somebody else's
    ├── Conflict            409  an idempotency key came back with another body
    ├── TooLarge            413  a limit of `settings.Limits`
    ├── Misdirected         421  the unlock header is out of date: for a key this process no longer
    │                            holds, or without the account's newest keys
    ├── UpgradeRequired     426  a client too old to send a nonce
    ├── RateLimited         429  with Retry-After
    ├── Corrupted           500  a stored object does not match its name or its row
    ├── NotConfigured       501  this relayer was set up without what it takes
    └── Unavailable         503  database, blob store, embedder or model away; with Retry-After

It does not own HTTP rendering (`app.py` does). Messages are written for the person at the other
end and hold no plaintext, key, prompt, upstream text or internal address.
"""

from typing import ClassVar


class RelayerError(Exception):
    """An answer to a request: `status` (HTTP), `code` (stable, dotted) and a message for people.

    `cause` is a fixed word, or the kind of another error, for the operator's log; never rendered.
    """

    status: ClassVar[int] = 500
    code: str = "internal"
    cause: str = ""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retry_after_s: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.code
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["retry-after"] = str(retry_after_s)


class BadRequest(RelayerError):
    """Malformed or out of range."""

    status = 400
    code = "request.invalid"


class NotAuthenticated(RelayerError):
    """Always the same body: which check failed is nobody's business but the operator's."""

    status = 401
    code = "auth.rejected"

    def __init__(self, cause: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__("The request could not be authenticated.", headers=headers)
        self.cause = cause


class QuotaExceeded(RelayerError):
    """The account's storage is used up."""

    status = 402
    code = "quota.exceeded"


class NotAllowed(RelayerError):
    """One's own valid key lacks a role, a namespace or an unlock."""

    status = 403
    code = "auth.not_allowed"


class NotFound(RelayerError):
    """Absent, or somebody else's: the two are never told apart."""

    status = 404
    code = "not_found"


class Conflict(RelayerError):
    """It contradicts something that was accepted before."""

    status = 409
    code = "conflict"


class TooLarge(RelayerError):
    """Over a limit of `settings.Limits`."""

    status = 413
    code = "request.too_large"


class Misdirected(RelayerError):
    """The unlock header is out of date."""

    status = 421
    code = "unlock_key_unknown"


class UpgradeRequired(RelayerError):
    """The client is too old to send a nonce."""

    status = 426
    code = "client.too_old"


class RateLimited(RelayerError):
    """A request window is full; Retry-After says for how long."""

    status = 429
    code = "rate.limited"


class Corrupted(RelayerError):
    """A stored object does not match its name or its row."""

    status = 500
    code = "store.corrupted"


class NotConfigured(RelayerError):
    """This relayer was set up without what the request takes: no fault, and it will not pass."""

    status = 501

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message, code=code)


class Unavailable(RelayerError):
    """Something behind the relayer is away; Retry-After says when to come back."""

    status = 503
    code = "upstream.unavailable"

    def __init__(self, message: str, *, code: str | None = None, retry_after_s: int = 2) -> None:
        super().__init__(message, code=code, retry_after_s=retry_after_s)


class UpstreamTimeout(Unavailable):
    """An upstream that worked until its time was over: asking again costs it as much."""


class UpstreamOverloaded(Unavailable):
    """An upstream that failed at what it was asked, and then at nothing else."""
