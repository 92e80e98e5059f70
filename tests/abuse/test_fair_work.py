"""What follows the answers: no account's fill keeps another's from its turn.

Not here: requests (`test_bounds.py`, `test_rate_limits.py`).
"""

import asyncio
import os
import threading
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from pgqueuer import AsyncpgDriver
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.types import QueueEntrypoint, QueueManagerId

from relayer import backlog, jobs
from relayer.acknowledgements import Acknowledgements
from relayer.database import queue
from relayer.embedding.building import build_embedder, for_storing
from relayer.embedding.embedders import Embedder
from relayer.embedding.runs import Runs
from relayer.errors import Unavailable
from relayer.memories import indexer, partial
from relayer.memories.opener import Caller
from relayer.memories.partial import Unfinished
from relayer.memories.recognition import Stored
from relayer.memories.revisions import Edit
from relayer.quarantine import TAKEN_MAX
from relayer.sealed.keys import AccountId
from tests.conftest import BenchMaker
from tests.queueing import VECTORS
from tests.rotator import rotator
from tests.services import Bench

ITS_JOBS = """
SELECT entrypoint FROM pgqueuer WHERE convert_from(payload, 'UTF8') LIKE $1 ORDER BY id
"""
ITS_VECTORS = "SELECT count(*) FROM vectors WHERE account_id = $1"
STILL_BELOW = "SELECT count(*) FROM memories WHERE account_id = $1 AND epoch < 2"
LONG = "The roof of the barn was mended in spring, as Anna had said. "
DIFFERENT = "".join(f"In year {n} {LONG}" for n in range(60))  # no two passages are equal


class Recorder:
    """The built-in embedder; it notes what it is given, and waits where a text has `held` in it."""

    def __init__(self, inner: Embedder, held: str = "") -> None:
        self._inner = inner
        self._entries = held
        self.given: list[str] = []
        self.fails_at = ""
        self.calls_left: int | None = None  # before it is away
        self.waits, self.go = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Any:
        if self.calls_left is not None:
            if self.calls_left == 0:
                raise Unavailable("The endpoint is away.", code="embedder.unavailable")
            self.calls_left -= 1
        if self.fails_at and any(self.fails_at in text for text in texts):
            raise ZeroDivisionError
        self.given += texts
        if self._entries and any(self._entries in text for text in texts):
            self.waits.set()
            await self.go.wait()
        return await self._inner.embed(texts, account=account)


async def kinds(bench: Bench, caller: Caller) -> list[str]:
    rows = await bench.sql(ITS_JOBS, f"%{caller.access.account.hex()}%")
    return [row["entrypoint"] for row in rows]


async def callers(bench: Bench, number: int) -> list[Caller]:
    return [await bench.caller(await bench.account()) for _ in range(number)]


# Jobs of one account


async def test_what_an_account_has_waiting_is_one_job(
    make_bench: BenchMaker, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "SHORT_MEMORIES", 2)
    bench = make_bench(embedder=embedder)
    noisy, quiet = await callers(bench, 2)
    for number in range(6):
        [stored] = await bench.remember(noisy, f"Cup {number}.")
    await bench.services.reviser.edit(noisy, stored.id, Edit(changes={"text": "A cup of tea."}))
    await bench.remember(quiet, "Anna prefers tea.")
    assert await kinds(bench, noisy) == ["embed", "embed", "reindex"]
    assert await kinds(bench, quiet) == ["embed"]
    async with bench.working():
        await bench.until(VECTORS, 6 + 1 + 1)
        await bench.until("SELECT count(*) FROM pgqueuer", 0)


async def test_a_long_text_is_no_short_job(make_bench: BenchMaker, embedder: Embedder) -> None:
    bench = make_bench(embedder=embedder)
    [caller] = await callers(bench, 1)
    await bench.remember(caller, LONG * 400)
    assert await kinds(bench, caller) == ["reindex"]


# Places


async def put_in(bench: Bench, kind: str, number: int, *, at: int = 0) -> None:
    """So many jobs, each of another account."""
    async with bench.storage.database.connection() as connection:
        for each in range(at, at + number):
            account = AccountId(each.to_bytes(32))
            await queue.enqueue(connection, kind, account, [uuid.UUID(int=each)])


async def taken(acknowledgements: Acknowledgements, worker: uuid.UUID) -> list[str]:
    """The kinds of the jobs that this worker gets until it has no place for any."""
    limits = {queue.RESEAL: jobs.RESEALED_MAX, queue.DELETE_BLOBS: 1}
    kinds = {
        QueueEntrypoint(kind): EntrypointExecutionParameter(limits.get(kind, 0))
        for kind in queue.KINDS
    }
    manager, silence = QueueManagerId(worker), timedelta(seconds=30)
    found: list[str] = []
    while more := await acknowledgements.dequeue(4, kinds, manager, None, silence):
        found += [job.entrypoint for job in more]
    return found


