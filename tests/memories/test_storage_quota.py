"""The room of an account: what has expired leaves its own, and no model is paid without any."""

from datetime import timedelta

import pytest

from relayer.errors import QuotaExceeded
from relayer.llm import LanguageModel
from tests.conftest import BenchMaker
from tests.editing import writer
from tests.openai_server import OpenAIServer
from tests.talking import AWAY, analyze, facts
from tests.thinking import model, server

__all__ = ["model", "server"]  # fixtures

LONG = "word " * 20_000  # sealed, it takes more than half of the room
ROOM_BYTES = 150_000


async def test_what_has_expired_leaves_its_room_to_what_says_the_same(
    make_bench: BenchMaker,
) -> None:
    bench = make_bench(storage_bytes_max=ROOM_BYTES)
    caller = await writer(bench)
    await bench.remember(caller, LONG, expires_at=bench.clock() + timedelta(hours=1))
    with pytest.raises(QuotaExceeded):
        await bench.remember(caller, f"another {LONG}")
    bench.clock.advance(3601)
    with pytest.raises(QuotaExceeded):  # not that of others, before it is erased
        await bench.remember(caller, f"another {LONG}")
    [again] = await bench.remember(caller, LONG)
    assert not again.duplicate
    assert await bench.value("SELECT count(*) FROM memories") == 1
    assert await bench.value("SELECT storage_bytes FROM accounts") < ROOM_BYTES


async def test_no_model_is_asked_for_facts_that_hardly_fit(
    make_bench: BenchMaker, model: LanguageModel, server: OpenAIServer
) -> None:
    bench = make_bench(language_model=model, storage_bytes_max=ROOM_BYTES)
    caller = await writer(bench)
    server.script(AWAY)
    turn = (await analyze(bench, caller, "1. user: I moved house.")).pending
    assert turn is not None
    await bench.sql("UPDATE accounts SET storage_bytes = $1", ROOM_BYTES - 50_000)
    asked = len(server.received)
    server.script(facts(*(f"The user owns chair number {n} of the set." for n in range(20))))
    for _ in range(2):
        with pytest.raises(QuotaExceeded):
            await bench.services.analysis.extract_episode(caller.access.account, caller.keys, turn)
    assert len(server.received) == asked
    await bench.sql("UPDATE accounts SET storage_bytes = 1000")
    await bench.services.analysis.extract_episode(caller.access.account, caller.keys, turn)
    assert await bench.value("SELECT count(*) FROM memories") == 20
