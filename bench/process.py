"""What a serving process takes: memory with the embedder, time to start, cold and warm.

Not here: requests a second (`signing.py`, `clients.py`).

- Memory is what one process of the relayer keeps resident once, after 200 recalls, without what
  PostgreSQL's processes take.
- A start is from the command to its ready line, PostgreSQL's included. Cold: a new data folder,
  whose database is made and migrated. Warm: the same folder again.
"""

import tempfile
from pathlib import Path
from typing import Final

from bench.figures import Bounds, Figure, Report, in_turn, share
from bench.filling import Filler
from bench.recall import median_ms
from bench.running import Scale, Site, relayer_in
from bench.sentences import Questions

RECALLS: Final = 200
MEMORIES: Final = 1_000
MEMORY: Final = Bounds(must=350.0, aim=220.0)  # MB
START: Final = Bounds(must=4.0, aim=2.0)


async def measure(site: Site, scale: Scale) -> Report:
    """The part's report."""
    recalls, memories = (10, 50) if scale.quick else (RECALLS, MEMORIES)
    resident = await _resident_mb(site, recalls, memories)
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


async def _start_s(folder: Path) -> float:
    async with relayer_in(folder) as process:
        return process.ready_s
