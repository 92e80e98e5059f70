"""What waits to be indexed goes along with others of its account, and depends on none of them."""

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest

from relayer import quarantine
from relayer.embedding.embedders import Embedder
from relayer.errors import Unavailable
from relayer.memories import indexer
from relayer.memories.index_batches import AT_ONCE, BatchedIndexer
from relayer.memories.opener import Caller
from relayer.memories.recognition import Stored
from tests.conftest import BenchMaker
from tests.queueing import VECTORS
from tests.services import OTHER, TEAM, Bench

THIRD_AND_FIFTH_TAKEN = """
INSERT INTO pgqueuer_log (job_id, status, entrypoint, priority)
SELECT id, 'picked', entrypoint, priority FROM (
    SELECT *, row_number() OVER (ORDER BY id) AS n FROM pgqueuer) j WHERE n IN (3, 5)
"""


class _Gate:
    """The built-in embedder behind a gate; it is away for whatever has `fault` in it.

    What is slow is behind a gate of its own.
    """

    def __init__(self, inner: Embedder, *, fault: str = "a fault") -> None:
        self._inner = inner
        self._fault = fault
        self.asked: list[list[str]] = []
        self.open = asyncio.Event()
        self.slow_open = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Any:
        self.asked.append(list(texts))
        await self.open.wait()
        if any("slow" in text for text in texts):
            await self.slow_open.wait()
        if any(self._fault in text for text in texts):
            raise Unavailable("away", code="embedder_unavailable")
        return await self._inner.embed(texts, account=account)


class _Calls:
    """Calls of one batched indexer, each about one memory, all waiting before the gate."""

    def __init__(self, bench: Bench) -> None:
        self.batched = BatchedIndexer(bench.services.indexer)
        self.tasks: list[asyncio.Task[None]] = []

    def add(self, caller: Caller, stored: Sequence[Stored]) -> None:
        for one in stored:
            work = self.batched.embed(caller.access.account, caller.keys, [one.id])
            self.tasks.append(asyncio.create_task(work))

    async def outcomes(self, gate: _Gate) -> list[BaseException | None]:
        while len(gate.asked) < AT_ONCE:
            await asyncio.sleep(0)
        gate.open.set()
        return await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
def gate(embedder: Embedder) -> _Gate:
    return _Gate(embedder, fault="plums")


async def test_what_waits_goes_along_with_the_next(make_bench: BenchMaker, gate: _Gate) -> None:
    bench = make_bench(embedder=gate)
    caller = await bench.caller(await bench.account())
    texts = [f"note number {n}" for n in range(7)]
    calls = _Calls(bench)
    calls.add(caller, await bench.remember(caller, *texts))
    assert await calls.outcomes(gate) == [None] * 7
    assert [len(asked) for asked in gate.asked] == [1, 1, 5]
    assert sorted(text for asked in gate.asked for text in asked) == texts
    assert await bench.value(VECTORS) == 7


