"""What is forgotten while something else is about to write it stays forgotten, in either order.

The locks that both take are held until both have been seen to wait for them.
"""

import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from relayer.errors import NotFound
from relayer.memories.deletion import Forgotten
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from relayer.sealed import envelope
from relayer.sealed.keys import AccountId
from relayer.sealed.primitives import CryptoError
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds
from tests.consolidating import CUSTODIES, MEETINGS, always, happened, ops, week
from tests.erasing import LEFT, living
from tests.moving import EMPTY, here, moved, packed, there
from tests.openai_server import OpenAIServer
from tests.racing import race
from tests.rotator import all_bytes, epochs, rotator
from tests.services import TEAM, Bench
from tests.talking import AWAY, analyze, choose, facts
from tests.thinking import model, server, thinking

__all__ = ["here", "model", "server", "there", "thinking"]  # fixtures

TURN = "1. user: I prefer window seats on trains."
either_order = pytest.mark.parametrize(
    "forget_first", [True, False], ids=["forget-first", "forget-last"]
)


async def forget_against(
    bench: Bench, caller: Caller, doomed: uuid.UUID, other: Awaitable[Any], *, forget_first: bool
) -> tuple[Any, Any]:
    """What became of forgetting, and of the other."""
    forget = bench.services.deletion.forget(caller.access, doomed)
    if forget_first:
        forgotten, done = await race(bench, caller.access.account, forget, other)
    else:
        done, forgotten = await race(bench, caller.access.account, other, forget)
    return forgotten, done


async def is_gone(bench: Bench, account: AccountId, *doomed: uuid.UUID) -> None:
    """No row, word, vector or byte speaks of them, and all that is left agrees."""
    bench.clock.advance(120)  # bytes that were just replaced live a little longer
    await bench.storage.outbox.empty()
    assert not await living(bench) & set(doomed)
    for data in (await all_bytes(bench, account)).values():
        assert spoken_of(data) not in doomed
    assert (await check(bench.storage)).problems == []
    await assert_chain_holds(bench, account)


def spoken_of(data: bytes) -> uuid.UUID | None:
    try:
        return envelope.read_header(data).address.memory
    except CryptoError:
        return None


@either_order
async def test_a_page_that_is_imported(here: Bench, there: Bench, forget_first: bool) -> None:
    """It has a later revision of what is forgotten here."""
    founder = await here.account()
    caller = await here.caller(founder)
    doomed, other = await here.remember(caller, "Anna prefers tea.", "Ben sells cups.")
    await moved(here, there, founder)
    edit = Edit(changes={"text": "Anna prefers coffee."})
    await here.services.reviser.edit(caller, doomed.id, edit)
    page = replace(EMPTY, memories=(await packed(here, caller)).memories)
    at_home = await there.caller(founder)
    coming = there.services.importer.take_in(at_home.access, page)
    forgotten, done = await forget_against(
        there, at_home, doomed.id, coming, forget_first=forget_first
    )
    assert isinstance(forgotten, Forgotten)
    assert dict(done.results)[doomed.id] == ("erased" if forget_first else "imported")
    assert await living(there) == {other.id}
    await is_gone(there, founder.account, doomed.id)


@either_order
@pytest.mark.parametrize("custody", CUSTODIES)
async def test_a_page_that_is_sealed_anew(bench: Bench, custody: str, forget_first: bool) -> None:
    owner = await rotator(bench, custody)
    account = owner.owner.account
    doomed, other = await bench.remember(
        await owner.caller(), "Anna prefers tea.", "Ben sells cups."
    )
    await owner.rotate(reseal="all")
    caller = await owner.caller(hold_s=300)
    keys = await bench.storage.custody.reseal_keys(account)
    assert keys is not None
    # Naming the new key takes the account's lock as well, and would be what waits.
    await bench.storage.namespaces.ensure(caller.access, keys.of(TEAM)[0], by=None)
    sealing = bench.services.resealer.work(account, keys, always)
    forgotten, done = await forget_against(
        bench, caller, doomed.id, sealing, forget_first=forget_first
    )
    assert isinstance(forgotten, Forgotten)
    assert done is True
    order = ["forget", "reseal"] if forget_first else ["reseal", "forget"]
    assert (await ops(bench, caller))[-2:] == order
    assert await living(bench) == {other.id}
    assert await epochs(bench) == {2: 1}
    await is_gone(bench, account, doomed.id)


