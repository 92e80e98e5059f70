"""How long a memory takes to be durable, and to be found; bulk against COPY.

Not here: the baseline with one INSERT (`baseline.py`), embedding many (`ingest.py`).

- One client over a bare socket. After each memory its vector is awaited, so that the next one is
  stored by a relayer that has nothing else to do; the baseline's request comes in between.
- A memory has to be found by keyword by the very next request: one that is not is counted.
"""

import asyncio
import json
import os
import statistics
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, Final

from bench.baseline import INSERT
from bench.figures import Bounds, Figure, Report, compared, in_turn, share
from bench.ingest import embedded
from bench.load import Wire
from bench.presigned import Presigner, presigner
from bench.running import Account, Process, Scale, Site, listening
from bench.sentences import sentence

NAMESPACE: Final = "notes"
PER_ROUND: Final = 25
BULK: Final = 200  # memories of a round; ten requests
BULK_REQUEST: Final = 20
ROW_BYTES: Final = 400  # what a sealed memory of this length takes
POLL_S: Final = 0.002
ACKNOWLEDGED: Final = Bounds(must=4.0, aim=2.5)
BY_KEYWORD: Final = Bounds(must=0, aim=0)
BY_VECTOR: Final = Bounds(must=250.0, aim=50.0)


@dataclass
class _Writer:
    """One client of a relayer; what it saw, in milliseconds."""

    wire: Wire
    signer: Presigner
    relayer_key: str
    numbers: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        self.until_vector: list[float] = []
        self.asked = self.unfound = 0

    async def remember(self) -> float:
        """Milliseconds to the answer that says it is durable."""
        word = f"ref{next(self.numbers):07d}"
        body = self.body(f"{sentence(next(self.numbers))} {word}")
        began = time.perf_counter()
        stored = await self._ask("/v1/remember", body, 202)
        acknowledged = time.perf_counter()
        if self.asked == len(self.until_vector):  # in turn: one of the two would delay the other
            await self._check_keyword(word, stored["id"])
            await self._done(stored["id"])
        else:
            await self._done(stored["id"])
            self.until_vector.append(1000 * (time.perf_counter() - acknowledged))
        return 1000 * (acknowledged - began)

    async def bulk(self, memories: int) -> float:
        """Memories a second, acknowledged."""
        bodies = [self._bulk_body() for _ in range(0, memories, BULK_REQUEST)]
        began = time.perf_counter()
        for body in bodies:
            await self._ask("/v1/remember/bulk", body, 202)
        return BULK_REQUEST * len(bodies) / (time.perf_counter() - began)

    async def _check_keyword(self, word: str, memory_id: str) -> None:
        body = {"query": word, "namespace": NAMESPACE, "mode": "keyword", "limit": 1}
        found = await self._ask("/v1/recall", body, 200)
        self.asked += 1
        self.unfound += [m["id"] for m in found["results"]] != [memory_id]

    async def _done(self, memory_id: str) -> None:
        while True:
            answer = await self._ask("/v1/memories/status", {"ids": [memory_id]}, 200)
            if answer["results"][0]["status"] == "done":
                return
            await asyncio.sleep(POLL_S)

    def body(self, text: str) -> dict[str, Any]:
        """What remembers a text."""
        return {"text": text, "namespace": NAMESPACE, "relayer": self.relayer_key}

    def _bulk_body(self) -> dict[str, Any]:
        texts = [f"{sentence(n)} {n}" for n in islice(self.numbers, BULK_REQUEST)]
        items = [{"text": text, "namespace": NAMESPACE} for text in texts]
        return {"items": items, "relayer": self.relayer_key}

    async def _ask(self, target: str, body: dict[str, Any], expected: int) -> Any:
        status, answer = await self.wire.ask(self.signer.request("POST", target, body))
        if status != expected:
            raise RuntimeError(f"{target} answered {status}")
        return json.loads(answer)


async def measure(site: Site, scale: Scale) -> Report:
    """The part's report."""
    account = await site.new_account()
    arguments = ["bench.baseline", "insert", "--data-dir", str(site.folder)]
    async with site.relayer() as relayer, listening(arguments, site.folder) as baseline:
        writer = await _writer(site, relayer, account)
        inserts = await Wire.open(baseline.url)
        per_round = 2 if scale.quick else PER_ROUND
        report = await _single(writer, inserts, scale.rounds, per_round)
        bulk = BULK_REQUEST if scale.quick else BULK
        report.figures.append(await _bulk(site, writer, account, scale.rounds, bulk))
        for wire in (writer.wire, inserts):
            await wire.close()
    return report


async def _writer(site: Site, relayer: Process, account: Account) -> _Writer:
    signer = await presigner(site, relayer, account, [NAMESPACE])
    wire = await Wire.open(relayer.url)
    return _Writer(wire, signer, site.storage.identity.public_key.hex())


async def _single(writer: _Writer, inserts: Wire, rounds: int, per_round: int) -> Report:
    remembered: list[float] = []
    inserted: list[float] = []
    for _ in range(rounds + 1):
        pairs = [
            (await writer.remember(), await _insert(writer, inserts)) for _ in range(per_round)
        ]
        remembered.append(statistics.median(ms for ms, _ in pairs))
        inserted.append(statistics.median(ms for _, ms in pairs))
    until = writer.until_vector[per_round // 2 :]  # the first round warms up
    return Report(
        [
            compared(
                "remember, to the durable 202, p50",
                "ms",
                remembered[1:],
                "signed route with one INSERT",
                inserted[1:],
                ACKNOWLEDGED,
            ),
            Figure(
                name=f"… not found by keyword by the next request, of {writer.asked}",
                value=writer.unfound,
                unit="",
                bounds=BY_KEYWORD,
            ),
            Figure(name="… to found by vector, p50", value=share(until, 0.5), unit="ms"),
            Figure(
                name="… to found by vector, p95", value=share(until, 0.95), unit="ms",
                bounds=BY_VECTOR,
            ),
        ]
    )  # fmt: skip


async def _insert(writer: _Writer, inserts: Wire) -> float:
    request = writer.signer.request("POST", INSERT, writer.body(sentence(next(writer.numbers))))
    began = time.perf_counter()
    status, _ = await inserts.ask(request)
    if status != 202:
        raise RuntimeError(f"the baseline answered {status}")
    return 1000 * (time.perf_counter() - began)


async def _bulk(
    site: Site, writer: _Writer, account: Account, rounds: int, memories: int
) -> Figure:
    async def stored() -> float:
        rate = await writer.bulk(memories)
        await embedded(site, account)
        return rate

    async def copied() -> float:
        return await _copy(site, account, memories)

    bulk, copy = await in_turn(rounds, stored, copied)
    return compared("bulk, by twenties, acknowledged", "/s", bulk, "COPY of such rows /s", copy)


async def _copy(site: Site, account: Account, rows: int) -> float:
    records: Sequence[tuple[bytes, uuid.UUID, bytes]] = [
        (account.id, uuid.uuid4(), os.urandom(ROW_BYTES)) for _ in range(rows)
    ]
    async with site.storage.database.connection() as connection:
        began = time.perf_counter()
        await connection.copy_records_to_table("baseline_rows", records=records)
        return rows / (time.perf_counter() - began)
