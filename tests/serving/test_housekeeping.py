"""Every process keeps house, and nobody leads: what two do at once is done once.

Not here: expiring (`test_expiry.py`) and webhooks (`test_webhooks.py`), which show it themselves.
"""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from relayer import jobs
from relayer.clock import utc_now
from relayer.database import queue
from relayer.journal.outbox import GRACE
from relayer.sealed.receipts import open_receipt
from relayer.upkeep import check
from tests.chains import chain_of
from tests.conftest import BenchMaker
from tests.erasing import living
from tests.services import Bench
from tests.staging import staged

RECEIPTS = "SELECT count(*) FROM receipts WHERE account_id = $1"
OUTBOX = "SELECT count(*) FROM blob_outbox"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def several(make_bench: BenchMaker, folder: Path) -> list[Bench]:
    """Three relayers on one database, their blobs outside."""
    one = make_bench(blob_store=f"file:{folder}")
    return [one, one.another(), one.another()]


def stored(folder: Path) -> int:
    return sum(path.is_file() and path.name != "newest" for path in folder.rglob("*"))


async def test_a_closed_account_is_purged_once(several: list[Bench], folder: Path) -> None:
    bench = several[0]
    founder = await bench.account()
    caller = await bench.caller(founder)
    await bench.remember(caller, *(f"Note {n}." for n in range(12)))
    await bench.services.closing.close(caller.access)
    await asyncio.gather(*(b.services.closing.purge() for b in several))
    await asyncio.gather(*(b.storage.outbox.empty() for b in several))
    relayer = bench.storage.identity.public_key
    ops = Counter(open_receipt(r, relayer).op for r in await chain_of(bench, founder.account))
    assert ops["close"] == 1
    assert await bench.value(OUTBOX) == 0


async def test_what_is_staged_is_published_once_and_deleted_once(
    several: list[Bench], folder: Path
) -> None:
    bench = several[0]
    caller = await bench.caller(await bench.account())
    kept, *doomed = await bench.remember(caller, *(f"Note {n}." for n in range(12)))
    for one in doomed:
        await bench.services.memory.forget(caller.access, one.id)
    await asyncio.gather(*(b.storage.outbox.publish() for b in several))
    bench.clock.advance(GRACE.total_seconds())
    await asyncio.gather(*(b.storage.outbox.empty() for b in several))
    assert await bench.value(OUTBOX) == 0
    assert (await check.check(bench.storage)).problems == []
    assert [m.id for m in await bench.remember(caller, "Note 0.")] == [kept.id]


async def test_a_walk_by_several_deletes_nothing_that_is_needed(
    several: list[Bench], folder: Path
) -> None:
    bench = several[0]
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, *(f"Note {n}." for n in range(12)))
    await bench.storage.outbox.publish()
    before = stored(folder)
    await asyncio.gather(*(b.services.collector.collect() for b in several))
    await asyncio.gather(*(b.storage.outbox.empty() for b in several))
    assert stored(folder) == before
    assert (await check.check(bench.storage)).problems == []


async def test_what_waits_is_queued_once(several: list[Bench]) -> None:
    bench = several[0]
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Anna prefers tea.")
    async with bench.storage.database.connection() as connection:
        for _ in range(2):
            await queue.enqueue(connection, queue.REINDEX, caller.access.account)
    await asyncio.gather(*(b.services.sweeper.sweep() for b in several))
    waiting = await bench.sql("SELECT dedupe_key FROM pgqueuer WHERE entrypoint = 'reindex'")
    assert len(waiting) == 1


async def test_several_announce_themselves_each(several: list[Bench]) -> None:
    await asyncio.gather(*(b.storage.announcements.announce() for b in several * 2))
    assert await several[0].value("SELECT count(*) FROM unlock_keys") == len(several)


@pytest.mark.parametrize("off", [timedelta(days=730), -timedelta(days=730)])
async def test_by_a_wrong_clock_nothing_is_erased(
    several: list[Bench],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    off: timedelta,
) -> None:
    """What is staged is published all the same; the right clock erases."""
    bench = several[0]
    caller = await bench.caller(await bench.account())
    soon = bench.clock() + timedelta(minutes=5)
    [expiring] = await bench.remember(caller, "The build is red.", expires_at=soon)
    await staged(bench)
    bench.clock.advance(timedelta(days=730).total_seconds())
    before = stored(folder)
    monkeypatch.setattr(jobs, "utc_now", lambda: utc_now() + off)
    rounds: list[None] = []
    monkeypatch.setattr(
        bench.services.worker._custody, "forget_expired", lambda: rounds.append(None)
    )
    await bench.services.worker.keep_house_once()
    assert len(rounds) == 1, "keys that were lent go all the same"
    assert await living(bench) == {expiring.id}
    assert stored(folder) == before + 1
    assert [r.event for r in caplog.records if hasattr(r, "event")] == ["jobs.clock"]
    monkeypatch.undo()
    await bench.services.worker.keep_house_once()
    assert await living(bench) == set()