async def test_no_kind_of_job_takes_the_place_of_another(bench: Bench) -> None:
    """Least of all that of what re-seals and erases."""
    worker, places = uuid.uuid4(), {queue.EMBED: 3, queue.REINDEX: 2}
    async with bench.storage.database.connection() as connection:
        acknowledgements = Acknowledgements(
            AsyncpgDriver(connection), database=bench.storage.database, places=places
        )
        for kind in places:
            await put_in(bench, kind, 10)
        assert sorted(await taken(acknowledgements, worker)) == 3 * ["embed"] + 2 * ["reindex"]
        for kind in (queue.RESEAL, queue.DELETE_BLOBS):
            await put_in(bench, kind, 1)
        assert sorted(await taken(acknowledgements, worker)) == ["delete_blobs", "reseal"]
        assert len(await taken(acknowledgements, uuid.uuid4())) == 3 + 2, "another has its own"


async def test_one_accounts_fill_keeps_nobody_from_vectors_and_re_sealing(
    make_bench: BenchMaker, embedder: Embedder
) -> None:
    """None of what it has waiting is done before the others' is."""
    recorder = Recorder(embedder, held="noise")
    bench = make_bench(embedder=recorder)
    owner = await rotator(bench, "managed")
    account = owner.owner.account
    quiet, [noisy] = await owner.caller(), await callers(bench, 1)
    await bench.embed(quiet, await bench.remember(quiet, "Anna prefers tea.", "Ben sells cups."))
    for number in range(30):
        await bench.remember(noisy, f"noise {number} " + LONG * (400 if number < 9 else 1))
    async with bench.working():
        await asyncio.wait_for(recorder.waits.wait(), 60)
        await bench.remember(quiet, "Cleo paints boats.")
        await bench.until(ITS_VECTORS, 3, account)
        assert await bench.value(STILL_BELOW, account) == 3
        await owner.rotate(reseal="all")
        await bench.until(STILL_BELOW, 0, account)
        assert await bench.value(ITS_VECTORS, noisy.access.account) == 0
        recorder.go.set()


# Slices


async def first_slice(bench: Bench, caller: Caller) -> None:
    """One slice of what is due, which is over at once."""
    await bench.services.indexer.next_page(
        caller.access.account, caller.keys, (0, "", 0), None, go_on=lambda: False
    )


async def store_long(bench: Bench, text: str = DIFFERENT) -> tuple[Caller, Stored]:
    """A long memory of a new account."""
    [caller] = await callers(bench, 1)
    [stored] = await bench.remember(caller, text)
    return caller, stored


async def test_a_long_memory_goes_on_where_its_slice_ended(
    make_bench: BenchMaker, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "STEP", 3)
    recorder = Recorder(embedder)
    bench = make_bench(embedder=recorder)
    caller, stored = await store_long(bench)
    passages = embedder.split(DIFFERENT)
    assert len(passages) > 6
    for number in (3, 6):
        with pytest.raises(Unfinished):
            await first_slice(bench, caller)
        assert recorder.given == passages[:number]
    assert await bench.value(VECTORS) == 0, "it is found by all of its vectors or by none"
    await bench.embed(caller, [stored])
    assert recorder.given == passages
    parts = await bench.sql("SELECT part, embedding::text AS v FROM vectors ORDER BY part")
    assert [row["part"] for row in parts] == list(range(len(passages)))
    await bench.sql("UPDATE memories SET embedding_version = ''")
    await bench.embed(caller, [stored])
    again = await bench.sql("SELECT embedding::text AS v FROM vectors ORDER BY part")
    assert [row["v"] for row in again] == [row["v"] for row in parts]


