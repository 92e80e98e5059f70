"""Who found the facts: what people, agents and the doctor are told, by real relayers."""

import json
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio

from memrelay import Analysis, SyncMemoryClient
from memrelay.doctor import OK, WARNING
from memrelay.extraction import (
    FINDERS_MAX,
    degradation,
    failures,
    finders,
    source_of_facts,
    summary,
)
from memrelay.gateway import Gateway, Roster
from memrelay.gateway.tool_answers import report_stored
from memrelay.models import Extraction, MemoryStatus, Usage
from relayer.postgres.embedded import EmbeddedPostgres
from tests.client.conversations_scene import chatgpt, zipped
from tests.client.doctor_scene import Machine as Home
from tests.client.doctor_scene import machine, user
from tests.client.gateway_scene import CTX, PATIENT, conversation, founded_blocking
from tests.client.mcp_scene import done, founded, in_process
from tests.client.shell_scene import Machine
from tests.conftest import database_copy
from tests.forked import forked
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, Step, openai_server
from tests.processes import RunningRelayer, running_relayer
from tests.talking import AWAY, facts

__all__ = ["machine", "user"]  # fixtures

# Longer than any test: turns of other tests wait for their facts, too.
AWAY_FOR_LONG = [AWAY] * 200
USELESS = [Step(content="I would rather talk about the weather.")] * 200
BOAT = "1. user: We decided to keep the old boat."
AFTER = "rules after the model failed: "


@dataclass(frozen=True)
class Thinking:
    """A relayer with a language model, and what that answers."""

    relayer: RunningRelayer
    model: OpenAIServer


@pytest_asyncio.fixture(scope="module")
async def running(
    postgres: EmbeddedPostgres,
    template: str,
    model_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Thinking]:
    folder = tmp_path_factory.mktemp("thinking") / "data"
    async with database_copy(postgres, template) as copy:
        with (
            openai_server() as model,
            running_relayer(
                folder,
                model_dir,
                database_url=copy.url,
                OPENAI_BASE_URL=model.base_url,
                OPENAI_API_KEY=API_KEY,
                RELAYER_LLM_MODEL=CHAT_MODEL,
            ) as relayer,
        ):
            yield Thinking(relayer, model)


@pytest.fixture
def thinking(running: Thinking) -> Iterator[Thinking]:
    """The same, with nothing scripted before or after."""
    running.model.clear()
    yield running
    running.model.clear()


