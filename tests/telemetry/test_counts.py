"""What is counted beside requests: caches, models, the database, webhooks, jobs, notes.

Not here: requests, their stages and refusals (`test_metrics.py`).
"""

import asyncio
import dataclasses
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import get_args

import pytest

from relayer.blobs.cache import CachedStore
from relayer.blobs.store import PostgresStore
from relayer.database.pool import Database, Load
from relayer.embedding.cache import CachedEmbedder, CoalescingEmbedder
from relayer.embedding.embedders import Embedder
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.openai import OpenAIEmbedder
from relayer.errors import Unavailable
from relayer.events.webhooks import Wanted
from relayer.llm import LanguageModel
from relayer.monitoring.exposition import Exposition
from relayer.monitoring.readiness import Readiness
from relayer.sealed.envelope import blob_id
from relayer.settings import Settings
from relayer.telemetry import instruments
from relayer.telemetry.work import observe
from tests.conftest import BenchMaker, TestDatabase
from tests.embeddings_server import DIM, KEY, MODEL, EmbeddingsServer
from tests.hooks import listening
from tests.life import WAIT_S_MAX
from tests.openai_server import CHAT_MODEL, Step, openai_server
from tests.services import TEAM, Bench
from tests.telemetry.reading import Scrape, counted, grown, read

LOOKUPS = "memrelay_cache_lookups_total"
NEVER_RUN = ("kind", "never run")


# Caches


async def test_lookups_of_grants_keys_and_namespaces(bench: Bench) -> None:
    founder = await bench.account()
    relayer = bench.another()
    before = counted()
    for _ in range(3):
        caller = await relayer.caller(founder)
        await relayer.storage.namespaces.find(caller.access.account, TEAM)
    for cache, misses in (("chains", 1), ("roots", 1), ("namespaces", 3)):
        assert grown(before, LOOKUPS, cache=cache, result="miss") >= misses, cache
    assert grown(before, LOOKUPS, cache="roots", result="hit") >= 2
    assert grown(before, LOOKUPS, cache="chains", result="hit") >= 2
    await relayer.remember(caller, "Anna prefers tea.")
    before = counted()
    await relayer.storage.namespaces.find(caller.access.account, TEAM)
    assert grown(before, LOOKUPS, cache="namespaces", result="hit") >= 1


async def test_lookups_of_unlock_headers(bench: Bench) -> None:
    founder = await bench.account("sealed")
    header = bench.unlock(founder, [bench.namespace_key(founder.account, TEAM)])
    before = counted()
    for _ in range(4):
        await bench.caller(founder, header)
    assert grown(before, LOOKUPS, cache="unlocks", result="miss") >= 1
    assert grown(before, LOOKUPS, cache="unlocks", result="hit") >= 3


async def test_lookups_of_vectors_and_blobs(bench: Bench, embedder: Embedder) -> None:
    cached = CachedEmbedder(inner=embedder, entries_max=10, secret=bytes(32))
    store = CachedStore(store=bench.storage.blobs, bytes_max=1000)
    account = (await bench.account()).account
    name = blob_id(b"sealed")
    before = counted()
    await cached.embed(["tea", "coffee"], account=account)
    await cached.embed(["tea", "tea", "milk"], account=account)
    await store.put_many(account, {name: b"sealed"})
    await store.get_many(account, [name, blob_id(b"other")])
    for cache, hits, misses in (("embeddings", 1, 3), ("blobs", 1, 1)):
        assert grown(before, LOOKUPS, cache=cache, result="hit") >= hits, cache
        assert grown(before, LOOKUPS, cache=cache, result="miss") >= misses, cache


# Models


async def test_calls_of_the_language_model_and_why_they_fail() -> None:
    before = counted()
    with openai_server() as server:
        model = LanguageModel(base_url=server.base_url, api_key="test-key", model=CHAT_MODEL)
        steps = (Step(content="Tea."), Step(status=401), Step(content=""), Step(refusal="No."))
        server.script(*steps)
        failed = 0
        for _ in steps:
            try:
                await model.answer(system="Be brief.", user="Tea or coffee?")
            except Unavailable:
                failed += 1
        await model.close()
    assert failed == 3
    assert grown(before, "memrelay_llm_duration_seconds_count") >= 4
    for cause in ("status_4xx", "invalid", "refused"):
        assert grown(before, "memrelay_llm_failures_total", cause=cause) >= 1


