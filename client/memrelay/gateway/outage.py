"""When the relayer is away: who need not try for a while, and one warning for the whole time.

It does not own what a hook does instead (`hooks.py`, `capture.py`).

- One warning begins an outage and one line ends it, however many turns and agents it meets.
- A line holds fixed words, the kind of the error, its code and a masked key, nothing else.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from memrelay.errors import RateLimited, ServerError, TransportError, Unavailable

log = logging.getLogger("memrelay.gateway")

RECALL, CAPTURE = "recall", "capture"
AWAY = "the relayer is away"
_CONSEQUENCES = {
    RECALL: "turns go on without memories",
    CAPTURE: "captured turns wait until it is back",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure of one operation of one agent."""

    reason: str
    at_s: float


class Outages:
    """What fails at present, by key, agent and operation."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failures: dict[tuple[str, str, str], Failure] = {}

    def failed(self, key: str, agent: str, operation: str, error: Exception) -> None:
        """Note a failure; warn if nothing failed for that reason yet."""
        reason = reason_of(error)
        known = any(
            failure.reason == reason and failed_key == key
            for (failed_key, _, _), failure in self._failures.items()
        )
        self._failures[key, agent, operation] = Failure(reason, self._monotonic())
        if not known:
            kind = f"{type(error).__name__}{_code(error)}"
            log.warning("%s (%s, key %s): %s", reason, kind, key, _CONSEQUENCES[operation])

    def succeeded(self, key: str, agent: str, operation: str) -> None:
        """Note a success: nobody's same operation with this key finds the relayer away now."""
        ended = {
            place: failure
            for place, failure in self._failures.items()
            if place == (key, agent, operation)
            or (failure.reason == AWAY and (place[0], place[2]) == (key, operation))
        }
        for place in ended:
            del self._failures[place]
        if ended and not any(place[0] == key for place in self._failures):
            log.info("memory works again (key %s)", key)

    def paused(self, key: str, agent: str, operation: str, pause_s: float) -> bool:
        """Return whether an operation failed so recently that it is not worth a wait."""
        since = self._monotonic() - pause_s
        return any(
            failure.at_s > since
            for place, failure in self._failures.items()
            if place == (key, agent, operation)
            or (failure.reason == AWAY and (place[0], place[2]) == (key, operation))
        )


def reason_of(error: Exception) -> str:
    """Return in fixed words why something failed."""
    if isinstance(error, (TransportError, TimeoutError, Unavailable, RateLimited)):
        return AWAY
    return "the relayer refuses" if isinstance(error, ServerError) else "memory fails"


def _code(error: Exception) -> str:
    # The codes are fixed words of the protocol, but a relayer could write anything there.
    code = getattr(error, "code", "")
    plain = isinstance(code, str) and code.replace(".", "").replace("_", "").isalnum()
    return f" {code[:64]}" if plain and code.isascii() else ""
