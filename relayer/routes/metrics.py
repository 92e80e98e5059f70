"""GET /metrics: counts, durations and what is true now, nothing about tenants, for the operator.

Not here: what it says (`monitoring/exposition.py`).

- With a token set, whoever sends it; else only a request from this machine to a relayer that
  listens to nobody else, as for founding accounts (`http/registration.py`).
- Of several workers the one that is asked gives the sums of all (their supervisor names the folder
  by which they know); figures of a process, such as its memory, are left out then.
"""

import hmac
from typing import Any, Final

from litestar import Controller, Response, get
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.handlers.base import BaseRouteHandler
from litestar.openapi import ResponseSpec
from prometheus_client import CONTENT_TYPE_LATEST

from relayer.errors import NotAllowed
from relayer.http.checks import PUBLIC
from relayer.http.registration import is_direct
from relayer.monitoring.exposition import Exposition
from relayer.settings import Settings, is_local

_TEXT: Final = ResponseSpec(
    str, generate_examples=False, description="Prometheus' text", media_type="text/plain"
)


class Metrics(Controller):
    """The route; it is guarded by `MetricsGuard`, not by signatures."""

    path = "/metrics"
    opt = {PUBLIC: True}  # noqa: RUF012  # the framework's own way to declare options

    @get(responses={200: _TEXT})
    async def get_metrics(self, exposition: NamedDependency[Exposition]) -> Response[bytes]:
        """Return the metrics as Prometheus reads them."""
        return Response(await exposition.text(), headers={"content-type": CONTENT_TYPE_LATEST})


class MetricsGuard:
    """Decides about one request for the metrics."""

    def __init__(self, *, settings: Settings) -> None:
        self._token = settings.metrics_token
        self._local = is_local(settings)

    def __call__(self, connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        """Return when the request may see them.

        Raises:
            NotAllowed: the token is missing or wrong, or none is set and this is not its machine.
        """
        if not self._token:
            if not (self._local and is_direct(connection)):
                raise NotAllowed("Set a token for metrics.", code="metrics.token")
            return
        sent = connection.headers.get("authorization", "")
        if not hmac.compare_digest(sent.encode(), f"Bearer {self._token}".encode()):
            raise NotAllowed("Metrics need a token.", code="metrics.token")


def metrics(settings: Settings) -> type[Metrics]:
    """Return the route with its guard."""
    return type("Metrics", (Metrics,), {"guards": [MetricsGuard(settings=settings)]})
