"""A request as it came, and counts of requests: how many, how long, how many are under way.

Not here: what else is counted (`telemetry/instruments.py`), who may see it (`routes/metrics.py`);
what a header says, and which may be there once only (`checks.py`).

- A header is looked for as it was sent, without an object of all of them: few requests need that.
- A request counts from when its route is known, so one without a route does not: an app-level guard
  notes the beginning, and what surrounds all routes the end. As middleware of the framework, which
  puts two further layers around each, it took a twentieth of a signed request.
- A request that ends without an answer from below, as at its deadline, counts as 503.
"""

from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler
from litestar.types import Scope
from prometheus_client import Counter, Gauge, Histogram

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
