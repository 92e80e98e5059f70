"""Clients with a memory that are copied, shared, closed, forked, or used in several event loops."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import openai
import pytest
from openai import AsyncOpenAI, AzureOpenAI, OpenAI

from memrelay.gateway import GatewaySettings
from memrelay.openai import with_memory
from tests.client.openai_scene import (
    AT_ONCE,
    FACT,
    QUESTION,
    ask,
    away,
    memories,
    original,
    profile,
    request_body,
    respond,
    teach,
    told,
    user,
    wrapped,
)
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer
from tests.thinking import server

__all__ = ["away", "original", "profile", "server"]  # fixtures


def test_copies_of_the_client_remember_and_the_rest_works(
    server: OpenAIServer, original: OpenAI, profile: Path
) -> None:
    teach(profile)
    with wrapped(original, profile) as client:
        copied = client.with_options(timeout=30).copy(max_retries=1)
        assert isinstance(copied, OpenAI)
        assert (copied.timeout, copied.max_retries) == (30, 1)
        ask(copied, user(QUESTION))
        assert FACT in told(server)[0]["content"]
        assert client.embeddings.create(model="test-embedding", input="tea").data
        with pytest.raises(TypeError, match="messages"):
            client.chat.completions.create(model=CHAT_MODEL)  # type: ignore[call-overload]


def test_a_client_that_remembers_already_gets_another_memory_in_place_of_its_own(
    server: OpenAIServer, original: OpenAI, profile: Path
) -> None:
    teach(profile)
    with wrapped(original, profile) as client:
        ask(wrapped(client, profile), user(QUESTION))
    assert str(told(server)).count(FACT) == 1


def test_a_client_of_azure_remembers(server: OpenAIServer, profile: Path) -> None:
    teach(profile)
    azure = AzureOpenAI(
        base_url=server.base_url, azure_ad_token=API_KEY, api_version="2026-01-01", max_retries=0
    )
    with wrapped(azure, profile) as client:
        assert isinstance(client.with_options(timeout=30), AzureOpenAI)
        respond(client, QUESTION)
    assert FACT in request_body(server)["instructions"]


def gateway_threads() -> int:
    return [thread.name for thread in threading.enumerate()].count("memrelay-gateway")


def test_clients_that_nobody_closes_share_one_gateway(
    server: OpenAIServer, profile: Path, away: Path
) -> None:
    before = gateway_threads()
    model = OpenAI(base_url=server.base_url, api_key=API_KEY)
    clients = [wrapped(model, profile) for _ in range(5)]
    other = wrapped(model, away)
    for client in clients:
        ask(client, user(QUESTION))
    assert gateway_threads() == before + 1
    ask(other, user(QUESTION))
    quiet = wrapped(model, profile, settings=GatewaySettings(auto_recall=False))
    ask(quiet, user(QUESTION))
    assert gateway_threads() == before + 3
    clients[0].close()  # and with it the connection that they all have
    assert gateway_threads() == before + 2
    for client in (other, quiet):
        client.close()
    assert gateway_threads() == before


def test_a_client_that_is_closed_takes_no_memory_from_others(
    server: OpenAIServer, original: OpenAI, profile: Path
) -> None:
    teach(profile)
    second = OpenAI(base_url=server.base_url, api_key=API_KEY, max_retries=0)
    with wrapped(original, profile) as client, wrapped(second, profile) as other:
        with client.copy(http_client=openai.DefaultHttpxClient()) as copied:
            ask(copied, user("My dentist is in Elm Street number four."))
        assert "My dentist is in Elm Street number four." in memories(profile)  # delivered
        other.close()
        ask(client, user(QUESTION))
        assert FACT in told(server)[0]["content"]


def test_a_client_that_was_not_used_begins_nothing(original: OpenAI, profile: Path) -> None:
    before = gateway_threads()
    begun = []
    threading.setprofile(lambda *_: begun.append(threading.current_thread().name))
    try:
        with wrapped(original, profile):
            pass
    finally:
        threading.setprofile(None)
    assert "memrelay-gateway" not in begun
    assert gateway_threads() == before


def test_closing_twice_and_calling_after_is_safe(original: OpenAI, profile: Path) -> None:
    client = wrapped(original, profile)
    before = gateway_threads()
    client.close()
    client.close()
    with pytest.raises((RuntimeError, openai.APIConnectionError)):  # older releases wrap it
        ask(client, user(QUESTION))
    assert gateway_threads() == before


CALL = f"client.chat.completions.create(model={CHAT_MODEL!r}, messages=[{user(FACT)!r}])\n"
IN_A_CHILD = f"""
import os
if os.fork() == 0:
    {CALL}
    client.close()
    os._exit(0)
os.wait()
"""
BEGUN_BEFORE = f"""
import os
{CALL.replace(FACT, QUESTION)}
if os.fork() == 0:
    client = with_memory(OpenAI(base_url=model.base_url, api_key=model.api_key), profile=profile)
    {CALL}
    client.close()
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(
    "body",
    [CALL, IN_A_CHILD, BEGUN_BEFORE],
    ids=["just ends", "forks after the set-up", "forks in the middle"],
)
def test_a_script_loses_nothing(
    server: OpenAIServer, profile: Path, tmp_path: Path, body: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from openai import OpenAI\n"
        "from memrelay.openai import with_memory\n"
        f"model = OpenAI(base_url={server.base_url!r}, api_key={API_KEY!r})\n"
        f"profile = {str(profile)!r}\n"
        "client = with_memory(model, profile=profile)\n" + body
    )
    subprocess.run([sys.executable, "-W", "error", str(script)], check=True, timeout=60)
    assert memories(profile) == [FACT]


def test_a_client_that_was_used_before_a_fork_goes_on_on_both_sides(
    server: OpenAIServer, profile: Path, tmp_path: Path
) -> None:
    teach(profile)
    asking = CALL.replace(FACT, QUESTION)
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "from openai import OpenAI\n"
        "from memrelay.openai import with_memory\n"
        f"model = OpenAI(base_url={server.base_url!r}, api_key={API_KEY!r})\n"
        f"client = with_memory(model, profile={str(profile)!r})\n"
        f"{asking}"
        "if os.fork() == 0:\n"
        f"    {asking}"
        "    client.close()\n"
        "    os._exit(0)\n"
        "_, status = os.wait()\n"
        f"{asking}"
        "client.close()\n"
        "sys.exit(os.waitstatus_to_exitcode(status))\n"
    )
    run = [sys.executable, "-W", "error", str(script)]
    ran = subprocess.run(run, check=True, timeout=60, capture_output=True, text=True)
    assert ran.stderr == ""
    asked = [told(server, number)[0]["content"] for number in range(len(server.received))]
    assert [FACT in content for content in asked] == [True, True, True]


def test_an_asynchronous_client_remembers_in_each_event_loop(
    server: OpenAIServer, profile: Path
) -> None:
    model = AsyncOpenAI(base_url=server.base_url, api_key=API_KEY, max_retries=0)
    client = with_memory(model, profile=profile, settings=AT_ONCE)

    async def turn(text: str) -> None:
        # The openai package's own connections are bound to a loop, too.
        async with client.copy(http_client=openai.DefaultAsyncHttpxClient()) as copied:
            await copied.chat.completions.create(model=CHAT_MODEL, messages=[user(text)])

    said = [f"I prefer the number {number} for my shirt." for number in (7, 8, 9)]
    for text in said:
        asyncio.run(turn(text))
        assert text in memories(profile)
    asyncio.run(turn("Which number do I prefer for my shirt?"))
    assert all(text in told(server)[0]["content"] for text in said)