async def test_calls_of_an_embedding_endpoint_and_why_they_fail() -> None:
    before = counted()
    async with EmbeddingsServer() as server:
        embedder = OpenAIEmbedder(
            endpoints=[Endpoint(server.url, KEY)], model=MODEL, dim=DIM, timeout_s=60
        )
        await embedder.embed(["tea", "coffee", "milk"])
        server.always = "short"
        with pytest.raises(Unavailable):
            await embedder.embed(["tea"])
        await embedder.close()
    assert grown(before, "memrelay_embedding_duration_seconds_count") >= 2
    assert grown(before, "memrelay_embedding_texts_sum") >= 4
    assert grown(before, "memrelay_embedding_failures_total", cause="invalid") >= 1


async def test_a_model_with_too_much_before_it_counts_as_busy(embedder: Embedder) -> None:
    full = CoalescingEmbedder(inner=embedder, waiting_max=0)
    before = counted()
    with pytest.raises(Unavailable):
        await full.embed(["tea"])
    assert grown(before, "memrelay_embedding_failures_total", cause="busy") >= 1


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("status 401", "status_4xx"),
        ("status 302", "status_4xx"),
        ("status 503", "status_5xx"),
        ("no connection", "connection"),
        ("deadline", "deadline"),
        ("timeout", "deadline"),
        ("a word that somebody adds", "invalid"),
    ],
)
def test_causes_of_failures_are_few(words: str, cause: str) -> None:
    before = counted()
    instruments.llm_failed(words)
    assert grown(before, "memrelay_llm_failures_total", cause=cause) == 1
    assert grown(before, "memrelay_llm_failures_total") == 1


# The database


async def test_connections_at_work_and_those_who_wait_for_one(
    fresh_database: TestDatabase, settings: Settings
) -> None:
    database = await Database.connect(fresh_database.connect_args, connections=2)
    assert database.load() == Load(open=1, in_use=0, waited_for=0, max=2)
    async with database.connection(), database.connection():
        waiting = asyncio.create_task(database.fetchrow("SELECT 1"))
        await asyncio.sleep(0)  # it begins to wait
        exposition = Exposition(database=database, readiness=ready_on(database, settings))
        exposition.publish()
        shown = counted()
        levels = ("open", 2), ("in_use", 2), ("max", 2), ("waited_for", 1)
        for state, number in levels:
            assert shown.of(f"memrelay_database_connections_{state}") == number, state
    await waiting
    assert database.load() == Load(open=2, in_use=0, waited_for=0, max=2)
    await database.close()


def ready_on(database: Database, settings: Settings) -> Readiness:
    blobs = PostgresStore(database=database)
    return Readiness(
        database=database,
        blobs=blobs,
        settings=settings,
        works=lambda: True,
        deadline_s=WAIT_S_MAX,
    )


async def test_a_database_that_is_away_leaves_out_what_it_would_say(
    database: Database, settings: Settings
) -> None:
    exposition = Exposition(database=database, readiness=ready_on(database, settings))
    await database.close()
    shown = read((await exposition.text()).decode())
    assert shown.of("memrelay_write_ready") == 0
    assert shown.of("memrelay_check_ok", check="database") == 0
    assert shown.of("memrelay_check_ok", check="disk") == 1
    assert not {"memrelay_jobs", "memrelay_backlog"} & shown.names
    assert "memrelay_stage_duration_seconds_count" in shown.names


async def test_a_database_without_a_queue_leaves_out_the_same(
    database: Database, settings: Settings
) -> None:
    await database.execute("ALTER TABLE pgqueuer RENAME TO hidden")
    exposition = Exposition(database=database, readiness=ready_on(database, settings))
    shown = read((await exposition.text()).decode())
    assert not {"memrelay_jobs", "memrelay_backlog"} & shown.names
    assert "memrelay_check_ok" in shown.names


async def test_deletions_that_are_due_and_events_for_webhooks_are_levels(
    make_bench: BenchMaker, settings: Settings, tmp_path: Path
) -> None:
    bench = make_bench(blob_store=f"file:{tmp_path / 'blobs'}")
    caller = await bench.caller(await bench.account())
    [_, gone] = await bench.remember(caller, "Anna prefers tea.", "Anna has a cat.")
    await bench.services.memory.forget(caller.access, gone.id)
    shown = await exposed(bench, settings)
    assert shown.of("memrelay_backlog", what="deletions") == await bench.value(
        "SELECT count(*) FROM blob_outbox WHERE due_at <= now()"
    )
    assert shown.of("memrelay_backlog", what="webhook_events") == 0


