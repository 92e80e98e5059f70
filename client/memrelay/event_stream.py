"""Listening to events over httpx, in a loop that blocks: the steps of `events.listen`.

It does not own what is asked, read or told, nor when it is asked again (`events.py`), nor the same
in a loop that awaits (`async_event_stream.py`).

- A stream has to begin in time, however much comes before it; once it began, it may last.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from memrelay.deadline import Deadline
from memrelay.errors import MemrelayError
from memrelay.events import Event, Listening, Read
from memrelay.exchange import Keep, Send, Sleep
from memrelay.transport import httpx

Request = Callable[[Send], httpx.Request]


def iterate_blocking(
    http: httpx.Client, request: Request, deadline: Deadline, listening: Listening
) -> Iterator[Event]:
    """Yield the events, in `for`; `deadline` watches the client."""
    outcome: Any = None
    with contextlib.ExitStack() as opened:
        while (step := next_step(listening, outcome)) is not None:
            try:
                if isinstance(step, Send):
                    opened.close()
                    with deadline.within(step.timeout_s):
                        outcome = http.send(request(step), stream=True)
                    opened.callback(outcome.close)
                    pieces = outcome.iter_bytes()
                elif isinstance(step, Read):
                    outcome = next(pieces, b"")
                elif isinstance(step, Sleep):
                    time.sleep(step.seconds)
                    outcome = None
                elif isinstance(step, Keep):
                    step.work()
                    outcome = None
                else:
                    outcome = yield step
            except (httpx.HTTPError, MemrelayError) as error:
                outcome = error


def next_step(listening: Listening, outcome: Any) -> Send | Read | Sleep | Keep | Event | None:
    """Return the step that follows this outcome of the last one, None at the end."""
    try:
        if isinstance(outcome, Exception):
            return listening.throw(outcome)
        return listening.send(outcome)
    except StopIteration:
        return None
