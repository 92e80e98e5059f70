"""A namespace that changes between a searchable and a sealed index, and what both answer."""

from dataclasses import dataclass
from typing import Any, Final

import pytest

from relayer.memories.opener import Caller
from relayer.memories.recall import Recalled
from relayer.query.query import Query
from relayer.sealed.keys import Namespace
from relayer.upkeep.provision import NewKey
from tests.rotator import Rotator
from tests.services import OTHER, TEAM, Bench
from tests.twins import QUERIES, TALK

# By how much a score may differ: a sealed vector has whole numbers of 8 bits.
CLOSE: Final = 4e-3
UNSEALED: Final = """
SELECT (SELECT count(*) FROM postings) + (SELECT count(*) FROM vectors)
       + (SELECT count(*) FROM memories
          WHERE index_record IS NULL OR word_count <> 0 OR cardinality(tokens) > 0) AS there
"""
RECORDS: Final = "SELECT count(*) FROM memories WHERE index_record IS NOT NULL"


@dataclass
class Choice:
    """An account whose two namespaces have one kind of index or the other."""

    bench: Bench
    founder: NewKey
    rotator: Rotator | None = None

    async def caller(self, bench: Bench | None = None) -> Caller:
        """What a request of now is."""
        if self.rotator is not None:
            return await self.rotator.caller(None, TEAM, OTHER, hold_s=300, bench=bench)
        return await (bench or self.bench).unlocked(self.founder, TEAM, OTHER, hold_s=300)

    async def choose(self, *, sealed: bool, namespaces: tuple[Namespace, ...]) -> None:
        """Let these namespaces have that index, and move what is there."""
        for namespace in namespaces:
            await self.bench.services.index_chooser.choose(
                (await self.caller()).access, namespace, sealed=sealed
            )
        await self.move()

    async def move(self) -> None:
        caller = await self.caller()
        mover = self.bench.services.index_mover
        assert await mover.work(caller.access.account, caller.keys, lambda: True)

    async def recall(self, bench: Bench | None = None, **query: Any) -> Recalled:
        """The answer to a request of now, from a relayer."""
        asked = Query(**{"namespaces": [TEAM], **query})
        answering = bench or self.bench
        return await answering.services.recaller.recall(await self.caller(answering), asked)

    async def texts(self, bench: Bench | None = None, **query: Any) -> list[str | None]:
        return [found.memory.text for found in (await self.recall(bench, **query)).found]

    async def answers(self) -> list[Recalled]:
        """The answers to every query."""
        return [await self.recall(**query) for query in QUERIES]


async def talk(bench: Bench) -> Choice:
    """Two namespaces that say something, both with a searchable index."""
    choice = Choice(bench, await bench.account("sealed"))
    caller = await choice.caller()
    items = await bench.remember(caller, *TALK[:6])
    items += await bench.remember(caller, TALK[6], kind="semantic", tags=("house",))
    items += await bench.remember(
        caller, TALK[7], source="chat", metadata={"room": "cellar"}, namespace=OTHER
    )
    items += await bench.remember(caller, *TALK[8:], namespace=OTHER)
    await bench.embed(caller, items)
    return choice


def check_alike(ours: Recalled, theirs: Recalled) -> None:
    """Return when two answers have the same memories, in an order that only near ties change."""
    assert {f.hit.seq for f in ours.found} == {f.hit.seq for f in theirs.found}
    own = {f.hit.seq: f.hit for f in ours.found}
    other = {f.hit.seq: f.hit for f in theirs.found}
    for seq, hit in own.items():
        assert hit.score == pytest.approx(other[seq].score, abs=CLOSE)
        assert hit.words == pytest.approx(other[seq].words, abs=1e-6)
        assert sorted(hit.matched) == sorted(other[seq].matched)
    scores = [f.hit.score for f in theirs.found]
    ordered = sorted(ours.found, key=lambda f: -other[f.hit.seq].score)
    assert [other[f.hit.seq].score for f in ordered] == pytest.approx(scores)
    assert (ours.dropped, ours.degraded) == (theirs.dropped, theirs.degraded)
