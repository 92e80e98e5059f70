"""The view of `relayer top`: two readings of `/metrics` as figures, and figures as lines.

Not here: asking a relayer, and the terminal (`commands/top.py`).

- What was read is somebody else's text: only printable characters of it are shown.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from relayer.tables import Column, cut, format_table
from relayer.telemetry.instruments import STAGES

Labels = Mapping[str, str]
GROUPS: Final = ("recall", "remember", "read", "other")


class NoMetrics(ValueError):
    """An answer that is no relayer's metrics."""


@dataclass(frozen=True)
class Reading:
    """Everything one answer of `/metrics` says, and when it was asked for, in seconds."""

    at_s: float
    samples: Mapping[str, Sequence[tuple[Labels, float]]] = field(repr=False)

    def of(self, name: str) -> Sequence[tuple[Labels, float]]:
        """Return the samples of a metric."""
        return self.samples.get(name, ())

    def sum(self, name: str, labels: Labels) -> float:
        """Return all samples of a metric that have these labels, together."""
        return sum(v for found, v in self.of(name) if labels.items() <= found.items())


def parse(text: str, at_s: float) -> Reading:
    """Return the reading in an answer.

    Raises:
        NoMetrics: it is none.
    """
    samples: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not math.isfinite(sample.value) or math.isnan(float(sample.labels.get("le", 0))):
                    raise ValueError("no number")
                samples[sample.name].append((_labels(sample.labels), sample.value))
    except (ValueError, IndexError, KeyError):
        raise NoMetrics("that is no text of metrics") from None
    if "memrelay_write_ready" not in samples:
        raise NoMetrics("those are no relayer's metrics")
    return Reading(at_s, samples)


class Figures:
    """The changes between two readings, or all before the first."""

    def __init__(self, now: Reading, before: Reading | None) -> None:
        self._now = now
        self._before = before
        self._seconds = None if before is None else now.at_s - before.at_s

    def as_json(self) -> dict[str, Any]:
        """Return all of it, by the names that people see."""
        return {
            "seconds": None if self._seconds is None else round(self._seconds, 3),
            "write_ready": self._level("memrelay_write_ready") == 1,
            "checks": {
                check: self._level("memrelay_check_ok", check=check) == 1
                for check in self._values("memrelay_check_ok", "check")
            },
            "in_progress": int(self._level("memrelay_requests_in_progress")),
            "requests": [
                {"group": group}
                | self._time_figures("memrelay_request_duration_seconds", group=group)
                | {
                    "errors": int(
                        self._growth("memrelay_requests_total", group=group, failed="yes")
                    )
                }
                for group in GROUPS
            ],
            "stages": [
                {"stage": stage}
                | self._time_figures("memrelay_stage_duration_seconds", stage=stage)
                for stage in STAGES
            ],
            "models": [
                {"model": model}
                | self._time_figures(f"memrelay_{model}_duration_seconds")
                | {"failures": int(self._growth(f"memrelay_{model}_failures_total"))}
                for model in ("embedding", "llm")
            ],
            "queries": self._queries(),
            "jobs": [self._jobs(kind) for kind in self._values("memrelay_jobs", "kind")],
            "connections": {
                state: int(self._level(f"memrelay_database_connections_{state}"))
                for state in ("in_use", "open", "max", "waited_for")
            },
            "caches": [
                self._cache(cache)
                for cache in self._values("memrelay_cache_lookups_total", "cache")
            ],
            "rejected": {
                cause: int(number)
                for cause in self._values("memrelay_requests_rejected_total", "cause")
                if (number := self._growth("memrelay_requests_rejected_total", cause=cause))
            },
        }

    def _time_figures(self, name: str, **labels: str) -> dict[str, Any]:
        count = self._growth(f"{name}_count", **labels)
        buckets = [
            (float(bound), self._growth(f"{name}_bucket", le=bound, **labels))
            for bound in self._values(f"{name}_bucket", "le")
        ]
        return {
            "count": int(count),
            "per_second": round(count / self._seconds, 2) if self._seconds else None,
            "p50_ms": _ms(quantile(sorted(buckets), 0.5)),
            "p95_ms": _ms(quantile(sorted(buckets), 0.95)),
        }

    def _jobs(self, kind: str) -> dict[str, Any]:
        states = self._values("memrelay_jobs", "state")
        oldest_s = self._level("memrelay_oldest_job_age_seconds", kind=kind)
        found = {s: int(self._level("memrelay_jobs", kind=kind, state=s)) for s in states}
        return {"kind": kind, **found, "oldest_s": round(oldest_s, 1)}

    def _queries(self) -> dict[str, Any]:
        """Return the number of queries looked at, and the share that the model understands."""
        count = self._growth("memrelay_recall_queries_total")
        understood = self._growth("memrelay_recall_queries_total", understood="yes")
        share = round(understood / count, 3) if count else None
        return {"count": int(count), "understood_share": share}

    def _cache(self, cache: str) -> dict[str, Any]:
        lookups = self._growth("memrelay_cache_lookups_total", cache=cache)
        hits = self._growth("memrelay_cache_lookups_total", cache=cache, result="hit")
        share = round(hits / lookups, 3) if lookups else None
        return {"cache": cache, "lookups": int(lookups), "hit_share": share}

    def _values(self, name: str, label: str) -> list[str]:
        """Return the values of a metric's label, in the order of the answer."""
        return list(dict.fromkeys(labels.get(label, "") for labels, _ in self._now.of(name)))

    def _growth(self, name: str, **labels: str) -> float:
        now = self._now.sum(name, labels)
        before = 0.0 if self._before is None else self._before.sum(name, labels)
        return now - before if now >= before else now  # the relayer began anew

    def _level(self, name: str, **labels: str) -> float:
        return self._now.sum(name, labels)


