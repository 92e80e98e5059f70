"""Ways around the memory: each is said once, and goes on as it would without one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from memrelay.openai import with_memory, without_memory
from tests.client.openai_scene import (
    AT_ONCE,
    CALLS,
    FACT,
    away,
    original,
    original_async,
    ours,
    profile,
    request_body,
    respond,
    user,
    wrapped,
)
from tests.openai_server import CHAT_MODEL, OpenAIServer, Step
from tests.thinking import server

__all__ = ["away", "original", "original_async", "profile", "server"]  # fixtures

WEBSOCKET = (
    "what goes over a WebSocket (realtime, live, responses.connect) goes without memory (said once)"
)
NO_WORDS = "a call without words of a user that this client knows goes without memory (said once)"


def complete(client: Any) -> Any:
    return client.completions.create(model=CHAT_MODEL, prompt=FACT)


def batch(client: Any) -> Any:
    return client.batches.create(
        input_file_id="file-1", endpoint="/v1/responses", completion_window="24h"
    )


def call(client: Any) -> Any:
    return client.realtime.client_secrets.create()


def assist(client: Any) -> Any:
    return client.beta.threads.create_and_run(assistant_id="asst_1")


def chat_kit(client: Any) -> Any:
    return client.beta.chatkit.sessions.create(user="anna", workflow={"id": "wf_1"})


@pytest.mark.filterwarnings("ignore:The Assistants API is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("around", "name"),
    [
        (complete, "`completions` goes"),
        (batch, "`batches` go"),
        (call, "`realtime` goes"),
        (assist, "`beta.threads` (assistants) goes"),
        (chat_kit, "`beta.chatkit` goes"),
    ],
)
def test_a_conversation_by_another_way_is_said_once(
    server: OpenAIServer,
    original: OpenAI,
    away: Path,
    caplog: pytest.LogCaptureFixture,
    around: Callable[[Any], Any],
    name: str,
) -> None:
    with wrapped(original, away) as client:
        with without_memory(), pytest.raises(openai.NotFoundError):
            around(client)
        assert ours(caplog) == []
        for one in (client, client, client.with_options(timeout=30)):
            with pytest.raises(openai.NotFoundError):
                around(one)
    (line,) = ours(caplog)
    assert line.startswith(f"{name} without memory")
    assert FACT not in caplog.text


def test_what_holds_no_conversation_is_no_matter(
    original: OpenAI, away: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with wrapped(original, away) as client:
        assert client.embeddings.create(model="test-embedding", input="tea").data
        assert client.conversations.create().id
        client.with_options(timeout=30).copy(max_retries=1)
        for ask in (client.models.list, client.files.list):
            with pytest.raises(openai.NotFoundError):
                ask()
    assert ours(caplog) == []


@pytest.mark.parametrize("place", ["responses", "realtime"])
def test_a_websocket_is_said_once(
    original: OpenAI, away: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    """Also one of another package's, which reads from the client where it goes to."""
    given: dict[str, Any] = {"model": CHAT_MODEL} if place == "realtime" else {}
    with wrapped(original, away) as client:
        assert client.websocket_base_url is None
        assert ours(caplog) == [WEBSOCKET]
        assert vars(getattr(client, place).connect(**given))
    other = original.copy(websocket_base_url="ws://127.0.0.1:9")
    with wrapped(other, away) as client:
        assert client.websocket_base_url == client.copy().websocket_base_url == "ws://127.0.0.1:9"
    assert ours(caplog) == [WEBSOCKET] * 2  # once for each client that remembers


@pytest.mark.parametrize(
    "options",
    [{"prompt": {"id": "pmpt_1"}}, {"previous_response_id": "resp_1"}, {"conversation": "conv_2"}],
    ids=str,
)
def test_a_call_without_words_that_are_known_is_said_once(
    server: OpenAIServer,
    original: OpenAI,
    away: Path,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
) -> None:
    respond(original, FACT)
    original.conversations.create()
    with wrapped(original, away) as client:
        for _ in range(2):
            client.responses.create(**{"model": CHAT_MODEL, **options})
    assert request_body(server) == {"model": CHAT_MODEL, **options}
    assert ours(caplog) == [NO_WORDS]


@pytest.mark.parametrize("given", ["hello", None, 5, [user(FACT)]], ids=str)
def test_a_request_of_no_known_form_is_the_servers_to_judge(
    server: OpenAIServer,
    original: OpenAI,
    away: Path,
    caplog: pytest.LogCaptureFixture,
    given: Any,
) -> None:
    with wrapped(original, away) as client, pytest.raises(openai.BadRequestError):
        client.post("/responses", body=given, cast_to=object)
    assert request_body(server) == given
    assert ours(caplog) == []


async def test_an_asynchronous_client_says_it_once_too(
    server: OpenAIServer,
    original_async: AsyncOpenAI,
    away: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.script(Step(calls=CALLS))
    async with with_memory(original_async, profile=away, settings=AT_ONCE) as client:
        for _ in range(2):
            with pytest.raises(openai.NotFoundError):
                await complete(client)
        assert client.websocket_base_url is None
    first, second = ours(caplog)
    assert first.startswith("`completions`")
    assert second == WEBSOCKET
