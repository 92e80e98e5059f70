"""Counts of recalls: noted in memory, stored behind answers, bounded, gone with the account."""

import logging
import uuid
from datetime import timedelta
from typing import Any

import pytest

from relayer.database.recall_counts import RecallCount, add_recalls
from relayer.errors import Unavailable
from relayer.memories.opener import Caller
from relayer.tenants import recall_counts
from relayer.tenants.recall_counts import RecallCounts
from relayer.tenants.regular_storing import store_quietly
from tests.services import Bench
from tests.talking import choose


async def scene(bench: Bench, *texts: str) -> tuple[Caller, list[uuid.UUID]]:
    """A caller whose account counts recalls, and the ids of these memories."""
    founder = await bench.account()
    caller = await choose(bench, await bench.caller(founder), count_recalls=True)
    return caller, [one.id for one in await bench.remember(caller, *texts)]


async def stored(bench: Bench) -> dict[uuid.UUID, RecallCount]:
    rows = await bench.sql("SELECT memory_id, recall_count, last_on FROM memory_recalls")
    return {r["memory_id"]: RecallCount(r["recall_count"], r["last_on"]) for r in rows}


async def test_processes_add_up_and_the_last_day_stays(bench: Bench) -> None:
    caller, [tea] = await scene(bench, "Anna prefers tea.")
    today = bench.clock().date()
    counts, other = bench.storage.recall_counts, RecallCounts(database=bench.storage.database)
    counts.note(caller.access, [tea, tea])  # one recall shows it once
    await counts.store()
    bench.clock.advance(-24 * 3600)
    other.note(caller.access, [tea])
    other.note(caller.access, [tea])
    await other.store()
    assert await stored(bench) == {tea: RecallCount(3, today)}
    assert await counts.count_of(caller.access, tea) == RecallCount(3, today)
    bench.clock.advance(48 * 3600)
    counts.note(caller.access, [tea])
    tomorrow = today + timedelta(days=1)
    assert await counts.count_of(caller.access, tea) == RecallCount(4, tomorrow)
    await counts.store()
    assert await stored(bench) == {tea: RecallCount(4, tomorrow)}


async def test_what_could_not_be_stored_is_stored_later_and_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, [tea, ship] = await scene(bench, "Anna prefers tea.", "The ship sails at six.")
    counts = bench.storage.recall_counts
    monkeypatch.setattr(recall_counts, "SLICE_MAX", 1)
    add, done = add_recalls, list[int]()

    async def fail_at_the_second(*arguments: Any) -> None:
        if done:
            raise Unavailable("The database is away.")
        done.append(1)
        await add(*arguments)

    counts.note(caller.access, [tea, ship])
    with monkeypatch.context() as away:
        away.setattr("relayer.database.recall_counts.add_recalls", fail_at_the_second)
        await store_quietly(counts.store, recall_counts.log, "later", "recalls.counts")
    assert len(await stored(bench)) == 1
    counts.note(caller.access, [ship])
    await counts.store()
    assert sorted(one.times for one in (await stored(bench)).values()) in ([1, 2], [2, 1])
    assert sum(one.times for one in (await stored(bench)).values()) == 3


async def test_what_is_noted_is_bounded_and_what_is_passed_over_is_logged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recall_counts, "MEMORIES_MAX", 2)
    caller, ids = await scene(bench, "Anna prefers tea.", "The ship sails.", "Bob likes rain.")
    counts = bench.storage.recall_counts
    for one in [*ids, ids[0]]:
        counts.note(caller.access, [one])
    with caplog.at_level(logging.WARNING, "relayer.recalls"):
        await counts.store()
    assert [(vars(record)["event"], vars(record)["memories"]) for record in caplog.records] == [
        ("recalls.passed_over", 1)
    ]
    assert {one: count.times for one, count in (await stored(bench)).items()} == {
        ids[0]: 2,
        ids[1]: 1,
    }
    counts.note(caller.access, [ids[2]])
    await counts.store()
    assert len(await stored(bench)) == 3


async def test_of_an_expired_memory_no_count_is_left(bench: Bench) -> None:
    caller, [tea] = await scene(bench, "Anna prefers tea.")
    soon = bench.clock() + timedelta(hours=1)
    [ship] = await bench.remember(caller, "The ship sails at six.", expires_at=soon)
    counts = bench.storage.recall_counts
    counts.note(caller.access, [tea, ship.id])
    await counts.store()
    bench.clock.advance(2 * 3600)
    await bench.services.expiry.expire()
    assert list(await stored(bench)) == [tea]


async def test_of_a_closed_account_nothing_is_stored_or_left(bench: Bench) -> None:
    caller, [tea] = await scene(bench, "Anna prefers tea.")
    counts = bench.storage.recall_counts
    counts.note(caller.access, [tea])
    await counts.store()
    counts.note(caller.access, [tea])
    await bench.services.closing.close(caller.access)
    assert await bench.value("SELECT recalls_since FROM accounts") is None
    await counts.store()
    await bench.services.closing.purge()
    assert await stored(bench) == {}


async def test_a_choice_that_says_the_same_keeps_the_day(bench: Bench) -> None:
    caller, _ = await scene(bench, "Anna prefers tea.")
    begun = bench.clock().date()
    bench.clock.advance(3 * 24 * 3600)
    await choose(bench, caller, count_recalls=True, keep_turns=True)
    assert await bench.value("SELECT recalls_since FROM accounts") == begun
