"""Memories to consolidate, whole runs over them, and what holds after each."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest

from relayer.memories.opener import Caller
from relayer.memories.recognition import Stored
from relayer.sealed.keys import Namespace
from relayer.sealed.receipts import open_receipt
from relayer.upkeep import check
from tests.chains import assert_chain_holds
from tests.services import TEAM, Bench

CUSTODIES = ("managed", "sealed")
TEA = "Anna prefers green tea in the morning."
TEA_AGAIN = "Anna really prefers green tea in the morning"
RELEASE = "First run the tests, then tag the commit, finally publish the package."
MEETINGS = tuple(
    f"Anna met the landlord about the {what}."
    for what in ("roof", "door", "rent", "lift", "garden")
)
STATES = """
SELECT memory_id, pinned, review, stale, superseded_by, seen_count FROM memories
WHERE revision_of IS NULL ORDER BY memory_id
"""


def always() -> bool:
    return True


@pytest.fixture
async def caller(hybrid: Bench) -> Caller:
    return await hybrid.caller(await hybrid.account())


async def caller_of(bench: Bench, custody: str, *namespaces: Namespace) -> Caller:
    founder = await bench.account(custody)
    return await bench.unlocked(founder, *(namespaces or (TEAM,)))


async def said(bench: Bench, caller: Caller, *texts: str, **members: Any) -> list[Stored]:
    """Remembered and embedded."""
    stored = await bench.remember(caller, *texts, **members)
    await bench.embed(caller, stored)
    return stored


async def happened(
    bench: Bench, caller: Caller, *texts: str, day: datetime, apart_days: int = 1, **members: Any
) -> list[Stored]:
    """Episodes of one day after the other."""
    stored = []
    for n, text in enumerate(texts):
        when = day + timedelta(days=n * apart_days)
        stored += await said(bench, caller, text, kind="episodic", event_time=when, **members)
    return stored


def week(bench: Bench, weeks_ago: int = 8) -> datetime:
    """The Monday of a week long ago."""
    day = bench.clock() - timedelta(weeks=weeks_ago)
    return day - timedelta(days=day.weekday())


async def consolidated(
    bench: Bench, caller: Caller, namespace: Namespace = TEAM
) -> tuple[Any, list[Any]]:
    """A whole run, and what it did."""
    run = await bench.services.runs.start(caller, namespace)
    ended = await bench.services.consolidator.work(
        caller.access.account, caller.keys, run["run_id"], always
    )
    assert ended
    return await listed(bench, caller, run["run_id"])


async def listed(bench: Bench, caller: Caller, run_id: uuid.UUID) -> tuple[Any, list[Any]]:
    run = await bench.services.runs.get(caller.access, run_id)
    done = await bench.services.runs.actions(caller.access, run_id, after=None, limit=200)
    return run, done


async def ops(bench: Bench, caller: Caller) -> list[str]:
    rows = await bench.sql(
        "SELECT object FROM receipts WHERE account_id = $1 ORDER BY seq", caller.access.account
    )
    return [open_receipt(r["object"], bench.storage.identity.public_key).op for r in rows]


async def holds(bench: Bench, caller: Caller) -> None:
    """Receipts, counts, blobs and rows agree."""
    await assert_chain_holds(bench, caller.access.account)
    assert (await check.check(bench.storage)).problems == []
