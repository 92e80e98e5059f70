"""Fixtures: a language model behind the stand-in for paid ones, and a relayer that has it."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from relayer.llm import LanguageModel
from tests.conftest import BenchMaker
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, openai_server
from tests.services import Bench


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """What the model answers, and what it was sent."""
    with openai_server() as running:
        yield running


@pytest_asyncio.fixture
async def model(server: OpenAIServer) -> AsyncIterator[LanguageModel]:
    """The model of that server."""
    language_model = LanguageModel(
        base_url=server.base_url, api_key=API_KEY, model=CHAT_MODEL, timeout_s=60
    )
    yield language_model
    await language_model.close()


@pytest.fixture
def thinking(make_bench: BenchMaker, model: LanguageModel) -> Bench:
    """A relayer with a language model."""
    return make_bench(language_model=model)
