"""Everything `/metrics` says: what processes counted, and what is true of the whole relayer now.

Not here: what is counted (`telemetry.instruments`), who may see it (`routes/metrics.py`).

- However often it is asked, the database is asked once in five seconds, for three at most; what it
  does not say in time is left out.
- Of several workers the one that is asked speaks for the database, so nothing of it is added up.
  Figures of each process are; those of the others are a few seconds old.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Metric, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from relayer import __version__
from relayer.database import queue, watch
from relayer.database.pool import Database
from relayer.errors import Unavailable
from relayer.monitoring.readiness import Readiness
from relayer.monitoring.single_flight import SingleFlight
from relayer.telemetry import instruments
from relayer.telemetry.dead_workers import read_lock
from relayer.telemetry.instruments import flush
from relayer.telemetry.preallocation import COUNTS_FOLDER

KEPT_S: Final = 5.0
DEADLINE_S: Final = 3.0
PUBLISHED_S: Final = 5.0


@dataclass(frozen=True)
class _Backlog:
    """(kind, state, number, age of the oldest in seconds) of jobs, and what else waits."""

    jobs: list[tuple[str, str, int, float]]
    waiting: Mapping[str, int]


class _Now(Collector):
    """The checks and the backlog just looked up, as metrics."""

    def __init__(self, checks: Mapping[str, bool], backlog: _Backlog | None) -> None:
        self._checks = checks
        self._backlog = backlog

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        yield _gauge(
            "memrelay_write_ready",
            "1 while a write would be durable",
            {(): all(self._checks.values())},
        )
        yield _gauge(
            "memrelay_check_ok",
            "1 while this part of the write path holds",
            {(name,): ok for name, ok in self._checks.items()},
            "check",
        )
        yield _gauge(
            "memrelay_build_info", "1, with the release as a label", {(__version__,): 1}, "version"
        )
        if self._backlog is None:
            return
        jobs = self._backlog.jobs
        yield _gauge(
            "memrelay_jobs",
            "Jobs of all processes by kind and state",
            {(kind, state): number for kind, state, number, _ in jobs},
            *("kind", "state"),
        )
        yield _gauge(
            "memrelay_oldest_job_age_seconds",
            "Age of the oldest job that waits",
            {(kind,): age_s for kind, state, _, age_s in jobs if state == "queued"},
            "kind",
        )
        yield _gauge(
            "memrelay_backlog",
            "Deletions that are due in an outside store; events noted for webhooks",
            {(name,): number for name, number in self._backlog.waiting.items()},
            "what",
        )


def _gauge(
    name: str, text: str, values: Mapping[tuple[str, ...], float], *labels: str
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, float(value))
    return family


class Exposition:
    """The metrics of a relayer, as text."""

    def __init__(
        self,
        *,
        database: Database,
        readiness: Readiness,
        index_bytes: Callable[[], int] = lambda: 0,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._database = database
        self._readiness = readiness
        self._index_bytes = index_bytes
        self._deadline_s = deadline_s
        self._backlog = SingleFlight(self._read_backlog, kept_s=KEPT_S)

    async def text(self) -> bytes:
        """Return all of them, in Prometheus' text format."""
        self.publish()
        checks, backlog = await asyncio.gather(self._readiness.checks(), self._backlog())
        looked_up = CollectorRegistry()
        looked_up.register(_Now(checks, backlog))
        return _render_counts() + generate_latest(looked_up)

    def publish(self) -> None:
        """Add up what this process noted, and set its gauges."""
        flush()
        load = self._database.load()
        with suppress(OSError):  # as with notes
            instruments.CONNECTIONS_OPEN.set(load.open)
            instruments.CONNECTIONS_IN_USE.set(load.in_use)
            instruments.CONNECTIONS_WAITED_FOR.set(load.waited_for)
            instruments.CONNECTIONS_MAX.set(load.max)
            instruments.INDEX_BYTES.set(self._index_bytes())

    async def keep_published(self) -> None:
        """Set them every few seconds, for the worker that is asked may be another one."""
        try:
            while COUNTS_FOLDER in os.environ:
                self.publish()
                await asyncio.sleep(PUBLISHED_S)
        finally:
            flush()

    async def _read_backlog(self) -> _Backlog | None:
        try:
            async with asyncio.timeout(self._deadline_s):
                rows = await watch.jobs(self._database)
                waiting = await watch.count_waiting(self._database)
        except (Unavailable, TimeoutError):
            return None
        jobs = [
            (row["kind"], row["state"], row["number"], row["oldest_s"])
            for row in rows
            if row["kind"] in queue.KINDS and row["state"] in queue.STATES
        ]
        seen = {(kind, state) for kind, state, _, _ in jobs}
        # A series that comes and goes cannot be told from one that nobody could read.
        jobs += [(k, s, 0, 0.0) for k in queue.KINDS for s in queue.STATES if (k, s) not in seen]
        return _Backlog(sorted(jobs), waiting)


def _render_counts() -> bytes:
    """Return the counts of this process, or of all workers together."""
    folder = os.environ.get(COUNTS_FOLDER)
    if folder is None:
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    collect: type = multiprocess.MultiProcessCollector
    collect(registry)
    with read_lock(Path(folder)):
        return generate_latest(registry)
