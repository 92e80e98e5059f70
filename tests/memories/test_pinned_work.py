"""What is for the work at hand and was pinned: it lives until somebody said it should not."""

from datetime import datetime, timedelta

import msgspec
import pytest

from relayer.memories.opener import Caller
from relayer.memories.recognition import Stored
from relayer.routes.memories import MemoryFields, draft_of
from relayer.upkeep.rebuild import REBUILT
from tests.consolidating import consolidated, holds
from tests.editing import edit, writer
from tests.moving import here, moved, there
from tests.rebuilding import Lose, bench, completed, lose, rebuilt
from tests.services import TEAM, Bench
from tests.talking import change

__all__ = ["bench", "here", "lose", "there"]  # fixtures

TWICE = "The migration must be run twice."
LIVES = "SELECT expires_at FROM memories WHERE revision_of IS NULL"
DAY = timedelta(hours=24)  # as long as the default life
HALVES = [True, False]  # asked for, or not


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
    assert await pinned(bench, caller, memory) == until
    bench.clock.advance(10 * 3600)
    await bench.services.expiry.expire()
    assert await bench.value("SELECT count(*) FROM memories") == 0


async def pinned(bench: Bench, caller: Caller, memory: Stored) -> datetime | None:
    """When a memory ends that is pinned now."""
    await change(bench, caller, memory.id, pinned=True)
    return (await bench.services.memory.get(caller, memory.id)).expires_at


@pytest.mark.parametrize("asked", HALVES)
async def test_a_day_that_was_asked_for_is_none_by_default(bench: Bench, asked: bool) -> None:
    caller = await writer(bench)
    until = bench.clock() + DAY
    memory = await working(bench, caller, until if asked else None)
    assert await bench.value(LIVES) == until, "either way"
    assert await pinned(bench, caller, memory) == (until if asked else None)


@pytest.mark.parametrize("asked", HALVES)
async def test_said_again_it_has_the_end_that_was_said_last(bench: Bench, asked: bool) -> None:
    caller = await writer(bench)
    memory = await working(bench, caller, None if asked else bench.clock() + DAY)
    until = bench.clock() + DAY
    await working(bench, caller, until if asked else None)
    assert await bench.value(LIVES) == until
    assert await pinned(bench, caller, memory) == (until if asked else None)


async def test_who_asks_for_the_end_that_it_has_anyway_gets_it(bench: Bench) -> None:
    caller = await writer(bench)
    until = bench.clock() + DAY
    memory = await working(bench, caller)
    assert (await working(bench, caller, until)).duplicate
    assert await pinned(bench, caller, memory) == until


@pytest.mark.parametrize("asked", HALVES)
async def test_of_one_request_that_says_it_twice(bench: Bench, asked: bool) -> None:
    caller = await writer(bench)
    until = bench.clock() + DAY
    bodies = [
        MemoryFields(text=TWICE, kind="working", namespace=TEAM, expires_at=end)
        for end in (None, until if asked else None)
    ]
    drafts = [draft_of(body, bytes_max=1000, now=bench.clock()) for body in bodies]
    first, _ = (await bench.stored(caller, drafts)).items
    assert await pinned(bench, caller, first) == (until if asked else None)


@pytest.mark.parametrize("asked", HALVES)
async def test_an_edit_keeps_what_was_asked_for(bench: Bench, asked: bool) -> None:
    caller = await writer(bench)
    until = bench.clock() + DAY
    memory = await working(bench, caller, until if asked else None)
    await edit(bench, caller, memory.id, text="The migration must be run thrice.")
    assert await pinned(bench, caller, memory) == (until if asked else None)
    await holds(bench, caller)


async def test_an_edit_asks_for_it(bench: Bench) -> None:
    """Also for the very end that it had."""
    caller = await writer(bench)
    until = bench.clock() + DAY
    memory = await working(bench, caller)
    edited = await edit(bench, caller, memory.id, expires_at=until)
    assert edited.revision == 2
    assert await pinned(bench, caller, memory) == until


@pytest.mark.parametrize("asked", HALVES)
@pytest.mark.parametrize("happens", ["nothing", "said again", "flagged", "edited"])
async def test_a_rebuilt_relayer_knows_it(
    bench: Bench, lose: Lose, asked: bool, happens: str
) -> None:
    founder = await bench.account()
    caller = await bench.unlocked(founder, TEAM)
    until = bench.clock() + DAY
    memory = await working(bench, caller, until if asked else None)
    if happens == "said again":
        until = bench.clock() + DAY
        await working(bench, caller, until if asked else None)
    elif happens == "flagged":
        await change(bench, caller, memory.id, stale=True)
    elif happens == "edited":
        await edit(bench, caller, memory.id, text="The migration must be run thrice.")
    lost = await lose(bench)
    assert await rebuilt(lost, bench) == [REBUILT]
    caller = await lost.unlocked(founder, TEAM, hold_s=300)
    await completed(lost, founder)
    assert await pinned(lost, caller, memory) == (until if asked else None)


@pytest.mark.parametrize("asked", HALVES)
async def test_the_next_relayer_knows_it(here: Bench, there: Bench, asked: bool) -> None:
    founder = await here.account()
    caller = await here.caller(founder)
    until = here.clock() + DAY
    memory = await working(here, caller, until if asked else None)
    await edit(here, caller, memory.id, text="The migration must be run thrice.")
    arrival = await moved(here, there, founder)
    said = [msgspec.to_builtins(row) for row in arrival.memories]
    assert [row.get("default_life") for row in said] == [None if asked else True] * 2
    caller = await there.unlocked(founder, TEAM)
    assert await pinned(there, caller, memory) == (until if asked else None)
