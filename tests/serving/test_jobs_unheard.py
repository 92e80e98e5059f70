"""A worker whose connection carries nothing any more, or is ended before it is closed.

Also one that is cancelled.

Not here: a connection that is closed (`test_jobs_cut_off.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from relayer.embedding.embedders import Embedder
from relayer.jobs import Tasks, Worker
from relayer.memories.opener import Caller
from tests.conftest import BenchMaker
from tests.life import WAIT_S_MAX
from tests.loopback_proxy import Ends, loopback_server, relay
from tests.queueing import JOBS, VECTORS
from tests.services import Bench

# How PostgreSQL says that it ends a connection.
_ENDED = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
ENDED = b"E" + (4 + len(_ENDED)).to_bytes(4, "big") + _ENDED
TAKEN = "SELECT count(*) FROM pgqueuer_log WHERE status = 'picked'"
WAITS = "SELECT count(*) FROM pgqueuer WHERE status = 'queued'"


class _Slow:
    """An embedder that takes long for its first text."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Any:
        self.calls += 1
        if self.calls == 1:
            self.begun.set()
            await self.go.wait()
        return await self._inner.embed(texts, account=account)


@dataclass
class Network:
    """The way to a database's socket; what went through before it was `cut` gets no answer."""

    socket: str
    port: int = 0
    ways: list[bool] = field(default_factory=list)  # whether each is silent
    _ends: list[Callable[[], object]] = field(default_factory=list)

    async def lead(self, near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        number = len(self.ways)
        self.ways.append(False)
        loop = asyncio.get_running_loop()
        self._ends.append(partial(loop.call_soon_threadsafe, answer.write, ENDED))
        with suppress(OSError):
            far: Ends = await asyncio.open_unix_connection(self.socket)
            await relay((near, answer), far, lambda data: b"" if self.ways[number] else data)

    def cut(self) -> None:
        self.ways[:] = [True] * len(self.ways)

    def end(self) -> None:
        """Say that each connection is ended, and leave it open."""
        for end in self._ends:
            end()


@contextmanager
def network(bench: Bench) -> Iterator[Network]:
    args = bench.storage.connect_args
    leading = Network(f"{args['host']}/.s.PGSQL.{args['port']}")
    with loopback_server(leading.lead) as leading.port:
        yield leading


def far_from(bench: Bench, way: Network) -> Bench:
    """The same relayer with a worker beyond a network."""
    storage, services = bench.storage, bench.services
    worker = Worker(
        connect_args=storage.connect_args | {"host": "127.0.0.1", "port": way.port},
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
    )
    return replace(bench, services=replace(services, worker=worker))


@pytest.fixture
def slow(embedder: Embedder) -> _Slow:
    return _Slow(embedder)


@asynccontextmanager
async def embedding_beyond(
    make_bench: BenchMaker, slow: _Slow
) -> AsyncIterator[tuple[Bench, Caller, Network]]:
    """A relayer whose worker embeds a memory beyond a network; in the end it has embedded two."""
    bench = make_bench(embedder=slow)
    caller = await bench.caller(await bench.account())
    with network(bench) as way:
        async with far_from(bench, way).working():
            try:
                await bench.remember(caller, "Anna prefers tea.")
                await asyncio.wait_for(slow.begun.wait(), WAIT_S_MAX)
                yield bench, caller, way
            finally:
                slow.go.set()
            await bench.until(VECTORS, 2)


async def test_others_go_on_and_no_other_process_takes_what_runs(
    make_bench: BenchMaker, slow: _Slow, embedder: Embedder, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedding_beyond(make_bench, slow) as (bench, caller, way):
        way.cut()
        async with bench.another(embedder=embedder).working(), asyncio.timeout(WAIT_S_MAX):
            while "jobs.reconnect" not in {r.__dict__.get("event") for r in caplog.records}:
                await asyncio.sleep(0.05)
        assert (await bench.value(TAKEN), slow.calls) == (1, 1)
        await bench.remember(caller, "Ben sells cups.")
        await bench.until(VECTORS, 1)
        slow.go.set()
        await bench.until(VECTORS, 2)
        await bench.until(JOBS, 0)


async def test_others_go_on_where_a_statement_begins_between_an_end_and_its_close(
    make_bench: BenchMaker, slow: _Slow
) -> None:
    async with embedding_beyond(make_bench, slow) as (bench, caller, way):
        way.end()
        await bench.remember(caller, "Ben sells cups.")
        await bench.until(VECTORS, 1)


async def test_one_that_is_only_cancelled_puts_back_what_runs(
    make_bench: BenchMaker, slow: _Slow
) -> None:
    bench = make_bench(embedder=slow)
    caller = await bench.caller(await bench.account())
    working = asyncio.create_task(bench.services.worker.run())
    await bench.remember(caller, "Anna prefers tea.")
    await asyncio.wait_for(slow.begun.wait(), WAIT_S_MAX)
    working.cancel()
    try:
        await bench.until(WAITS, 1)
    finally:
        slow.go.set()
        await asyncio.gather(working, return_exceptions=True)
