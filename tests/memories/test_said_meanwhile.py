"""A memory that is said again while a model thinks about it, or by several at once."""

import asyncio
import threading
from dataclasses import replace

import pytest

from tests.editing import writer
from tests.openai_server import OpenAIServer
from tests.racing import race
from tests.services import Bench
from tests.talking import AWAY, BERLIN, MUNICH, analyze, facts, waiting
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures

MOVED = "1. user: I moved to Munich."


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("before", [True, False])
async def test_what_is_older_by_then_does_not_supersede_it(
    thinking: Bench, server: OpenAIServer, waits: bool, before: bool
) -> None:
    caller = await writer(thinking)
    [old] = await thinking.remember(caller, BERLIN)
    thinking.clock.advance(60)
    if before:
        await thinking.remember(caller, BERLIN)
        thinking.clock.advance(60)
    turn = None
    if waits:
        server.script(AWAY)
        turn = (await analyze(thinking, caller, MOVED)).pending
    answered = threading.Event()
    server.script(replace(facts(MUNICH, contradicts=1), held=answered))
    asked = len(server.received)
    work = (
        analyze(thinking, caller, MOVED)
        if turn is None
        else thinking.services.analysis.extract_episode(caller.access.account, caller.keys, turn)
    )
    task = asyncio.ensure_future(work)
    while len(server.received) == asked:
        await asyncio.sleep(0.01)
    if not before:
        thinking.clock.advance(60)
        [again] = await thinking.remember(caller, BERLIN)
        assert again.id == old.id
    answered.set()
    await task
    stay = [MUNICH] if before else [BERLIN, MUNICH]
    assert sorted(await thinking.texts(caller, "user lives")) == stay
    assert [found.reason for found in await waiting(thinking, caller)] == (
        [] if before else ["contradiction"]
    )


async def test_of_equal_conversations_at_once_one_has_the_fact(bench: Bench) -> None:
    """The others answer what they would one after the other."""
    caller = await writer(bench)
    await bench.remember(caller, BERLIN)
    same = [analyze(bench, caller, "1. I prefer window seats on trains.") for _ in range(3)]
    found = await race(bench, caller.access.account, *same)
    [fact] = [fact for one in found for fact in one.facts]
    assert [list(one.reinforced) for one in found if not one.facts] == [[fact.id], [fact.id]]
    assert not fact.duplicate
    assert (await bench.services.memory.get(caller, fact.id)).seen_count == 3
