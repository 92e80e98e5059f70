"""`relayer doctor` on who finds the facts of turns: rules, a model that can, or one that fails."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from relayer.clock import utc_now
from relayer.identity import make_identity
from relayer.installation import at
from relayer.llm import LanguageModel
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep import doctor, provision
from relayer.upkeep.doctor import OK, PROBLEM, WARNING
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, Step, openai_server
from tests.optional import unwrap
from tests.talking import AWAY, facts

KEPT = """
INSERT INTO episodes (account_id, episode_id, namespace_id, epoch, writer, blob_id, size_bytes,
                      state, created_at, failure)
VALUES ($1, gen_random_uuid(), 1, 1, '', $2, 1, $3, now(), $4)
"""
NAMESPACE = """
INSERT INTO namespaces (account_id, namespace_id, name, updated_at) VALUES ($1, 1, 'team', now())
"""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Those of an installation: there is a key beside the database."""
    make_identity(settings.data_dir / "relayer.key")
    return settings


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with openai_server() as running:
        yield running


async def finding(settings: Settings, model: LanguageModel | None = None) -> doctor.Finding:
    """What the doctor says of facts."""
    try:
        found = await doctor.examine(settings, language_model=model)
    finally:
        if model is not None:
            await model.close()
    [one] = [f for f in found if f["check"] == "facts"]
    return one


def with_model(
    settings: Settings, server: OpenAIServer, api_key: str = API_KEY
) -> tuple[Settings, LanguageModel]:
    model = LanguageModel(base_url=server.base_url, api_key=api_key, model=CHAT_MODEL)
    return replace(settings, llm_model=CHAT_MODEL), model


async def test_without_a_model_it_says_so_and_what_to_type(settings: Settings) -> None:
    found = await finding(settings)
    assert found["state"] == WARNING
    assert found["command"] == f"relayer serve{at(settings)} --llm-model NAME"
    assert found["detail"].startswith("from rules, which find fewer: no language model is set")


async def test_a_model_has_to_find_a_fact_before_it_is_well(
    settings: Settings, server: OpenAIServer
) -> None:
    server.script(facts("Anna has lived in Porto since 2019."))
    found = await finding(*with_model(settings, server))
    assert (found["state"], found["detail"]) == (OK, f"from the language model {CHAT_MODEL}")
    assert len(server.received) == 1


async def test_a_model_that_finds_none_in_a_plain_sentence(
    settings: Settings, server: OpenAIServer
) -> None:
    server.script(facts())
    found = await finding(*with_model(settings, server))
    assert found["state"] == PROBLEM
    assert "finds none in a plain sentence" in found["detail"]
    assert "RELAYER_LLM_MODEL" in unwrap(found["command"])


@pytest.mark.parametrize("step", [AWAY, Step(content="I would rather not.")])
async def test_a_model_that_is_away_or_of_no_use(
    settings: Settings, server: OpenAIServer, step: Step
) -> None:
    """By a fixed word: neither what it said, nor where it is, nor the key to it."""
    server.script(*[step] * 10)
    found = await finding(*with_model(settings, server))
    assert found["state"] == PROBLEM
    assert found["detail"].startswith(f"the language model {CHAT_MODEL} fails (")
    assert "OPENAI_BASE_URL" in found["detail"]
    for told in ("rather", str(server.port), API_KEY):
        assert told not in str(found)


async def test_how_often_it_failed_of_late_in_all_accounts(
    settings: Settings, storage: Storage, managed: provision.NewKey, server: OpenAIServer
) -> None:
    other = await provision.create_account(storage, label="", custody="managed", clock=utc_now)
    for account in (managed.account, other.account):
        await storage.database.execute(NAMESPACE, account)
        await storage.database.execute(KEPT, account, b"1", "done", "deadline")
        await storage.database.execute(KEPT, account, b"2", "done", None)
        await storage.database.execute(KEPT, account, b"3", "pending", "deadline")
    server.script(facts("Anna has lived in Porto since 2019."))
    lately = (
        "episodes of the last day that a model failed at: 4 (last: deadline); episodes that wait: 2"
    )
    assert lately in (await finding(*with_model(settings, server)))["detail"]
    assert lately in (await finding(settings))["detail"]