def quantile(buckets: Sequence[tuple[float, float]], share: float) -> float | None:
    """Return the value that this share of observations is below; None without observations.

    It lies between bounds of buckets as Prometheus does it.

    `buckets` are (upper bound, how many are at most that), ascending, the last bound infinite.
    """
    if not buckets or buckets[-1][1] <= 0:
        return None
    wanted = share * buckets[-1][1]
    lower, below = 0.0, 0.0
    for bound, number in buckets:
        if number >= wanted:
            if bound == float("inf") or number == below:
                return lower
            return lower + (bound - lower) * (wanted - below) / (number - below)
        lower, below = bound, number
    return lower


def _labels(sent: Labels) -> Labels:
    """Return labels as they may be shown; a request's with its group, and whether it failed."""
    labels = {name: _plain(value) for name, value in sent.items()}
    if "path" in labels:
        status = labels.get("status_code", "")
        # 501 asks for what the operator did not set up, which is nobody's failure.
        failed = "yes" if status[:1] == "5" and status != "501" else "no"
        labels |= {"group": _group(labels["path"], labels.get("method", "")), "failed": failed}
    return labels


def _group(route: str, method: str) -> str:
    if "recall" in route or route.endswith("/ask"):
        return "recall"
    if "remember" in route or "analyze" in route:
        return "remember"
    return "read" if method in ("GET", "HEAD") else "other"


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 2)


def _plain(text: str) -> str:
    """Return the part of a text that may go to a terminal."""
    return "".join(c for c in text if c.isascii() and c.isprintable())[:40]


def as_lines(told: Mapping[str, Any], *, title: str, width: int | None = None) -> list[str]:
    """Return figures for a person, in so many columns; None is for a pipe, which cuts nothing.

    What must be seen comes first, for a terminal may be low.
    """
    window = "since it began" if told["seconds"] is None else f"in {told['seconds']:.1f} s"
    bad = [name for name, ok in told["checks"].items() if not ok]
    ready = "takes writes" if told["write_ready"] else f"TAKES NO WRITES: {', '.join(bad)}"
    pool = told["connections"]
    facts = {
        "connections": f"{pool['in_use']} at work, {pool['open']} open of {pool['max']},"
        f" {pool['waited_for']} waited for",
        "caches": _pairs(
            (c["cache"], f"{c['hit_share']:.0%}") for c in told["caches"] if c["lookups"]
        ),
        "refused": _pairs(told["rejected"].items()),
        "queries": _format_understood(told["queries"]),
    }
    stages = [_format_timed_row(s["stage"], s) for s in told["stages"] if s["count"]]
    jobs = [_job_row(j) for j in told["jobs"] if any(v for k, v in j.items() if k != "kind")]
    head = [
        f"{_plain(title)}  {ready}  {told['in_progress']} under way  ({window})",
        *(f"{name:11}  {fact}" for name, fact in facts.items()),
    ]
    return [
        *(head if width is None else [cut(line, width) for line in head]),
        *_section(
            "requests",
            _TIMED,
            [_format_timed_row(r["group"], r, r["errors"]) for r in told["requests"]],
            width,
            last=Column("5xx", rank=2, is_number=True),
        ),
        *_section("stages", _TIMED, stages, width),
        *_section(
            "models",
            _TIMED,
            [_format_timed_row(m["model"], m, m["failures"]) for m in told["models"]],
            width,
            last=Column("failed", rank=2, is_number=True),
        ),
        *_section("jobs", _JOBS, jobs, width),
    ]


_TIMED: Final = (
    Column("count", is_number=True),
    Column("a second", rank=3, is_number=True),
    Column("p50 ms", rank=4, is_number=True),
    Column("p95 ms", rank=1, is_number=True),
)
_JOBS: Final = (
    Column("queued", is_number=True),
    Column("at work", rank=2, is_number=True),
    Column("failed", rank=1, is_number=True),
    Column("oldest", rank=3, is_number=True),
)


def _section(
    name: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int | None,
    *,
    last: Column | None = None,
) -> list[str]:
    """Return an empty line and a table; none for no rows."""
    if not rows:
        return []
    all_columns = (Column(name, is_text=True), *columns, *((last,) if last else ()))
    return ["", *format_table(all_columns, rows, width)]


def _format_timed_row(name: str, timed: Mapping[str, Any], *more: object) -> list[str]:
    shown = (timed["count"], timed["per_second"], timed["p50_ms"], timed["p95_ms"], *more)
    return [name, *("-" if cell is None else str(cell) for cell in shown)]


def _job_row(job: Mapping[str, Any]) -> list[str]:
    counts = (str(job.get(name, 0)) for name in ("queued", "picked", "failed"))
    return [job["kind"], *counts, _age(job["oldest_s"])]


def _age(seconds: float) -> str:
    """Return a time for people: `4.2 s`, `3 min`, `5 h`, `2 days`."""
    for unit, least in (("days", 2 * 86_400), ("h", 2 * 3_600), ("min", 120)):
        if seconds >= least:
            return f"{seconds // _UNITS_S[unit]:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds else "-"


_UNITS_S: Final = {"days": 86_400, "h": 3_600, "min": 60}


def _format_understood(queries: Mapping[str, Any]) -> str:
    if not queries["count"]:
        return "-"
    return f"{queries['understood_share']:.0%} of {queries['count']} known to the embedding model"


def _pairs(pairs: Iterable[tuple[str, object]]) -> str:
    return ", ".join(f"{name} {value}" for name, value in pairs) or "-"
