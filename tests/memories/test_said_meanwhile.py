"""A memory that is said again while a model thinks about what contradicts it."""

import asyncio
import threading
from dataclasses import replace

import pytest

from tests.editing import writer
from tests.openai_server import OpenAIServer
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
        else thinking.services.analysis.extract_turn(caller.access.account, caller.keys, turn)
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
