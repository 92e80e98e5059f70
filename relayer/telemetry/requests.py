"""Requests by route: the framework's exporter, with its series looked up once instead of each time.

Not here: what else is counted (`instruments.py`), who may see it (`routes/metrics.py`).

- Names and labels are the exporter's own. Building its request and looking its labels up took as
  long as the framework takes for a whole bare request.
- A request that ends without an answer from below, as at its deadline, counts as 503.
"""

import time
from typing import Any, Final

from litestar.plugins.prometheus import PrometheusConfig, PrometheusMiddleware
from litestar.types import Message, Receive, Scope, Send

from relayer.telemetry.pending import increase, note

SERIES_MAX: Final = 4_096  # of routes, methods and statuses; far more than there are
UNANSWERED: Final = 503
_APP: Final = "memrelay"
_METHODS: Final = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())


class RequestCounts(PrometheusMiddleware):
    """Counts and times every request."""

    def __init__(self, app: Any, config: PrometheusConfig) -> None:
        super().__init__(app, config)
        self._series: dict[tuple[str, str, int], tuple[Any, Any]] = {}
        self._under_way: dict[tuple[str, str], Any] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and count it."""
        method, route = known_method(scope), str(scope.get("path_template", ""))
        began_s, took_s, status = time.perf_counter(), 0.0, 0

        async def watched(message: Message) -> None:
            nonlocal status, took_s
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                took_s = time.perf_counter() - began_s
            await send(message)

        under_way = self._under_way.get((method, route)) or self._begun(method, route)
        increase(under_way.inc)
        try:
            await self.app(scope, receive, watched)
        finally:
            increase(under_way.dec)
            status = status or UNANSWERED
            took_s = took_s or time.perf_counter() - began_s
            count, duration = self._series.get((method, route, status)) or self._new(
                method, route, status
            )
            increase(count.inc)
            note(duration.observe, took_s)

    def _begun(self, method: str, route: str) -> Any:
        labels = _labels(method, route, 200)
        gauge: Any = self.requests_in_progress(labels)
        return self._under_way.setdefault((method, route), gauge.labels(*labels.values()))

    def _new(self, method: str, route: str, status: int) -> tuple[Any, Any]:
        labels = _labels(method, route, status)
        counter: Any = self.request_count(labels)
        histogram: Any = self.request_time(labels)
        series = counter.labels(*labels.values()), histogram.labels(*labels.values())
        if len(self._series) < SERIES_MAX:
            self._series[method, route, status] = series
        return series


def known_method(scope: Scope) -> str:
    """The method of a request, if it is one that a route could have: it is the client's word."""
    method = str(scope.get("method", ""))
    return method if method in _METHODS else "other"


def _labels(method: str, route: str, status: int) -> dict[str, str | int | float]:
    return {"method": method, "path": route, "status_code": status, "app_name": _APP}


def request_counts() -> Any:
    """The middleware, to be put into the application."""
    return PrometheusConfig(
        app_name=_APP, prefix="memrelay", group_path=True, middleware_class=RequestCounts
    ).middleware
