"""A recall against what it cannot do without, in namespaces of 100 to 50,000 memories.

Not here: the floor (`floor.py`), what a recall finds (`retrieval.py`).

- End to end: the real client asks a real relayer, signed, with a sealed account's keys, hybrid, ten
  results; no question comes twice, so that no vector comes from a cache.
- From the index in memory, which holds a namespace that is asked often; and, by a second relayer of
  the same run that keeps none, from the database: so are a first recall, a namespace for which
  there is no room, and `as_of` answered.
- A recall right after a write has to bring what is held in memory up to date.
- Recall@10 is by meaning alone, against an exact scan of the same vectors.
"""

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bench.figures import Bounds, Curve, Figure, Measure, Report, compared, in_turn
from bench.filling import Filled, Filler
from bench.floor import LIMIT, PIECES, Floor, Session, indexed
from bench.load import Wire
from bench.presigned import Presigner, presigner
from bench.running import FROM_DATABASE, Scale, Site
from bench.sentences import Questions, sentence
from memrelay import MemoryClient
from relayer.sealed.vector_turn import derive_vector_turn

SIZES: Final = (100, 1_000, 10_000, 50_000)
SIZES_QUICK: Final = (50, 200)
WRITES_SHARE: Final = 4  # of the recalls: they wait for vectors
FLOOR_AT: Final = (1_000, 10_000)  # where the ratio is asked for
GRAPH_FROM: Final = 10_000  # memories; below, an exact scan takes no longer than an index
EXACT, GRAPH = "floor, exact pgvector scan", "floor, pgvector's HNSW"
FLOOR: Final = Bounds(must=2.0, aim=1.4)
LARGE: Final = Bounds(must=3.0, aim=2.0)
FOUND: Final = Bounds(must=0.98, aim=0.99, at_least=True)