@pytest.fixture
def thinker(thinking: Thinking, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Machine:
    """The shell of a user of that relayer."""
    shell = Machine(tmp_path / "thinker.json", capsys)
    shell("init", thinking.relayer.url)
    return shell


def found(count: int = 0, extractor: str | None = None, **members: object) -> Analysis:
    """An analysis as a relayer tells it."""
    told = {"facts": [], "fact_count": count, "status": "done", "extractor": extractor}
    return Analysis.from_json(told | members)


PENDING = {"status": "pending", "failure": "deadline"}


@pytest.mark.parametrize(
    ("analysis", "said", "degraded"),
    [
        (found(2, "model"), "2 facts, found by the language model", None),
        (found(0, "model"), "0 facts, looked for by the language model", None),
        (found(1, "rules"), "1 fact, found by rules: no language model is set", None),
        (
            found(0, "rules", reinforced=["a"]),
            "0 facts (1 known already), found by rules: no language model is set",
            None,
        ),
        (
            found(2, f"{AFTER}refusal"),
            "2 facts, found by rules: the language model failed (refusal)",
            "Rules looked for facts: the language model failed (refusal).",
        ),
        (
            found(0, None, **PENDING),
            "0 facts, pending: the language model failed (deadline); they follow once it answers",
            "Its facts are yet to be found: the language model failed (deadline).",
        ),
        # A repeated request, by then found; and an older relayer, of which nobody knows.
        (found(0, "model", status="pending"), "0 facts, looked for by the language model", None),
        (found(2), "2 facts, done", None),
        (
            found(0, status="pending"),
            "0 facts, pending: the language model is away; they follow once it answers",
            "Its facts are yet to be found: the language model is away.",
        ),
        (found(1, "something new"), "1 fact, done", None),
        (
            found(0, AFTER + "a" * 10_000),
            f"0 facts, looked for by rules: the language model failed ({'a' * 60})",
            f"Rules looked for facts: the language model failed ({'a' * 60}).",
        ),
    ],
)
def test_who_found_the_facts_in_words(analysis: Analysis, said: str, degraded: str | None) -> None:
    assert summary(analysis) == said
    assert degradation(analysis) == degraded
    told = report_stored(analysis).text.splitlines()
    assert told == [f"Stored facts: {analysis.fact_count}.", *told[1:]]
    assert (degraded in told) is (degraded is not None)


def test_an_older_relayer_tells_nothing_of_it() -> None:
    analysis = Analysis.from_json({"facts": [], "fact_count": 0, "status": "done"})
    assert (analysis.extractor, analysis.failure) == (None, None)
    assert Usage.from_json({"memory_count": 0, "storage_bytes": 0}).extraction is None
    assert "extractor" not in MemoryStatus(id="a", status="done").to_json()


def test_failures_in_words() -> None:
    well = Extraction(extractor="model")
    assert failures(well) is None
    assert source_of_facts(well) == "facts come from a language model"
    one = replace(well, waiting=1, failed=2, failure="deadline")
    told = "lately the language model failed at 2 turns (deadline); "
    assert failures(one) == f"{told}1 turn waits for its facts"
    assert failures(replace(one, waiting=0)) == f"{told}0 turns wait for their facts"
    by_rules = replace(well, extractor="rules")
    assert source_of_facts(by_rules) == "facts come from rules: no language model is set"


def test_a_user_without_a_model(run: Machine) -> None:
    assert run.lines("analyze", BOAT)[-1] == "1 fact, found by rules: no language model is set"
    assert run("analyze", "ok, thanks, bye")["extractor"] == "rules"
    lines = run.lines("usage")
    assert "2 turns analyzed: 1 gave facts, 1 gave none" in lines
    assert "facts come from rules: no language model is set" in lines
    assert run("usage")["extraction"]["without_facts"] == 1


def test_a_user_with_a_model(thinking: Thinking, thinker: Machine) -> None:
    said = thinker.lines("analyze", "FACT: The old boat is kept.")
    assert said[-1] == "1 fact, found by the language model"
    assert "facts come from a language model" in thinker.lines("usage")


def test_a_model_that_is_away_and_comes_back(thinking: Thinking, thinker: Machine) -> None:
    thinking.model.script(*AWAY_FOR_LONG)
    [said] = thinker.lines("analyze", "FACT: The roof leaks.")
    assert said.startswith("0 facts, pending: the language model failed (")
    with thinker.client() as client:
        pending = client.analyze("FACT: The barn leaks.")
        assert pending.episode_id is not None
        thinking.model.clear()
        [status] = client.wait([pending.episode_id])
        assert (status.status, status.extractor) == ("done", "model")
        told = client.usage().extraction
    assert told is not None
    assert told.failed == 2
    assert any(line.startswith("lately the language model fail") for line in thinker.lines("usage"))


def test_an_import_tells_who_found_its_facts(
    run: Machine, thinking: Thinking, thinker: Machine, tmp_path: Path
) -> None:
    export = str(zipped(tmp_path / "export.zip", chatgpt(tmp_path / "export")))
    assert "facts of 1 part found by rules: no language model is set" in run.lines("import", export)
    assert "facts of 1 part found by the language model" in thinker.lines("import", export)
    thinking.model.script(*AWAY_FOR_LONG)
    lines = thinker.lines("import", export, "--again")
    [told] = [line for line in lines if "yet to be found" in line]
    assert told.startswith("facts of 1 part yet to be found: the language model failed (")
    told_json = thinker("import", export, "--again")
    assert (told_json["extractors"], sum(told_json["causes"].values())) == ({}, 1)


def test_an_import_tells_each_finder_apart() -> None:
    parts = {"model": 2, "rules": 1, f"{AFTER}refusal": 1, "\u202ea new one": 1}
    assert finders(parts, {"": 3, "deadline": 1}, "part") == [
        "facts of 2 parts found by the language model",
        "facts of 1 part found by rules: no language model is set",
        "facts of 1 part found by rules: the language model failed (refusal)",
        "facts of 1 part found by \u202ea new one",
        "facts of 3 parts yet to be found: the language model is away",
        "facts of 1 part yet to be found: the language model failed (deadline)",
    ]
    assert finders({}, {}, "part") == []
    assert len(finders({str(n): 1 for n in range(100)}, {}, "part")) == FINDERS_MAX


def test_a_model_that_answers_nothing_of_use(
    thinking: Thinking, thinker: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """The relayer's log, its metrics, its doctor, and whoever waits: all of them tell."""
    thinking.model.script(*USELESS)
    with thinker.client() as client:
        pending = client.analyze(BOAT)
        assert (pending.status, pending.extractor, bool(pending.failure)) == ("pending", None, True)
        assert pending.episode_id is not None
        [status] = client.wait([pending.episode_id])
        assert status.extractor is not None
        assert status.extractor.startswith(AFTER)
        assert [memory.text for memory in client.list().memories] == [
            "We decided to keep the old boat."
        ]
    cause = status.extractor.removeprefix(AFTER)
    logged = thinking.relayer.log.read_text().splitlines()
    lines = [json.loads(line) for line in logged if line.startswith("{")]
    told = [line for line in lines if line.get("event") == "analysis.rules"]
    assert cause in [line["cause"] for line in told]
    thinking.model.clear()
    thinking.model.script(*USELESS)
    [said] = [f for f in doctor_of(thinking.relayer, ok=False)["findings"] if f["check"] == "facts"]
    assert said["state"] != "ok"
    assert f"(last: {cause})" in said["detail"]


def doctor_of(relayer: RunningRelayer, *, ok: bool) -> dict[str, list[dict[str, str]]]:
    """What `relayer doctor` prints."""
    done = forked(
        *("relayer", "doctor", "--data-dir", str(relayer.data_dir), "--json"),
        env=relayer.environment,
        timeout_s=120,
    )
    assert (done.returncode == 0) is ok, done.stderr
    found: dict[str, list[dict[str, str]]] = json.loads(done.stdout)
    return found


def test_the_doctor_tells_of_rules_and_what_sets_a_model(user: Home) -> None:
    told = user.examine()["facts"]
    assert (told.state, told.command) == (WARNING, "relayer serve --llm-model NAME")
    assert told.detail.startswith("Facts come from rules: no language model is set; ")
    assert "RELAYER_LLM_MODEL" in told.detail


def test_the_doctor_warns_of_a_model_that_fails(thinking: Thinking, machine: Home) -> None:
    machine.init(thinking.relayer.url)
    told = machine.examine()["facts"]
    assert (told.state, told.detail) == (OK, "facts come from a language model")
    thinking.model.script(*AWAY_FOR_LONG)
    assert machine.run("analyze", "FACT: The roof leaks.") == 0
    told = machine.examine()["facts"]
    assert (told.state, told.command) == (WARNING, "relayer doctor")
    assert told.detail.startswith("Lately the language model failed at 1 turn (")


async def test_a_model_is_told_where_the_relayers_model_failed(
    thinking: Thinking, tmp_path: Path
) -> None:
    profile = founded(thinking.relayer.url, tmp_path)
    async with in_process(profile) as client:
        said, told = await done(client, "memory_analyze", text="FACT: The old boat is kept.")
        assert (told["note"], "language model" in said) == (None, False)
        thinking.model.script(*AWAY_FOR_LONG)
        said, told = await done(client, "memory_analyze", text="FACT: The roof leaks.")
        assert told["note"].startswith("Its facts are yet to be found: the language model failed")
        assert told["note"] in said


async def test_a_gateway_says_once_that_captured_turns_wait(
    thinking: Thinking, caplog: pytest.LogCaptureFixture
) -> None:
    settings = founded_blocking(thinking.relayer.url)
    texts = [f"I decided to sell the boat number {n} in the harbour." for n in range(3)]
    with caplog.at_level(logging.INFO, logger="memrelay.gateway"):
        async with Gateway(Roster.single(settings), PATIENT) as gateway:
            for n, text in enumerate(texts):
                thinking.model.clear()
                thinking.model.script(*(AWAY_FOR_LONG if n < 2 else [facts(text)] * 100))
                context = CTX | {"sessionId": f"s{n}", "sessionKey": f"agent:main:{n}"}
                await gateway.agent_end(conversation(text), context)
                assert await gateway.flush(60)
    told = [record.getMessage() for record in caplog.records]
    waits = [text for text in told if text.startswith("a captured turn: Its facts are yet to be")]
    assert len(waits) == 1
    assert told.count("facts of captured turns are found again") == 1
    with SyncMemoryClient.from_settings(settings) as client:
        extraction = client.usage().extraction
    assert extraction is not None
    assert extraction.failed == 2
