"""Signed requests a second against a bare Litestar handler and against PyNaCl's verifications.

Not here: the bare handler (`baseline.py`), what sends the requests (`load.py`).

- Sixteen clients of eight accounts: two at a time are what one account gets. Every request was
  signed before. The load runs beside the server, on another processor if there are two.
- A namespace of 1,000 manual uploads is asked by a vector: no embedding, no opening.
"""

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from nacl.signing import SigningKey

from bench.baseline import BARE, BARE_MANUAL
from bench.figures import Bounds, Report, compared, in_turn
from bench.filling import Filler
from bench.load import Load, driven, refusals
from bench.presigned import Presigner, presigner
from bench.running import Process, Scale, Site, listening

ACCOUNTS: Final = 8
CLIENTS_EACH: Final = 2  # of an account; more would wait in its line
UPLOADS: Final = 1_000
NAMESPACE: Final = "uploads"
PER_CLIENT: Final = 60  # requests of a client in a round
BARE_TIMES: Final = 10  # as many, since each takes so much less
MANUAL: Final = Bounds(must=1 / 10, aim=1 / 7, at_least=True)

Make = Callable[[Presigner], bytes]


@dataclass
class _Loads:
    """One server under one kind of request; the loads that it was given, in order."""

    process: Process
    signers: Sequence[Presigner]
    make: Make
    per_client: int

    def __post_init__(self) -> None:
        self.seen: list[Load] = []

    async def per_s(self) -> float:
        """Answers a second in one round."""
        shares = [
            (self.process.url, [self.make(signer) for _ in range(self.per_client)])
            for signer in self.signers
            for _ in range(CLIENTS_EACH)
        ]
        load = await driven(shares)
        self.seen.append(load)
        return load.per_s


async def measure(site: Site, scale: Scale) -> Report:
    """The part's report."""
    accounts = [await site.new_account() for _ in range(2 if scale.quick else ACCOUNTS)]
    filler, dim = Filler(site), site.embedder.dim
    uploads = 50 if scale.quick else UPLOADS
    for account in accounts:
        await filler.fill_manual(account, NAMESPACE, uploads)
    await filler.settle()
    each = 5 if scale.quick else PER_CLIENT
    async with contextlib.AsyncExitStack() as stack:
        relayer = await stack.enter_async_context(site.relayer())
        arguments = ["bench.baseline", "bare", "--data-dir", str(site.folder)]
        bare_server = await stack.enter_async_context(listening(arguments, site.folder))
        signers = [await presigner(site, relayer, account, [NAMESPACE]) for account in accounts]
        loads = [
            _Loads(bare_server, signers, lambda s: s.request("GET", BARE), BARE_TIMES * each),
            _Loads(relayer, signers, lambda s: s.request("GET", "/v1/settings"), each),
            _Loads(relayer, signers, lambda s: _manual(s, dim), each),
            _Loads(bare_server, signers, lambda s: _manual(s, dim, BARE_MANUAL), BARE_TIMES * each),
        ]
        await in_turn(1, *(load.per_s for load in loads))
        found = await in_turn(scale.rounds, _verifies, *(load.per_s for load in loads))
    return _reported(loads, found, uploads)


def _manual(signer: Presigner, dim: int, path: str = "/api/recall/manual") -> bytes:
    vector = [round(random.gauss(0, 1), 6) for _ in range(dim)]
    body = {"namespace": NAMESPACE, "vector": vector, "limit": 10}
    return signer.request("POST", path, body)


async def _verifies() -> float:
    """PyNaCl's verifications a second of one thread."""
    key, count = SigningKey.generate(), 500
    signed, verifier = key.sign(b"x" * 200), key.verify_key
    began = time.perf_counter()
    for _ in range(count):
        verifier.verify(signed)
    return count / (time.perf_counter() - began)


def _reported(loads: Sequence[_Loads], found: list[list[float]], uploads: int) -> Report:
    verifies, bare, signed, manual, reading = found
    report, name = Report(), f"manual recall of {uploads:,}"
    report.figures = [
        compared("signed, GET /v1/settings", "/s", signed, "bare handler /s", bare),
        compared("signed, GET /v1/settings", "/s", signed, "PyNaCl verifies /s", verifies),
        compared(name, "/s", manual, "bare handler /s", bare, MANUAL),
        compared(name, "/s", manual, "PyNaCl verifies /s", verifies),
        compared(name, "/s", manual, "bare handler of its body /s", reading),
    ]
    names = ("bare", "signed", "manual recall", "bare with its body")
    shares = [
        f"{name} {100 * max(seen.processor for seen in load.seen):.0f} %"
        for name, load in zip(names, loads, strict=True)
    ]
    report.notes.append(f"the load took at most, of one processor: {', '.join(shares)}")
    report.notes += refusals(seen for load in loads for seen in load.seen)
    return report