@dataclass
class _Namespace:
    """What is measured in one filled namespace; times in milliseconds."""

    filled: Filled
    floor: Floor
    graph: Floor | None
    client: MemoryClient
    unindexed: MemoryClient  # of the relayer that keeps no index in memory
    wire: Wire
    signer: Presigner
    questions: Questions
    each: int

    def __post_init__(self) -> None:
        self.pieces: list[dict[str, float]] = []

    async def floors(self) -> float:
        """The pieces, one after the other."""
        spent = [await self.floor.measure(next(self.questions)) for _ in range(self.each)]
        self.pieces += spent
        return 1000 * statistics.median(sum(pieces.values()) for pieces in spent)

    async def graph_floors(self) -> float:
        """The same through the index of approximate neighbours."""
        assert self.graph is not None
        spent = [await self.graph.measure(next(self.questions)) for _ in range(self.each)]
        return 1000 * statistics.median(sum(pieces.values()) for pieces in spent)

    async def recalls(self) -> float:
        """Through the real client."""
        return await self._recall_ms(self.each)

    async def from_database(self) -> float:
        """Through the real client of the relayer that keeps no index in memory."""
        return await median_ms(self.unindexed, self.filled.namespace, self.questions, self.each)

    async def unaided(self) -> float:
        """Without the client: its requests are signed here, too, but nothing else is done."""
        return await _median_ms(self._ask, self.questions, self.each)

    async def after_writes(self) -> float:
        """Through the real client, each right after a memory that is found by its meaning, too."""
        spent = []
        for _ in range(max(1, self.each // WRITES_SHARE)):
            written = await self.client.remember(
                next(self.questions), namespace=self.filled.namespace
            )
            await self.client.wait([written.id])
            spent.append(await self._recall_ms(1))
        return statistics.median(spent)

    async def _recall_ms(self, count: int) -> float:
        return await median_ms(self.client, self.filled.namespace, self.questions, count)

    async def _ask(self, text: str) -> None:
        body = {"query": text, "namespace": self.filled.namespace, "limit": LIMIT}
        status, _ = await self.wire.ask(self.signer.request("POST", "/v1/recall", body))
        if status != 200:
            raise RuntimeError(f"a recall was answered by {status}")


async def check_found(client: MemoryClient, filled: Filled) -> None:
    """Return when memories that were filled in are recalled by what they say.

    Raises:
        RuntimeError: one is not.
    """
    last = len(filled.ids) - 1
    for number in (0, last // 2, last):
        recalled = await client.recall(sentence(number), namespace=filled.namespace)
        found = [memory.id for memory in recalled.results if memory.text == sentence(number)]
        if found != [str(filled.ids[number])]:
            raise RuntimeError(f"memory {number} of {filled.namespace!r} is not found")


async def median_ms(
    client: MemoryClient, namespace: str, questions: Questions, count: int
) -> float:
    """The median time of so many recalls, one after the other."""
    return await _median_ms(lambda text: _recall(client, namespace, text), questions, count)


async def _recall(client: MemoryClient, namespace: str, text: str) -> None:
    recalled = await client.recall(text, namespace=namespace, limit=LIMIT, min_relevance=None)
    if len(recalled.results) != LIMIT:
        raise RuntimeError("a recall found too little to be compared")


async def _median_ms(
    ask: Callable[[str], Awaitable[None]], questions: Questions, count: int
) -> float:
    spent = []
    for _ in range(count):
        text = next(questions)
        began = time.perf_counter()
        await ask(text)
        spent.append(time.perf_counter() - began)
    return 1000 * statistics.median(spent)


async def measure(site: Site, scale: Scale) -> Report:
    """The part's report."""
    every, each = (SIZES_QUICK, 3) if scale.quick else (SIZES, 20)
    sizes = [size for size in every if size <= scale.largest]
    filler, account = Filler(site), await site.new_account()
    filled = [await filler.fill(account, f"of {size}", size) for size in sizes]
    await filler.settle()
    session, questions = Session(), Questions()
    async with (
        site.connection() as connection,
        site.relayer() as process,
        site.client(process, account) as client,
    ):
        wire = await Wire.open(process.url)
        signer = await presigner(site, process, account, [f.namespace for f in filled])
        async with (
            site.replica(*FROM_DATABASE) as other,
            site.client(other, account) as unindexed,
        ):
            for one in filled:
                await check_found(client, one)
                await check_found(unindexed, one)
            model_id = site.embedder.model_id
            floors = [Floor(f, session, connection, model_id) for f in filled]
            graphs = [await _graph(floor, last=floor is floors[-1]) for floor in floors]
            places = [
                _Namespace(f, floor, graph, client, unindexed, wire, signer, questions, each)
                for f, floor, graph in zip(filled, floors, graphs, strict=True)
            ]
            measures = {
                (n, name): measure
                for n, place in enumerate(places)
                for name, measure in _measures(place).items()
            }
            await in_turn(1, *measures.values())
            for place in places:
                place.pieces.clear()
            taken = await in_turn(scale.rounds, *measures.values())
            report = _reported(sizes, places, dict(zip(measures, taken, strict=True)))
        # The other relayer has ended: it would take its share of what is stored now.
        report.figures += await _exactness(site, places[-1], 10 if scale.quick else 100)
        # Last of all: each write changes what is measured above.
        written = [m for p in places for m in (p.recalls, p.after_writes)]
        report.figures += _written(sizes, await in_turn(scale.rounds, *written))
        await wire.close()
    return report


async def _graph(floor: Floor, *, last: bool) -> Floor | None:
    """The floor through an index, where one is worth it; in any case in the last namespace."""
    size = len(floor.filled.ids)
    if size < GRAPH_FROM and not last:
        return None
    table = await indexed(floor.connection, floor.filled, floor.model_id, f"bench_of_{size}")
    return replace(floor, table=table)


def _measures(place: _Namespace) -> dict[str, Measure]:
    graph: dict[str, Measure] = {"graph": place.graph_floors} if place.graph else {}
    return {
        "floor": place.floors,
        **graph,
        "recall": place.recalls,
        "unaided": place.unaided,
        "database": place.from_database,
    }


def _reported(
    sizes: Sequence[int],
    places: Sequence[_Namespace],
    found: Mapping[tuple[int, str], list[float]],
) -> Report:
    report = Report()
    for n, size in enumerate(sizes):
        floors, recalls = found[n, "floor"], found[n, "recall"]
        bounds = FLOOR if size in FLOOR_AT else None
        name = f"recall, {size:,} memories, from the index in memory, p50"
        report.figures.append(compared(name, "ms", recalls, EXACT, floors, bounds))
        if (n, "graph") in found:
            graphs = found[n, "graph"]
            report.figures.append(compared(f"… {size:,}", "ms", recalls, GRAPH, graphs))
        name = f"… {size:,}, over a bare socket"
        report.figures.append(compared(name, "ms", found[n, "unaided"], EXACT, floors))
        name = f"recall, {size:,} memories, from the database, p50"
        report.figures.append(compared(name, "ms", found[n, "database"], EXACT, floors))
        pieces = {p: 1000 * statistics.median(s[p] for s in places[n].pieces) for p in PIECES}
        report.notes.append(
            f"floor at {size:,}: " + ", ".join(f"{p} {ms:.2f} ms" for p, ms in pieces.items())
        )
    large, small = len(sizes) - 1, 1
    if large > small:
        name = f"recall, {sizes[large]:,} against {sizes[small]:,}, from the index in memory"
        bounds = LARGE if sizes[large] == SIZES[-1] else None
        both = found[large, "recall"], found[small, "recall"]
        report.figures.append(compared(name, "ms", both[0], "the smaller", both[1], bounds))
    lines = {
        "from the index in memory": "recall",
        "over a bare socket": "unaided",
        "from the database": "database",
        "floor": "floor",
    }
    points = {
        label: [(float(s), statistics.median(found[n, of])) for n, s in enumerate(sizes)]
        for label, of in lines.items()
    }
    report.curves.append(Curve("recall", "memories in the namespace", "ms, p50", points))
    return report


def _written(sizes: Sequence[int], found: list[list[float]]) -> list[Figure]:
    """Recalls right after a write against others of the same rounds."""
    return [
        compared(f"recall, {size:,}, right after a write", "ms", after, "recall", recalls)
        for size, recalls, after in zip(sizes, found[0::2], found[1::2], strict=True)
    ]


async def _exactness(site: Site, place: _Namespace, count: int) -> list[Figure]:
    """How much of the exact nearest ten a recall by meaning finds."""
    filled, shares = place.filled, []
    turn = derive_vector_turn(filled.key, site.embedder.model_id, site.embedder.dim)
    stored = filled.vectors.astype(np.float32)
    numbers = {str(memory_id): n for n, memory_id in enumerate(filled.ids)}
    for _ in range(count):
        text = next(place.questions)
        turned = turn.apply(await site.embedder.embed([text])).astype(np.float16)[0]
        near = stored @ turned.astype(np.float32) / np.linalg.norm(stored, axis=1)
        farthest = np.sort(near)[-LIMIT] - 1e-4  # equals of the tenth are as good
        recalled = await place.client.recall(
            text,
            namespace=filled.namespace,
            limit=LIMIT,
            vector_weight=1.0,
            text_weight=0.0,
            min_relevance=None,
        )
        found = [near[numbers[memory.id]] >= farthest for memory in recalled.results]
        shares.append(sum(found) / LIMIT)
    name = f"recall@10, {len(filled.ids):,} memories, against exact"
    return [Figure(name=name, value=statistics.fmean(shares), unit="", bounds=FOUND)]
