"""Memories that were merged into others: forgotten and rejected, they hold nowhere."""

import uuid
from datetime import timedelta

import pytest

from relayer.memories.deletion import Filter
from relayer.memories.opener import Caller
from relayer.sealed.receipts import open_receipt
from tests.consolidating import (
    CUSTODIES,
    TEA,
    TEA_AGAIN,
    caller_of,
    consolidated,
    holds,
    said,
)
from tests.editing import refused
from tests.services import TEAM, Bench
from tests.talking import change

OVER_AND_OVER = "Anna just really prefers green tea in the morning"


async def merged(bench: Bench, caller: Caller) -> tuple[uuid.UUID, uuid.UUID]:
    """One that was kept and the one that was merged into it."""
    for text in (TEA, TEA_AGAIN):
        await said(bench, caller, text)
    _, [action] = await consolidated(bench, caller)
    bench.clock.advance(60)
    return action["memory_id"], action["other_ids"][0]


@pytest.mark.parametrize("custody", CUSTODIES)
async def test_forgetting_it_takes_what_says_the_same(bench: Bench, custody: str) -> None:
    caller = await caller_of(bench, custody)
    first, other = await merged(bench, caller)
    await said(bench, caller, OVER_AND_OVER)
    _, [action] = await consolidated(bench, caller)
    everything = {first, other, action["memory_id"], *action["other_ids"]}
    assert len(everything) == 3
    done = await bench.services.deletion.forget(caller.access, other)
    assert set(done.ids) == everything
    [signed] = done.receipts
    receipt = open_receipt(signed, bench.storage.identity.public_key)
    assert {item.memory for item in receipt.items} == everything
    assert await bench.value("SELECT count(*) FROM memories") == 0
    await holds(bench, caller)


async def test_superseded_memories_are_cleared_away_alone(bench: Bench) -> None:
    """Found by a filter, they take nothing along that does not fit it."""
    caller = await caller_of(bench, "managed")
    kept, other = await merged(bench, caller)
    done = await bench.services.deletion.forget_matching(
        caller, Filter(namespace=TEAM, state="superseded")
    )
    assert list(done.ids) == [other]
    assert (await bench.services.memory.get(caller, kept)).state.name == "active"


async def test_an_end_is_of_one_alone(bench: Bench) -> None:
    caller = await caller_of(bench, "managed")
    await said(bench, caller, TEA, expires_at=bench.clock() + timedelta(hours=1))
    await said(bench, caller, TEA_AGAIN)
    await consolidated(bench, caller)
    bench.clock.advance(2 * 3600)
    await bench.services.expiry.expire()
    assert await bench.texts(caller, "Anna tea", mode="keyword") == [TEA_AGAIN]
    await holds(bench, caller)


async def test_rejecting_it_is_told_what_says_the_same(bench: Bench) -> None:
    caller = await caller_of(bench, "managed")
    kept, other = await merged(bench, caller)
    await refused("memory.superseded", change(bench, caller, other, review="rejected"))
    await change(bench, caller, other, superseded_by=None, review="rejected")
    assert await bench.texts(caller, "Anna tea", mode="keyword") != []
    await change(bench, caller, kept, review="rejected")
    assert await bench.texts(caller, "Anna tea", mode="keyword") == []


async def test_what_is_newer_is_kept_whatever_a_namespace_keeps_later(bench: Bench) -> None:
    """By the age of the older one both would be over at once."""
    caller = await caller_of(bench, "managed")
    await said(bench, caller, TEA_AGAIN)
    await said(bench, caller, TEA_AGAIN)  # and more often
    bench.clock.advance(100 * 86400)
    [newer] = await said(bench, caller, TEA)
    _, [action] = await consolidated(bench, caller)
    assert action["memory_id"] == newer.id
    await bench.services.expiry.keep(caller.access, TEAM, 90 * 86400)
    await bench.services.expiry.expire()
    assert await bench.texts(caller, "Anna tea", mode="keyword") == [TEA]
    await holds(bench, caller)
