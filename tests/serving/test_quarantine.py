"""Jobs that end their workers are parked, by what the queue's log says of them until it is old."""

from datetime import timedelta

import pytest

from relayer.database import queue
from relayer.jobs import HELD
from relayer.quarantine import QUARANTINE_MAX, QUARANTINE_MIN, TAKEN_MAX, quarantine_time
from tests.queueing import JOBS, VECTORS, forget
from tests.services import Bench

TAKEN = """
INSERT INTO pgqueuer_log (job_id, status, entrypoint, priority)
SELECT id, 'picked', entrypoint, priority FROM pgqueuer, generate_series(1, $1)
"""
PARKED_JOBS = """
SELECT count(*) FROM pgqueuer
WHERE status = 'queued' AND execute_after > now() + interval '9 minutes'
"""


async def test_a_job_that_ends_its_workers_is_parked_and_others_go_on(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.")
    await hybrid.sql(TAKEN, TAKEN_MAX)  # what workers leave that end before they say a word
    await hybrid.remember(caller, "Ben sells cups.")
    async with hybrid.working():
        await hybrid.until(VECTORS, 1)
        await hybrid.until(PARKED_JOBS, 1)
        await hybrid.sql("UPDATE memories SET created_at = created_at - interval '1 hour'")
        await hybrid.services.sweeper.sweep()
        await hybrid.until(JOBS, 1)  # the account was gone through; what is parked stays so
        assert await hybrid.value(VECTORS) == 1
        await hybrid.sql("UPDATE pgqueuer SET execute_after = now()")
        await hybrid.until(VECTORS, 2)


async def test_a_job_that_ends_workers_again_is_parked_for_longer(hybrid: Bench) -> None:
    """At first it may be another's fault that they ended; in the end it is its own."""
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.")
    await hybrid.sql("UPDATE pgqueuer SET created = created - interval '40 minutes'")
    await hybrid.sql(TAKEN, TAKEN_MAX)
    async with hybrid.working():
        await hybrid.until(PARKED_JOBS.replace("9 minutes", "75 minutes"), 1)
    ages = [timedelta(), timedelta(minutes=10), timedelta(hours=3), timedelta(days=9)]
    assert [quarantine_time(age) for age in ages] == [
        QUARANTINE_MIN, timedelta(minutes=20), timedelta(hours=6), QUARANTINE_MAX,
    ]  # fmt: skip


async def test_a_job_is_not_parked_before_its_time(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.")
    await hybrid.sql(TAKEN, TAKEN_MAX - 1)
    async with hybrid.working():
        await hybrid.until(VECTORS, 1)
        await hybrid.until(JOBS, 0)


async def test_a_job_that_was_put_back_was_not_taken_in_vain(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.")
    await hybrid.sql(TAKEN, 2 * TAKEN_MAX)
    await hybrid.sql(TAKEN.replace("picked", "queued"), 1)
    async with hybrid.working():
        await hybrid.until(VECTORS, 1)


async def test_a_job_about_several_memories_is_taken_apart_first(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.", "Ben sells cups.", "Cleo paints boats.")
    await hybrid.sql(TAKEN, TAKEN_MAX)
    async with hybrid.working():
        await hybrid.until(VECTORS, 3)
        await hybrid.until(JOBS, 0)
    taken_apart = "SELECT count(DISTINCT job_id) FROM pgqueuer_log WHERE status = 'successful'"
    assert await hybrid.value(taken_apart) == 4


LINES = "SELECT count(*) FROM pgqueuer_log"
OLD_LINES = "UPDATE pgqueuer_log SET created = created - $1::interval"


async def test_housekeeping_forgets_what_the_queue_said_of_jobs_that_are_over(
    hybrid: Bench,
) -> None:
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.")
    async with hybrid.working():
        await hybrid.until(JOBS, 0)
    said = await hybrid.value(LINES)
    assert said >= 3, "put in, taken, done"
    await hybrid.sql(OLD_LINES, HELD)
    async with hybrid.working():
        await hybrid.until(LINES, 0)
    assert await hybrid.value("SELECT count(*) FROM pgqueuer_statistics") == 0


async def test_lines_that_are_not_old_stay(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.")
    async with hybrid.working():
        await hybrid.until(JOBS, 0)
    said = await hybrid.value(LINES)
    await hybrid.sql(OLD_LINES, HELD - timedelta(minutes=1))
    await forget(hybrid)
    assert await hybrid.value(LINES) == said


async def test_a_job_that_ends_its_workers_stays_counted_however_old_its_lines_are(
    hybrid: Bench,
) -> None:
    """Forgotten between two deaths, they would let it end workers for ever."""
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.")
    await hybrid.sql(TAKEN, TAKEN_MAX)
    await hybrid.sql(OLD_LINES, 2 * HELD)
    await forget(hybrid)
    assert await hybrid.value(LINES) == TAKEN_MAX
    async with hybrid.working():
        await hybrid.until(PARKED_JOBS, 1)


async def test_a_job_that_is_put_back_for_ever_keeps_no_line_for_each_time(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.")
    for _ in range(50):
        await hybrid.sql(TAKEN, 1)
        await hybrid.sql(TAKEN.replace("picked", "queued"), 1)
    await hybrid.sql(TAKEN, 2)
    await hybrid.sql(OLD_LINES, 2 * HELD)
    await forget(hybrid)
    assert await hybrid.value(LINES) == 2, "those since it was put back last"


async def test_a_long_log_is_forgotten_in_pieces(
    hybrid: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.")
    await hybrid.sql(TAKEN, 10)
    await hybrid.sql(OLD_LINES, 2 * HELD)
    await hybrid.sql("DELETE FROM pgqueuer")
    monkeypatch.setattr(queue, "FORGOTTEN_AT_ONCE", 3)
    await queue.forget(hybrid.storage.database, older_than=HELD, pages_max=2)
    assert await hybrid.value(LINES) == 1 + 10 - 6
    await queue.forget(hybrid.storage.database, older_than=HELD, pages_max=9)
    assert await hybrid.value(LINES) == 0
