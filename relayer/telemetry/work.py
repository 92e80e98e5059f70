"""A run of a background job, as its operator sees it: duration, outcome, one line, a span.

Not here: the jobs (`jobs.py`).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Final, Protocol, TypeVar, get_args

from relayer.telemetry import tracing
from relayer.telemetry.instruments import JOB_SECONDS, Outcome, defer_observation
from relayer.telemetry.tracing import JOB

log = logging.getLogger("relayer.jobs")


class _Numbered(Protocol):
    @property
    def id(self) -> int: ...


J = TypeVar("J", bound=_Numbered)
Handler = Callable[[J], Awaitable[None]]


def observe(kind: str, work: Handler[J], *, put_back: type[Exception]) -> Handler[J]:
    """Return the handler, with every run counted and logged; it raises `put_back` for later.

    A run that is cancelled is for later, too: its process ends, and another takes the job.
    """
    seconds: Final = {outcome: JOB_SECONDS.labels(kind, outcome) for outcome in get_args(Outcome)}

    async def run(job: J) -> None:
        token = JOB.set(job.id)
        began_s = time.perf_counter()
        outcome: Outcome = "failed"
        try:
            with tracing.span(f"job {kind}", **{"memrelay.job_id": job.id}) or nullcontext():
                await work(job)
            outcome = "done"
        except (put_back, asyncio.CancelledError):
            outcome = "later"
            raise
        finally:
            took_s = time.perf_counter() - began_s
            defer_observation(seconds[outcome].observe, took_s)
            said = {"event": "jobs.run", "kind": kind, "outcome": outcome}
            log.info("job", extra=said | {"ms": round(1000 * took_s, 1)})
            JOB.reset(token)

    return run
