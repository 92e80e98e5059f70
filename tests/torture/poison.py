"""A memory that ends every relayer which tries to embed it.

Not here: other faults (`faults.py`). It needs a minute, since a dead worker's job is nobody's for
ten seconds, and stands apart for that.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from memrelay import MemoryClient
from relayer.quarantine import TAKEN_MAX
from tests.torture.ground import Ground

WORD = "bitterroot"
ENDED_S_MAX = 240.0
TAKE_UP_S = 5.0
_IS_PARKED = "status = 'queued' AND execute_after > now() + interval '5 minutes'"
_PARKED = f"SELECT count(*) FROM pgqueuer WHERE entrypoint = 'embed' AND {_IS_PARKED}"
_TRY_AGAIN = f"UPDATE pgqueuer SET execute_after = now() WHERE {_IS_PARKED}"


async def poisoned(ground: Ground, client: MemoryClient) -> list[str]:
    """Store one through the first relayer, the only one meanwhile; what did not hold."""
    for relayer in ground.relayers[1:]:
        relayer.signal(signal.SIGTERM)
        await asyncio.to_thread(relayer.ended)
    kills = ground.kills
    ground.embedder.poison, ground.embedder.poisoned = WORD, lambda: _end(ground)
    stored = await client.remember(f"The {WORD} is in the cellar.", namespace="probe")
    deadline = time.monotonic() + ENDED_S_MAX
    while not await _value(ground, _PARKED):
        if time.monotonic() > deadline:
            return ["a job that ends its workers was never parked"]
        await ground.relayers[0].start()
        await asyncio.sleep(0.5)
    problems = await _others_go_on(ground, client, stored.id)
    if ground.kills - kills > 2 * TAKEN_MAX:
        problems.append("a job ended more workers than it may")
    ground.embedder.poison = None
    await ground.start_relayers()
    await _value(ground, _TRY_AGAIN)
    return problems


@asynccontextmanager
async def parked_taken_up(ground: Ground) -> AsyncIterator[None]:
    """Nobody waits for jobs over which killed relayers ended, again and again."""
    task = asyncio.create_task(_take_up_parked(ground))
    try:
        yield
    finally:
        task.cancel()


async def _take_up_parked(ground: Ground) -> None:
    while True:
        await _value(ground, _TRY_AGAIN)
        await asyncio.sleep(TAKE_UP_S)


async def _others_go_on(ground: Ground, client: MemoryClient, poisonous: str) -> list[str]:
    await ground.relayers[0].start()
    other = await client.remember("The cellar is dry.", namespace="probe")
    [state] = await client.wait([other.id], timeout_s=60)
    found = await client.recall(WORD, namespace="probe", mode="keyword")
    problems = [] if state.status == "done" else [f"another memory is {state.status}"]
    if poisonous not in {r.id for r in found.results}:
        problems.append("a memory without a vector is not found by its words")
    return problems


def _end(ground: Ground) -> None:
    if ground.relayers[0].alive:
        ground.relayers[0].kill()
        ground.kills += 1


async def _value(ground: Ground, statement: str) -> int:
    connection = await asyncpg.connect(await ground.database_url())
    try:
        return int(await connection.fetchval(statement) or 0)
    finally:
        await connection.close()
