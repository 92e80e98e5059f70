"""A fact that a memory stands for: one that is gone sooner, or is worth less, swallows nothing."""

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from relayer.upkeep.check import check
from tests.chains import assert_chain_holds
from tests.editing import writer
from tests.openai_server import OpenAIServer
from tests.services import Bench
from tests.talking import OSLO, analyze, choose, facts
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures

PORT = "The API gateway uses port 8443."
SAID = f"1. user: For good: {PORT} I live in Oslo."
DAY_S = 86400


@pytest.mark.parametrize(
    ("known", "kind"),
    [
        (PORT, "fact"),
        (PORT, "working"),
        (PORT, "decision"),
        ("the API gateway uses port 8443", "fact"),
    ],
)
async def test_a_memory_that_ends_does_not_take_a_lasting_fact_along(
    thinking: Bench, server: OpenAIServer, known: str, kind: str
) -> None:
    caller = await choose(thinking, await writer(thinking), keep_turns=True)
    ends = thinking.clock() + timedelta(seconds=DAY_S)
    await thinking.remember(caller, known, kind=kind, expires_at=ends)
    thinking.clock.advance(60)
    server.script(facts(PORT, OSLO))
    analyzed = await analyze(thinking, caller, SAID)
    thinking.clock.advance(DAY_S + 1)
    await thinking.services.expiry.expire()
    [text] = await thinking.texts(caller, "API gateway port")
    assert text == known
    assert await thinking.value("SELECT count(*) FROM episodes") == 1
    assert analyzed.kept is not None
    await assert_chain_holds(thinking, caller.access.account)
    assert (await check(thinking.storage)).problems == []


@pytest.mark.parametrize("less", [{"importance": "trivial"}, {"confidence": "low"}])
async def test_a_memory_that_is_worth_less_is_not_taken_for_it(
    thinking: Bench, server: OpenAIServer, less: dict[str, str]
) -> None:
    caller = await writer(thinking)
    [known] = await thinking.remember(caller, "the API gateway uses port 8443", **less)
    server.script(facts(PORT), facts(PORT))
    [fact] = (await analyze(thinking, caller, SAID)).facts
    assert (fact.importance, fact.confidence) == ("standard", "high")
    again = await analyze(thinking, caller, SAID)
    assert (list(again.reinforced), fact.id != known.id) == ([fact.id], True)


async def test_what_ends_while_it_is_thought_about_is_said_by_nobody_then(
    thinking: Bench, server: OpenAIServer
) -> None:
    caller = await writer(thinking)
    ends = thinking.clock() + timedelta(seconds=60)
    await thinking.remember(caller, "the API gateway uses port 8443", expires_at=ends)
    answered = threading.Event()
    server.script(replace(facts(PORT), held=answered))
    task = asyncio.create_task(analyze(thinking, caller, SAID))
    while not server.received:
        await asyncio.sleep(0.01)
    thinking.clock.advance(61)
    answered.set()
    [fact] = (await task).facts
    assert await thinking.texts(caller, "API gateway port") == [PORT]
    assert not fact.duplicate


async def test_nor_one_that_is_over_by_the_time_of_another_relayer(bench: Bench) -> None:
    """Its clock is ahead, and the account's changes have their times in order."""
    caller = await writer(bench)
    soon, later = (bench.clock() + timedelta(seconds=s) for s in (10, DAY_S))
    [over] = await bench.remember(caller, PORT, expires_at=soon)
    bench.clock.advance(20)
    await bench.remember(caller, OSLO)
    bench.clock.advance(-20)
    [anew] = await bench.remember(caller, PORT, expires_at=later)
    assert (anew.duplicate, anew.id != over.id) == (False, True)
    assert (await bench.services.memory.get(caller, anew.id)).expires_at == later
    await assert_chain_holds(bench, caller.access.account)
    assert (await check(bench.storage)).problems == []
