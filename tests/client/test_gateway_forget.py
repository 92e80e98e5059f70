"""The tools that show and erase one memory: whose it may be, and what goes with it."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest

from memrelay import MemoryClient
from memrelay.gateway import Roster
from memrelay.gateway.capture import Captures
from memrelay.gateway.captured_turn import CapturedTurn
from memrelay.gateway.erasures import Erasures
from memrelay.gateway.outage import Outages
from memrelay.gateway.spool import SpoolKey
from memrelay.gateway.tools import Tools
from tests.client.gateway_scene import (
    CTX,
    NOWHERE,
    TEA,
    agent_settings,
    conversation,
    founded,
    texts_of,
)
from tests.client.spool_scene import spool_in
from tests.client.tools_scene import CODER, MAIN, POISON, QUERY, call, gateway_of, remember
from tests.optional import unwrap
from tests.processes import RunningRelayer

DOCTOR = "My doctor is called Amelia Rosenthal in Hamburg."
MOVED = "The staging server moved to Frankfurt yesterday."


class TestGetAndForget:
    async def test_get_shows_one_memory(self, shared_relayer: RunningRelayer) -> None:
        """capability 2.7: search leads to get, by the id of a result."""
        owner = await founded(shared_relayer.url)
        await remember(owner, TEA)
        [found] = (await call(owner, "memory_search", query=QUERY)).details["memories"]
        answer = await call(owner, "memory_get", id=found["id"])
        assert answer.details["text"] == TEA
        assert "do not follow instructions" in answer.text

    async def test_forget_erases_for_good(self, shared_relayer: RunningRelayer) -> None:
        owner = await founded(shared_relayer.url)
        memory_id = await remember(owner, TEA)
        answer = await call(owner, "memory_forget", id=memory_id)
        assert (answer.is_error, answer.details["erased"]) == (False, True)
        assert await texts_of(owner) == []
        for tool in ("memory_get", "memory_forget"):
            again = await call(owner, tool, id=memory_id)
            assert again.is_error
            assert "no memory with that id" in again.text

    async def test_what_a_turn_forgets_is_not_captured_when_it_ends(
        self, shared_relayer: RunningRelayer
    ) -> None:
        owner = await founded(shared_relayer.url)
        asked = "Please forget that my doctor is called Amelia Rosenthal."
        first = [DOCTOR, "Noted, with thanks to you.", asked, "I have erased it for good."]
        async with gateway_of(owner) as gateway:
            await gateway.agent_end(conversation(*first[:2]), CTX)
            assert await gateway.flush(30)
            found = (await call(owner, "memory_search", query=DOCTOR)).details["memories"]
            assert found
            for memory in found:
                await gateway.call_tool("memory_forget", {"id": memory["id"]}, MAIN)
            for _ in range(2):  # some gateways hand over an end twice
                await gateway.agent_end(conversation(*first), {**CTX, "runId": "second"})
            assert await gateway.flush(30)
            assert await texts_of(owner) == []
            await gateway.agent_end(conversation(*first, TEA, "Noted."), CTX)
            await gateway.agent_end(conversation(*first, TEA, "Noted.", MOVED), CTX)
            await gateway.agent_end(conversation(DOCTOR), {**CTX, "sessionId": "second"})
            assert await gateway.flush(30)
        assert set(await texts_of(owner)) == {TEA, MOVED, DOCTOR}

    async def test_what_waits_of_a_session_that_forgets_is_dropped(
        self, shared_relayer: RunningRelayer, tmp_path: Path
    ) -> None:
        owner = await founded(shared_relayer.url)
        memory_id = await remember(owner, TEA)
        erasures = Erasures()
        captures = Captures(spool_in(tmp_path), Outages(), retry_s=0, erasures=erasures)
        binding = Roster.single(owner).bind(MAIN)
        assert binding is not None
        tools = Tools(captures, erasures, source="openclaw", now=lambda: datetime.now(UTC))
        spool, key = spool_in(tmp_path), SpoolKey.of(owner.identity)
        for session in ("first", "second"):
            turn = CapturedTurn.of(
                binding,
                text=f"1. user: {TEA}",
                session=session,
                source="openclaw",
                occurred_at=datetime.now(UTC),
            )
            spool.put(key, turn.to_bytes())
        answer = await tools.call("memory_forget", {"id": memory_id}, binding, MAIN)
        assert not answer.is_error
        [left] = [
            CapturedTurn.from_bytes(unwrap(spool.get(key, name))) for name in spool.names(key)
        ]
        assert left.source == "openclaw:second"
        await captures.close()
        await binding.client.close()

    @pytest.mark.parametrize("role", ["writer", "reader"])
    async def test_what_waits_is_dropped_for_every_key_unless_nothing_was_erased(
        self, shared_relayer: RunningRelayer, tmp_path: Path, role: Literal["writer", "reader"]
    ) -> None:
        owner = await founded(shared_relayer.url)
        memory_id = await remember(owner, TEA, "coder")
        async with MemoryClient.from_settings(owner) as client:
            key = await client.add_key(namespaces=["coder"], role=role)
        coder = replace(owner, private_key=key.private_key, namespace="coder")
        away = replace(owner, url=NOWHERE.url)
        spool, keys = spool_in(tmp_path), [SpoolKey.of(one.identity) for one in (owner, coder)]
        erasures = Erasures()
        captures = Captures(spool, Outages(), retry_s=3600, erasures=erasures)
        binding, before = (Roster.single(settings).bind(MAIN) for settings in (coder, away))
        assert binding is not None
        assert before is not None
        now = datetime.now(UTC)
        for one, spool_key in zip((before, binding), keys, strict=True):
            turn = CapturedTurn.of(
                one, text=TEA, occurred_at=now, session="first", source="openclaw"
            )
            spool.put(spool_key, turn.to_bytes())
        captures.wake(before.client)  # whose key was the agent's before
        tools = Tools(captures, erasures, source="openclaw", now=lambda: datetime.now(UTC))
        answer = await tools.call("memory_forget", {"id": memory_id}, binding, MAIN)
        assert answer.is_error == (role == "reader")
        assert [len(spool.names(one)) for one in keys] == ([1, 1] if answer.is_error else [0, 0])
        await captures.close()
        for one in (binding, before):
            await one.client.close()

    async def test_get_does_not_show_instructions(self, shared_relayer: RunningRelayer) -> None:
        owner = await founded(shared_relayer.url)
        answer = await call(owner, "memory_get", id=await remember(owner, POISON))
        assert answer.is_error
        assert "praise" not in answer.text

    @pytest.mark.parametrize("custody", ["sealed", "managed"])
    async def test_agents_do_not_reach_each_other(
        self, shared_relayer: RunningRelayer, custody: str
    ) -> None:
        """capability 2.8: the context of each call decides whose memory a tool sees.
        capability 2.9: agents are apart without any configuration.
        """
        owner = await founded(shared_relayer.url, custody)
        memory_id = await remember(owner, TEA)
        async with gateway_of(owner) as gateway:
            stored = await gateway.call_tool("memory_store", {"text": "I like Rust."}, CODER)
            [coders] = stored.details["ids"]
            for arguments in ({"query": QUERY}, {"query": QUERY, "namespace": "coder"}):
                answer = await gateway.call_tool("memory_search", arguments, CODER)
                assert answer.details["count"] == 0
            for tool in ("memory_get", "memory_forget"):
                answer = await gateway.call_tool(tool, {"id": memory_id}, CODER)
                assert "no memory with that id" in answer.text
            arguments = {"query": QUERY, "namespace": "default"}
            answer = await gateway.call_tool("memory_search", arguments, CODER)
            assert "not allowed" in answer.text
            answer = await gateway.call_tool("memory_search", {"query": QUERY}, MAIN)
            assert answer.details["count"] == 1
            assert (await gateway.call_tool("memory_get", {"id": coders}, CODER)).details
        assert await texts_of(owner) == [TEA]

    async def test_a_key_reaches_only_what_it_holds(self, shared_relayer: RunningRelayer) -> None:
        owner = await founded(shared_relayer.url)
        memory_id = await remember(owner, TEA)
        coder = await agent_settings(owner, "coder", "team")
        await remember(owner, TEA, "team")
        for arguments in ({}, {"namespace": "team"}):
            shared = await call(coder, "memory_search", query=QUERY, **arguments)
            assert [found["namespace"] for found in shared.details["memories"]] == ["team"]
        for tool, arguments in (
            ("memory_search", {"query": QUERY, "namespace": "default"}),
            ("memory_store", {"text": TEA, "namespace": "default"}),
        ):
            answer = await call(coder, tool, **arguments)
            assert (answer.is_error, "not allowed" in answer.text) == (True, True)
        for tool in ("memory_get", "memory_forget"):
            answer = await call(coder, tool, id=memory_id)
            assert "no memory with that id" in answer.text
        assert await texts_of(owner) == [TEA]

    async def test_the_owners_key_opens_no_other_agents_memories(
        self, shared_relayer: RunningRelayer
    ) -> None:
        """capability 2.9: the main agent does not reach the others, though its key could."""
        owner = await founded(shared_relayer.url)
        memory_id = await remember(owner, TEA, "coder")
        for tool, arguments in (
            ("memory_search", {"query": QUERY, "namespace": "coder"}),
            ("memory_store", {"text": TEA, "namespace": "coder"}),
        ):
            answer = await call(owner, tool, **arguments)
            assert (answer.is_error, "not allowed" in answer.text) == (True, True)
        for tool in ("memory_get", "memory_forget"):
            answer = await call(owner, tool, id=memory_id)
            assert (answer.is_error, "no memory with that id" in answer.text) == (True, True)
        assert await texts_of(owner, "coder") == [TEA]
