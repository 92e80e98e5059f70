"""A language model that comes to no end with one conversation, or with any."""

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from relayer.errors import Unavailable
from relayer.llm import PATIENCE, LanguageModel
from relayer.memories.opener import Caller
from tests.conftest import BenchMaker
from tests.editing import writer
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, Step
from tests.services import Bench
from tests.talking import MUNICH, analyze, facts
from tests.thinking import server

__all__ = ["server"]  # a fixture

TIMEOUT_S = 0.7
SAID = "1. user: I prefer window seats on trains."
SEATS = "The user prefers window seats on trains."


@pytest_asyncio.fixture
async def hurried(make_bench: BenchMaker, server: OpenAIServer) -> AsyncIterator[Bench]:
    """A relayer whose model has little time."""
    model = LanguageModel(
        base_url=server.base_url, api_key=API_KEY, model=CHAT_MODEL, timeout_s=TIMEOUT_S
    )
    yield make_bench(language_model=model)
    await model.close()


async def waiting_turn(bench: Bench, caller: Caller, server: OpenAIServer) -> uuid.UUID:
    server.script(Step(hang=True))
    turn = (await analyze(bench, caller, SAID)).pending
    assert turn is not None
    return turn


@pytest.mark.parametrize("fails", [[Step(hang=True)], [Step(status=500)] * 2], ids=["slow", "500"])
async def test_what_only_one_conversation_does_to_it_is_left_to_the_rules(
    hurried: Bench, server: OpenAIServer, fails: list[Step]
) -> None:
    caller = await writer(hurried)
    turn = await waiting_turn(hurried, caller, server)
    server.script(*fails, facts())
    await hurried.services.analysis.extract_episode(caller.access.account, caller.keys, turn)
    assert await hurried.texts(caller, "window seats") == ["I prefer window seats on trains."]


@pytest.mark.parametrize(
    "fails", [[Step(hang=True)] * 2, [Step(status=500)] * 4, [Step(status=401)]]
)
async def test_an_outage_says_nothing_about_a_conversation(
    hurried: Bench, server: OpenAIServer, fails: list[Step]
) -> None:
    caller = await writer(hurried)
    turn = await waiting_turn(hurried, caller, server)
    for _ in range(2):
        server.script(*fails)
        with pytest.raises(Unavailable, match="not available"):
            await hurried.services.analysis.extract_episode(
                caller.access.account, caller.keys, turn
            )
        server.clear()  # how often it is asked again, its deadline says
    assert await hurried.value("SELECT state FROM episodes") == "pending"


async def test_where_no_request_waits_there_is_more_time(
    hurried: Bench, server: OpenAIServer
) -> None:
    caller = await writer(hurried)
    turn = await waiting_turn(hurried, caller, server)
    answered = threading.Event()
    server.script(replace(facts(SEATS), held=answered))
    account, keys = caller.access.account, caller.keys
    extracting = hurried.services.analysis.extract_episode(account, keys, turn)
    task = asyncio.ensure_future(extracting)
    await asyncio.sleep(TIMEOUT_S * PATIENCE / 2)
    answered.set()
    await task
    assert await hurried.texts(caller, "window seats") == [SEATS]


async def test_a_slow_model_lets_one_request_wait_and_no_other(
    make_bench: BenchMaker, server: OpenAIServer
) -> None:
    """`pending` comes at once, until a call shows that the model is quick again."""
    model = LanguageModel(
        base_url=server.base_url, api_key=API_KEY, model=CHAT_MODEL, timeout_s=0.7
    )
    bench = make_bench(language_model=model)
    caller = await writer(bench)
    turn = await waiting_turn(bench, caller, server)
    for n in range(3):
        said = f"1. user: I prefer seat number {n} on trains."
        assert (await analyze(bench, caller, said)).pending is not None
    assert len(server.received) == 1  # the first one's
    model._timeout_s = 60.0  # it answers from now on, and this machine may be slow
    server.script(facts(SEATS), facts(MUNICH))
    await bench.services.analysis.extract_episode(caller.access.account, caller.keys, turn)
    found = await analyze(bench, caller, "1. user: I live in Munich now.")
    assert [fact.text for fact in found.facts] == [MUNICH]
    await model.close()


async def test_a_model_that_may_take_minutes_makes_no_request_wait(
    make_bench: BenchMaker, server: OpenAIServer
) -> None:
    """The operator has raised its deadline: what it takes is found out where nobody waits."""
    model = LanguageModel(
        base_url=server.base_url, api_key=API_KEY, model=CHAT_MODEL, timeout_s=600
    )
    bench = make_bench(language_model=model)
    caller = await writer(bench)
    waiting = await analyze(bench, caller, SAID)
    assert (waiting.pending is not None, server.received) == (True, [])
    server.script(facts(SEATS))
    async with bench.working():
        await bench.until("SELECT count(*) FROM episodes WHERE state = 'done'", 1)
    assert await bench.texts(caller, "window seats") == [SEATS]
    server.script(facts(MUNICH))
    found = await analyze(bench, caller, "1. user: I live in Munich now.")
    assert [fact.text for fact in found.facts] == [MUNICH]
    await model.close()
