"""The cause of a refused request, for the operator alone, as one of a few fixed words.

Not here: what the client is told (`http/middleware.py`): that never depends on this.
"""

from typing import Final, cast, get_args

from relayer.errors import NotAuthenticated, RelayerError
from relayer.telemetry.instruments import Rejection

_BY_CODE: Final[dict[str, Rejection]] = {
    "unlock_rejected": "unlock",
    "unlock_required": "unlock",
    "unlock_key_unknown": "unlock",
    "epoch.outdated": "unlock",
    "registration.closed": "registration",
    "registration.token": "registration",
    "registration.origin": "registration",
    "rate.at_once": "at_once",
    "server.full": "server_full",
    "request.deadline": "deadline",
}
_BY_STATUS: Final[dict[int, Rejection]] = {
    400: "malformed",
    402: "quota",
    403: "not_allowed",
    413: "body_too_large",
    415: "media_type",
    421: "unlock",
    426: "no_nonce",
    429: "rate_limit",
    503: "upstream",
}
_WORDS: Final = frozenset(get_args(Rejection))


def cause_of(error: RelayerError) -> Rejection | None:
    """Return the cause of a refusal; None for an error that is no refusal, such as 404."""
    if isinstance(error, NotAuthenticated):
        word = error.cause.replace(" ", "_")
        return cast(Rejection, word) if word in _WORDS else "other"
    return _BY_CODE.get(error.code) or _BY_STATUS.get(error.status)


def cause_of_status(status: int) -> Rejection | None:
    """Return the same of an answer that the framework gave."""
    return _BY_STATUS.get(status)
