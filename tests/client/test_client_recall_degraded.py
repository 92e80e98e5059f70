"""Questions to a relayer with a language model and no embedder, further looks that it plans, and
what degraded searches say.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from memrelay import Settings, SyncMemoryClient
from memrelay.gateway import Context, Gateway, Roster
from memrelay.sealed.keys import account_bytes
from memrelay.secure_files import write_private
from relayer.postgres.embedded import EmbeddedPostgres
from tests.client.gateway_scene import PATIENT
from tests.client.mcp_scene import done, in_process
from tests.client.shell_scene import Machine
from tests.conftest import database_copy
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, Step, openai_server
from tests.processes import RunningRelayer, running_relayer

TEA = "Anna prefers green tea."
COFFEE = f"{TEA} Bob drinks coffee."
BUDGET = "The tea budget of the team is 40 euros."
HIGHLIGHT = datetime(2026, 5, 4, tzinfo=UTC)


@pytest.fixture(scope="module")
def model() -> Iterator[OpenAIServer]:
    """The language model of that relayer."""
    with openai_server() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def answering(
    model: OpenAIServer,
    postgres: EmbeddedPostgres,
    template: str,
    model_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[RunningRelayer]:
    folder = tmp_path_factory.mktemp("answering") / "data"
    environment = {
        "RELAYER_EMBEDDER": "none",
        "RELAYER_INDEX_MEMORY_BYTES": "0",  # a row that was found would be kept as it was
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": API_KEY,
        "RELAYER_LLM_MODEL": CHAT_MODEL,
    }
    async with database_copy(postgres, template) as copy:
        with running_relayer(folder, model_dir, database_url=copy.url, **environment) as process:
            yield process


@pytest.fixture
def asking(answering: RunningRelayer) -> Settings:
    """An account with a few memories there."""
    new = SyncMemoryClient.create_account(answering.url)
    asking = Settings(url=answering.url, account_id=new.account_id, private_key=new.private_key)
    with SyncMemoryClient.from_settings(asking) as client:
        client.remember(TEA, kind="preference")
        client.remember(COFFEE, tags=("bob",), event_time=HIGHLIGHT)
        client.remember(BUDGET, namespace="team")
    return asking


@pytest.fixture
def run(asking: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Machine:
    """The shell of its founder."""
    write_private(tmp_path / "profile.json", asking.profile())
    return Machine(tmp_path / "profile.json", capsys)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], {TEA, COFFEE}),
        (["--limit", "1"], {TEA}),
        (["--namespace", "team"], {BUDGET}),
        (["--namespace", "team", "--namespace", "default", "--kind", "preference"], {TEA}),
        (["--tag", "bob"], {COFFEE}),
        (["--after", "2026-06-01T00:00:00Z"], {TEA}),
        (["--before", "2026-06-01T00:00:00Z"], {COFFEE}),
        (["--as-of", "2026-06-01T00:00:00Z"], set()),
    ],
    ids=["none", "limit", "namespace", "namespaces and kind", "tag", "after", "before", "as-of"],
)
def test_every_flag_of_a_question_reaches_the_relayer(
    run: Machine, argv: list[str], expected: set[str]
) -> None:
    answer = run("ask", "tea?", *argv)
    assert run.err == ""
    assert {memory["text"] for memory in answer["memories"]} == expected


def test_an_answer_shows_what_it_cites(run: Machine, model: OpenAIServer) -> None:
    answer = run("ask", "tea?")
    [first, *_] = answer["memories"]
    assert (answer["supported"], answer["cited"]) == (True, [first["id"]])
    assert run.lines("ask", "tea?")[1:] == [f"[1] {first['id']}  {first['text']}"]
    model.script(Step(content="NOT IN MEMORY"))
    assert run.lines("ask", "tea?") == ["Not in memory."]


def test_what_could_not_be_searched_or_opened_is_told(
    run: Machine, asking: Settings, answering: RunningRelayer
) -> None:
    words_only = "memrelay: Some memories could be searched by words only, or not at all yet.\n"
    assert (len(run.lines("recall", "tea")), run.err) == (2, words_only)
    asyncio.run(damaged(answering, asking))
    assert run.lines("recall", "tea") == []
    assert run.err == f"memrelay: 2 more could not be opened.\n{words_only}"
    run.lines("recall", "tea", "--mode", "keyword")
    assert run.err.count("\n") == 1


def test_further_looks_find_more_and_are_explained(run: Machine, model: OpenAIServer) -> None:
    plan = Step(content='{"looks": ["coffee", "\\u001b[31meuros"]}')
    model.script(plan, plan)
    answer = run("recall", "green", "--deep", "--explain")
    assert answer["deep"] == {"looks": 2, "degraded": None, "texts": ["coffee", "[31meuros"]}
    assert {found["text"]: found["explain"]["look"] for found in answer["results"]} == {
        TEA: 0,
        COFFEE: 1,
    }
    lines = run.lines("recall", "green", "--deep", "--explain")
    assert [line.split()[-1] for line in lines[-2:]] == ["-", "1"]
    assert "Look 1: coffee\n" in run.err
    assert "further look" not in run.err


def test_looks_that_are_missing_are_told(run: Machine, model: OpenAIServer) -> None:
    model.script(Step(content="no plan"))
    assert len(run.lines("recall", "tea", "--deep")) == 2
    assert "memrelay: No further looks were taken: unusable plan.\n" in run.err
    assert "deep" not in run("recall", "tea")


def test_an_answer_rests_on_further_looks_too(run: Machine, model: OpenAIServer) -> None:
    said = Step(content="Coffee [2].")
    model.script(Step(content='{"looks": ["coffee"]}'), said, Step(content="no plan"), said)
    answer = run("ask", "preference green", "--deep")
    assert [memory["text"] for memory in answer["memories"]] == [TEA, COFFEE]
    assert answer["deep"] == {"looks": 1, "degraded": None}
    assert run.lines("ask", "tea", "--deep")[0] == "Coffee [2]."
    assert run.err == "memrelay: No further looks were taken: unusable plan.\n"


async def test_a_model_may_ask_for_further_looks(run: Machine, model: OpenAIServer) -> None:
    async with in_process(run.profile) as client:
        model.script(Step(content='{"looks": ["coffee"]}'), Step(status=401))
        shown, found = await done(client, "memory_recall", query="preference green", deep=True)
        assert [memory["text"] for memory in found["results"]] == [TEA, COFFEE]
        assert found["note"] is None
        assert "further looks" not in shown
        shown, found = await done(client, "memory_recall", query="green", deep=True)
        assert found["note"] == "No further looks were taken: model away."
        assert found["note"] in shown


async def damaged(relayer: RunningRelayer, settings: Settings) -> None:
    """Change a byte of everything that an account has stored."""
    connection = await asyncpg.connect(relayer.environment["RELAYER_DATABASE_URL"])
    await connection.execute(
        "UPDATE blobs SET bytes = set_byte(bytes, 120, 255 - get_byte(bytes, 120))"
        " FROM accounts a WHERE a.account_id = blobs.account_id AND a.whole_id = $1"
        " AND length(bytes) > 120",
        account_bytes(settings.account_id),
    )
    await connection.close()


async def test_a_gateway_tells_what_could_be_searched_by_words_only(asking: Settings) -> None:
    """Also where one namespace is refused, and each is searched apart.

    The same in each turn: a provider keeps the prompt that it has read as long as it is the same.
    """
    prompts = {"What about the green tea of Anna?": True, "Where does Berta live?": False}
    async with Gateway(Roster.single(asking), PATIENT) as gateway:
        for prompt, fits in prompts.items():
            answer = await gateway.before_prompt_build({"prompt": prompt}, {})
            assert ("prependContext" in answer) == fits
            assert "by words only" in answer["appendSystemContext"]
            tool = await gateway.call_tool("memory_search", {"query": prompt}, Context())
            assert ("No memory was found" in tool.text) == (not fits)
            assert tool.text.count("by words only") == 1
            assert tool.details["degraded"]
    roster = Roster.single(asking)
    binding = roster.bind(Context())
    assert binding is not None
    names = ("default", "never written", "x" * 200)
    found = await binding.recall(
        "tea", namespaces=names, limit=5, min_relevance=0.0, chars_max=None
    )
    assert (len(found.memories), found.degraded) == (2, True)
    await roster.close()


async def test_a_model_is_told_what_could_be_searched_by_words_only(run: Machine) -> None:
    async with in_process(run.profile) as client:
        for query, fits in {"the green tea of Anna": True, "Where does Berta live?": False}.items():
            shown, found = await done(client, "memory_recall", query=query)
            assert (found["total"] > 0, found["degraded"]) == (fits, True)
            assert ("No memory was found" in shown) == (not fits)
            prompt = await client.get_prompt("recall_context", {"topic": query})
            for text in (shown, prompt.messages[0].content.text):
                assert text.count("by words only") == 1
