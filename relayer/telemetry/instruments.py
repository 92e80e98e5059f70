"""Every counter, histogram and gauge of a relayer, but for those of requests by route.

Not here: requests by route (`http/requests.py`), spans (`tracing.py`), what the database is asked
when somebody looks (`monitoring/exposition.py`), full disks (`preallocation.py`).

- A label's values are the fixed words that stand here; nothing of a tenant is ever one.
- Every series is there from the start, so that the first count is seen as one; and a hot path looks
  no label up.
- Counts are noted first and added up later: on a hot path, a note costs a tenth of a count. Whoever
  reads the instruments flushes first; otherwise notes are flushed when there are many.
- A count that the disk which workers share counts on refuses fails nobody's request.
"""

import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import wraps
from types import TracebackType
from typing import Any, Final, Literal, ParamSpec, TypeVar, get_args

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

from relayer.telemetry import tracing

NOTES_MAX: Final = 1_024
Count = Callable[[float], object]
_values: list[tuple[Count, float]] = []
_increases: list[tuple[Count, float]] = []


def defer_observation(observe: Count, value: float) -> None:
    """Observe this value soon."""
    _values.append((observe, value))
    if len(_values) >= NOTES_MAX:
        flush()


def defer_increase(count: Count, by: float = 1.0) -> None:
    """Count so much more soon, together with what else there is of it by then."""
    _increases.append((count, by))
    if len(_increases) >= NOTES_MAX:
        flush()


def flush() -> None:
    """Count everything that was noted."""
    sums: dict[Count, float] = {}
    for count, by in _pop_all(_increases):
        sums[count] = sums.get(count, 0.0) + by
    for count, by in sums.items():
        _tell(count, by)
    for observe, value in _pop_all(_values):
        _tell(observe, value)


def _pop_all(notes: list[tuple[Count, float]]) -> Iterator[tuple[Count, float]]:
    """Yield all of them, each for one taker only, whichever threads there are."""
    with suppress(IndexError):
        while True:
            yield notes.pop()


def _tell(count: Count, value: float) -> None:
    with suppress(OSError):
        count(value)


Stage = Literal[
    "request.check",
    "recall.whole",
    "recall.embed",
    "recall.search",
    "recall.open",
    "remember.whole",
    "remember.prepare",
    "remember.write",
]
Cache = Literal["chains", "roots", "unlocks", "namespaces", "embeddings", "blobs", "index", "rows"]
Outcome = Literal["done", "later", "failed"]
Gain = Literal["facts", "known", "nothing"]
Rejection = Literal[
    # 401: which of the checks of SPEC §5 failed; the answer never says
    "headers",
    "clock",
    "signature",
    "replay",
    "unknown_key",
    "account",
    "grant",
    "session",
    "no_nonce",
    "not_allowed",
    "registration",
    "unlock",
    "rate_limit",
    "at_once",
    "quota",
    "malformed",
    "media_type",
    "body_too_large",
    "head_too_large",
    "server_full",
    "deadline",
    "upstream",
    "other",
]

_without_created: Callable[[], None] = disable_created_metrics  # it has no annotations
_without_created()  # else each has a second series, which says when it began

_REQUEST_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_UPSTREAM_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0)
_JOB_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0, 60.0)
_TEXTS: Final = (1, 2, 4, 8, 16, 32, 64, 128)

_STAGES: Final = Histogram(
    "memrelay_stage_duration_seconds",
    "Time of the parts of a request; *.whole is their sum and what is between them",
    ["stage"],
    buckets=_REQUEST_S,
)
STAGES: Final[Mapping[str, Histogram]] = {s: _STAGES.labels(s) for s in get_args(Stage)}

