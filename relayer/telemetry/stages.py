"""Durations of the parts of a request, taken in one line where a part is.

Not here: which parts there are (`instruments.py`).
"""

import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from prometheus_client import Histogram

from relayer.telemetry import tracing
from relayer.telemetry.deferred_counters import defer_observation
from relayer.telemetry.instruments import EMBEDDING_SECONDS, EMBEDDING_TEXTS, STAGES, Stage

P = ParamSpec("P")
T = TypeVar("T")


class Timed:
    """Measures what is inside, and makes a span of it where traces are on."""

    __slots__ = ("_began_s", "_histogram", "_name", "_span")

    def __init__(self, histogram: Histogram, name: str) -> None:
        self._histogram = histogram
        self._name = name
        self._span: AbstractContextManager[Any] | None = None

    def __enter__(self) -> None:
        self._span = tracing.span(self._name)
        if self._span is not None:
            self._span.__enter__()
        self._began_s = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        defer_observation(self._histogram.observe, time.perf_counter() - self._began_s)
        if self._span is not None:
            self._span.__exit__(kind, error, trace)


def stage(name: Stage) -> Timed:
    """Measure what is inside as this stage."""
    return Timed(STAGES[name], name)


def time_embedding(texts: int) -> Timed:
    """Measure one call of the embedding model, and how many texts it is of."""
    defer_observation(EMBEDDING_TEXTS.observe, texts)
    return Timed(EMBEDDING_SECONDS, "embedding")


Work = Callable[P, Coroutine[Any, Any, T]]


def time_stage(name: Stage) -> Callable[[Work[P, T]], Work[P, T]]:
    """Measure every call of a coroutine function as this stage."""

    def decorate(work: Work[P, T]) -> Work[P, T]:
        @wraps(work)
        async def measure(*args: P.args, **kwargs: P.kwargs) -> T:
            with stage(name):
                return await work(*args, **kwargs)

        return measure

    return decorate
