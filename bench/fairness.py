"""Measure an account's waits in the background beside another's fill, and the longest block.

Not here: requests beside requests (`clients.py`, `neighbours.py`).

- The fill is text of one account that waits for its vectors, written as rows; a relayer works on it
  from the first to the last measurement. How much was left then is told.
- Measured first without it and then beside it: one memory until its vector is there, twenty that
  are sealed anew after a rotation, recalls. Of what is over in a moment anyway, a fixed time is
  asked instead of the ratio: the baseline is a third of it at least.
- The longest block is what a request without any check waits for while another account's longest
  text comes in and gets its vectors.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from bench.figures import Bounds, Figure, Measure, Report, compared, in_turn, share
from bench.filling import Filler
from bench.ingest import embedded
from bench.load import Wire
from bench.presigned import Presigner, presigner
from bench.running import Account, Process, Scale, Site
from bench.sentences import Questions, sentence

NAMESPACE: Final = "notes"
TEXT_BYTES: Final = 2**20  # of one memory: the greatest there may be
TEXT_BYTES_QUICK: Final = 2**14
MEMORIES: Final = 1_000  # that are recalled
RECALLS: Final = 100
RESEALED: Final = 20
VECTOR_S: Final = 2.0  # that a single memory's vector may take, whatever it takes otherwise
RESEAL_S: Final = 10.0
POLL_S: Final = 0.005
BEGUN_S_MAX: Final = 120.0
BESIDE: Final = Bounds(must=3.0, aim=2.0)
BLOCK: Final = Bounds(must=100.0, aim=50.0)  # ms
HEALTH: Final = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
FIRST_OF_FOUR_BYTES: Final = 0x20000  # of a script in which each character is a word

_LEFT: Final = """
SELECT coalesce(sum(size_bytes), 0) AS bytes FROM memories
WHERE account_id = $1 AND format = 'sealed' AND embedding_version = ''
"""
_IS_BEGUN: Final = "SELECT count(*) AS jobs FROM pgqueuer WHERE status = 'picked'"


@dataclass
class _Quiet:
    """The account that has little to do."""

    site: Site
    relayer: Process
    account: Account
    recalled: str
    questions: Questions
    recalls: int
    number: int = 0

    async def vector_s(self) -> float:
        """Seconds from a request to its vector."""
        self.number += 1
        async with self.site.client(self.relayer, self.account) as client:
            await client.recall("warm", namespace=NAMESPACE)
            began = time.perf_counter()
            await client.remember(f"{sentence(self.number)} {self.number}", namespace=NAMESPACE)
            await embedded(self.site, self.account)
            return time.perf_counter() - began

    async def reseal_s(self) -> float:
        """Seconds from a rotation until twenty memories of a new account are sealed anew."""
        account = await self.site.new_account()
        async with self.site.client(self.relayer, account) as client:
            texts = [f"{sentence(n)} {n}" for n in range(RESEALED)]
            await client.remember_many(texts, namespace=NAMESPACE)
            await embedded(self.site, account)
            began = time.perf_counter()
            await client.rotate(reseal="all")
            while (await client.rotation(lend=True)).remaining:  # noqa: ASYNC110  # no event tells of it
                await asyncio.sleep(POLL_S)
            return time.perf_counter() - began

    async def recall_p95_ms(self) -> float:
        """Milliseconds that 95 of 100 recalls do not exceed."""
        times_ms = []
        async with self.site.client(self.relayer, self.account) as client:
            await client.recall("warm", namespace=self.recalled)
            for _ in range(self.recalls):
                question = next(self.questions)
                began = time.perf_counter()
                await client.recall(question, namespace=self.recalled, limit=10)
                times_ms.append(1000 * (time.perf_counter() - began))
        return share(times_ms, 0.95)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """All of them, in the order of the report."""
        return (self.vector_s, self.reseal_s, self.recall_p95_ms)


async def measure(site: Site, scale: Scale) -> Report:
    """The part's report."""
    memories, recalls = (50, 10) if scale.quick else (MEMORIES, RECALLS)
    text_bytes = TEXT_BYTES_QUICK if scale.quick else TEXT_BYTES
    filler, account = Filler(site), await site.new_account()
    noisy = await site.new_account(custody="managed")  # its keys are at hand at any time
    await filler.fill(account, "team", memories)
    await filler.settle()
    async with site.relayer() as relayer:
        quiet = _Quiet(site, relayer, account, "team", Questions(), recalls)
        await in_turn(1, *quiet.measures)
        idle = await in_turn(scale.rounds, *quiet.measures)
        blocks = await in_turn(scale.rounds, lambda: _block_ms(site, relayer, text_bytes))
        texts = 1 if scale.quick else scale.backlog
        await filler.fill_waiting(noisy, NAMESPACE, texts=texts, text_bytes=text_bytes)
        await _begun(site)
        beside = await in_turn(scale.rounds, *quiet.measures)
        left = await _left_mib(site, noisy)
    report = _reported(idle, beside)
    report.figures.append(
        Figure(name="longest block", value=max(blocks[0]), unit="ms", bounds=BLOCK)
    )
    report.notes.append(
        f"of {texts} texts of {text_bytes} bytes that waited, {left:.0f} MiB were left at the end"
    )
    return report


