"""A relayer around a scripted model: what it answers, what it was shown, what is stored of it."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from relayer.database.pool import Database
from relayer.llm import LanguageModel
from relayer.memories.conversations import Conversation
from relayer.memories.opener import Caller
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.record import Memory
from relayer.settings import Settings
from tests.conftest import database_copy
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, Step, openai_server
from tests.services import TEAM, Bench, bench_on

TEA = "The user prefers green tea."
TALK = "1. user: I prefer window seats on trains.\n\n2. user: We decided to launch in May."
TOKEN = "ghp_" + "a1B2" * 9


def fact(text: Any, **fields: Any) -> dict[str, Any]:
    """One item of a model's answer, as the schema asks for it."""
    return {
        "text": text,
        "said_by": "user",
        "kind": "fact",
        "importance": "standard",
        "confidence": "high",
        "event_time": None,
        "contradicts": None,
    } | fields


def answer(*items: Any) -> Step:
    return Step(content=json.dumps({"facts": items}))


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with openai_server() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bench(
    postgres: EmbeddedPostgres,
    template: str,
    server: OpenAIServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Bench]:
    """One relayer with a language model; every test has an account of its own."""
    model = LanguageModel(base_url=server.base_url, api_key=API_KEY, model=CHAT_MODEL, timeout_s=20)
    async with database_copy(postgres, template) as copy:
        settings = Settings(data_dir=tmp_path_factory.mktemp("cases"), database_url=copy.url)
        database = await Database.connect(copy.connect_args, connections=5)
        yield bench_on(settings, copy.connect_args, database, language_model=model)
        await database.close()
    await model.close()


@pytest.fixture(autouse=True)
def silent(server: OpenAIServer) -> Iterator[None]:
    """No request and no step of another test; every step of this one is used."""
    server.clear()
    yield
    assert server.scripted_left == 0


async def analyze(bench: Bench, caller: Caller, text: str, **members: Any) -> Any:
    conversation = Conversation(text=text, namespace=TEAM, **members)
    return await bench.services.analysis.analyze(caller, conversation)


async def memories(bench: Bench, caller: Caller) -> list[Memory]:
    """What is stored, opened again, oldest first."""
    newest = await bench.services.memory.newest(caller, [TEAM], limit=100)
    return newest[::-1]


def shown(server: OpenAIServer) -> list[str]:
    """The user's half of every prompt."""
    return [request.json["messages"][1]["content"] for request in server.received]
