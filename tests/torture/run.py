"""One run: workers, the plan's rounds, the end of it, and the proof.

Not here: what is planned (`plan.py`) or proven (`checker.py`), the command line (`__main__.py`).

- Bounded: after the last round, or the time allowed, everything is healed and checked.
"""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memrelay import MemoryClient
from tests.torture.checker import proven, quiet
from tests.torture.faults import companions
from tests.torture.ground import START_S_MAX, Ground, ground_on
from tests.torture.ledger import Ledger, Record
from tests.torture.plan import Round, planned
from tests.torture.poison import parked_taken_up, poisoned
from tests.torture.work import Worker, client_of, probe

CUSTODIES = ("managed", "sealed")
WRITERS_OF_AN_ACCOUNT = 2
END_S_MAX = 240.0
PROBE_S = 0.1
Say = Callable[[str], None]


@dataclass
class Outcome:
    """What a run came to."""

    seed: int
    kills: int = 0
    faults: int = 0
    seconds: float = 0.0
    acknowledged: dict[str, int] = field(default_factory=dict)
    reads: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    slowest_s: float = 0.0
    recoveries_s: list[float] = field(default_factory=list)
    problems: dict[str, int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def count(self, record: Record) -> None:
        """Take over what was answered and what was wrong."""
        self.acknowledged, self.reads = dict(record.acknowledged), dict(record.reads)
        self.statuses, self.slowest_s = dict(record.statuses), record.slowest_s
        self.problems = dict(Counter(record.violations))

    def as_json(self) -> dict[str, Any]:
        """The figures."""
        recoveries = sorted(self.recoveries_s) or [0.0]
        shown = {k: v for k, v in vars(self).items() if k != "recoveries_s"}
        return {
            "ok": self.ok,
            **shown,
            "seconds": round(self.seconds),
            "slowest_s": round(self.slowest_s, 1),
            "recovery_s": {
                "p50": round(statistics.median(recoveries), 1),
                "max": round(recoveries[-1], 1),
            },
        }


async def run(
    folder: Path,
    *,
    seed: int,
    kills: int,
    seconds_max: float,
    embedded: bool = False,
    bucket: bool = False,
    short: bool = False,
    say: Say = print,
) -> Outcome:
    """Torture one ground until there were `kills` kills or the time is over, and prove the rest."""
    started = time.monotonic()
    outcome, record = Outcome(seed), Record()
    async with ground_on(folder, embedded=embedded, bucket=bucket) as ground:
        if ground.disk is None and not embedded:
            outcome.left_out.append("disk full: mounting is not allowed here")
        rounds = planned(seed, kills, companions(ground), short=short)
        accounts = [await asyncio.to_thread(_account, ground, custody) for custody in CUSTODIES]
        stopping = asyncio.Event()
        async with AsyncExitStack() as stack:
            workers = _workers(ground, record, accounts, seed, stopping)
            for worker in workers:
                await stack.enter_async_context(worker)
            probes = [
                await stack.enter_async_context(client_of(accounts[0], relayer.url, Record()))
                for relayer in ground.relayers
            ]
            async with _working(workers, stopping, record):
                await _rounds(ground, record, outcome, rounds, probes, started + seconds_max, say)
                if not (short or embedded or bucket):
                    say("a job that ends every worker")
                    record.violations += await poisoned(ground, probes[0])
                    outcome.faults += 1
            async with parked_taken_up(ground):
                for worker in workers:
                    await worker.settle()
                await _proven(ground, record, accounts, [w.ledger for w in workers])
        outcome.kills = ground.kills
    outcome.seconds = time.monotonic() - started
    outcome.count(record)
    return outcome


async def _rounds(
    ground: Ground,
    record: Record,
    outcome: Outcome,
    rounds: Sequence[Round],
    probes: Sequence[MemoryClient],
    until: float,
    say: Say,
) -> None:
    """One round after the other, until there were as many kills or the time is over."""
    for number, one in enumerate(rounds):
        if ground.kills >= len(rounds) or time.monotonic() > until:
            break
        say(f"{number + 1}: {one}")
        name = f"{outcome.seed} {number}"
        outcome.recoveries_s.append(await _round(ground, record, one, probes, name))
        outcome.faults += 2


def _account(ground: Ground, custody: str) -> dict[str, Any]:
    return ground.relayers[0].command("account", "create", "--label", custody, "--custody", custody)


def _workers(
    ground: Ground,
    record: Record,
    accounts: Sequence[dict[str, Any]],
    seed: int,
    stopping: asyncio.Event,
) -> Sequence[Worker]:
    return [
        Worker(
            ground,
            record,
            account,
            Ledger(f"{seed} {account['custody']} {n}", f"desk-{n}"),
            random.Random(f"{seed} {account['custody']} {n} deeds"),
            stopping,
        )
        for account in accounts
        for n in range(WRITERS_OF_AN_ACCOUNT)
    ]


@asynccontextmanager
async def _working(
    workers: Sequence[Worker], stopping: asyncio.Event, record: Record
) -> AsyncIterator[None]:
    """Workers at work; in the end, each has its last answer."""
    tasks = [asyncio.create_task(worker.work()) for worker in workers]
    try:
        yield
    finally:
        stopping.set()
        done, late = await asyncio.wait(tasks, timeout=END_S_MAX)
        for task in late:
            task.cancel()
            record.violated("a writer never had its answer")
        for task in done:
            if (error := task.exception()) is not None:
                code = getattr(error, "code", "")
                record.violated(f"a writer was refused: {type(error).__name__} {code}")


async def _round(
    ground: Ground, record: Record, one: Round, probes: Sequence[MemoryClient], number: str
) -> float:
    """Carry out a round; returns how long it took from the last healing to writes and reads."""
    rng = random.Random(number)
    record.excuse(one.companion.excuses)
    await one.companion.inflict(ground, rng)
    await asyncio.sleep(one.kill_after_s)
    await one.kill.inflict(ground, rng)
    await asyncio.sleep(one.hold_s - one.kill_after_s)
    await one.companion.heal(ground, rng)
    healed = time.monotonic()
    await one.kill.heal(ground, rng)
    for client in probes:
        while not await probe(client, number):
            assert time.monotonic() < healed + START_S_MAX, f"no recovery from {one}"
            await asyncio.sleep(PROBE_S)
    took_s = time.monotonic() - healed
    record.excuse(frozenset())
    await asyncio.sleep(one.settle_s)
    return took_s


async def _proven(
    ground: Ground,
    record: Record,
    accounts: Sequence[dict[str, Any]],
    ledgers: Sequence[Ledger],
) -> None:
    record.violations += await quiet(ground, accounts)
    for n, account in enumerate(accounts):
        own = ledgers[n * WRITERS_OF_AN_ACCOUNT :][:WRITERS_OF_AN_ACCOUNT]
        record.violations += await proven(ground, account, own)
    report = await asyncio.to_thread(ground.relayers[0].command, "check")
    record.violations += [f"relayer check: {problem['problem']}" for problem in report["problems"]]
