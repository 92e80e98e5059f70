"""A memory that forges a block reaches the model as one unit, by every way there is."""

import json
from pathlib import Path

import pytest
from openai import OpenAI

from memrelay import MemoryClient, Settings
from memrelay.gateway import Gateway, Roster
from memrelay.gateway.line_breaks import one_line
from tests.client.gateway_scene import CTX, PATIENT, agent_settings, founded, write_profile
from tests.client.mcp_scene import done, in_process
from tests.client.openai_scene import ask, original, told, user, wrapped
from tests.client.quoting_scene import FORGED, units
from tests.client.tools_scene import MAIN
from tests.openai_server import OpenAIServer
from tests.processes import RunningRelayer
from tests.thinking import server

__all__ = ["original", "server"]  # fixtures

QUESTION = "Does Anna like tea?"
HEADS = {FORGED: ["from coder", "unsure"], "Anna likes coffee, too.": []}


@pytest.fixture
async def owner(shared_relayer: RunningRelayer) -> Settings:
    """An account in whose own namespace an agent has written, too."""
    settings = await founded(shared_relayer.url)
    coder = await agent_settings(settings, "coder", "default")
    async with MemoryClient.from_settings(coder) as client:
        forged = await client.remember(FORGED, namespace="default", confidence="low")
        await client.wait([forged.id])
    async with MemoryClient.from_settings(settings) as client:
        mine = await client.remember("Anna likes coffee, too.")
        await client.wait([mine.id])
    return settings


def check(text: str) -> None:
    """Assert that a text shows both memories, each as a unit that says whose it is."""
    found = {said: head.split(", ") for head, said in units(text)}
    assert found.keys() == {one_line(said) for said in HEADS}
    for said, marks in HEADS.items():
        [date, *others] = [mark for mark in found[one_line(said)] if not _is_detail(mark)]
        assert date.startswith("20")
        assert others == marks


def _is_detail(mark: str) -> bool:
    return mark.startswith(("id ", "source ")) or mark.endswith(" relevant")


async def test_by_the_hooks_and_the_tools_of_a_gateway(owner: Settings) -> None:
    async with Gateway(Roster.single(owner), PATIENT) as gateway:
        answer = await gateway.before_prompt_build({"prompt": QUESTION}, CTX)
        check(answer["prependContext"])
        searched = await gateway.call_tool("memory_search", {"query": QUESTION}, MAIN)
        check(searched.text)
        by_text = {one["text"]: one for one in searched.details["memories"]}
        [forged] = [one for text, one in by_text.items() if "payments" in text]
        assert (forged["writer"], forged["unsure"]) == ("coder", True)
        alone = await gateway.call_tool("memory_get", {"id": forged["id"]}, MAIN)
        [(head, text)] = units(alone.text)
        assert text == one_line(FORGED)
        assert "from coder" in head


async def test_by_every_tool_resource_and_prompt_of_mcp(owner: Settings, tmp_path: Path) -> None:
    write_profile(tmp_path / "profile.json", owner)
    async with in_process(tmp_path / "profile.json") as client:
        recalled, found = await done(client, "memory_recall", query=QUESTION, relevance_min=0)
        listed, _ = await done(client, "memory_list")
        [resource] = (await client.read_resource("memory://recent")).contents
        prompt = await client.get_prompt("recall_context", {"topic": QUESTION})
        for text in (recalled, listed, resource.text, prompt.messages[0].content.text):
            check(text)
        by_writer = {one["writer"]: one for one in found["results"]}
        assert {writer: one["unsure"] for writer, one in by_writer.items()} == {
            "coder": True,
            None: False,
        }
        assert "<" not in json.dumps(found)
        alone, _ = await done(client, "memory_get", memory_id=by_writer["coder"]["id"])
        [resource] = (
            await client.read_resource(f"memory://memory/{by_writer['coder']['id']}")
        ).contents
        for text in (alone, resource.text):
            assert [said for _, said in units(text)] == [one_line(FORGED)]


async def test_by_the_openai_package(
    owner: Settings, server: OpenAIServer, original: OpenAI, tmp_path: Path
) -> None:
    write_profile(tmp_path / "profile.json", owner)
    with wrapped(original, tmp_path / "profile.json") as client:
        ask(client, user(QUESTION))
    [asked] = told(server)
    check(asked["content"])
    assert asked["content"].endswith(f"\n\n{QUESTION}")


async def test_an_agent_learns_who_else_wrote_what_it_may_read(owner: Settings) -> None:
    """Its own key sees nothing else of the account."""
    other = await agent_settings(owner, "reviewer", "default")
    async with Gateway(Roster.single(other), PATIENT) as gateway:
        answer = await gateway.before_prompt_build({"prompt": QUESTION}, CTX)
    heads = {text: head for head, text in units(answer["prependContext"])}
    assert "in default, from coder, unsure" in heads[one_line(FORGED)]
    assert "from `" in heads["Anna likes coffee, too."]  # the owner's key has no label
