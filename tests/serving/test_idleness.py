"""A relayer that ends when nobody uses it: what counts as use, and what may not be left undone."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from relayer import idleness
from relayer.database import queue
from relayer.idleness import Activity, has_work, wait_until_idle
from relayer.settings import Settings
from tests.services import Bench

AFTER_S = 900.0


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class App:
    """A route that answers when it is let."""

    def __init__(self) -> None:
        self.began, self.may_end = asyncio.Event(), asyncio.Event()

    async def __call__(self, *_: Any) -> None:
        self.began.set()
        await self.may_end.wait()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    passing = Clock()
    monkeypatch.setattr("relayer.idleness.asyncio.sleep", passing.sleep)
    return passing


async def never() -> bool:
    return False


async def request(activity: Activity) -> None:
    await activity({"type": "http"}, None, None)  # type: ignore[arg-type]


async def test_it_ends_after_the_time_without_a_request(clock: Clock) -> None:
    await wait_until_idle(Activity(App(), monotonic=clock), AFTER_S, never)
    assert clock.now_s == AFTER_S


async def test_a_request_that_ended_begins_the_time_anew(clock: Clock) -> None:
    app = App()
    activity = Activity(app, monotonic=clock)
    clock.now_s = 600
    app.may_end.set()
    await request(activity)
    await wait_until_idle(activity, AFTER_S, never)
    assert clock.now_s == 600 + AFTER_S


async def test_an_open_stream_is_use_however_long(clock: Clock) -> None:
    app = App()
    activity = Activity(app, monotonic=clock)
    stream = asyncio.create_task(request(activity))
    await app.began.wait()
    clock.now_s = 10 * AFTER_S
    assert activity.idle_s() == 0
    app.may_end.set()
    await stream
    clock.now_s += 1
    assert activity.idle_s() == 1


async def test_a_request_that_failed_is_over(clock: Clock) -> None:
    async def fail(*_: Any) -> None:
        raise RuntimeError

    activity = Activity(fail, monotonic=clock)
    with pytest.raises(RuntimeError):
        await request(activity)
    clock.now_s = 5
    assert activity.idle_s() == 5


async def test_what_waits_is_waited_for(clock: Clock) -> None:
    looks = iter([True, True, False])

    async def work() -> bool:
        return next(looks)

    await wait_until_idle(Activity(App(), monotonic=clock), AFTER_S, work)
    assert clock.now_s == AFTER_S + 2 * idleness.LOOK_S


async def test_a_database_that_is_away_ends_nothing(clock: Clock) -> None:
    looks = iter([True, False])

    async def work() -> bool:
        if next(looks):
            raise ConnectionError
        return False

    await wait_until_idle(Activity(App(), monotonic=clock), AFTER_S, work)
    assert clock.now_s == AFTER_S + idleness.LOOK_S


async def test_a_database_that_stays_away_is_not_waited_for(clock: Clock) -> None:
    async def work() -> bool:
        raise ConnectionError

    await wait_until_idle(Activity(App(), monotonic=clock), AFTER_S, work)
    assert clock.now_s == 2 * AFTER_S


async def test_whoever_asks_while_the_database_is_asked_is_answered(clock: Clock) -> None:
    app = App()
    app.may_end.set()
    activity = Activity(app, monotonic=clock)
    asked = False

    async def work() -> bool:
        nonlocal asked
        if not asked:
            asked = True
            await request(activity)
        return False

    await wait_until_idle(activity, AFTER_S, work)
    assert clock.now_s >= 2 * AFTER_S


async def test_a_job_that_is_due_is_work_and_one_put_off_for_longer_is_not(
    hybrid: Bench, settings: Settings
) -> None:
    chosen = replace(settings, idle_exit_s=AFTER_S)
    assert not await has_work(hybrid.storage.database, chosen)
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.")
    assert await has_work(hybrid.storage.database, chosen)
    await hybrid.sql("UPDATE pgqueuer SET execute_after = now() + interval '10 minutes'")
    assert await has_work(hybrid.storage.database, chosen)
    assert not await queue.is_due(hybrid.storage.database, within=timedelta(minutes=9))
    await hybrid.sql("UPDATE pgqueuer SET execute_after = now() + interval '1 hour'")
    assert not await has_work(hybrid.storage.database, chosen)
    await hybrid.sql("UPDATE pgqueuer SET execute_after = now(), status = 'failed'")
    assert not await has_work(hybrid.storage.database, chosen)
