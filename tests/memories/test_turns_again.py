"""A conversation that is kept and is said once more, while the language model is away."""

import pytest

from relayer.upkeep.check import check
from tests.chains import assert_chain_holds
from tests.editing import writer
from tests.openai_server import OpenAIServer
from tests.services import TEAM, Bench
from tests.talking import AWAY, BERLIN, MUNICH, analyze, choose, facts
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures

HOME, MOVED = "1. user: I live in Berlin.", "1. user: I moved to Munich."


@pytest.mark.parametrize("keep_turns", [True, False])
async def test_its_facts_are_taken_once_more(
    thinking: Bench, server: OpenAIServer, keep_turns: bool
) -> None:
    """What was accepted is never lost: it may have been said since something else held."""
    caller = await choose(thinking, await writer(thinking), keep_turns=True)
    server.script(facts(BERLIN))
    first = await analyze(thinking, caller, HOME)
    thinking.clock.advance(60)
    server.script(facts(MUNICH, contradicts=1))
    await analyze(thinking, caller, MOVED)
    thinking.clock.advance(60)
    server.script(AWAY, AWAY)
    waits = await analyze(thinking, caller, HOME)
    assert waits.pending not in (None, first.kept)
    assert (await analyze(thinking, caller, HOME)).pending == waits.pending  # equal ones are one
    jobs = "SELECT count(*) FROM pgqueuer WHERE entrypoint = 'extract'"
    assert await thinking.value(jobs) == 1
    caller = await choose(thinking, caller, keep_turns=keep_turns)
    server.script(facts(BERLIN, contradicts=1))
    assert waits.pending is not None
    await thinking.services.analysis.extract_episode(
        caller.access.account, caller.keys, waits.pending
    )
    assert await thinking.texts(caller, "user lives") == [BERLIN]
    turns = await thinking.services.episodes.newest(caller, [TEAM], limit=9)
    assert (len(turns), first.kept in [turn.id for turn in turns]) == (2 + keep_turns, True)
    server.script(facts(BERLIN))
    again = await analyze(thinking, caller, HOME)
    assert again.kept == (waits.pending if keep_turns else None)
    await assert_chain_holds(thinking, caller.access.account)
    assert (await check(thinking.storage)).problems == []
