"""Many at once change one account's memories, at random: whatever comes in between, all agrees.

Not here: what each change does (`test_walk.py`), a process that is killed (`tests/torture`).
`MEMRELAY_CROWDS=50` is a long run.
"""

import asyncio
import os
import random
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from relayer.errors import Conflict, Misdirected, NotFound, RelayerError
from relayer.journal.states import Change
from relayer.memories.deletion import Filter
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from relayer.query.query import Query
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds
from tests.conftest import BenchMaker
from tests.consolidating import consolidated
from tests.rotator import Rotator
from tests.services import OTHER, TEAM, Bench
from tests.talking import analyze, choose

CROWDS = int(os.environ.get("MEMRELAY_CROWDS", "3"))
PEOPLE = 8
ACTS = 25
WHO = ("otter", "heron", "badger")
WHAT = ("granite", "velvet", "cinnamon")
Act = Callable[["Crowd", Bench, Caller], Awaitable[Any]]


@dataclass
class Crowd:
    """An account, the processes that answer for it, and what was acknowledged."""

    benches: list[Bench]
    owner: Rotator
    chance: random.Random
    known: list[uuid.UUID] = field(default_factory=list)
    erased: set[uuid.UUID] = field(default_factory=set)
    rotating: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def person(self) -> None:
        """One of many, who does one thing after the other."""
        for _ in range(ACTS):
            bench = self.chance.choice(self.benches)
            [act] = self.chance.choices(list(ACTIONS), list(ACTIONS.values()))
            with suppress(Conflict, NotFound, Misdirected):  # somebody else came first
                caller = await self.owner.caller(None, TEAM, OTHER, bench=bench)
                await act(self, bench, caller)
            bench.clock.advance(1)

    def one(self) -> uuid.UUID:
        """A memory that there was."""
        return self.chance.choice(self.known[-30:]) if self.known else uuid.UUID(int=1)

    def text(self) -> str:
        return f"The {self.chance.choice(WHO)} guards the {self.chance.choice(WHAT)}."


async def remember(crowd: Crowd, bench: Bench, caller: Caller) -> None:
    end = crowd.chance.choice([None, None, bench.clock() + timedelta(seconds=40)])
    namespace = crowd.chance.choice([TEAM, OTHER])
    texts = {crowd.text() for _ in range(crowd.chance.randrange(1, 4))}
    kind = crowd.chance.choice(["fact", "working"])
    stored = await bench.remember(caller, *texts, kind=kind, namespace=namespace, expires_at=end)
    crowd.known += [item.id for item in stored]


async def talk(crowd: Crowd, bench: Bench, caller: Caller) -> None:
    caller = await choose(bench, caller, keep_turns=True)
    text = f"1. user: I prefer {crowd.chance.choice(WHAT)} chairs."
    done = await analyze(bench, caller, text)
    crowd.known += [fact.id for fact in done.facts]


async def edit(crowd: Crowd, bench: Bench, caller: Caller) -> None:
    await bench.services.reviser.edit(caller, crowd.one(), Edit(changes={"text": crowd.text()}))


async def set_state(crowd: Crowd, bench: Bench, caller: Caller) -> None:
    change = crowd.chance.choice(
        [
            Change(pinned=True), Change(pinned=False), Change(review="rejected"),
            Change(review=None), Change(superseded_by=crowd.one()), Change(superseded_by=None),
        ]
    )  # fmt: skip
    await bench.services.state_changer.set_state(caller.access, crowd.one(), change)


async def forget(crowd: Crowd, bench: Bench, caller: Caller) -> None:
    done = await bench.services.deletion.forget_ids(caller.access, [crowd.one(), crowd.one()])
    crowd.erased |= set(done.ids)


async def forget_rejected(crowd: Crowd, bench: Bench, caller: Caller) -> None:
    chosen = Filter(namespace=TEAM, state="rejected")
    done = await bench.services.deletion.forget_matching(caller, chosen)
    crowd.erased |= set(done.ids)