@either_order
async def test_a_vector_that_comes_late(hybrid: Bench, forget_first: bool) -> None:
    caller = await hybrid.caller(await hybrid.account())
    [doomed] = await hybrid.remember(caller, "Anna prefers tea.")
    embedding = hybrid.embed(caller, [doomed])
    forgotten, done = await forget_against(
        hybrid, caller, doomed.id, embedding, forget_first=forget_first
    )
    assert isinstance(forgotten, Forgotten)
    assert done is None
    assert await hybrid.value(LEFT) == 0
    await is_gone(hybrid, caller.access.account, doomed.id)


@either_order
async def test_facts_of_a_turn_that_waited(
    thinking: Bench, server: OpenAIServer, forget_first: bool
) -> None:
    """Once its facts are stored they are memories, and there is no turn to be forgotten."""
    caller = await thinking.caller(await thinking.account())
    account = caller.access.account
    server.script(AWAY, facts("The user prefers window seats."))
    turn = (await analyze(thinking, caller, TURN)).pending
    assert turn is not None
    extraction = thinking.services.analysis.extract_episode(account, caller.keys, turn)
    forgotten, done = await forget_against(
        thinking, caller, turn, extraction, forget_first=forget_first
    )
    assert isinstance(done, NotFound) is forget_first
    assert isinstance(forgotten, NotFound) is not forget_first
    erased = forgotten.erased if isinstance(forgotten, Forgotten) else 0
    assert (erased, len(await living(thinking))) == ((1, 0) if forget_first else (0, 1))
    await is_gone(thinking, account, turn)


@either_order
async def test_facts_of_a_kept_turn_that_goes_with_one_of_them(
    thinking: Bench, server: OpenAIServer, forget_first: bool
) -> None:
    """The turn is analyzed again, and says the same."""
    founder = await thinking.account()
    caller = await choose(thinking, await thinking.caller(founder), keep_turns=True)
    said = facts("The user prefers window seats.")
    server.script(said, said)
    analyzed = await analyze(thinking, caller, TURN)
    assert analyzed.kept is not None
    [fact] = analyzed.facts
    again = thinking.services.analysis.again(caller, analyzed.kept)
    forgotten, done = await forget_against(
        thinking, caller, fact.id, again, forget_first=forget_first
    )
    assert isinstance(forgotten, Forgotten)
    assert isinstance(done, NotFound) or not done.facts
    assert await thinking.value(LEFT) == 0
    await is_gone(thinking, founder.account, fact.id, analyzed.kept)


@either_order
@pytest.mark.parametrize("custody", CUSTODIES)
async def test_a_summary_of_it(bench: Bench, custody: str, forget_first: bool) -> None:
    founder = await bench.account(custody)
    caller = await bench.unlocked(founder, TEAM)
    doomed, *others = await happened(bench, caller, *MEETINGS, day=week(bench))
    run = await bench.services.runs.start(caller, TEAM)
    summarising = bench.services.consolidator.work(
        founder.account, caller.keys, run["run_id"], always
    )
    forgotten, done = await forget_against(
        bench, caller, doomed.id, summarising, forget_first=forget_first
    )
    assert isinstance(forgotten, Forgotten)
    assert done is True
    assert forgotten.erased == (1 if forget_first else 2)
    assert await living(bench) == {other.id for other in others}
    await is_gone(bench, founder.account, doomed.id, *made_by(await bench.sql(MADE)))


MADE = "SELECT memory_id FROM consolidation_actions"


def made_by(rows: Sequence[Any]) -> list[uuid.UUID]:
    return [row["memory_id"] for row in rows]
