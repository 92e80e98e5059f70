"""What people say in a turn and how little of it is small talk, through the gateway, by rules."""

import pytest

from memrelay import MemoryClient
from memrelay.gateway import Gateway, Roster
from tests.client.gateway_scene import PATIENT, conversation, founded
from tests.plain_facts import (
    FACTS,
    FACTS_KEPT_MIN,
    SMALL_TALK,
    SMALL_TALK_KEPT_MAX,
    kept,
)
from tests.processes import RunningRelayer


@pytest.mark.parametrize(
    ("said", "low", "high"),
    [(FACTS, FACTS_KEPT_MIN, len(FACTS)), (SMALL_TALK, 0, SMALL_TALK_KEPT_MAX)],
    ids=["facts", "small talk"],
)
async def test_plain_facts_are_kept_and_small_talk_is_not(
    shared_relayer: RunningRelayer, said: tuple[str, ...], low: int, high: int
) -> None:
    owner = await founded(shared_relayer.url)
    async with Gateway(Roster.single(owner), PATIENT, source="openclaw") as gateway:
        for number, line in enumerate(said):
            ctx = {"sessionKey": f"agent:main:{number}", "sessionId": f"s{number}"}
            await gateway.agent_end(conversation(line, "Understood."), ctx)
        assert await gateway.flush(60)
    async with MemoryClient.from_settings(owner) as client:
        stored = [memory.text or "" for memory in (await client.list(limit=100)).memories]
    found = kept(said, stored)
    assert low <= len(found) <= high, sorted(set(said) ^ set(found))
