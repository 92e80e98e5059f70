"""Spans of requests, their stages and jobs, for a collector of OpenTelemetry; off unless asked for.

Not here: durations as metrics, and where a stage begins and ends (`instruments.py`).

- Every line that is logged can name the request or job that the present task works on. An id names
  work, never a tenant: a request's is random or the client's own, a job's a number.
- A span has a fixed name, a route's template, a status, an id of a request or job. Nothing of a
  tenant is in one: no path, query, header, statement, address or message of an exception.
- Nobody outside continues a trace here or decides that one is kept: `traceparent` is not read.
- Without the extra `otel`, or without the variables that name a collector, nothing is imported and
  a span costs one comparison.
"""

import asyncio
import logging
import os
import re
import threading
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

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


if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

log = logging.getLogger("relayer.telemetry")

LAST: Final = "last spans"
LAST_S: Final = 5.0  # for sending the last spans; what a collector does not take then is lost
SEND_S: Final = 2.0  # for sending some, unless a variable says otherwise
SERVICE: Final = "memrelay-relayer"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_TIMEOUTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
_tracer: "Tracer | None" = None


def is_asked_for(environment: Mapping[str, str]) -> bool:
    """Return true if OpenTelemetry's own variables ask for traces and say where to send them."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if environment.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return False
    return any(environment.get(name) for name in _ENDPOINTS)


@asynccontextmanager
async def trace_to(provider: "TracerProvider") -> AsyncIterator[None]:
    """Give spans to this provider meanwhile, and have it send the last ones."""
    global _tracer  # noqa: PLW0603  # as the library itself has it: one for a process
    _tracer = provider.get_tracer("memrelay")
    try:
        yield
    finally:
        _tracer = None
        # It may wait for its collector, and what comes after it (the database) may not.
        last = threading.Thread(target=provider.shutdown, name=LAST, daemon=True)
        last.start()
        await asyncio.to_thread(last.join, LAST_S)


@asynccontextmanager
async def as_environment_says(environment: Mapping[str, str] = os.environ) -> AsyncIterator[None]:
    """Send spans meanwhile where the environment says, if it does."""
    provider = _build_exporter_or_warn() if is_asked_for(environment) else None
    if provider is None:
        yield
        return
    async with trace_to(provider):
        yield


def _build_exporter_or_warn() -> "TracerProvider | None":
    """Build the exporter, or warn: a variable that nobody can read must not stop the relayer."""
    try:
        return _build_exporter()
    except Exception as error:
        said = {"event": "tracing.failed", "cause": type(error).__name__}
        log.error("no traces: see the variables OTEL_…", extra=said)
        return None


def _build_exporter() -> "TracerProvider | None":
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415  # an extra
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        log.warning("traces need the extra otel", extra={"event": "tracing.missing"})
        return None
    named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": SERVICE}
    timeout_s = None if any(os.environ.get(name) for name in _TIMEOUTS) else SEND_S
    # The process may not outlive its provider: `traced` shuts it down.
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=timeout_s)))
    return provider


def name_request(method: str, route: str, status: int) -> None:
    """Say of the present span which request it was: known only when its answer is."""
    if _tracer is None:
        return
    from opentelemetry.trace import get_current_span  # noqa: PLC0415  # an extra

    present = get_current_span()
    present.update_name(f"{method} {route}" if route else "request")
    present.set_attribute("http.request.method", method)
    present.set_attribute("http.route", route)
    present.set_attribute("http.response.status_code", status)


def span(name: str, **attributes: str | int) -> "AbstractContextManager[Span] | None":
    """Return a span below the present one, to be entered; None while nobody asked for traces."""
    if _tracer is None:
        return None
    # An exception's message may quote anything.
    return _tracer.start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    )
