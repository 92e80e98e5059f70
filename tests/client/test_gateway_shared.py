"""Namespaces that agents share or borrow: which a key may use, and what is recalled from all."""

from dataclasses import replace
from pathlib import Path

import pytest

from memrelay import MemoryClient, Settings
from memrelay.errors import NotGranted
from memrelay.gateway import Context, Gateway, Roster
from memrelay.hermes.mirror import Mirror
from memrelay.models import Memory
from tests.client.gateway_scene import (
    PATIENT,
    TEA,
    agent_settings,
    conversation,
    founded,
    texts_of,
    write_profile,
)
from tests.processes import RunningRelayer

MAIN = Context(session_key="agent:main:main")
CODER = Context(session_key="agent:coder:main")
ASKED = {"prompt": "Do I prefer green tea or coffee in the morning?"}


async def test_namespaces_of_a_key(shared_relayer: RunningRelayer) -> None:
    owner = await founded(shared_relayer.url)
    coder = await agent_settings(owner, "coder", "team", "news")
    whole, named = Roster.single(owner), Roster.single(coder)
    owners, coders = whole.bind(MAIN), named.bind(MAIN)
    borrowed = whole.bind(CODER)
    assert owners is not None
    assert coders is not None
    assert borrowed is not None
    assert await owners.list_shared() == ()  # every other agent's would be among them
    assert set(await coders.list_shared()) == {"team", "news"}
    assert await borrowed.list_shared() == ()
    for binding, allowed in ((owners, "default"), (coders, "team"), (borrowed, "coder")):
        assert await binding.may_use(allowed)
    for binding, refused in (
        (owners, "coder"),
        (coders, "any"),
        (borrowed, "default"),
        (borrowed, "team"),
    ):
        assert not await binding.may_use(refused)
    await whole.close()
    await named.close()


@pytest.mark.parametrize("custody", ["sealed", "managed"])
@pytest.mark.parametrize("name", ["team", "coder"])
async def test_what_was_granted_by_name_is_not_borrowed(
    shared_relayer: RunningRelayer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    custody: str,
    name: str,
) -> None:
    """An agent may be called like a shared namespace, or like one whose profile is elsewhere."""
    owner = await founded(shared_relayer.url, custody)
    coder = await agent_settings(owner, "coder", "team")
    await remembered(owner, TEA, name)
    [memory_id] = await ids_of(owner, name)
    ctx, context = {"agentId": name, "sessionId": "s"}, Context(agent_id=name)
    roster = Roster.single(owner)
    async with Gateway(roster, PATIENT, spool_path=tmp_path) as gateway:
        assert await gateway.before_prompt_build(ASKED, ctx) == {}
        for tool, arguments in (
            ("memory_search", {"query": ASKED["prompt"]}),
            ("memory_get", {"id": memory_id}),
            ("memory_forget", {"id": memory_id}),
            ("memory_store", {"text": "We moved the launch to May."}),
        ):
            answer = await gateway.call_tool(tool, arguments, context)
            assert answer.text == "This agent has no memory."
        await gateway.agent_end(conversation("I live in Bergen since last spring."), ctx)
        mirror = Mirror(roster, context)
        mirror.write("replace", "I live in Oslo.", old_text=TEA)
        mirror.close(30)
        for _ in range(2):
            assert not await gateway.flush(30)
            await gateway.agent_end(conversation("We moved to Malmö this autumn."), ctx)
            assert len(list(tmp_path.glob("*.turn"))) == 1  # it waits, and later ones are not kept
        assert f"the agent {name} has no memory" in caplog.text
        assert "appendSystemContext" in await gateway.before_prompt_build(ASKED, {"agentId": "x"})
    assert await texts_of(owner, name) == [TEA]
    async with MemoryClient.from_settings(owner) as client:
        await client.revoke_key(coder.public_key)
    async with Gateway(Roster.single(owner), PATIENT, spool_path=tmp_path) as gateway:
        assert await gateway.flush(30)
        assert "green tea" in (await gateway.before_prompt_build(ASKED, ctx))["prependContext"]
    assert len(await texts_of(owner, name)) == 2


