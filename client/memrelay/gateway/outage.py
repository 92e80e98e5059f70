"""When the relayer is away: who need not try for a while, and one warning for the whole time.

It does not own what a hook does instead (`hooks.py`, `capture.py`).

- Who does not reach the relayer need not try for a while, nor anybody else with the same key. An
  answer that is only late is a sign of that from the second in a row.
- One warning begins an outage and one line ends it, however many turns and agents it meets.
- A line holds fixed words, the kind of the error, its code and a masked key, nothing else.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from memrelay.errors import RateLimited, ServerError, TimedOut, TransportError, Unavailable

log = logging.getLogger("memrelay.gateway")

RECALL, CAPTURE = "recall", "capture"
AWAY = "the relayer is away"
_PLACES_MAX = 1000  # agents' names come from outside
_CONSEQUENCES = {
    RECALL: "turns go on without memories",
    CAPTURE: "captured turns wait",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure of an operation; `pauses` if the next one need not be tried for a while."""

    reason: str
    at_s: float
    pauses: bool


class Outages:
    """The failures at present, by key and operation, and by agent if only that one fails."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.now_s = monotonic
        self._failures: dict[tuple[str, str, str], Failure] = {}

    def note_failure(
        self, key: str, agent: str, operation: str, error: Exception, *, began_s: float
    ) -> None:
        """Note a failure of what began then; warn if nothing failed for that reason yet."""
        reason = reason_of(error)
        known = any(
            failure.reason == reason and failed_key == key
            for (failed_key, _, _), failure in self._failures.items()
        )
        place = (key, "" if reason == AWAY else agent, operation)
        before = self._failures.get(place)
        hung = isinstance(error, (TimeoutError, TimedOut))
        # What hangs together is one sign of an outage; what began after that is the second.
        if before is None or not hung or before.pauses or before.at_s <= began_s:
            pauses = not hung or before is not None
            self._failures[place] = Failure(reason, self.now_s(), pauses)
        if len(self._failures) > _PLACES_MAX:
            del self._failures[next(iter(self._failures))]
        if not known:
            kind = f"{type(error).__name__}{_code(error)}"
            log.warning("%s (%s, key %s): %s", reason, kind, key, _CONSEQUENCES[operation])

    def note_success(self, key: str, agent: str, operation: str) -> None:
        """Note a success: nobody's same operation with this key finds the relayer away now."""
        ended = [self._failures.pop(place, None) for place in _places(key, agent, operation)]
        if any(ended) and not any(place[0] == key for place in self._failures):
            log.info("memory works again (key %s)", key)

    def is_paused(self, key: str, agent: str, operation: str, pause_s: float) -> bool:
        """Return whether an operation failed so recently that it is not worth a wait."""
        since = self.now_s() - pause_s
        failures = [self._failures.get(place) for place in _places(key, agent, operation)]
        return any(one is not None and one.pauses and one.at_s > since for one in failures)


def _places(key: str, agent: str, operation: str) -> tuple[tuple[str, str, str], ...]:
    # An agent's own failures, and those that all agents of its key share.
    return (key, agent, operation), (key, "", operation)


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
