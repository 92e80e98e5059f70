"""What a model is shown of what is known already, and what comes of a fact that contradicts it."""

from pathlib import Path

import httpx

from memrelay import SyncMemoryClient
from relayer.prompts import PROMPT_VERSIONS
from relayer.record import AGAINST
from tests.conftest import TestDatabase
from tests.extraction.scripted import (
    TALK,
    TEA,
    analyze,
    answer,
    bench,
    fact,
    memories,
    server,
    shown,
    silent,
)
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, Step
from tests.processes import running_relayer
from tests.services import TEAM, Bench

__all__ = ["bench", "server", "silent"]  # fixtures


async def test_a_contradiction_names_what_it_contradicts_and_overwrites_nothing(
    bench: Bench, server: OpenAIServer
) -> None:
    """capability 3.18: a fact that contradicts a memory names it, and overwrites nothing."""
    caller = await bench.caller(await bench.account())
    [old] = await bench.remember(caller, "The user lives in Berlin.")
    [tea] = await bench.remember(caller, TEA)
    move = "The user lives in Munich now, no longer in Berlin."
    known = [m.text for m in await memories(bench, caller)]
    server.script(answer(fact(move, contradicts=1)))
    await analyze(bench, caller, "1. user: Berlin is history, I moved to Munich.")
    listed = shown(server)[0].partition("<known_memories>\n1. ")[2].partition("\n")[0]
    assert listed in known
    every = await bench.services.memory.newest(caller, [TEAM], limit=100, state="all")
    stored = {m.text: m for m in every}
    assert set(stored) == {"The user lives in Berlin.", TEA, move}
    against = {"The user lives in Berlin.": old.id, TEA: tea.id}[listed]
    assert stored[move].metadata == {AGAINST: str(against)}
    assert stored["The user lives in Berlin."].metadata == stored[TEA].metadata == {}
    assert stored[listed].state.superseded_by == stored[move].id
    assert set(await bench.texts(caller, "lives Berlin tea")) == set(stored) - {listed}


def test_a_contradiction_through_the_wire(
    tmp_path: Path, model_dir: Path, fresh_database: TestDatabase, server: OpenAIServer
) -> None:
    """capability 3.18: a real client reads which memory a newer one contradicts."""
    with running_relayer(
        tmp_path,
        model_dir,
        database_url=fresh_database.url,
        OPENAI_BASE_URL=server.base_url,
        OPENAI_API_KEY=API_KEY,
        RELAYER_LLM_MODEL=CHAT_MODEL,
    ) as relayer:
        assert httpx.get(f"{relayer.url}/health").json()["prompt_versions"] == PROMPT_VERSIONS
        account = SyncMemoryClient.create_account(relayer.url, custody="sealed")
        with SyncMemoryClient(
            url=relayer.url,
            account_id=account.account_id,
            private_key=account.private_key,
            relayer_key=account.relayer_key,
            custody="sealed",
        ) as memory:
            old = memory.remember("The user lives in Berlin.", namespace="team")
            server.script(answer(fact("The user lives in Munich now.", contradicts=1)))
            memory.analyze("user: I moved to Munich.", namespace="team")
            found = memory.recall("Where does the user live?", namespace="team").results
    metadata = {result.text: dict(result.metadata or {}) for result in found}
    assert metadata == {"The user lives in Munich now.": {AGAINST: str(old.id)}}


async def test_windows_that_overlap_show_what_their_earlier_messages_gave(
    bench: Bench, server: OpenAIServer
) -> None:
    """Each message is sent up to five times; the model sees its facts, in whatever words."""
    caller = await bench.caller(await bench.account())
    said = [f"My {n}th city begins with {chr(64 + n)}." for n in range(1, 13)]
    texts: list[str] = []
    for last in range(10, 13):
        window = said[last - 10 : last]
        new = [
            f"The city that is number {n}: {chr(64 + n)}." for n in range(len(texts) + 1, last + 1)
        ]
        server.script(answer(*map(fact, new)))
        text = "\n\n".join(f"{n}. {message}" for n, message in enumerate(window, start=1))
        await analyze(bench, caller, text)
        known = shown(server)[-1].partition("<conversation>")[0]
        assert [t for t in texts if t not in known] == []
        texts += new
    assert [m.text for m in await memories(bench, caller)] == texts


SEATS = "The user prefers window seats."


async def test_the_same_window_again_stores_nothing_new(bench: Bench, server: OpenAIServer) -> None:
    """The same answer is recognised by what it says, if the model gives it once more."""
    caller = await bench.caller(await bench.account())
    server.script(*[answer(fact(SEATS), fact("The launch is in May."))] * 5)
    for _ in range(5):
        await analyze(bench, caller, TALK)
    assert [m.text for m in await memories(bench, caller)] == [SEATS, "The launch is in May."]


async def test_memories_of_another_account_are_never_shown(
    bench: Bench, server: OpenAIServer
) -> None:
    other = await bench.caller(await bench.account())
    await bench.remember(other, "I prefer window seats on trains, says somebody else.")
    caller = await bench.caller(await bench.account())
    server.script(answer())
    await analyze(bench, caller, TALK)
    assert "somebody else" not in shown(server)[0]
    assert "<known_memories>\n(none)\n</known_memories>" in shown(server)[0]


async def test_a_long_known_memory_is_shown_in_part(bench: Bench, server: OpenAIServer) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "The launch plan. " + "x" * 5000)
    server.script(answer())
    await analyze(bench, caller, TALK)
    assert 400 < shown(server)[0].count("x") < 600


async def test_a_turn_that_waited_is_shown_with_what_came_meanwhile(
    bench: Bench, server: OpenAIServer
) -> None:
    caller = await bench.caller(await bench.account())
    server.script(Step(status=401))
    waiting = await analyze(bench, caller, TALK)
    await bench.remember(caller, "The launch is in May.")
    server.script(answer(fact("the launch is in may"), fact("The user likes windows.")))
    assert waiting.pending is not None
    await bench.services.analysis.extract_episode(
        caller.access.account, caller.keys, waiting.pending
    )
    assert "1. The launch is in May.\n</known_memories>" in shown(server)[-1]
    texts = [m.text for m in await memories(bench, caller)]
    assert texts == ["The launch is in May.", "The user likes windows."]
