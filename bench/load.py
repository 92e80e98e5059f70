"""Clients that send requests made before, as fast as they are answered: a process of its own.

    python -m bench.load < PLAN

Not here: making requests (`presigned.py`).

- A plan is a line of JSON, for each client its URL and number of requests, and then all requests,
  each behind its length as a line. What comes out is JSON, see `Load`.
- Bare sockets, one request after the other on each: so little of the processor that the relayer
  keeps its own. How much it took is part of the result.
"""

import asyncio
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import uvloop

OK: Final = range(200, 300)
Share = tuple[str, Sequence[bytes]]  # a client's server and requests


@dataclass(frozen=True)
class Load:
    """What clients saw.

    Attributes:
        seconds: from the first request to the last answer.
        times_ms: of each answer of success, in no order.
        refused: of the others, status → how many. Where there are any, a rate says little.
        processor: this process's share of one processor meanwhile.
    """

    seconds: float
    times_ms: list[float]
    refused: dict[str, int]
    processor: float

    @property
    def per_s(self) -> float:
        """Answers of success a second."""
        return len(self.times_ms) / self.seconds


class Wire:
    """One connection: a request goes out, its whole answer comes back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> "Wire":
        """A connection to the server of a URL."""
        address = urlsplit(url)
        return cls(*await asyncio.open_connection(address.hostname, address.port))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """(status, body) of the answer."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        return int(head[9:12]), await self._reader.readexactly(int(length))

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        await self._writer.wait_closed()


async def driven(shares: Sequence[Share]) -> Load:
    """The load of clients that each send their share, from a process of its own.

    Raises:
        RuntimeError: the process failed: nobody answered, or hung up.
    """
    plan = json.dumps([(url, len(requests)) for url, requests in shares]).encode()
    parts = [plan, b"\n"]
    for request in (request for _, requests in shares for request in requests):
        parts += [b"%d\n" % len(request), request]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.load",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    answer, _ = await process.communicate(b"".join(parts))
    if process.returncode:
        raise RuntimeError("the load process failed")
    return Load(**json.loads(answer))


def refusals(loads: Iterable[Load]) -> list[str]:
    """A note, if any of these requests were refused."""
    found = sum((Counter(load.refused) for load in loads), Counter[str]())
    listed = ", ".join(f"{n} by {status}" for status, n in sorted(found.items()))
    return [f"requests that were refused: {listed}"] if found else []


async def _drive(shares: Sequence[Share]) -> Load:
    wires = [await Wire.open(url) for url, _ in shares]
    times_ms: list[float] = []
    refused: Counter[str] = Counter()
    began, used = time.perf_counter(), _processor_s()
    work = zip(wires, shares, strict=True)
    await asyncio.gather(*(_client(w, sent, times_ms, refused) for w, (_, sent) in work))
    seconds = time.perf_counter() - began
    processor = (_processor_s() - used) / seconds
    for wire in wires:
        await wire.close()
    return Load(seconds, times_ms, dict(refused), processor)


async def _client(
    wire: Wire, requests: Sequence[bytes], times_ms: list[float], refused: Counter[str]
) -> None:
    for request in requests:
        began = time.perf_counter()
        status, _ = await wire.ask(request)
        if status in OK:
            times_ms.append(1000 * (time.perf_counter() - began))
        else:
            refused[str(status)] += 1


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Read a plan from standard input, carry it out, print what was seen."""
    source = sys.stdin.buffer
    plan = json.loads(source.readline())
    shares = [
        (url, [source.read(int(source.readline())) for _ in range(count)]) for url, count in plan
    ]
    print(json.dumps(vars(uvloop.run(_drive(shares)))))


if __name__ == "__main__":
    main()
