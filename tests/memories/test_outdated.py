"""Summaries and procedures of memories that were edited, rejected or superseded since."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from relayer.memories.opener import Caller
from relayer.memories.recognition import Stored
from tests.consolidating import (
    CUSTODIES,
    MEETINGS,
    RELEASE,
    caller_of,
    consolidated,
    happened,
    holds,
    ops,
    said,
    week,
)
from tests.editing import edit
from tests.openai_server import OpenAIServer
from tests.services import Bench
from tests.talking import analyze, change, facts
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures

ROOF = "Anna told the landlord that the roof is hers."
Outdate = Callable[[Bench, Caller, Stored], Awaitable[Any]]


async def edited(bench: Bench, caller: Caller, episode: Stored) -> None:
    await edit(bench, caller, episode.id, text="Anna told the landlord nothing.")


async def rejected(bench: Bench, caller: Caller, episode: Stored) -> None:
    await change(bench, caller, episode.id, review="rejected")


async def superseded(bench: Bench, caller: Caller, episode: Stored) -> None:
    [newer] = await said(bench, caller, "It is the neighbour's house.")
    await change(bench, caller, episode.id, superseded_by=newer.id)


outdating = pytest.mark.parametrize("outdate", [edited, rejected, superseded])


async def summarised(bench: Bench, caller: Caller) -> tuple[Stored, Any]:
    """An episode and the summary of its week, of six."""
    episodes = await happened(bench, caller, *MEETINGS, ROOF, day=week(bench))
    _, [action] = await consolidated(bench, caller)
    assert await texts_with_the_roof(bench, caller)
    bench.clock.advance(60)
    return episodes[-1], action["memory_id"]


async def texts_with_the_roof(bench: Bench, caller: Caller, **members: Any) -> list[str]:
    found = await bench.texts(caller, "landlord roof hers", mode="keyword", **members)
    return [text for text in found if text is not None and "hers" in text]


@outdating
@pytest.mark.parametrize("custody", CUSTODIES)
async def test_a_summary_goes_and_the_next_run_makes_another(
    hybrid: Bench, custody: str, outdate: Outdate
) -> None:
    caller = await caller_of(hybrid, custody)
    episode, first = await summarised(hybrid, caller)
    await outdate(hybrid, caller, episode)
    assert await texts_with_the_roof(hybrid, caller) == []
    assert (await ops(hybrid, caller))[-2] == "forget", "in one transaction with the change"
    run, [action] = await consolidated(hybrid, caller)
    assert (run["summaries"], action["memory_id"] == first) == (1, False)
    assert await texts_with_the_roof(hybrid, caller) == []
    assert (await consolidated(hybrid, caller))[0]["summaries"] == 0
    await holds(hybrid, caller)


async def test_it_is_made_anew_where_a_slip_was_taken_back(hybrid: Bench) -> None:
    caller = await caller_of(hybrid, "managed")
    episode, first = await summarised(hybrid, caller)
    await rejected(hybrid, caller, episode)
    await change(hybrid, caller, episode.id, review=None)
    run, [action] = await consolidated(hybrid, caller)
    assert (run["summaries"], action["memory_id"] == first) == (1, False)
    assert await texts_with_the_roof(hybrid, caller)
    await hybrid.services.deletion.forget(caller.access, action["memory_id"])
    assert (await consolidated(hybrid, caller))[0]["summaries"] == 0


async def test_it_is_made_anew_after_an_edit_by_a_clock_that_is_behind(hybrid: Bench) -> None:
    caller = await caller_of(hybrid, "managed")
    episode, _ = await summarised(hybrid, caller)
    hybrid.clock.advance(-70)
    await edited(hybrid, caller, episode)
    hybrid.clock.advance(70)
    assert (await consolidated(hybrid, caller))[0]["summaries"] == 1


@outdating
async def test_what_somebody_made_their_own_stays(hybrid: Bench, outdate: Outdate) -> None:
    caller = await caller_of(hybrid, "managed")
    episode, summary = await summarised(hybrid, caller)
    await change(hybrid, caller, summary, pinned=True)
    await outdate(hybrid, caller, episode)
    assert (await hybrid.services.memory.get(caller, summary)).state.pinned
    await holds(hybrid, caller)


async def test_a_merged_episode_is_said_by_another(hybrid: Bench) -> None:
    """What is merged is as true as before, and so is what was made of it."""
    caller = await caller_of(hybrid, "managed")
    _, summary = await summarised(hybrid, caller)
    day = week(hybrid) + timedelta(days=len(MEETINGS))
    await happened(hybrid, caller, ROOF.replace(".", ""), ROOF[:-1] + "!", day=day, apart_days=0)
    run, _ = await consolidated(hybrid, caller)
    assert run["merged"] > 0
    assert await hybrid.services.memory.get(caller, summary)


async def test_a_fact_that_wins_over_an_episode(thinking: Bench, server: OpenAIServer) -> None:
    caller = await caller_of(thinking, "managed")
    when = week(thinking)
    events = await thinking.remember(caller, *MEETINGS, kind="event", event_time=when)
    await consolidated(thinking, caller)
    count = "SELECT count(*) FROM memories WHERE kind = 'summary'"
    assert await thinking.value(count) == 1
    thinking.clock.advance(60)
    server.clear()
    server.script(facts("The landlord never came.", contradicts=2))
    analyzed = await analyze(thinking, caller, "1. user: Anna's landlord never came.")
    [[old]] = [fact.superseded for fact in analyzed.facts]
    assert old in [event.id for event in events]
    assert len(analyzed.others) == 2
    assert await thinking.value(count) == 0
    await holds(thinking, caller)


async def test_a_procedure_that_nobody_looked_at(hybrid: Bench) -> None:
    caller = await caller_of(hybrid, "managed")
    days = hybrid.clock() - timedelta(days=20)
    texts = [f"Release {n}. {RELEASE}" for n in "ABC"]
    episodes = await happened(hybrid, caller, *texts, day=days)
    _, [action] = await consolidated(hybrid, caller)
    hybrid.clock.advance(60)
    await edited(hybrid, caller, episodes[0])
    count = "SELECT count(*) FROM memories WHERE kind = 'procedural'"
    assert await hybrid.value(count) == 0
    await happened(hybrid, caller, f"Release D. {RELEASE}", day=days + timedelta(days=9))
    _, [action] = await consolidated(hybrid, caller)
    await change(hybrid, caller, action["memory_id"], review="rejected")
    hybrid.clock.advance(60)
    await edited(hybrid, caller, episodes[1])
    assert await hybrid.value(count) == 1, "rejected, it is to be known again"


async def test_a_summary_that_was_forgotten_is_of_other_words_then(hybrid: Bench) -> None:
    caller = await caller_of(hybrid, "managed")
    episode, summary = await summarised(hybrid, caller)
    await hybrid.services.deletion.forget(caller.access, summary)
    assert (await consolidated(hybrid, caller))[0]["summaries"] == 0
    await edited(hybrid, caller, episode)
    assert (await consolidated(hybrid, caller))[0]["summaries"] == 1
