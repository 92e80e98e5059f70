"""A recall against what it cannot do without, in namespaces of 100 to 50,000 memories.

Not here: the floor (`floor.py`), what a recall finds (`retrieval.py`).

- End to end: the real client asks a real relayer, signed, with a sealed account's keys, hybrid, ten
  results; no question comes twice, so that no vector comes from a cache.
- A recall right after a write has to bring what is held in memory up to date.
- Recall@10 is by meaning alone, against an exact scan of the same vectors.
"""

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.figures import Bounds, Curve, Figure, Report, compared, in_turn
from bench.filling import Filled, Filler
from bench.floor import LIMIT, PIECES, Floor, Session
from bench.load import Wire
from bench.presigned import Presigner, presigner
from bench.running import Scale, Site
from bench.sentences import Questions, sentence
from memrelay import MemoryClient
from relayer.sealed.turn import derive_turn

SIZES: Final = (100, 1_000, 10_000, 50_000)
SIZES_QUICK: Final = (50, 200)
WRITES_SHARE: Final = 4  # of the recalls: they wait for vectors
FLOOR_AT: Final = (1_000, 10_000)  # where the ratio is asked for
FLOOR: Final = Bounds(must=2.0, aim=1.4)
LARGE: Final = Bounds(must=3.0, aim=2.0)
FOUND: Final = Bounds(must=0.98, aim=0.99, at_least=True)


@dataclass
class _Namespace:
    """What is measured in one filled namespace; times in milliseconds."""

    filled: Filled
    floor: Floor
    client: MemoryClient
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

    async def recalls(self) -> float:
        """Through the real client."""
        return await self._recall_ms(self.each)

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
        for one in filled:
            await check_found(client, one)
        wire = await Wire.open(process.url)
        signer = await presigner(site, process, account, [f.namespace for f in filled])
        places = [
            _Namespace(
                f, Floor(f, session, connection, site.embedder.model_id), client, wire, signer,
                questions, each,
            )
            for f in filled
        ]  # fmt: skip
        measures = [m for p in places for m in (p.floors, p.recalls, p.unaided)]
        await in_turn(1, *measures)
        for place in places:
            place.pieces.clear()
        report = _reported(sizes, places, await in_turn(scale.rounds, *measures))
        report.figures += await _exactness(site, places[-1], 10 if scale.quick else 100)
        # Last of all: each write changes what is measured above.
        measures = [m for p in places for m in (p.recalls, p.after_writes)]
        report.figures += _written(sizes, await in_turn(scale.rounds, *measures))
        await wire.close()
    return report


def _reported(
    sizes: Sequence[int], places: Sequence[_Namespace], found: list[list[float]]
) -> Report:
    floors, recalls, unaided = found[0::3], found[1::3], found[2::3]
    report = Report()
    for n, size in enumerate(sizes):
        bounds = FLOOR if size in FLOOR_AT else None
        name = f"recall, {size:,} memories, p50"
        report.figures.append(compared(name, "ms", recalls[n], "floor", floors[n], bounds))
        name = f"… {size:,}, over a bare socket"
        report.figures.append(compared(name, "ms", unaided[n], "floor", floors[n]))
        pieces = {p: 1000 * statistics.median(s[p] for s in places[n].pieces) for p in PIECES}
        report.notes.append(
            f"floor at {size:,}: " + ", ".join(f"{p} {ms:.2f} ms" for p, ms in pieces.items())
        )
    small = min(1, len(sizes) - 1)  # 1,000
    name, other = f"recall, {sizes[-1]:,} against {sizes[small]:,}", "recall at the smaller"
    bounds = LARGE if sizes[-1] == SIZES[-1] else None
    report.figures.append(compared(name, "ms", recalls[-1], other, recalls[small], bounds))
    lines = {"recall": recalls, "over a bare socket": unaided, "floor": floors}
    points = {
        label: [(float(s), statistics.median(v)) for s, v in zip(sizes, values, strict=True)]
        for label, values in lines.items()
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
    turn = derive_turn(filled.key, site.embedder.model_id, site.embedder.dim)
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
