"""A real worker on a real queue.

Not here: jobs that end their workers, and what the queue keeps of jobs (`test_quarantine.py`).
"""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from relayer import jobs
from relayer.database import queue
from relayer.embedding.embedders import Embedder
from relayer.errors import NotAllowed
from relayer.jobs import BACKOFF_S_MAX, HELD, PUT_BACK_S_MAX, Tasks, Worker
from relayer.llm import LanguageModel
from relayer.record import Draft
from relayer.sealed.unlock import HOLD_S_MAX
from tests.conftest import BenchMaker
from tests.embeddings_server import EmbeddingsServer, embedder_of
from tests.life import WAIT_S_MAX
from tests.openai_server import API_KEY, CHAT_MODEL, Step, openai_server
from tests.queueing import CUT_OFF, JOBS, VECTORS, forget, running_job
from tests.services import OTHER, TEAM, Bench, random_text
from tests.talking import AWAY, analyze


async def payloads(bench: Bench) -> list[Any]:
    rows = await bench.sql("SELECT entrypoint, payload FROM pgqueuer ORDER BY id")
    named = [(r["entrypoint"], *queue.decode_payload(r["payload"])) for r in rows]
    return [(entrypoint, ids or account) for entrypoint, account, ids in named]


async def test_bulk_is_embedded_and_leaves_no_job(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    async with hybrid.working():
        await hybrid.remember(caller, *(f"note number {n}" for n in range(20)))
        await asyncio.gather(*(hybrid.remember(caller, f"single {n}") for n in range(5)))
        await hybrid.until(VECTORS, 25)
        await hybrid.until(JOBS, 0)


async def test_a_job_commits_with_its_memory_or_not_at_all(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    [stored] = await hybrid.remember(caller, "Anna prefers tea.")
    assert await payloads(hybrid) == [("embed", [stored.id])]
    await hybrid.sql("DROP TABLE pgqueuer CASCADE")
    with pytest.raises(asyncpg.UndefinedTableError):
        await hybrid.remember(caller, "Ben sells cups.")
    assert await hybrid.texts(caller, "cups") == []


async def test_embedder_away_is_tried_again(make_bench: BenchMaker) -> None:
    async with EmbeddingsServer() as server:
        server.script.extend(["400"] + ["503"] * 3)
        bench = make_bench(embedder=embedder_of(server))
        caller = await bench.caller(await bench.account())
        async with bench.working():
            await bench.remember(caller, "Anna prefers tea.")
            await bench.until(VECTORS, 1)
        assert server.complaints == []
        assert not server.script


async def test_who_ends_puts_back_what_it_embeds(
    make_bench: BenchMaker, embedder: Embedder
) -> None:
    """A long text takes minutes, and whoever ends a process does not wait so long."""
    async with running_job(make_bench, embedder) as job:
        job.bench.services.worker.stop()
        await job.bench.until("SELECT count(*) FROM pgqueuer WHERE status = 'queued'", 1)
    async with job.bench.another(embedder=embedder).working():
        await job.bench.until(VECTORS, 1)
        await job.bench.until(JOBS, 0)


async def test_job_of_a_sealed_account_waits_for_its_keys(
    hybrid: Bench, embedder: Embedder
) -> None:
    """Written at one replica without hold; another unlocked request resumes it."""
    founder = await hybrid.account("sealed")
    await hybrid.remember(await hybrid.unlocked(founder, TEAM), "Anna prefers tea.")
    async with hybrid.working():
        await hybrid.until("SELECT count(*) FROM pgqueuer WHERE attempts > 0", 1)
        assert await hybrid.value(VECTORS) == 0
        await hybrid.unlocked(founder, OTHER, hold_s=60)
        assert await hybrid.value(VECTORS) == 0
        await hybrid.unlocked(founder, TEAM, hold_s=60)
        await hybrid.until(VECTORS, 1)
        await hybrid.until(JOBS, 0)


async def test_who_has_no_key_puts_back_for_seconds_only(hybrid: Bench) -> None:
    """Several processes take such a job by chance, and keys are lent for minutes."""
    await hybrid.remember(await hybrid.unlocked(await hybrid.account("sealed"), TEAM), "one apple")
    await hybrid.sql("UPDATE pgqueuer SET attempts = 9")
    async with hybrid.working():
        await hybrid.until("SELECT count(*) FROM pgqueuer WHERE attempts > 9", 1)
    late = "SELECT count(*) FROM pgqueuer WHERE execute_after > now() + $1::interval"
    assert await hybrid.value(late, timedelta(seconds=PUT_BACK_S_MAX)) == 0


@pytest.mark.parametrize(("step", "for_long"), [(Step(hang=True), True), (AWAY, False)])
async def test_a_model_that_never_ends_is_asked_less_and_less(
    make_bench: BenchMaker, step: Step, for_long: bool
) -> None:
    """It works, and may be paid, all that time; one that is away costs nothing to ask."""
    with openai_server() as server:
        model = LanguageModel(
            base_url=server.base_url,
            api_key=API_KEY,
            model=CHAT_MODEL,
            timeout_s=0.3 if step.hang else 60,
        )
        bench = make_bench(language_model=model)
        server.script(AWAY, step, step)
        await analyze(bench, await bench.caller(await bench.account()), "FACT: The roof leaks.")
        await bench.sql("UPDATE pgqueuer SET attempts = 9")
        async with bench.working():
            await bench.until("SELECT count(*) FROM pgqueuer WHERE attempts > 9", 1)
        late = "SELECT count(*) FROM pgqueuer WHERE execute_after > now() + $1::interval"
        assert await bench.value(late, timedelta(seconds=2 * BACKOFF_S_MAX)) == for_long
        await model.close()


async def test_what_nobody_unlocked_in_time_is_left_and_resumed(hybrid: Bench) -> None:
    founder = await hybrid.account("sealed")
    await hybrid.remember(await hybrid.unlocked(founder, TEAM), "Anna prefers tea.")
    await hybrid.sql(
        "UPDATE pgqueuer SET created = created - $1::interval", timedelta(seconds=HOLD_S_MAX)
    )
    async with hybrid.working():
        await hybrid.until(JOBS, 0)
        assert await hybrid.value(VECTORS) == 0
        await hybrid.unlocked(founder, TEAM, hold_s=60)
        await hybrid.until(VECTORS, 1)


async def test_unlocking_twice_queues_once(hybrid: Bench) -> None:
    founder = await hybrid.account("sealed")
    texts = [Draft(text=f"note {n}", namespace=TEAM) for n in range(45)]
    caller = await hybrid.unlocked(founder, TEAM)
    for at in range(0, 45, 15):
        await hybrid.stored(caller, texts[at : at + 15])
    await hybrid.sql("DELETE FROM pgqueuer")
    await hybrid.unlocked(founder, TEAM, hold_s=60)
    assert await payloads(hybrid) == [("reindex", founder.account)]
    hybrid.clock.advance(61)
    await hybrid.unlocked(founder, TEAM, hold_s=60)
    assert await hybrid.value(JOBS) == 1
    async with hybrid.working():
        await hybrid.until(VECTORS, 45)
        await hybrid.until(JOBS, 0)


class TestSweep:
    async def test_lost_jobs_are_queued_again(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        await hybrid.remember(caller, "Anna prefers tea.")
        await hybrid.sql("DELETE FROM pgqueuer")
        await hybrid.services.sweeper.sweep()
        assert await payloads(hybrid) == []  # its job may still be on its way
        hybrid.clock.advance(121)
        for _ in range(2):
            await hybrid.services.sweeper.sweep()
        assert await payloads(hybrid) == [("reindex", caller.access.account)]
        async with hybrid.working():
            await hybrid.until(VECTORS, 1)

    async def test_lost_extractions_too(self, make_bench: BenchMaker) -> None:
        with openai_server() as server:
            model = LanguageModel(
                base_url=server.base_url, api_key=API_KEY, model=CHAT_MODEL, timeout_s=60
            )
            bench = make_bench(language_model=model)
            caller = await bench.caller(await bench.account())
            server.script(AWAY)
            await analyze(bench, caller, "FACT: The roof leaks.")
            await bench.sql("DELETE FROM pgqueuer")
            bench.clock.advance(121)
            await bench.services.sweeper.sweep()
            async with bench.working():
                await bench.until("SELECT count(*) FROM memories", 1)
            await model.close()

    async def test_a_sealed_account_does_not_hide_the_others(self, hybrid: Bench) -> None:
        sealed = await hybrid.account("sealed")
        locked = await hybrid.unlocked(sealed, TEAM)
        await hybrid.remember(locked, "one apple")
        await hybrid.sql(
            """
            INSERT INTO memories (account_id, memory_id, namespace_id, epoch, seq, revision, type,
                format, kind, importance, confidence, writer, created_at, blob_id, size_bytes,
                word_count, tokens, index_version, stored_at)
            SELECT account_id, gen_random_uuid(), namespace_id, epoch, seq + n, 1, 1, 'sealed',
                kind, importance, confidence, writer, created_at, blob_id, 400, 3, '{}',
                index_version, stored_at
            FROM memories, generate_series(1, 1200) n
            """
        )
        caller = await hybrid.caller(await hybrid.account())
        await hybrid.remember(caller, "Anna prefers tea.")
        await hybrid.sql("DELETE FROM pgqueuer")
        hybrid.clock.advance(121)
        await hybrid.services.sweeper.sweep()
        assert await payloads(hybrid) == [("reindex", caller.access.account)]

    async def test_a_broken_account_does_not_stop_the_others(self, hybrid: Bench) -> None:
        broken = await hybrid.account()
        await hybrid.remember(await hybrid.caller(broken), "one apple")
        caller = await hybrid.caller(await hybrid.account())
        await hybrid.remember(caller, "Anna prefers tea.")
        await hybrid.sql("DELETE FROM pgqueuer")
        spoil = "UPDATE accounts SET grant_serial = 1 WHERE account_id = $1"
        await hybrid.sql(spoil, broken.account)
        hybrid.clock.advance(121)
        await hybrid.services.sweeper.sweep()
        assert await payloads(hybrid) == [("reindex", caller.access.account)]

    async def test_without_an_embedder_nothing_waits(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "Anna prefers tea.")
        bench.clock.advance(121)
        await bench.services.sweeper.sweep()
        sealed = await bench.account("sealed")
        await bench.remember(await bench.unlocked(sealed, TEAM), "one apple")
        await bench.unlocked(sealed, TEAM, hold_s=60)
        assert await bench.value(JOBS) == 0


async def long_reindexing(bench: Bench) -> Bench:
    """A relayer that has 140 memories to embed, and a job whose slices end with every page."""
    caller = await bench.caller(await bench.account())
    for _ in range(7):
        await bench.remember(caller, *(random_text() for _ in range(20)))
    await bench.sql("DELETE FROM pgqueuer")
    storage, services = bench.storage, bench.services
    worker = Worker(
        connect_args=storage.connect_args,
        database=storage.database,
        tasks=Tasks(
            indexer=services.indexer,
            mover=services.index_mover,
            memory_index=services.memory_index,
            analysis=services.analysis,
            resealer=services.resealer,
            consolidator=services.consolidator,
            restore=services.restore,
            outbox=storage.outbox,
        ),
        custody=storage.custody,
        sweeper=services.sweeper,
        slice_s=0,
    )
    bench.clock.advance(121)
    await services.sweeper.sweep()
    return replace(bench, services=replace(services, worker=worker))


async def test_a_long_reindexing_lets_others_go_first(hybrid: Bench) -> None:
    """Each slice is a job's run: between two of them another account has its turn."""
    async with (await long_reindexing(hybrid)).working():
        await hybrid.until(VECTORS, 140)
        await hybrid.until(JOBS, 0)
    taken = "SELECT count(*) FROM pgqueuer_log WHERE status = 'picked' AND entrypoint = 'reindex'"
    assert await hybrid.value(taken) > 2, "it was put back, and taken again"


async def test_a_job_that_cannot_let_others_go_first_goes_on(hybrid: Bench) -> None:
    """The database's disk is full just then."""
    bench = await long_reindexing(hybrid)
    await bench.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE SQLSTATE '53100'; END $$"
    )
    await bench.sql(
        "CREATE TRIGGER full_disk BEFORE UPDATE OF priority ON pgqueuer"
        " FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    async with bench.working():
        await bench.until(f"SELECT ({FAILED}) = 1 OR ({VECTORS}) = 140", True)
        assert await bench.value(VECTORS) == 140
        await bench.until(JOBS, 0)


async def test_a_worker_whose_queue_cannot_be_read_never_counts_as_one_that_works(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It connects each time, and ends at once; once it stays at work, it counts."""
    worker = bench.services.worker
    for name, value in (("AWAY_S", 0.0), ("RECONNECT_S", 0.01), ("STEADY_S", WAIT_S_MAX)):
        monkeypatch.setattr(jobs, name, value)
    await bench.sql("ALTER TABLE pgqueuer RENAME TO hidden")
    caplog.set_level("WARNING", "relayer.jobs")

    def failures() -> int:
        return [r.__dict__.get("event") for r in caplog.records].count("jobs.reconnect")

    async with bench.working(), asyncio.timeout(WAIT_S_MAX):
        while (failed := failures()) < 5:
            assert failed == 0 or not worker.works()
            await asyncio.sleep(0.001)
        monkeypatch.setattr(jobs, "STEADY_S", 0.05)
        await bench.sql("ALTER TABLE hidden RENAME TO pgqueuer")
        while not worker.works():
            await asyncio.sleep(0.01)


FAILED = "SELECT count(*) FROM pgqueuer WHERE status = 'failed'"
AGE = "UPDATE pgqueuer SET updated = updated - $1::interval"


async def test_a_corrupted_turn_is_held_and_said_in_fixed_words(make_bench: BenchMaker) -> None:
    with openai_server() as server:
        model = LanguageModel(
            base_url=server.base_url, api_key=API_KEY, model=CHAT_MODEL, timeout_s=60
        )
        bench = make_bench(language_model=model)
        caller = await bench.caller(await bench.account())
        server.script(AWAY)
        await analyze(bench, caller, "FACT: The roof leaks.")
        await bench.sql("DELETE FROM blobs")
        async with bench.working():
            await bench.until(FAILED, 1)
        logged = str(await bench.sql("SELECT l::text FROM pgqueuer_log l"))
        assert "store.corrupted" in logged
        assert "roof" not in logged
        await model.close()


async def test_a_turn_whose_bytes_are_missing_has_one_failed_job_however_often_it_is_swept(
    make_bench: BenchMaker,
) -> None:
    with openai_server() as server:
        model = LanguageModel(
            base_url=server.base_url, api_key=API_KEY, model=CHAT_MODEL, timeout_s=60
        )
        bench = make_bench(language_model=model)
        caller = await bench.caller(await bench.account())
        server.script(AWAY)
        await analyze(bench, caller, "FACT: The roof leaks.")
        await bench.sql("CREATE TABLE aside AS SELECT * FROM blobs")
        await bench.sql("DELETE FROM blobs")
        async with bench.working():
            await bench.until(FAILED, 1)
            bench.clock.advance(121)
            for _ in range(3):
                await bench.services.sweeper.sweep()
                await bench.services.sweeper.resume(caller.access.account, [TEAM])
            assert await bench.value(JOBS) == 1
            await bench.sql("INSERT INTO blobs SELECT * FROM aside")
            await bench.sql(AGE, HELD - timedelta(minutes=1))
            await forget(bench)
            assert await bench.value(FAILED) == 1, "its time is not over"
            await bench.sql(AGE, timedelta(minutes=1))
            await forget(bench)
            await bench.services.sweeper.sweep()
            await bench.until("SELECT count(*) FROM memories", 1)
            await bench.until(JOBS, 0)
        await model.close()


async def test_an_error_nobody_foresaw_is_not_quoted(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.")
    await hybrid.sql("ALTER TABLE vectors ADD CONSTRAINT secretive CHECK (part > 5)")
    async with hybrid.working():
        await hybrid.until(FAILED, 1)
    logged = str(await hybrid.sql("SELECT l::text FROM pgqueuer_log l"))
    assert "internal" in logged
    assert "secretive" not in logged


async def test_nor_is_one_of_a_job_that_needs_no_keys(bench: Bench) -> None:
    account = (await bench.account()).account
    await bench.sql("ALTER TABLE blob_outbox RENAME TO secretive")
    async with bench.storage.database.transaction() as connection:
        await queue.enqueue(connection, queue.DELETE_BLOBS, account)
    async with bench.working():
        await bench.until(FAILED, 1)
    logged = str(await bench.sql("SELECT l::text FROM pgqueuer_log l"))
    assert "internal" in logged
    assert "blob_outbox" not in logged


async def test_a_lost_connection_is_made_again(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    async with hybrid.working():
        await hybrid.remember(caller, "Anna prefers tea.")
        await hybrid.until(VECTORS, 1)
        await hybrid.sql(CUT_OFF)
        await hybrid.remember(caller, "Ben sells cups.")
        await hybrid.until(VECTORS, 2)


async def test_housekeeping_forgets_what_is_over(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.remember(caller, "Anna prefers tea.", idempotency_key="k")
    await hybrid.remember(caller, "Ben sells cups.", idempotency_key="l")
    await hybrid.sql("UPDATE idempotency SET expires_at = now() WHERE ctid = '(0,1)'")
    await hybrid.sql(
        "INSERT INTO nonces VALUES ('\\x01', gen_random_uuid(), now() - interval '1 s')"
    )
    async with hybrid.working():
        await hybrid.until("SELECT count(*) FROM idempotency", 1)
        await hybrid.until("SELECT count(*) FROM nonces", 1)  # the marker row stays


async def test_an_outside_store_that_is_away_is_asked_again(
    make_bench: BenchMaker, tmp_path: Path
) -> None:
    bench = make_bench(blob_store=f"file:{tmp_path / 'blobs'}")
    founder = await bench.account()
    caller = await bench.caller(founder)
    [stored] = await bench.remember(caller, "Anna prefers tea.")
    await bench.services.memory.forget(caller.access, stored.id)
    own = tmp_path / "blobs" / founder.account.hex()
    own.rename(tmp_path / "aside")
    own.write_text("in the way")
    async with bench.working():
        await bench.until("SELECT count(*) FROM pgqueuer WHERE attempts > 0", 1)
        assert await bench.value("SELECT count(*) FROM blob_outbox") == 1
        own.unlink()
        (tmp_path / "aside").rename(own)
        await bench.sql("UPDATE pgqueuer SET execute_after = now()")
        await bench.until("SELECT count(*) FROM blob_outbox", 0)


async def test_a_broken_step_of_housekeeping_stops_nothing(hybrid: Bench) -> None:
    """A worker that ended silently would leave every later memory without its vector."""
    caller = await hybrid.caller(await hybrid.account())
    await hybrid.sql("ALTER TABLE request_windows RENAME TO elsewhere")
    async with hybrid.working():
        await asyncio.sleep(0.3)
        await hybrid.remember(caller, "Anna prefers tea.")
        await hybrid.until("SELECT count(*) FROM vectors", 1)
    await hybrid.sql("ALTER TABLE elsewhere RENAME TO request_windows")


async def test_a_locked_namespace_keeps_no_other_waiting(hybrid: Bench) -> None:
    founder = await hybrid.account("sealed")
    both = await hybrid.unlocked(founder, TEAM, OTHER)
    await hybrid.remember(both, "Anna prefers tea.")
    await hybrid.remember(both, "Ben prefers milk.", namespace=OTHER)
    ids = [r["memory_id"] for r in await hybrid.sql("SELECT memory_id FROM memories")]
    one = await hybrid.unlocked(founder, TEAM)
    with pytest.raises(NotAllowed):
        await hybrid.services.indexer.embed(founder.account, one.keys, ids)
    assert await hybrid.value("SELECT count(*) FROM vectors") == 1