async def test_a_long_memory_goes_on_where_its_endpoint_failed(
    make_bench: BenchMaker, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an endpoint that takes few calls a minute would never be through with it."""
    monkeypatch.setattr(indexer, "STEP", 3)
    recorder = Recorder(embedder)
    bench = make_bench(embedder=recorder)
    caller, stored = await store_long(bench)
    passages = embedder.split(DIFFERENT)
    recorder.calls_left = 2
    with pytest.raises(Unavailable):
        await bench.embed(caller, [stored])
    assert recorder.given == passages[:6]
    recorder.calls_left = None
    await bench.embed(caller, [stored])
    assert recorder.given == passages
    assert await bench.value(VECTORS) == len(passages)


async def test_a_memory_that_fails_holds_up_no_other_of_its_account(
    make_bench: BenchMaker, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "SHORT_BYTES", 1)  # nothing is a short job
    recorder = Recorder(embedder)
    recorder.fails_at = "poison"
    bench = make_bench(embedder=recorder)
    [caller] = await callers(bench, 1)
    await bench.remember(caller, "A poisonous plant.", *(f"Plant {n}." for n in range(8)))
    async with bench.working():
        await bench.until(VECTORS, 8)
    last = await bench.sql("SELECT priority FROM pgqueuer WHERE entrypoint = 'embed'")
    assert [row["priority"] for row in last] == [queue.LAST], "it is tried after what is new"


async def test_a_slice_that_leaves_nothing_behind_goes_on_to_the_end(
    make_bench: BenchMaker, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would begin at the same passage for ever."""
    monkeypatch.setattr(indexer, "STEP", 3)
    monkeypatch.setattr(partial, "BYTES_MAX", 1)
    bench = make_bench(embedder=embedder)
    [caller] = await callers(bench, 1)
    text = LONG * 60
    await bench.remember(caller, text)
    await first_slice(bench, caller)
    assert await bench.value(VECTORS) == len(embedder.split(text))


async def test_what_was_edited_between_two_slices_begins_anew(
    make_bench: BenchMaker, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "STEP", 3)
    recorder = Recorder(embedder)
    bench = make_bench(embedder=recorder)
    caller, stored = await store_long(bench, LONG * 60)
    with pytest.raises(Unfinished):
        await first_slice(bench, caller)
    recorder.given.clear()
    text = "Now it leaks. " + LONG * 60
    await bench.services.reviser.edit(caller, stored.id, Edit(changes={"text": text}))
    await bench.embed(caller, [stored])
    assert recorder.given == embedder.split(text)


@pytest.mark.parametrize(
    ("short_bytes", "places"), [(1, "REINDEXED_MAX"), (1 << 30, "EMBEDDED_MAX")]
)
async def test_between_two_slices_of_a_long_memory_another_account_has_its_turn(
    short_bytes: int,
    places: str,
    make_bench: BenchMaker,
    embedder: Embedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the one job of an account that has much waiting, and in a job of its own."""
    monkeypatch.setattr(indexer, "STEP", 3)
    monkeypatch.setattr(jobs, places, 1)
    monkeypatch.setattr(queue, "SHORT_BYTES", short_bytes)
    recorder = Recorder(embedder, held="noise")
    bench = make_bench(embedder=recorder)
    noisy, quiet = await callers(bench, 2)
    worker = bench.services.worker
    monkeypatch.setattr(worker, "_slice_s", 0)
    text = "noise " + LONG * 60
    await bench.remember(noisy, text)
    async with bench.working():
        await asyncio.wait_for(recorder.waits.wait(), 60)
        await bench.remember(quiet, "Anna prefers tea.")
        recorder.go.set()
        await bench.until(VECTORS, len(embedder.split(text)) + 1)
    assert recorder.given.index("Anna prefers tea.") == 3, "behind the first slice"


async def test_a_slice_that_ended_its_worker_leaves_each_memory_to_a_job_of_its_own(
    make_bench: BenchMaker, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the one that ends workers is parked, and the account's others are not."""
    monkeypatch.setattr(queue, "SHORT_MEMORIES", 0)
    recorder = Recorder(embedder)
    bench = make_bench(embedder=recorder)
    [caller] = await callers(bench, 1)
    [poison, *_] = await bench.remember(caller, "poison", "one apple", "two pears")
    work = bench.services.worker._backlog.work(
        caller.access.account, caller.keys, lambda: True, apart=True
    )
    assert not await work
    assert (await kinds(bench, caller), recorder.given) == (["reindex"] + 3 * ["embed"], [])
    await bench.sql(
        "INSERT INTO pgqueuer_log (job_id, status, entrypoint, priority)"
        " SELECT id, 'picked', entrypoint, priority FROM pgqueuer, generate_series(1, $1)"
        " WHERE dedupe_key = $2",
        TAKEN_MAX,
        f"embed:{poison.id}",
    )
    async with bench.working():
        await bench.until(VECTORS, 2)
        await bench.until("SELECT count(*) FROM pgqueuer", 1)
    assert "poison" not in recorder.given
    assert backlog.APART_MAX >= indexer.PAGE, "all that one slice may have been about"


# The model


async def test_a_query_of_any_length_comes_before_what_is_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = build_embedder(bench.settings)
    storing = for_storing(queries)
    assert queries is not None
    assert storing is not None
    used: list[Runs] = []
    run = Runs.run

    async def noted(self: Runs, cost: int, *arguments: Any) -> Any:
        used.append(self)
        return await run(self, cost, *arguments)

    monkeypatch.setattr(Runs, "run", noted)
    await storing.embed(["tea"])
    await queries.embed([f"What did Anna say? {LONG * 200}"])
    of_stored, of_queries = used
    niceness = [await run(runs, 1, _niceness) for runs in (of_stored, of_queries)]
    await queries.close()
    assert niceness[0] > niceness[1] == os.getpriority(os.PRIO_PROCESS, 0)


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
