"""A namespace of 1,000 inside a large database against the same namespace alone.

Not here: large namespaces (`recall.py`).

- The large database is filled directly, `--rows` memories of 1,000 accounts; the small one holds
  the one account. Each has a server and two relayers of its own, one that answers from its index in
  memory and one from the database, and all are asked in turn.
"""

import contextlib
import time
from functools import partial
from typing import Final

from bench.figures import Bounds, Figure, Measure, Report, compared, in_turn
from bench.filling import Filler
from bench.recall import median_ms
from bench.running import FROM_DATABASE, Account, Scale, Site, site
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
        report.figures[:0] = await _compared(small, alone, large, inside, scale.rounds, each)
    return report


async def _compared(
    small: Site, alone: Account, large: Site, inside: Account, rounds: int, each: int
) -> list[Figure]:
    questions = Questions()
    async with contextlib.AsyncExitStack() as stack:

        async def of(place: Site, account: Account, *options: str) -> Measure:
            """Recalls of an account's namespace through a relayer of its own."""
            started = place.replica(*options) if options else place.relayer()
            relayer = await stack.enter_async_context(started)
            client = await stack.enter_async_context(place.client(relayer, account))
            return partial(median_ms, client, NAMESPACE, questions, each)

        measures = [
            await of(place, account, *options)
            for options in ((), FROM_DATABASE)
            for place, account in ((small, alone), (large, inside))
        ]
        await in_turn(1, *measures)
        alone_kept, inside_kept, alone_read, inside_read = await in_turn(rounds, *measures)
    kept = "recall inside, from the index in memory, p50"
    read = "recall inside, from the database, p50"
    return [
        compared(kept, "ms", inside_kept, "recall alone", alone_kept, INSIDE),
        compared(read, "ms", inside_read, "recall alone", alone_read),
    ]


async def _filled(place: Site, memories: int) -> Account:
    account = await place.new_account()
    await Filler(place).fill(account, NAMESPACE, memories)
    return account


async def _bytes(place: Site) -> int:
    row = await place.storage.database.fetchrow(_BYTES)
    assert row is not None
    return int(row[0])