async def test_no_batch_is_larger_than_a_page(
    make_bench: BenchMaker, gate: _Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relayer.memories.index_batches.PAGE", 3)
    bench = make_bench(embedder=gate)
    caller = await bench.caller(await bench.account())
    calls = _Calls(bench)
    calls.add(caller, await bench.remember(caller, *(f"note number {n}" for n in range(8))))
    assert await calls.outcomes(gate) == [None] * 8
    assert sorted(len(asked) for asked in gate.asked) == [1, 1, 3, 3]


async def test_others_accounts_do_not_go_along(make_bench: BenchMaker, gate: _Gate) -> None:
    bench = make_bench(embedder=gate)
    calls = _Calls(bench)
    for fruit in ("apple", "pear", "quince"):
        caller = await bench.caller(await bench.account())
        calls.add(caller, await bench.remember(caller, *(f"{fruit} {n}" for n in range(3))))
    assert await calls.outcomes(gate) == [None] * 9
    assert all(len({text.split()[0] for text in asked}) == 1 for asked in gate.asked)
    assert await bench.value(VECTORS) == 9


async def test_other_keys_do_not_go_along(make_bench: BenchMaker, gate: _Gate) -> None:
    """Those of one call may not open what another is about."""
    bench = make_bench(embedder=gate)
    founder = await bench.account("sealed")
    calls = _Calls(bench)
    for name in (TEAM, OTHER):
        caller = await bench.unlocked(founder, name)
        texts = [f"{name} {n}" for n in range(3)]
        calls.add(caller, await bench.remember(caller, *texts, namespace=name))
    assert await calls.outcomes(gate) == [None] * 6
    assert [len(asked) for asked in gate.asked] == [1, 1, 1, 3]
    assert await bench.value(VECTORS) == 6


async def test_a_fault_is_its_own_calls_alone(make_bench: BenchMaker, gate: _Gate) -> None:
    bench = make_bench(embedder=gate)
    caller = await bench.caller(await bench.account())
    texts = ["one apple", "two pears", "four cherries", "three plums", "five quinces"]
    calls = _Calls(bench)
    calls.add(caller, await bench.remember(caller, *texts))
    outcomes = await calls.outcomes(gate)
    assert [type(outcome) for outcome in outcomes] == [
        Unavailable if "plums" in text else type(None) for text in texts
    ]
    assert await bench.value(VECTORS) == 4


async def test_who_was_taken_along_is_done_when_the_others_are(
    make_bench: BenchMaker, gate: _Gate
) -> None:
    """And waits for no turn, which calls of other accounts have before it."""
    bench = make_bench(embedder=gate)
    slow, quick, other = [await bench.caller(await bench.account()) for _ in range(3)]
    calls = _Calls(bench)
    for caller, text in (
        (slow, "one slow apple"), (quick, "two pears"), (quick, "three quinces"),
        (other, "four slow cherries"), (quick, "five medlars"),
    ):  # fmt: skip
        calls.add(caller, await bench.remember(caller, text))
    gate.open.set()
    async with asyncio.timeout(20):
        await asyncio.gather(*(calls.tasks[n] for n in (1, 2, 4)))
    assert not any(calls.tasks[n].done() for n in (0, 3))
    gate.slow_open.set()
    await asyncio.gather(*calls.tasks)
    assert sorted(len(asked) for asked in gate.asked) == [1, 1, 1, 2]


async def test_a_turn_whose_call_is_stopped_just_then_is_the_next_ones(
    make_bench: BenchMaker, gate: _Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(embedder=gate)
    calls = _Calls(bench)
    for _ in range(2 * AT_ONCE + 1):
        caller = await bench.caller(await bench.account())
        calls.add(caller, await bench.remember(caller, "one apple"))
    called = iter(calls.tasks[AT_ONCE : 2 * AT_ONCE])
    give = calls.batched._give

    def give_and_stop() -> None:
        give()
        for task in islice(called, 1):
            task.cancel()

    monkeypatch.setattr(calls.batched, "_give", give_and_stop)
    async with asyncio.timeout(20):
        outcomes = await calls.outcomes(gate)
    stopped = [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes]
    assert stopped == [False] * AT_ONCE + [True] * AT_ONCE + [False]
    assert await bench.value(VECTORS) == AT_ONCE + 1


async def test_what_a_worker_ended_over_goes_by_itself(
    make_bench: BenchMaker, gate: _Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever were with it would end along with it, each time until it is parked."""
    monkeypatch.setattr(quarantine, "SPREAD_S", 0.0)
    bench = make_bench(embedder=gate)
    caller = await bench.caller(await bench.account())
    texts = [f"note number {n}" for n in range(7)]
    for text in texts:
        await bench.remember(caller, text)
    await bench.sql(THIRD_AND_FIFTH_TAKEN)
    batched = bench.services.worker._batched
    async with bench.working(), asyncio.timeout(20):
        while len(gate.asked) + len(batched._waiting) < len(texts):
            await asyncio.sleep(0.01)
        gate.open.set()
        await bench.until(VECTORS, len(texts))
    assert [texts[2]] in gate.asked
    assert [texts[4]] in gate.asked
    assert max(map(len, gate.asked)) >= 3, "the others go along with each other"


async def test_who_leads_a_batch_and_is_stopped_leaves_it_to_the_others(
    make_bench: BenchMaker, gate: _Gate
) -> None:
    bench = make_bench(embedder=gate)
    caller = await bench.caller(await bench.account())
    stored = await bench.remember(caller, *(f"note number {n}" for n in range(5)))
    calls = _Calls(bench)
    calls.add(caller, stored)
    while len(gate.asked) < AT_ONCE:
        await asyncio.sleep(0)
    calls.tasks[0].cancel()
    while len(gate.asked) <= AT_ONCE:
        await asyncio.sleep(0)
    calls.tasks[AT_ONCE].cancel()
    gate.open.set()
    outcomes = await asyncio.gather(*calls.tasks, return_exceptions=True)
    stopped = [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes]
    assert stopped == [True, False, True, False, False]
    assert await bench.value(VECTORS) == 3


async def test_a_page_of_long_texts_is_parted_and_short_ones_are_first(
    make_bench: BenchMaker, gate: _Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "PAGE_BYTES", 1)
    gate.open.set()
    bench = make_bench(embedder=gate)
    caller = await bench.caller(await bench.account())
    short, middling, long = ("Nothing was decided about the roof. " * n for n in (1, 3, 9))
    await bench.embed(caller, await bench.remember(caller, long, short, middling))
    assert gate.asked == [[short], [middling], [long]]
