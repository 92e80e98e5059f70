"""A namespace of 1,000 inside a large database against the same namespace alone.

Not here: large namespaces (`recall.py`).

- The large database is filled directly, `--rows` memories of 1,000 accounts; the small one holds
  the one account. Each has a server and a relayer of its own, and both are asked in turn.
"""

import time
from typing import Final

from bench.figures import Bounds, Figure, Report, compared, in_turn
from bench.filling import Filler
from bench.recall import median_ms
from bench.running import Account, Scale, Site, site
from bench.sentences import Questions

ACCOUNTS: Final = 1_000
ROWS_QUICK: Final = 200
MEMORIES: Final = 1_000
EACH: Final = 30
NAMESPACE: Final = "team"
INSIDE: Final = Bounds(must=1.3, aim=1.1)
_BYTES: Final = "SELECT pg_database_size(current_database())"


async def measure(large: Site, scale: Scale) -> Report:
    """The part's report; without rows only how to ask for it."""
    rows = ROWS_QUICK if scale.quick else scale.rows
    if not rows:
        return Report(notes=["left out; --rows 1000000 fills a database of that many memories"])
    memories, each, accounts = (50, 3, 4) if scale.quick else (MEMORIES, EACH, ACCOUNTS)
    report = Report()
    began = time.perf_counter()
    before = await _bytes(large)
    inside = await _filled(large, memories)
    filler = Filler(large)
    for _ in range(accounts):
        await filler.fill(await large.new_account(), NAMESPACE, max(1, rows // accounts))
    await filler.settle()
    taken = await _bytes(large) - before
    report.notes.append(f"filled {rows:,} memories in {time.perf_counter() - began:.0f} s")
    per_million = taken / 2**30 * 1_000_000 / (rows + memories)
    report.figures.append(Figure(name="database, a million memories", value=per_million, unit="GB"))
    async with site() as small:
        alone = await _filled(small, memories)
        await Filler(small).settle()
        report.figures.insert(0, await _compared(small, alone, large, inside, scale.rounds, each))
    return report


async def _compared(
    small: Site, alone: Account, large: Site, inside: Account, rounds: int, each: int
) -> Figure:
    questions = Questions()
    async with (
        small.relayer() as one,
        large.relayer() as other,
        small.client(one, alone) as client,
        large.client(other, inside) as client_inside,
    ):

        async def recalls_alone() -> float:
            return await median_ms(client, NAMESPACE, questions, each)

        async def recalls_inside() -> float:
            return await median_ms(client_inside, NAMESPACE, questions, each)

        await in_turn(1, recalls_alone, recalls_inside)
        found_alone, found_inside = await in_turn(rounds, recalls_alone, recalls_inside)
    name = "recall inside, p50"
    return compared(name, "ms", found_inside, "recall alone", found_alone, INSIDE)


async def _filled(place: Site, memories: int) -> Account:
    account = await place.new_account()
    await Filler(place).fill(account, NAMESPACE, memories)
    return account


async def _bytes(place: Site) -> int:
    row = await place.storage.database.fetchrow(_BYTES)
    assert row is not None
    return int(row[0])
