"""A request as it came, its query, and counts of requests: how many, how long, how many under way.

Not here: what else is counted (`telemetry/instruments.py`), who may see it (`routes/metrics.py`);
what a header says, and which may be there once only (`checks.py`).

- A header is looked for as it was sent, without an object of all of them: few requests need that.
- A request counts from when its route is known, so one without a route does not: an app-level guard
  notes the beginning, and what surrounds all routes the end. As middleware of the framework, which
  puts two further layers around each, it took a twentieth of a signed request.
- A request that ends without an answer from below, as at its deadline, counts as 503.
"""

import re
from collections import Counter as Tally
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final
from urllib.parse import unquote

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler
from litestar.params import QueryParameter
from litestar.types import Scope
from prometheus_client import Counter, Gauge, Histogram

from relayer.errors import BadRequest
from relayer.telemetry.instruments import defer_increase, defer_observation


def header(scope: Scope, name: bytes) -> str | None:
    """Return a header's value, of several the first; `name` in lower case, as the server has it."""
    for its, value in scope["headers"]:
        if its == name:
            return value.decode("latin-1")
    return None


SERIES_MAX: Final = 4_096  # of routes, methods and statuses; far more than there are
UNANSWERED: Final = 503
UNDER_WAY: Final = "under way"  # in a request's state: the gauge that counts it
_APP: Final = "memrelay"
_METHODS: Final = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())
_LABELS: Final = ("method", "path", "status_code", "app_name")

# Names and labels are those of the framework's exporter, which counted before.
_COUNT: Final = Counter("memrelay_requests_total", "Total requests", _LABELS)
_SECONDS: Final = Histogram(
    "memrelay_request_duration_seconds", "Request duration, in seconds", _LABELS
)
_IN_PROGRESS: Final = Gauge(
    "memrelay_requests_in_progress",
    "Total requests currently in progress",
    _LABELS,
    multiprocess_mode="livesum",
)


class RequestCounts:
    """Counts and times requests; looks each series up once."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._under_way: dict[tuple[str, str], Gauge] = {}

    async def begin(
        self, connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler
    ) -> None:
        """Count a request as under way; a guard, and it refuses none."""
        scope = connection.scope
        place = method_of(scope), route_of(scope)
        gauge = self._under_way.get(place)
        if gauge is None:
            gauge = self._under_way[place] = _IN_PROGRESS.labels(*place, 200, _APP)
        defer_increase(gauge.inc)
        scope["state"][UNDER_WAY] = gauge

    def end(self, scope: Scope, status: int, took_s: float) -> None:
        """Count how a request ended, if it began; without an answer, `status` is 0."""
        if (gauge := scope["state"].get(UNDER_WAY)) is None:
            return
        defer_increase(gauge.dec)
        method, route, status = method_of(scope), route_of(scope), status or UNANSWERED
        series = self._series.get((method, route, status)) or self._new(method, route, status)
        defer_increase(series[0].inc)
        defer_observation(series[1].observe, took_s)

    def _new(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        labels = method, route, status, _APP
        series = _COUNT.labels(*labels), _SECONDS.labels(*labels)
        if len(self._series) < SERIES_MAX:
            self._series[method, route, status] = series
        return series


def method_of(scope: Scope) -> str:
    """Return the method of a request, if a route could have it: it is the client's word."""
    method = str(scope.get("method", ""))
    return method if method in _METHODS else "other"


def route_of(scope: Scope) -> str:
    """Return the template of a request's route; none yet, or none at all, is empty."""
    return str(scope.get("path_template", ""))


_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_TRUTH: Final = re.compile(r"true|false")
_FORMS: Final[Mapping[Any, re.Pattern[str]]] = {
    int: _NUMBER,
    int | None: _NUMBER,
    bool: _TRUTH,
    bool | None: _TRUTH,
}


@dataclass(frozen=True)
class _QueryParameter:
    """One that a route takes: whether it is a list, and the one form of its values, if it has."""

    several: bool
    form: re.Pattern[str] | None


async def check_query(request: Request[Any, Any, Any]) -> None:
    """Return when the route knows every query parameter, once if it is no list, strictly formed.

    Two readers of one signed path could see two requests; a misspelt filter would filter nothing.

    Raises:
        BadRequest: one is unknown, stands there twice, or is no plain number or truth value; or
            what is written with percent signs is not UTF-8.
    """
    if not request.scope["query_string"]:
        return
    try:
        unquote(request.scope["query_string"].decode(), errors="strict")
    except UnicodeDecodeError:
        raise BadRequest("The query is not UTF-8.") from None
    known = _query_parameters(request.route_handler)
    given = list(request.query_params.multi_items())
    times = Tally(name for name, _ in given)
    for name, value in given:
        if (parameter := known.get(name)) is None:
            raise BadRequest("A query parameter is unknown.")
        if times[name] > 1 and not parameter.several:
            raise BadRequest(f"{name} stands there twice.")
        if parameter.form is not None and not parameter.form.fullmatch(str(value)):
            raise BadRequest(f"{name} is malformed.")


@cache
def _query_parameters(handler: BaseRouteHandler) -> dict[str, _QueryParameter]:
    """Return a route's query parameters by name; the framework would read 1e1 as a number."""
    found = {}
    for name, parameter in handler.parsed_fn_signature.parameters.items():
        if isinstance(definition := parameter.kwarg_definition, QueryParameter):
            form = _FORMS.get(parameter.annotation)
            several = parameter.is_non_string_sequence
            found[definition.name or name] = _QueryParameter(several, form)
    return found