async def exposed(bench: Bench, settings: Settings) -> Scrape:
    database = bench.storage.database
    exposition = Exposition(
        database=database, readiness=ready_on(database, settings), deadline_s=WAIT_S_MAX
    )
    return read((await exposition.text()).decode())


async def test_webhooks_that_take_an_event_and_that_do_not(make_bench: BenchMaker) -> None:
    bench = make_bench(webhook_reach="private")
    owner = await bench.account()
    async with listening() as hook:
        access = (await bench.caller(owner)).access
        wanted = Wanted(
            url=f"http://127.0.0.1:{hook.port}/", events=["memory.written"], namespaces=None,
            active=True, new_secret=False,
        )  # fmt: skip
        await bench.services.webhooks.put(access, uuid.UUID(int=7), wanted)
        await bench.remember(await bench.caller(owner), "Anna prefers tea.")
        before = counted()
        await bench.services.delivery.deliver()
        assert grown(before, "memrelay_webhook_posts_total", outcome="taken") >= 1
    await bench.remember(await bench.caller(owner), "Anna has a cat.")
    before = counted()
    await bench.services.delivery.deliver()
    assert grown(before, "memrelay_webhook_posts_total", outcome="failed") >= 1


# Notes


def test_notes_are_counted_when_there_are_many_and_when_somebody_looks() -> None:
    instruments.flush()
    seen: list[float] = []
    for n in range(instruments.NOTES_MAX - 1):
        instruments.defer_observation(seen.append, n)
    assert seen == []
    instruments.defer_observation(seen.append, -1.0)
    assert sorted(seen) == list(range(-1, instruments.NOTES_MAX - 1))
    instruments.defer_observation(seen.append, 0.5)
    counted()
    assert seen[-1] == 0.5


def test_increases_of_one_count_are_counted_together() -> None:
    instruments.flush()
    seen: list[float] = []
    for n in range(3):
        instruments.defer_increase(seen.append, n + 1)
    other: list[float] = []
    instruments.defer_increase(other.append)
    counted()
    assert (seen, other) == ([6.0], [1.0])
    for _ in range(instruments.NOTES_MAX):
        instruments.defer_increase(other.append, -1.0)
    assert other == [1.0, -float(instruments.NOTES_MAX)]


def test_notes_of_several_threads_are_counted_once_each() -> None:
    instruments.flush()
    seen: list[float] = []

    def noting(_: int) -> None:
        for _ in range(2_000):
            instruments.defer_increase(seen.append)
            if len(seen) % 7 == 0:
                instruments.flush()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(noting, range(4)))
    instruments.flush()
    assert sum(seen) == 8_000


def test_what_cannot_be_counted_keeps_nobody_else_from_it() -> None:
    def full(_: float) -> None:
        raise OSError("no space left")

    seen: list[float] = []
    instruments.defer_observation(seen.append, 1.0)
    instruments.defer_observation(full, 1.0)
    instruments.defer_increase(full)
    instruments.defer_observation(seen.append, 2.0)
    instruments.flush()
    assert sorted(seen) == [1.0, 2.0]


# Jobs


@dataclasses.dataclass(frozen=True)
class _Job:
    id: int


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        *[(None, "done"), (TimeoutError(), "later"), (ValueError("zq"), "failed")],
        (asyncio.CancelledError(), "later"),  # its process ends
    ],
)
async def test_a_run_of_a_job_is_counted_by_its_outcome(
    error: BaseException | None, outcome: str
) -> None:
    async def work(_: _Job) -> None:
        if error is not None:
            raise error

    run = observe("of a test", work, put_back=TimeoutError)
    before = counted()
    with nullcontext() if error is None else pytest.raises(type(error)):
        await run(_Job(7))
    name = "memrelay_job_duration_seconds_count"
    assert grown(before, name, kind="of a test", outcome=outcome) == 1
    assert grown(before, name, kind="of a test") == 1


def test_a_kind_of_job_has_its_series_before_the_first_run() -> None:
    """Else the first failure is no increase."""

    async def work(_: _Job) -> None:
        pass

    observe("never run", work, put_back=TimeoutError)
    name = "memrelay_job_duration_seconds_count"
    found = {dict(k)["outcome"] for n, k in counted().values if n == name and NEVER_RUN in k}
    assert found == set(get_args(instruments.Outcome))
