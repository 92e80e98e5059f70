"""Calls to index that come, fail and are stopped at any moment: none takes anything from others."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from relayer.embedding.embedders import Embedder
from relayer.errors import Unavailable
from relayer.memories.index_batches import AT_ONCE, BatchedIndexer
from tests.conftest import BenchMaker

ACCOUNTS = 3
CALLS_EACH = 12
ENDS_S_MAX = 30  # a call that nobody wakes would wait for ever
PAUSE_S_MAX = 0.01
OTHERS_S_MAX = 5.0
EMBEDDED = "SELECT DISTINCT memory_id FROM vectors"


class _Away:
    """The built-in embedder, which takes a while, and is away for what has `fault` in it."""

    def __init__(self, inner: Embedder, chance: random.Random) -> None:
        self._inner = inner
        self._chance = chance
        self._now: list[list[str]] = []
        self.most = 0
        self._are_all = asyncio.Event()  # once as many were there as may be
        self.twice: list[str] = []
        self.asked: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Any:
        own = list(texts)
        self.asked.append(own)
        self.twice += [text for text in own if any(text in other for other in self._now)]
        self._now.append(own)
        self.most = max(self.most, len(self._now))
        if self.most == AT_ONCE:
            self._are_all.set()
        try:
            # Else on a busy machine the first may be done before another has read its memories.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._are_all.wait(), OTHERS_S_MAX)
            await asyncio.sleep(self._chance.uniform(0, PAUSE_S_MAX))
            if any("fault" in text for text in texts):
                raise Unavailable("away", code="embedder_unavailable")
            return await self._inner.embed(texts, account=account)
        finally:
            self._now.remove(own)


@dataclass
class _Call:
    text: str
    memory_id: Any
    task: asyncio.Task[None]
    stopped: bool = False


def _text(account: int, n: int) -> str:
    return f"account {account} note {n}{' fault' * (n % 6 == 1)}{' alone' * (n % 5 == 2)}"


@pytest.mark.parametrize("seed", range(6))
async def test_each_call_ends_as_if_it_were_the_only_one(
    make_bench: BenchMaker, embedder: Embedder, seed: int
) -> None:
    """Also the one whose leader failed or was stopped; and no turn is lost, and none is given
    twice."""
    chance = random.Random(seed)
    away = _Away(embedder, chance)
    bench = make_bench(embedder=away)
    due = []
    for account in range(ACCOUNTS):
        caller = await bench.caller(await bench.account())
        texts = [_text(account, n) for n in range(CALLS_EACH)]
        stored = await bench.remember(caller, *texts)
        due += [(caller, text, one.id) for text, one in zip(texts, stored, strict=True)]
    chance.shuffle(due)
    batched, calls = BatchedIndexer(bench.services.indexer), list[_Call]()

    async def pause() -> None:
        await asyncio.sleep(chance.choice([0, 0, chance.uniform(0, PAUSE_S_MAX)]))

    async def begin() -> None:
        for caller, text, memory_id in due:
            work = batched.embed(
                caller.access.account, caller.keys, [memory_id], alone="alone" in text
            )
            calls.append(_Call(text, memory_id, asyncio.create_task(work)))
            await pause()

    async def stop() -> None:
        for _ in range(len(due) // 4):
            await pause()
            running = [call for call in calls if not call.task.done()]
            # Several at the same moment: whoever has a turn, and whoever is next.
            for call in chance.sample(running, min(len(running), chance.randint(1, 4))):
                call.stopped = call.task.cancel()

    async with asyncio.timeout(ENDS_S_MAX):
        await asyncio.gather(begin(), stop())
        outcomes = await asyncio.gather(*(call.task for call in calls), return_exceptions=True)
    assert (batched._turns, batched._waiting) == (AT_ONCE, [])
    assert (away.most, away.twice) == (AT_ONCE, [])
    embedded = {row["memory_id"] for row in await bench.sql(EMBEDDED)}
    for call, outcome in zip(calls, outcomes, strict=True):
        if not call.stopped:
            assert type(outcome) is (Unavailable if "fault" in call.text else type(None))
            assert (call.memory_id in embedded) == (outcome is None)
    assert any(call.stopped for call in calls)
    for asked in away.asked:
        assert len({text.split()[1] for text in asked}) == 1
        assert len(asked) == 1 or not any("alone" in text for text in asked)
    assert max(map(len, away.asked)) > 1, "some went along with others"