async def test_what_was_borrowed_is_delivered_with_the_agents_own_key_once_it_has_one(
    shared_relayer: RunningRelayer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    owner = await founded(shared_relayer.url)
    profile, spool, ctx = tmp_path / "profile.json", tmp_path / "spool", {"agentId": "coder"}
    away = Roster.single(replace(owner, url="http://127.0.0.1:9"))
    async with Gateway(away, replace(PATIENT, capture_retry_s=0), spool_path=spool) as gateway:
        await gateway.agent_end(conversation(TEA), ctx)
        assert not await gateway.flush(30)
    caplog.clear()
    write_profile(profile, owner)
    coder = await agent_settings(owner, "coder")
    write_profile(tmp_path / "agents" / "coder.json", coder)
    roster = Roster.load(profile, environ={})
    async with Gateway(roster, PATIENT, spool_path=spool) as gateway:
        assert await gateway.flush(30)
    async with MemoryClient.from_settings(owner) as client:
        [memory] = (await client.list(namespace="coder")).memories
    assert (memory.text, memory.writer) == (TEA, coder.public_key)
    assert caplog.messages == []


async def test_what_the_main_profiles_key_was_granted_by_name_may_be_borrowed(
    shared_relayer: RunningRelayer,
) -> None:
    owner = await founded(shared_relayer.url)
    main = await agent_settings(owner, "home", "coder")
    async with Gateway(Roster.single(main), PATIENT) as gateway:
        await gateway.agent_end(conversation(TEA), {"agentId": "coder"})
        assert await gateway.flush(30)
        answer = await gateway.before_prompt_build(ASKED, {"agentId": "coder"})
    assert "green tea" in answer["prependContext"]
    assert await texts_of(owner, "coder") == [TEA]


async def test_an_agents_own_wish_for_a_shared_namespace_is_kept(
    shared_relayer: RunningRelayer,
) -> None:
    owner = await founded(shared_relayer.url)
    coder = await agent_settings(owner, "coder", "team")
    async with Gateway(Roster.single(coder), PATIENT) as gateway:
        arguments = {"text": TEA, "namespace": "team"}
        answer = await gateway.call_tool("memory_store", arguments, MAIN)
        assert not answer.is_error
    assert await texts_of(owner, "team") == [TEA]


async def ids_of(owner: Settings, namespace: str) -> list[str]:
    async with MemoryClient.from_settings(owner) as client:
        return [memory.id for memory in (await client.list(namespace=namespace)).memories]


async def remembered(owner: Settings, text: str, namespace: str) -> None:
    async with MemoryClient.from_settings(owner) as client:
        stored = await client.remember(text, namespace=namespace)
        await client.wait([stored.id])


async def test_the_nearest_of_all_namespaces_come_first(shared_relayer: RunningRelayer) -> None:
    owner = await founded(shared_relayer.url)
    coder = await agent_settings(owner, "coder", "team", "news")
    await remembered(owner, "Coffee is sold in the shop at the corner.", "coder")
    await remembered(owner, TEA, "team")
    await remembered(owner, "Green tea grows in Japan.", "news")
    roster = Roster.single(coder)
    binding = roster.bind(MAIN)
    assert binding is not None
    names = (binding.namespace, *await binding.list_shared())
    query, everything = ASKED["prompt"], 0.0
    found = await binding.recall(
        query, namespaces=names, limit=5, min_relevance=everything, chars_max=None
    )
    distances = [m.distance for m in found.memories if m.distance is not None]
    assert (len(distances), found.memories[0].text) == (3, TEA)
    assert distances == sorted(distances)
    nearest = await binding.recall(
        query, namespaces=names, limit=1, min_relevance=everything, chars_max=None
    )
    assert [memory.text for memory in nearest.memories] == [TEA]
    await roster.close()


async def test_a_shared_namespace_that_fails_costs_only_itself(
    shared_relayer: RunningRelayer, caplog: pytest.LogCaptureFixture
) -> None:
    owner = await founded(shared_relayer.url)
    coder = await agent_settings(owner, "coder")
    await remembered(owner, TEA, "coder")
    roster = Roster.single(coder)
    binding = roster.bind(MAIN)
    assert binding is not None
    for names in (("coder", "secret"), ("coder", "secret", "other")):
        found = await binding.recall(
            ASKED["prompt"], namespaces=names, limit=5, min_relevance=0.3, chars_max=None
        )
        assert [memory.text for memory in found.memories] == [TEA]
    assert len(caplog.records) == 1
    assert "NotGranted" in caplog.text
    with pytest.raises(NotGranted):
        await binding.recall(
            ASKED["prompt"],
            namespaces=("secret", "coder"),
            limit=5,
            min_relevance=0.3,
            chars_max=None,
        )
    await roster.close()


@pytest.mark.parametrize(
    ("custody", "refused", "told"),
    [("sealed", "secret", "NotGranted"), ("managed", "secret", "NotAllowed"),
     ("sealed", "\u00a0", "Invalid")],
)  # fmt: skip
async def test_any_refusal_of_a_shared_namespace_costs_only_itself(
    shared_relayer: RunningRelayer,
    caplog: pytest.LogCaptureFixture,
    custody: str,
    refused: str,
    told: str,
) -> None:
    owner = await founded(shared_relayer.url, custody)
    coder = await agent_settings(owner, "coder")
    await remembered(owner, TEA, "coder")
    roster = Roster.single(coder)
    binding = roster.bind(MAIN)
    assert binding is not None
    found = await binding.recall(
        ASKED["prompt"], namespaces=("coder", refused), limit=5, min_relevance=0.3, chars_max=20
    )
    assert [memory.text for memory in found.memories] == [f"{TEA[:20]} …"]
    assert f"({told}," in caplog.text
    await roster.close()


async def test_namespaces_asked_one_by_one_keep_order_and_budget(
    shared_relayer: RunningRelayer,
) -> None:
    owner = await founded(shared_relayer.url)
    coder = await agent_settings(owner, "coder", "team", "news")
    await remembered(owner, "Coffee is sold in the shop.", "coder")
    await remembered(owner, TEA, "team")
    await remembered(owner, "Green tea grows in Japan.", "news")
    roster = Roster.single(coder)
    binding = roster.bind(MAIN)
    assert binding is not None
    names = ("coder", "team", "news", "secret")

    async def recalled(tokens_max: int | None) -> list[Memory]:
        found = await binding.recall(
            ASKED["prompt"],
            namespaces=names,
            limit=5,
            min_relevance=0.0,
            chars_max=None,
            tokens_max=tokens_max,
        )
        return list(found.memories)

    everything = await recalled(1000)
    scores = [memory.score or 0.0 for memory in everything]
    assert (len(scores), everything[0].text) == (3, TEA)
    assert scores == sorted(scores, reverse=True)
    assert len(await recalled(None)) == 3
    first, second, third = [memory.tokens or 0 for memory in everything]
    assert min(first, second, third) > 0
    ids = [memory.id for memory in everything]  # scores may differ in their last digits
    assert [memory.id for memory in await recalled(first + second)] == ids[:2]
    assert [memory.id for memory in await recalled(first)] == ids[:1]
    fitting = await recalled(first - 1)
    assert fitting
    assert sum(memory.tokens or 0 for memory in fitting) < first
    await roster.close()


async def test_shared_namespaces_beyond_the_bound_are_told(
    shared_relayer: RunningRelayer, caplog: pytest.LogCaptureFixture
) -> None:
    owner = await founded(shared_relayer.url)
    names = [f"team{number}" for number in range(9)]
    fitting, many = [
        await agent_settings(owner, name, *names[:count])
        for name, count in (("fits", 8), ("many", 9))
    ]
    for one, lines in ((fitting, 0), (many, 1)):
        roster = Roster.single(one)
        for _ in range(2):
            binding = roster.bind(MAIN)
            assert binding is not None
            assert len(await binding.list_shared()) == 8
            assert await binding.may_use("team7")
        assert len(caplog.records) == lines
        await roster.close()
