"""What is for the work at hand and was pinned: it lives until somebody said it should not."""

from datetime import datetime, timedelta

from relayer.memories.opening import Caller
from relayer.memories.recognition import Stored
from relayer.routes.memories import MemoryFields, draft_of
from relayer.upkeep.rebuild import REBUILT
from tests.consolidating import consolidated, holds
from tests.editing import writer
from tests.rebuilding import Lose, bench, completed, lose, rebuilt
from tests.services import TEAM, Bench
from tests.talking import change

__all__ = ["bench", "lose"]  # fixtures

TWICE = "The migration must be run twice."
LIVES = "SELECT expires_at FROM memories WHERE revision_of IS NULL"


async def working(
    bench: Bench, caller: Caller, until: datetime | None = None, text: str = TWICE
) -> Stored:
    """As a request remembers it, which is stored a moment later."""
    body = MemoryFields(text=text, kind="working", namespace=TEAM, expires_at=until)
    draft = draft_of(body, bytes_max=1000, now=bench.clock())
    bench.clock.advance(2)
    [stored] = (await bench.stored(caller, [draft])).items
    return stored


async def test_a_pin_takes_its_default_end_away(bench: Bench, lose: Lose) -> None:
    founder = await bench.account()
    caller = await bench.unlocked(founder, TEAM)
    memory = await working(bench, caller)
    bench.clock.advance(3600)
    await working(bench, caller)  # said again, and to be kept as much longer
    await change(bench, caller, memory.id, pinned=True)
    bench.clock.advance(26 * 3600)
    await bench.services.expiry.expire()
    assert (await bench.services.memory.get(caller, memory.id)).text == TWICE
    assert await bench.texts(caller, "migration", mode="keyword") == [TWICE]
    await change(bench, caller, memory.id, pinned=False)
    assert await bench.value(LIVES) is None, "it is not to go at the moment that it is unpinned"
    await holds(bench, caller)
    lost = await lose(bench)
    assert await rebuilt(lost, bench) == [REBUILT]
    await lost.unlocked(founder, TEAM, hold_s=300)
    await completed(lost, founder)
    assert [r["expires_at"] for r in await lost.sql(LIVES)] == [None]


async def test_so_does_that_of_one_into_which_an_older_one_was_merged(bench: Bench) -> None:
    caller = await writer(bench)
    await working(bench, caller)
    bench.clock.advance(3600)
    kept = await working(bench, caller, text="The migration must really be run twice.")
    _, [merge] = await consolidated(bench, caller)
    assert merge["memory_id"] == kept.id
    memory = await bench.services.memory.get(caller, kept.id)
    assert memory.last_seen_at == memory.created_at, "not when the older one was said"
    await change(bench, caller, kept.id, pinned=True)
    assert (await bench.services.memory.get(caller, kept.id)).expires_at is None


async def test_an_end_that_was_asked_for_stays(bench: Bench) -> None:
    caller = await writer(bench)
    until = bench.clock() + timedelta(hours=9)
    memory = await working(bench, caller, until)
    await change(bench, caller, memory.id, pinned=True)
    assert await bench.value(LIVES) == until
    bench.clock.advance(10 * 3600)
    await bench.services.expiry.expire()
    assert await bench.value("SELECT count(*) FROM memories") == 0