def _reported(idle: list[list[float]], beside: list[list[float]]) -> Report:
    names = ("one memory until its vector", f"{RESEALED} memories sealed anew", "p95 of recalls")
    units = ("s", "s", "ms")
    least = (VECTOR_S / BESIDE.must, RESEAL_S / BESIDE.must, 0.0)
    figures = []
    for name, unit, floor, alone, filled in zip(names, units, least, idle, beside, strict=True):
        baseline = [max(floor, value) for value in alone]
        against = f"idle, {floor:.2g} {unit} at least" if floor else "idle"
        figures.append(compared(f"{name} beside a fill", unit, filled, against, baseline, BESIDE))
        figures.append(Figure(name=f"{name}, idle", value=share(alone, 0.5), unit=unit))
    return Report(figures)


async def _begun(site: Site) -> None:
    """Return once a worker has taken what waits."""
    async with asyncio.timeout(BEGUN_S_MAX):
        while not await _number(site, _IS_BEGUN):  # noqa: ASYNC110  # it is a row in the database
            await asyncio.sleep(POLL_S)


async def _left_mib(site: Site, account: Account) -> float:
    return await _number(site, _LEFT, account.id) / 2**20


async def _number(site: Site, statement: str, *arguments: object) -> int:
    row = await site.storage.database.fetchrow(statement, *arguments)
    assert row is not None
    return int(row[0])


async def _block_ms(site: Site, relayer: Process, text_bytes: int) -> float:
    """Milliseconds that `/health` waits, at the most, while a long text is stored and embedded."""
    account = await site.new_account()
    signer = await presigner(site, relayer, account, [NAMESPACE])
    request = _long_text(site, signer, text_bytes)
    wire = await Wire.open(relayer.url)
    async with _watched(relayer) as waits_ms:
        status, _ = await wire.ask(request)
        if status != 202:
            raise RuntimeError(f"a long text was answered by {status}")
        await embedded(site, account)
    await wire.close()
    return max(waits_ms)


def _long_text(site: Site, signer: Presigner, text_bytes: int) -> bytes:
    characters = text_bytes // 4
    text = "".join(chr(FIRST_OF_FOUR_BYTES + n * 7 % 40_000) for n in range(characters))
    relayer = site.storage.identity.public_key.hex()
    body = {"text": text, "namespace": NAMESPACE, "relayer": relayer}
    return signer.request("POST", "/v1/remember", body)


@contextlib.asynccontextmanager
async def _watched(relayer: Process) -> AsyncIterator[list[float]]:
    """Return the times of `/health` meanwhile, asked again and again by a connection of its own."""
    waits_ms: list[float] = []
    wire = await Wire.open(relayer.url)

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await wire.ask(HEALTH)
            waits_ms.append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(POLL_S)

    task = asyncio.create_task(watch())
    try:
        yield waits_ms
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await wire.close()
