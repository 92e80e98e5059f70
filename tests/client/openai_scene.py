"""Clients of the openai package with a memory, the model that they ask, and what they remember."""

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import httpx2
import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, OpenAI

from memrelay import Settings, SyncMemoryClient
from memrelay.gateway import BlockingGateway, Gateway, GatewaySettings, Message
from memrelay.openai import with_memory
from memrelay.secure_files import write_private
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, ToolCall
from tests.processes import RunningRelayer

FACT = "I prefer green tea over coffee in the morning."
QUESTION = "What do I prefer to drink in the morning?"
TAG = "<memwal-memories"
TOOL: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALLS = (ToolCall("look"),)
# Where a stream breaks off: older releases pass on what their HTTP library raises.
BREAKS = (openai.APIError, httpx.HTTPError, httpx2.HTTPError)
Turns = list[list[tuple[str, str]]]  # role and text of each message
AT_ONCE = GatewaySettings(capture_retry_s=0, recall_deadline_s=10)


@pytest.fixture
def profile(shared_relayer: RunningRelayer, tmp_path: Path) -> Path:
    account = SyncMemoryClient.create_account(shared_relayer.url)
    settings = Settings(
        url=shared_relayer.url, account_id=account.account_id, private_key=account.private_key
    )
    path = tmp_path / "profile.json"
    write_private(path, settings.profile())
    return path


@pytest.fixture
def away(tmp_path: Path) -> Path:
    """The profile of a relayer that does not answer."""
    path = tmp_path / "away.json"
    values = {"url": "http://127.0.0.1:9", "account_id": "0x" + "ab" * 32, "private_key": "07" * 32}
    write_private(path, values)
    return path


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """What is handed to the gateway from now on."""
    turns: Turns = []

    def capture(gateway: object, messages: Sequence[Message], context: object) -> None:
        people = [one for one in messages if one.role in ("user", "assistant")]  # others are none
        turns.append([(message.role, message.text) for message in people])

    for kind in (BlockingGateway, Gateway):
        monkeypatch.setattr(kind, "capture", capture)
    return turns


@pytest.fixture
def original(server: OpenAIServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.base_url, api_key=API_KEY, max_retries=0) as client:
        yield client


@pytest_asyncio.fixture
async def original_async(server: OpenAIServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=server.base_url, api_key=API_KEY, max_retries=0) as client:
        yield client


def wrapped(original: OpenAI, profile: Path, **more: Any) -> OpenAI:
    return with_memory(original, profile=profile, **{"settings": AT_ONCE, **more})


def user(text: Any) -> Any:
    return {"role": "user", "content": text}


def ask(client: OpenAI, *messages: Any, **more: Any) -> Any:
    return client.chat.completions.create(model=CHAT_MODEL, messages=list(messages), **more)


def respond(client: OpenAI, asked: Any, **more: Any) -> Any:
    return client.responses.create(model=CHAT_MODEL, input=asked, **more)


def told(server: OpenAIServer, request: int = -1) -> Any:
    """The messages that the model got."""
    return server.received[request].json["messages"]


def request_body(server: OpenAIServer, request: int = -1) -> Any:
    """The body of a request to the model."""
    return server.received[request].json


def ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines that the middleware wrote into the log."""
    return [line.getMessage() for line in caplog.records if line.name == "memrelay.openai"]


def memories(profile: Path, namespace: str = "default") -> list[str]:
    with SyncMemoryClient.from_profile(profile) as memory:
        return [str(one.text) for one in memory.list(namespace=namespace).memories]


def teach(profile: Path, text: str = FACT, namespace: str = "default") -> None:
    with SyncMemoryClient.from_profile(profile) as memory:
        memory.wait([memory.remember(text, namespace=namespace).id])
