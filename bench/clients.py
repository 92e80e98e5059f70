"""Recalls a second and their times with 1 to 64 clients, one and two relayers, beside noise.

Not here: what sends the requests (`load.py`), one client alone (`recall.py`).

- Hybrid recalls in namespaces of 1,000, two clients an account; requests were signed before.
- Two relayers, a process each, serve one database; half of the clients ask each. All are warmed.
- The noise is one further account that stores by twenties as fast as it is answered.
"""

import asyncio
import contextlib
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Final

from bench.figures import Bounds, Curve, Figure, Report, compared, in_turn, share
from bench.filling import Filler
from bench.load import Load, driven, refusals
from bench.presigned import Presigner, presigner
from bench.running import Account, Process, Scale, Site
from bench.sentences import Questions, sentence
from memrelay.errors import RateLimited, TransportError, Unavailable

LEVELS: Final = (1, 2, 4, 8, 16, 32, 64)
LEVELS_QUICK: Final = (1, 4)
CLIENTS_EACH: Final = 2  # of an account; more would wait in its line
MEMORIES: Final = 1_000
NAMESPACE: Final = "team"
STORED_AT_ONCE: Final = 80  # by the noise: four requests
REQUESTS: Final = 160  # of a round
EACH_LEAST: Final = 10  # of a client in a round, however many clients there are
COMPARED_AT: Final = 32  # clients: two processes against one, noise against none
NOISE: Final = Bounds(must=4.0, aim=2.0)
TWO: Final = Bounds(must=1.6, aim=1.85, at_least=True)


@dataclass
class _Clients:
    """Clients of some relayers; a signer of each account for each relayer."""

    relayers: Sequence[Process]
    signers: Sequence[Sequence[Presigner]]
    clients: int
    requests: int
    least: int
    questions: Questions
    seen: list[Load] = field(default_factory=list)

    async def per_s(self) -> float:
        """Recalls a second in one round."""
        each = max(self.least, self.requests // self.clients)
        shares = []
        for number in range(self.clients):
            at = number % len(self.relayers)
            signer = self.signers[at][number // CLIENTS_EACH % len(self.signers[at])]
            requests = [_request(signer, next(self.questions)) for _ in range(each)]
            shares.append((self.relayers[at].url, requests))
        load = await driven(shares)
        self.seen.append(load)
        return load.per_s

    async def p95(self) -> float:
        """Milliseconds that 95 of 100 recalls of one round do not exceed."""
        await self.per_s()
        return share(self.seen[-1].times_ms, 0.95)

    @property
    def times_ms(self) -> list[float]:
        """Of all rounds."""
        return [ms for load in self.seen for ms in load.times_ms]


async def measure(site: Site, scale: Scale) -> Report:
    """The part's report."""
    levels = LEVELS_QUICK if scale.quick else LEVELS
    memories, requests, least = (20, 8, 2) if scale.quick else (MEMORIES, REQUESTS, EACH_LEAST)
    accounts = [await site.new_account() for _ in range(max(1, max(levels) // CLIENTS_EACH))]
    filler, questions = Filler(site), Questions()
    for account in accounts:
        await filler.fill(account, NAMESPACE, memories)
    await filler.settle()
    async with site.relayer() as one, site.replica() as other:
        relayers = (one, other)
        signers = [[await presigner(site, r, a, [NAMESPACE]) for a in accounts] for r in relayers]
        places = [_Clients([one], signers[:1], n, requests, least, questions) for n in levels]
        most = min(COMPARED_AT, max(levels))
        two = _Clients(relayers, signers, most, requests, least, questions)
        measured = (*places, two)
        await in_turn(1, *(some.per_s for some in measured))
        for some in measured:
            some.seen.clear()
        found = await in_turn(scale.rounds, *(some.per_s for some in measured))
        report = _reported(levels, places, two, found)
        quiet, noisy = (
            _Clients([one], signers[:1], most, requests, least, questions) for _ in range(2)
        )
        noise = _Noise(site, one, await site.new_account())
        idle, beside = await in_turn(scale.rounds, quiet.p95, lambda: noise.around(noisy))
        report.figures.append(
            compared(f"p95 of {most} clients beside noise", "ms", beside, "without", idle, NOISE)
        )
        every = (*places, two, quiet, noisy)
        report.notes += refusals(load for clients in every for load in clients.seen)
        report.notes.append(f"the noise stored {noise.stored} memories meanwhile")
    return report


@dataclass
class _Noise:
    """One account that stores as fast as it is answered."""

    site: Site
    relayer: Process
    account: Account
    stored: int = 0
    numbers: "count[int]" = field(default_factory=count)

    async def around(self, clients: _Clients) -> float:
        """The p95 of these clients meanwhile; the noise has begun before and ends after."""
        begun = asyncio.Event()
        task = asyncio.create_task(self._store(begun))
        await begun.wait()
        try:
            return await clients.p95()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _store(self, begun: asyncio.Event) -> None:
        async with self.site.client(self.relayer, self.account) as client:
            while True:
                texts = [f"{sentence(n)} {n}" for n in islice(self.numbers, STORED_AT_ONCE)]
                with contextlib.suppress(RateLimited, Unavailable, TransportError):
                    await client.remember_many(texts, namespace=NAMESPACE)
                    self.stored += len(texts)
                begun.set()


def _request(signer: Presigner, question: str) -> bytes:
    body = {"query": question, "namespace": NAMESPACE, "limit": 10}
    return signer.request("POST", "/v1/recall", body)


def _reported(
    levels: Sequence[int], places: Sequence[_Clients], two: _Clients, found: list[list[float]]
) -> Report:
    report = Report()
    rates = [statistics.median(rounds) for rounds in found]
    p50, p95 = ([share(place.times_ms, part) for place in places] for part in (0.5, 0.95))
    for level, rate, low, high in zip(levels, rates, p50, p95, strict=False):
        name = f"{level} clients, p50 {low:.1f} ms, p95 {high:.1f} ms"
        report.figures.append(Figure(name=name, value=rate, unit="recalls/s"))
    at = levels.index(two.clients)
    name = f"two relayers, {two.clients} clients"
    report.figures.append(compared(name, "recalls/s", found[-1], "one relayer", found[at], TWO))
    taken = max(load.processor for load in two.seen)
    report.notes.append(
        f"two relayers, PostgreSQL and the load shared {os.cpu_count()} processors; "
        f"the load took {100 * taken:.0f} % of one"
    )
    times = {"p50": p50, "p95": p95}
    report.curves = [
        Curve("clients", "clients", "recalls/s", {"recalls/s": _points(levels, rates)}),
        Curve("clients", "clients", "ms", {k: _points(levels, v) for k, v in times.items()}),
    ]
    return report


def _points(levels: Sequence[int], values: Sequence[float]) -> list[tuple[float, float]]:
    return [(float(level), value) for level, value in zip(levels, values, strict=False)]