async def forget_namespace(crowd: Crowd, bench: Bench, caller: Caller) -> None:
    done = await bench.services.deletion.forget_namespace(caller.access, OTHER)
    crowd.erased |= set(done.ids)


async def keep(crowd: Crowd, bench: Bench, caller: Caller) -> None:
    await bench.services.expiry.keep(caller.access, OTHER, crowd.chance.choice([None, 60, 3600]))


async def house(_: Crowd, bench: Bench, __: Caller) -> None:
    await bench.services.expiry.expire()
    await bench.storage.outbox.publish()
    await bench.services.collector.collect()
    await bench.storage.outbox.empty()


async def embed(_: Crowd, bench: Bench, caller: Caller) -> None:
    due = "SELECT memory_id FROM memories WHERE embedding_version = ''"
    ids = [row["memory_id"] for row in await bench.sql(due)]
    await bench.services.indexer.embed(caller.access.account, caller.keys, ids)


async def rotate(crowd: Crowd, _: Bench, __: Caller) -> None:
    if not crowd.rotating.locked() and len(crowd.owner.roots) < 4:
        async with crowd.rotating:
            await crowd.owner.rotate(reseal="all")


async def reseal(crowd: Crowd, bench: Bench, caller: Caller) -> None:
    keys = await bench.storage.custody.reseal_keys(caller.access.account)
    if keys is not None:
        await bench.services.resealer.work(caller.access.account, keys, lambda: True)


async def consolidate(_: Crowd, bench: Bench, caller: Caller) -> None:
    await consolidated(bench, caller)


async def undo(_: Crowd, bench: Bench, caller: Caller) -> None:
    if runs := await bench.sql("SELECT run_id FROM consolidations ORDER BY run_id DESC LIMIT 1"):
        await bench.services.runs.undo(caller.access, runs[0]["run_id"])


async def recall(crowd: Crowd, bench: Bench, caller: Caller) -> None:
    query = Query(text=crowd.chance.choice(WHO + WHAT), namespaces=[TEAM, OTHER], limit=50)
    erased = set(crowd.erased)
    recalled = await bench.services.recaller.recall(caller, query)
    assert not erased & {found.memory.id for found in recalled.found}


ACTIONS: dict[Act, int] = {
    remember: 30, talk: 6, edit: 15, set_state: 20, forget: 8, forget_rejected: 3,
    forget_namespace: 1, keep: 3, house: 6, embed: 6, rotate: 1, reseal: 4, consolidate: 3,
    undo: 3, recall: 10,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(CROWDS))
@pytest.mark.parametrize("store", ["database", "folder"])
async def test_everything_agrees_after_many_at_once(
    make_bench: BenchMaker, embedder: Any, tmp_path: Path, seed: int, store: str
) -> None:
    how = {"blob_store": f"file:{tmp_path / 'blobs'}"} if store == "folder" else {}
    bench = make_bench(embedder=embedder, **how)
    founder = await bench.account("sealed" if seed % 2 else "managed")
    crowd = Crowd([bench, bench.another()], Rotator(bench, founder), random.Random(seed))
    await asyncio.gather(*(crowd.person() for _ in range(PEOPLE)))
    caller = await crowd.owner.caller(None, TEAM, OTHER)
    await house(crowd, bench, caller)
    bench.clock.advance(3600)
    await house(crowd, bench, caller)
    await house(crowd, bench, caller)
    await assert_chain_holds(bench, founder.account)
    assert (await check(bench.storage)).problems == []
    for memory_id in crowd.erased:
        with pytest.raises(NotFound):
            await bench.services.memory.get(caller, memory_id)
    lost = []
    for memory_id in set(crowd.known) - crowd.erased:
        try:
            await bench.services.memory.get(caller, memory_id)
        except RelayerError:
            lost.append(memory_id)
    gone = await bench.sql("SELECT memory_id FROM tombstones")
    assert set(lost) <= {row["memory_id"] for row in gone}
