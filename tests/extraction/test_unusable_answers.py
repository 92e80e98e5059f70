"""Answers of a model that are of no use: the turn waits without its secrets, and is not lost."""

import pytest

from tests.extraction.scripted import (
    TALK,
    TOKEN,
    analyze,
    answer,
    bench,
    memories,
    server,
    shown,
    silent,
)
from tests.openai_server import OpenAIServer, Step
from tests.services import Bench

__all__ = ["bench", "server", "silent"]  # fixtures

USELESS = [
    Step(refusal="I cannot help with that."),
    Step(content='{"facts": [{"text": "The user pref', finish_reason="length"),
    Step(content='{"facts": [{"text": "The user pref'),
    Step(content="I would rather talk about the weather."),
    Step(content='{"error": "no facts"}'),
    Step(content="<think>The user prefers window seats, so"),
    Step(content=""),
]


@pytest.mark.parametrize("useless", USELESS, ids=lambda step: str(step.refusal or step.content))
async def test_a_refused_cut_or_useless_answer_stores_nothing_and_loses_nothing(
    useless: Step, bench: Bench, server: OpenAIServer
) -> None:
    """capability 2.17: the turn waits, is asked about again, and the rules have the last word."""
    caller = await bench.caller(await bench.account())
    server.script(useless, useless)  # of the request, and once more
    analyzed = await analyze(bench, caller, TALK)
    assert await memories(bench, caller) == []
    assert analyzed.pending is not None
    extract = bench.services.analysis.extract_episode
    await extract(caller.access.account, caller.keys, analyzed.pending)
    assert [m.text for m in await memories(bench, caller)] == [
        "I prefer window seats on trains.",
        "We decided to launch in May.",
    ]


async def test_secrets_of_a_waiting_turn_are_redacted_before_it_is_kept(
    bench: Bench, server: OpenAIServer
) -> None:
    caller = await bench.caller(await bench.account())
    server.script(Step(status=401), answer())
    waiting = await analyze(bench, caller, f"1. user: My token is {TOKEN}, launch in May.")
    assert waiting.pending is not None
    await bench.services.analysis.extract_episode(
        caller.access.account, caller.keys, waiting.pending
    )
    assert "[redacted:github-token]" in shown(server)[-1]
    assert all(TOKEN.encode() not in request.body for request in server.received)
