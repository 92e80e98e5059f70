"""What each minute's round does where one part of it fails, and where much waits."""

import asyncio
import json
import logging

import pytest

from relayer import sweeper
from relayer.database import queue
from relayer.memories.opener import Caller
from tests.editing import writer
from tests.openai_server import OpenAIServer
from tests.services import TEAM, Bench
from tests.talking import AWAY, analyze
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures

QUEUED = "SELECT count(*) FROM pgqueuer WHERE entrypoint = 'extract' AND status = 'queued'"
FAIL = "UPDATE pgqueuer SET status = 'failed', updated = now() - interval '1 hour'"


async def kept(bench: Bench, caller: Caller, server: OpenAIServer, turns: int) -> None:
    """Turns that waited for minutes, and their jobs."""
    for n in range(turns):
        server.script(AWAY)
        await analyze(bench, caller, f"1. user: I moved to Munich, the {n}. time.")
    bench.clock.advance(600)


async def test_failed_jobs_are_forgotten_whatever_else_fails(
    thinking: Bench, server: OpenAIServer
) -> None:
    await kept(thinking, await writer(thinking), server, 1)
    await thinking.sql("DELETE FROM pgqueuer WHERE entrypoint <> 'extract'")
    await thinking.sql(FAIL)
    await thinking.sql("ALTER TABLE idempotency RENAME TO lost")
    await thinking.services.worker.keep_house_once()
    assert await thinking.value("SELECT count(*) FROM pgqueuer WHERE status = 'failed'") == 0
    assert await thinking.value(QUEUED) == 1, "and what waited is queued again"


async def test_turns_that_fail_hide_no_later_ones(
    thinking: Bench, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "RESUME_MAX", 2)
    await kept(thinking, await writer(thinking), server, 3)
    await thinking.sql("DELETE FROM pgqueuer")
    await thinking.services.sweeper.sweep()
    assert await thinking.value(QUEUED) == 2
    await thinking.sql("UPDATE pgqueuer SET status = 'failed', updated = now()")
    await thinking.services.sweeper.sweep()
    assert await thinking.value(QUEUED) == 1


async def test_nothing_is_put_in_for_what_is_queued(thinking: Bench, server: OpenAIServer) -> None:
    caller = await writer(thinking)
    await kept(thinking, caller, server, 3)
    await thinking.services.sweeper.sweep()
    put_in = "SELECT last_value FROM pgqueuer_id_seq"  # also by what was in conflict
    before = await thinking.value(put_in)
    await thinking.services.sweeper.sweep()
    await thinking.services.sweeper.resume(caller.access.account, [TEAM])
    assert (await thinking.value(put_in), await thinking.value(QUEUED)) == (before, 3)


async def test_work_that_runs_is_done_once_more_with_a_key_that_comes_meanwhile(
    bench: Bench,
) -> None:
    """It may have begun without it, and so have left out what this key opens."""
    caller = await writer(bench)
    account = caller.access.account
    await bench.sql("UPDATE accounts SET incomplete = true")
    await bench.sql("DELETE FROM pgqueuer")
    asked = []
    for status in ("queued", "picked", "picked"):
        await bench.services.sweeper.resume(account, [TEAM])
        [job] = await bench.sql("SELECT headers FROM pgqueuer WHERE entrypoint = 'restore'")
        asked.append(queue.count_asked(job["headers"] and json.loads(job["headers"])))
        await bench.sql(f"UPDATE pgqueuer SET status = '{status}'")
        await bench.services.sweeper.sweep()
    assert asked == [0, 1, 2]


async def test_no_error_of_resuming_is_told_in_its_own_words(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caller = await writer(bench)
    await bench.remember(caller, "Anna prefers tea.")
    await bench.sql("ALTER TABLE episodes RENAME TO lost")
    services = bench.services
    services.sweeper.resume_soon(caller.access.account, [TEAM])
    done = await asyncio.gather(*services.sweeper._resuming, return_exceptions=True)
    assert done == [None]
    [line] = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert (line.getMessage(), vars(line)["cause"]) == ("resuming waits", "UndefinedTableError")
