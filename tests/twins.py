"""Two relayers on one database: one answers from memory, the other by statements alone."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import pytest_asyncio

from relayer.database import memory_index as rows
from relayer.memories.opener import Caller
from relayer.memories.recall import Recalled
from relayer.memory_index import index as resident_index
from relayer.memory_index import namespace
from relayer.memory_index.index import MemoryIndex
from relayer.memory_index.namespace import LoadedNamespace
from relayer.query.query import Query
from relayer.sealed.keys import Namespace
from relayer.upkeep.provision import NewKey
from tests.conftest import BenchMaker
from tests.services import OTHER, TEAM, Bench

PLENTY: Final = 2**30
SPARE: Final = 2  # memories behind the last one that may score the same
DIGITS: Final = 2e-3  # a number of a vector takes one byte in memory and two in the database
TALK: Final = [
    "Anna Kowalski prefers tea without sugar.",
    "Anna moved to the Hamburg office in March.",
    "The deploy pipeline broke on 14 March 2031.",
    "Ben sells cups in Rotterdam.",
    "Ticket MW-4711 waits for Ben.",
    "The red door leads to the cellar.",
    "Tea is served at four in the cellar.",
    "Grandfather restarts the database every Sunday.",
    "The database lives in Hamburg.",
    "Ben prefers coffee. " + "He tells of the harbour and of ships that never came. " * 30,
]
QUERIES: Final[list[dict[str, Any]]] = [
    {"text": "What does Anna drink?"},
    {"text": "Hamburg database tea cellar Ben", "limit": 5},  # the sixth is far behind
    {"text": "MW-4711", "mode": "keyword"},
    {"text": "hot beverages", "mode": "vector"},
    {"text": "Who is in Rotterdam?", "goal": "Buy cups for the office."},
    {"text": "tea", "namespaces": [TEAM, OTHER]},
    {"text": "tea", "namespaces": [OTHER, TEAM], "kinds": ["semantic"]},
    {"text": "What about the door?", "tags": ["house"]},
    {"text": "Who was late in March 2031?", "source": "chat"},
    {"text": "tea in the cellar", "metadata": {"room": "cellar"}},
    {"text": "nothing of all this, zzyzx"},
]


@dataclass
class Twins:
    """Two relayers on one database: one answers from memory, the other by statements alone."""

    held: Bench
    plain: Bench
    founder: NewKey

    async def caller(self, bench: Bench) -> Caller:
        """What a request of now is."""
        caller = await self.held.caller(self.founder)
        key = self.founder
        access = await bench.storage.accounts.access(key.account, key.identity.public_key)
        assert access is not None
        return Caller(access, caller.keys)

    async def recall(self, bench: Bench, **query: Any) -> Recalled:
        asked = Query(**{"namespaces": [TEAM], **query})
        return await bench.services.recaller.recall(await self.caller(bench), asked)

    async def residents(self, *namespaces: Namespace) -> list[LoadedNamespace] | None:
        """What a request of now would find in memory."""
        caller = await self.caller(self.held)
        entries = [
            await self.held.storage.namespaces.find(self.founder.account, n) for n in namespaces
        ]
        numbers = [entry.namespace_id for entry in entries if entry is not None]
        return await self.held.services.memory_index.find(caller.access, numbers)

    async def hold(self, *namespaces: Namespace) -> None:
        """Wait until these are answered from memory."""
        async with asyncio.timeout(60):
            while await self.residents(*namespaces) is None:
                await asyncio.sleep(0.01)

    async def check_alike(self) -> None:
        """Return when both answer every query alike, and the one does it from memory."""
        await self.hold(TEAM, OTHER)
        for query in QUERIES:
            await self.check_query(**query)

    async def check_query(self, **query: Any) -> None:
        """Return when both answer a query alike."""
        ours = await self.recall(self.held, **query)
        theirs = await self.recall(self.plain, **query)
        assert len(ours.found) == len(theirs.found), query
        # What scores the same but for the last digits may change places, the last one's too.
        if "limit" in query:
            theirs = await self.recall(self.plain, **{**query, "limit": query["limit"] + SPARE})
        places = {f.hit.seq: n for n, f in enumerate(theirs.found)}
        assert {f.hit.seq for f in ours.found} <= set(places), query
        scores = [theirs.found[places[f.hit.seq]].hit.score for f in ours.found]
        in_order = [f.hit.score for f in theirs.found[: len(scores)]]
        assert scores == pytest.approx(in_order, abs=DIGITS), query
        for one in ours.found:
            other = theirs.found[places[one.hit.seq]]
            assert one.memory == other.memory, query
            assert _exactly(one) == _exactly(other), query
            assert _about(one) == pytest.approx(_about(other), abs=DIGITS), query
        assert (ours.dropped, ours.degraded) == (theirs.dropped, theirs.degraded)


def _exactly(found: Any) -> tuple[Any, ...]:
    return found.memory.text, found.hit.seq, tuple(sorted(found.hit.matched))


def _about(found: Any) -> list[float]:
    hit = found.hit
    named = (
        hit.score,
        hit.relevance,
        hit.meaning,
        hit.words,
        hit.neighbours,
        hit.speaker,
        hit.period,
    )
    return [*named, hit.distance, 9.0 if hit.cosine is None else hit.cosine]


@pytest_asyncio.fixture
async def twins(
    make_bench: BenchMaker, embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Twins]:
    # A few memories are enough for postings in two parts.
    monkeypatch.setattr(namespace, "RECENT_MAX", 20)
    monkeypatch.setattr(namespace, "ORDERED_MAX", 0)
    held = make_bench(embedder=embedder, index_memory_bytes=PLENTY)
    plain = make_bench(
        embedder=embedder,
        index_memory_bytes=0,
        identity=held.storage.identity,
        clock=held.clock,
    )
    twins = Twins(held, plain, await held.account())
    caller = await held.caller(twins.founder)
    items = await held.remember(caller, *TALK[:6])
    items += await held.remember(caller, TALK[6], kind="semantic", tags=("house",))
    items += await held.remember(
        caller, TALK[7], source="chat", metadata={"room": "cellar"}, namespace=OTHER
    )
    items += await held.remember(caller, *TALK[8:], namespace=OTHER)
    await held.embed(caller, items)
    yield twins
    await held.services.memory_index.close()


async def held_now(twins: Twins) -> LoadedNamespace:
    """The namespace as it is held now."""
    await twins.hold(TEAM)
    found = await twins.residents(TEAM)
    assert found is not None
    return found[0]


async def read_anew(twins: Twins) -> LoadedNamespace:
    """The namespace as somebody reads it who has held nothing before."""
    index = index_of(twins.held, PLENTY)
    await held_by(twins, index, TEAM)
    access, number = (await twins.caller(twins.held)).access, await number_of(twins, TEAM)
    found = await index.find(access, [number])
    assert found is not None
    await index.close()
    return found[0]


def content_of(resident: LoadedNamespace) -> list[Any]:
    """All that a namespace holds, in an order of its own."""
    vectors = {
        scope: sorted(zip(its.at.tolist(), its.codes.tolist(), strict=True))
        for scope, its in resident.passages.items()
    }
    postings = sorted(
        pair
        for part in resident.postings
        for pair in zip(
            part.tokens.tolist(), part.at.tolist(), part.frequencies.tolist(), strict=True
        )
    )
    columns = [column.tolist() for column in resident.memories.columns]
    return [resident.documents, resident.words, columns, vectors, postings]


def calls_of(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Calls of a statement from now on."""
    call, calls = getattr(rows, name), []

    async def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return await call(*arguments)

    monkeypatch.setattr(rows, name, counted)
    return calls


def index_of(bench: Bench, bytes_max: int) -> MemoryIndex:
    """One that has room for so much of namespaces, and some more for rows."""
    share = resident_index.ROWS_SHARE
    whole = -(-bytes_max * share // (share - 1))
    return MemoryIndex(database=bench.storage.database, bytes_max=whole)


async def number_of(twins: Twins, namespace: Namespace) -> int:
    entry = await twins.held.storage.namespaces.find(twins.founder.account, namespace)
    assert entry is not None
    return entry.namespace_id


async def held_by(twins: Twins, index: MemoryIndex, namespace: Namespace) -> None:
    access, number = (await twins.caller(twins.held)).access, await number_of(twins, namespace)
    async with asyncio.timeout(60):
        while await index.find(access, [number]) is None:
            await asyncio.gather(*index.reading)
