"""Endpoints that serve the same model, tried in their configured order until one answers.

It does not own what is asked of them or how an answer is judged: the caller's attempt does.

- One deadline spans a call with all its attempts, on all endpoints; a hanging endpoint gets only
  its share of what is left, so that the next one still has time.
- An endpoint that failed rests, for as long as its Retry-After says, and other calls respect that.
  What it had begun to answer before is no sign that it has recovered.
"""

import asyncio
import email.utils
import math
import time
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

_Client = TypeVar("_Client")
_Answer = TypeVar("_Answer")

TIMEOUT: Final = "timeout"  # the cause of a failure by the deadline

_ATTEMPTS_MAX: Final = 3  # per endpoint and call
_BACKOFF_S: Final = 0.25  # doubled with every failure in a row
_BACKOFF_S_MAX: Final = 30.0
_HANG_REST_S: Final = 10.0  # else every call would pay for finding out again
_RETRY_AFTER_S_MAX: Final = 3600.0
# A caller that would have to wait longer for an endpoint that rests is told at once.
STORING_WAIT_S_MAX: Final = 5.0
QUERY_WAIT_S_MAX: Final = 0.3  # one backoff: an agent's turn waits, and words find meanwhile


@dataclass(frozen=True)
class Endpoint:
    """The address of an OpenAI-compatible API, and the key to it if it needs one."""

    base_url: str = field(repr=False)
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Failure:
    """The cause of a failed attempt, in words of our own, and what that means for further ones."""

    cause: str
    retry: bool = False  # the same endpoint may answer the same request later in this call
    refused: bool = False  # it works, but not for this input: no reason to let it rest
    rest_s: float | None = None


@dataclass
class _State(Generic[_Client]):
    client: _Client
    failures: int = 0  # in a row
    failed_attempts: int = 0  # ever: an attempt tells by it what has failed since it began
    not_before: float = -math.inf  # like every time here on the event loop's clock


class Fallback(Generic[_Client]):
    """Asks the first of `clients` that is not resting, then the others, then those that recover."""

    def __init__(self, *, clients: Sequence[_Client]) -> None:
        if not clients:
            raise ValueError("at least one endpoint is needed")
        self._states = [_State(client) for client in clients]

    async def ask(
        self,
        attempt: Callable[[_Client], Awaitable[_Answer | Failure]],
        *,
        timeout_s: float,
        wait_s_max: float = STORING_WAIT_S_MAX,
    ) -> _Answer | Failure:
        """Return the first answer, or a failure once no endpoint can answer in time.

        None is waited for that rests for longer than `wait_s_max`.
        The failure is a refusal only if every endpoint refused in this call; `rest_s` says when one
        that did not may recover.
        """
        until = _now() + timeout_s
        attempts_left = [_ATTEMPTS_MAX] * len(self._states)
        failure: Failure | None = None
        refused: set[int] = set()
        while True:
            now = _now()
            usable = [at for at, left in enumerate(attempts_left) if left]
            at = min(usable, key=lambda at: max(self._states[at].not_before, now), default=None)
            if at is None or not await _wait_for_rest(self._states[at], until, wait_s_max):
                return self._report(failure, refused)
            untried = [
                other
                for other in usable
                if attempts_left[other] == _ATTEMPTS_MAX and self._states[other].not_before <= now
            ]
            share_s = (until - _now()) / max(len(untried), 1)
            outcome = await _attempt(self._states[at], attempt, share_s)
            if not isinstance(outcome, Failure):
                return outcome
            attempts_left[at] = attempts_left[at] - 1 if outcome.retry else 0
            if outcome.refused:
                refused.add(at)
            if failure is None or failure.refused:
                failure = outcome

    def _report(self, failure: Failure | None, refused: Set[int]) -> Failure:
        if failure is not None and len(refused) == len(self._states):
            return failure
        # One that was not asked may take what others refused.
        others = [state for at, state in enumerate(self._states) if at not in refused]
        rest_s = max(min(state.not_before for state in others) - _now(), 0.0)
        cause = "resting" if failure is None or failure.refused else failure.cause
        return Failure(cause, rest_s=rest_s)


def retry_after_s(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for, as a number or an HTTP date."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), _RETRY_AFTER_S_MAX) if math.isfinite(seconds) else None


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _wait_for_rest(state: _State[_Client], until: float, wait_s_max: float) -> bool:
    """Return True once the endpoint may be asked, or False at once if that is too far off."""
    wait_s = state.not_before - _now()
    if wait_s > wait_s_max or _now() + max(wait_s, 0.0) >= until:
        return False
    if wait_s > 0:
        await asyncio.sleep(wait_s)
    return True


async def _attempt(
    state: _State[_Client],
    attempt: Callable[[_Client], Awaitable[_Answer | Failure]],
    timeout_s: float,
) -> _Answer | Failure:
    failed_before = state.failed_attempts
    outcome: _Answer | Failure
    try:
        async with asyncio.timeout(timeout_s):
            outcome = await attempt(state.client)
    except TimeoutError:
        outcome = Failure(TIMEOUT, rest_s=_HANG_REST_S)
    since = state.failed_attempts - failed_before
    if isinstance(outcome, Failure):
        if not outcome.refused:
            _rest(state, outcome, since)
    else:
        state.failures = 0  # whatever failed beside it: most of what is asked is answered
        if not since:
            state.not_before = -math.inf
    return outcome


def _rest(state: _State[_Client], failure: Failure, since: int) -> None:
    if not since:  # requests that were under way together fail as one
        state.failures += 1
    state.failed_attempts += 1
    backoff_s = min(_BACKOFF_S * 2 ** min(max(state.failures - 1, 0), 10), _BACKOFF_S_MAX)
    rest_s = backoff_s if failure.rest_s is None else failure.rest_s
    state.not_before = max(state.not_before, _now() + rest_s)
