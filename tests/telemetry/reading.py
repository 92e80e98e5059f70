"""Reading `/metrics` in tests: what a metric says, and how much it grew.

Not here: what is done meanwhile.
"""

import asyncio
from dataclasses import dataclass, field

import httpx
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from relayer.telemetry.instruments import flush
from tests.life import WAIT_S_MAX


@dataclass(frozen=True)
class Scrape:
    """One answer of `/metrics`: (name, labels) → value of every sample."""

    values: dict[tuple[str, frozenset[tuple[str, str]]], float] = field(repr=False)

    def of(self, name: str, **labels: str) -> float:
        """The sum of the samples of a name that have these labels."""
        wanted = frozenset(labels.items())
        return sum(v for (n, found), v in self.values.items() if n == name and wanted <= found)

    def labels(self, name: str, label: str) -> set[str]:
        """What a label says of a name."""
        return {dict(found)[label] for n, found in self.values if n == name}

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.values}


def read(text: str) -> Scrape:
    """The samples of an exposition."""
    return Scrape(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )


async def scrape(client: httpx.AsyncClient) -> Scrape:
    """What an application says now, when it could also read its queue: it asks for three seconds at
    most."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            answer = await client.get("/metrics")
            assert answer.status_code == 200
            if "memrelay_jobs" in (found := read(answer.text)).names:
                return found
            await asyncio.sleep(0.25)


def counted(*names: str) -> Scrape:
    """What this process has counted so far; tasks of other tests are over by the next one.

    After thousands of tests, to read all takes fifty times as long.
    """
    flush()
    registry = REGISTRY.restricted_registry(names) if names else REGISTRY
    return Scrape(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in registry.collect()
            for sample in family.samples
        }
    )


def grown(before: Scrape, name: str, **labels: str) -> float:
    """How much a counter grew; what other tests left running in this process may add to it."""
    return counted(name).of(name, **labels) - before.of(name, **labels)