EMBEDDING_SECONDS: Final = Histogram(
    "memrelay_embedding_duration_seconds",
    "Time of one call of the embedding model, waiting for its turn included",
    buckets=_REQUEST_S,
)
EMBEDDING_TEXTS: Final = Histogram(
    "memrelay_embedding_texts", "Texts that one call embeds together", buckets=_TEXTS
)
_EMBEDDING_FAILURES: Final = Counter(
    "memrelay_embedding_failures",
    "Calls of the embedding model that gave no vectors, by cause",
    ["cause"],
)
_QUERIES: Final = Counter(
    "memrelay_recall_queries",
    "Queries that the embedding model understands, and those of which it knows half or less",
    ["understood"],
)
_UNDERSTOOD: Final = {True: _QUERIES.labels("yes"), False: _QUERIES.labels("no")}
LLM_SECONDS: Final = Histogram(
    "memrelay_llm_duration_seconds",
    "Time of one call of the language model, with all its attempts",
    buckets=_UPSTREAM_S,
)
_LLM_FAILURES: Final = Counter(
    "memrelay_llm_failures",
    "Calls of the language model without a usable answer, by cause",
    ["cause"],
)
_TURNS: Final = Counter(
    "memrelay_turns",
    "Turns that were analyzed, by what they gave and who found it; pending: kept for the model",
    ["outcome", "extractor"],
)
_AFTER_FAILURE: Final = "rules_after_failure"
_PENDING: Final = _TURNS.labels("pending", "none")
_GAINS: Final = {
    (gain, extractor): _TURNS.labels(gain, extractor)
    for gain in get_args(Gain)
    for extractor in ("model", "rules", _AFTER_FAILURE)
}
_LOOKUPS: Final = Counter(
    "memrelay_cache_lookups",
    "What was looked for in a cache, and found or not",
    ["cache", "result"],
)
_HITS: Final = {cache: _LOOKUPS.labels(cache, "hit") for cache in get_args(Cache)}
_MISSES: Final = {cache: _LOOKUPS.labels(cache, "miss") for cache in get_args(Cache)}
_REJECTED: Final = Counter(
    "memrelay_requests_rejected", "Requests that were refused, by cause", ["cause"]
)
_REJECTIONS: Final = {cause: _REJECTED.labels(cause) for cause in get_args(Rejection)}
JOB_SECONDS: Final = Histogram(
    "memrelay_job_duration_seconds",
    "Time of one run of a job in the background, by what became of it",
    ["kind", "outcome"],
    buckets=_JOB_S,
)
_POSTS: Final = Counter(
    "memrelay_webhook_posts",
    "Events posted to webhooks, and taken or not, or never posted because too many waited",
    ["outcome"],
)
POSTS_TAKEN: Final = _POSTS.labels("taken")
POSTS_FAILED: Final = _POSTS.labels("failed")
POSTS_DROPPED: Final = _POSTS.labels("dropped")
CONNECTIONS_OPEN: Final = Gauge(
    "memrelay_database_connections_open",
    "Connections to the database that the pool holds",
    multiprocess_mode="livesum",
)
CONNECTIONS_IN_USE: Final = Gauge(
    "memrelay_database_connections_in_use",
    "Connections to the database that are at work",
    multiprocess_mode="livesum",
)
CONNECTIONS_WAITED_FOR: Final = Gauge(
    "memrelay_database_connections_waited_for",
    "Tasks that wait for a connection to the database",
    multiprocess_mode="livesum",
)
CONNECTIONS_MAX: Final = Gauge(
    "memrelay_database_connections_max",
    "Connections to the database that the pool may hold",
    multiprocess_mode="livesum",
)
INDEX_BYTES: Final = Gauge(
    "memrelay_index_memory_bytes",
    "Memory that the index of namespaces asked lately takes",
    multiprocess_mode="livesum",
)

_UPSTREAM: Final = {
    "deadline": "deadline",
    "timeout": "deadline",
    "no connection": "connection",
    "resting": "resting",
    "busy": "busy",
    "refusal": "refused",
    "refused": "refused",
    "cut answer": "cut_answer",
}
for _cause in {*_UPSTREAM.values(), "status_4xx", "status_5xx", "invalid"}:
    _EMBEDDING_FAILURES.labels(_cause)
    _LLM_FAILURES.labels(_cause)


def count_lookups(cache: Cache, found: int, of: int = 1) -> None:
    """Count that so many things were found in a cache, of so many that were looked for."""
    if found:
        defer_increase(_HITS[cache].inc, found)
    if of > found:
        defer_increase(_MISSES[cache].inc, of - found)


def query_asked(*, understood: bool) -> None:
    """Count a query whose meaning the embedding model can tell, or cannot."""
    defer_increase(_UNDERSTOOD[understood].inc)


def count_rejection(cause: Rejection) -> None:
    """Count a refused request."""
    defer_increase(_REJECTIONS[cause].inc)


def count_embedding_failure(cause: str) -> None:
    """Count a call of the embedding model that failed, by the words of its failure."""
    defer_increase(_EMBEDDING_FAILURES.labels(_upstream_cause(cause)).inc)


def llm_failed(cause: str) -> None:
    """Count a call of the language model that failed, by the words of its failure."""
    defer_increase(_LLM_FAILURES.labels(_upstream_cause(cause)).inc)


def count_episode(gain: Gain, extractor: str) -> None:
    """Count an episode by what it gave: something new, only what was known, or nothing.

    `extractor` is its name, as an answer has it.
    """
    label = extractor if (gain, extractor) in _GAINS else _AFTER_FAILURE
    defer_increase(_GAINS[gain, label].inc)


def count_waiting_episode() -> None:
    """Count an episode that waits for its facts, since the language model failed."""
    defer_increase(_PENDING.inc)


def _upstream_cause(words: str) -> str:
    if words.startswith("status "):
        return "status_5xx" if words.startswith("status 5") else "status_4xx"
    return _UPSTREAM.get(words, "invalid")


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
