"""The queue that workers share: what there is in it, a job that is held up, what is forgotten."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from relayer.database import queue
from relayer.embedding.embedders import Embedder
from relayer.jobs import HELD
from relayer.memories.opener import Caller
from tests.conftest import BenchMaker
from tests.life import WAIT_S_MAX
from tests.services import Bench

VECTORS = "SELECT count(*) FROM vectors"
JOBS = "SELECT count(*) FROM pgqueuer"
RUNS = "SELECT count(*) FROM pgqueuer_log WHERE status = 'picked'"
# Workers, which have connections of their own to hear of jobs.
CUT_OFF = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
  AND application_name <> 'memrelay'
"""


async def forget(bench: Bench) -> None:
    await queue.forget(bench.storage.database, older_than=HELD, pages_max=1)


class HeldUp:
    """An embedder that is not done with its first texts before `go`; then it may have a fault."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.fault: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Any:
        if not self.begun.is_set():
            self.begun.set()
            await asyncio.wait_for(self.go.wait(), WAIT_S_MAX)
            if self.fault is not None:
                raise self.fault
        return await self._inner.embed(texts, account=account)


@dataclass(frozen=True)
class RunningJob:
    """A relayer whose worker embeds a memory, and is held up."""

    bench: Bench
    embedder: HeldUp
    caller: Caller
    memory_id: uuid.UUID


@asynccontextmanager
async def running_job(make_bench: BenchMaker, embedder: Embedder) -> AsyncIterator[RunningJob]:
    held_up = HeldUp(embedder)
    bench = make_bench(embedder=held_up)
    caller = await bench.caller(await bench.account())
    async with bench.working():
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        await asyncio.wait_for(held_up.begun.wait(), WAIT_S_MAX)
        yield RunningJob(bench, held_up, caller, stored.id)
