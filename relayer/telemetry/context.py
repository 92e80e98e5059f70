"""The request or job that the present task works on, so that every line it logs can name it.

Not here: log lines (`logs.py`).

- An id names work, never a tenant: a request's is random or the client's own, a job's a number.
"""

import re
import uuid
from contextvars import ContextVar
from typing import Final

REQUEST: Final[ContextVar[str | None]] = ContextVar("request_id", default=None)
JOB: Final[ContextVar[int | None]] = ContextVar("job_id", default=None)

_TAKEN: Final = re.compile(rb"[A-Za-z0-9_-]{8,64}")


def request_id(sent: list[bytes]) -> str:
    """Return the id of a request: the client's own if it is short and plain, else a new one.

    `sent` are the values of its `x-request-id` headers.
    """
    if len(sent) == 1 and _TAKEN.fullmatch(sent[0]):
        return sent[0].decode()
    return str(uuid.uuid4())


def members() -> dict[str, str | int]:
    """Return the members of a log line that name the work at hand."""
    found: dict[str, str | int] = {}
    if (request := REQUEST.get()) is not None:
        found["request_id"] = request
    if (job := JOB.get()) is not None:
        found["job_id"] = job
    return found
