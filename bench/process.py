"""What a serving process takes: memory with the embedder, time to start, cold and warm.

Not here: requests a second (`signing.py`, `clients.py`).

- Memory is what one process of the relayer keeps resident once, after 200 recalls, without what
  PostgreSQL's processes take.
- With four workers, eight clients at a time recall elsewhere, and then in one large namespace until
  it is in memory. Pages that processes share count once.
- A start is from the command to its ready line, PostgreSQL's included. Cold: a new data folder,
  whose database is made and migrated. Warm: the same folder again.
"""

import contextlib
import tempfile
from pathlib import Path
from typing import Final

from bench.figures import Bounds, Figure, Report, compared, in_turn, share
from bench.filling import Filler
from bench.recall import median_ms
from bench.running import Account, Process, Scale, Site, relayer_in
from bench.sentences import Questions

RECALLS: Final = 200
MEMORIES: Final = 1_000
WORKERS: Final = 4
CLIENTS: Final = 8
ASKED: Final = 6  # recalls of each: also where each worker would hold the namespace, it has it then
MEMORY: Final = Bounds(must=350.0, aim=220.0)  # MB
OF_WORKERS: Final = Bounds(must=1.5, aim=1.2)
START: Final = Bounds(must=4.0, aim=2.0)


async def measure(site: Site, scale: Scale) -> Report:
    """The part's report."""
    recalls, memories = (10, 50) if scale.quick else (RECALLS, MEMORIES)
    resident = await _resident_mb(site, recalls, memories)
    grown = await _grown(site, scale)
    cold: list[float] = []
    warm: list[float] = []

    async def starts() -> float:
        with tempfile.TemporaryDirectory(prefix="memrelay-bench-") as name:
            folder = Path(name)
            cold.append(await _start_s(folder))
            warm.append(await _start_s(folder))
        return warm[-1]

    await in_turn(scale.rounds, starts)
    name = f"resident after {recalls} recalls, once, without PostgreSQL"
    return Report(
        [
            Figure(name=name, value=resident, unit="MB", bounds=MEMORY),
            *grown,
            Figure(name="warm start to ready", value=share(warm, 0.5), unit="s", bounds=START),
            Figure(name="cold start to ready", value=share(cold, 0.5), unit="s"),
        ]
    )


async def _resident_mb(site: Site, recalls: int, memories: int) -> float:
    account, namespace = await site.new_account(), "team"
    await Filler(site).fill(account, namespace, memories)
    async with site.relayer() as process, site.client(process, account) as client:
        await median_ms(client, namespace, Questions(), recalls)
        return process.resident_mb


async def _grown(site: Site, scale: Scale) -> list[Figure]:
    """Return the memory of four workers against one process, in all and for an index."""
    account, namespace = await site.new_account(), "team"
    filled = await Filler(site).fill(account, namespace, 200 if scale.quick else scale.largest)
    before, after = list[float](), list[float]()
    asked = 1 if scale.quick else ASKED
    several = 2 if scale.quick else WORKERS
    for workers in (1, several):
        async with site.replica("--workers", str(workers)) as process:
            await _ask(site, process, account, "elsewhere", asked)
            before.append(process.proportional_mb)
            await _ask(site, process, account, namespace, asked)
            after.append(process.proportional_mb)
    of = f"{len(filled.ids):,} memories"
    one, all_of_them = (after[n] - before[n] for n in range(2))
    figures = [
        compared(
            f"all memory after recalls among {of}, {several} workers",
            *("MB", [after[1]], "one process", [after[0]], OF_WORKERS),
        )
    ]
    if min(one, all_of_them) > 0:  # what a few memories add is less than what comes and goes
        adding = f"memory that recalls among {of} add, {several} workers"
        figures.append(
            compared(adding, "MB", [all_of_them], "one process", [one], OF_WORKERS),
        )
    return figures


async def _ask(site: Site, process: Process, account: Account, namespace: str, times: int) -> None:
    for _ in range(times):
        async with contextlib.AsyncExitStack() as held:
            for _ in range(CLIENTS):
                client = await held.enter_async_context(site.client(process, account))
                await client.recall("What is there?", namespace=namespace)


async def _start_s(folder: Path) -> float:
    async with relayer_in(folder) as process:
        return process.ready_s
