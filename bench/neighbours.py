"""What a noisy account does to the recalls of a quiet one.

    python -m bench.neighbours --url http://127.0.0.1:8000

A quiet account has some hundred memories and asks one question after the other; a noisy one writes
by twenties and recalls with sixteen clients, as fast as it is answered. Idle and noisy stretches
take turns in one run, and the quiet account's recalls are compared. After each noisy stretch the
noisy account is closed, so that idle is idle, and another one is founded.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass, field
from typing import Final

from memrelay import MemoryClient
from memrelay.errors import RateLimited, TransportError, Unavailable

CLIENTS: Final = 16  # of the noisy account: half of them write, half of them recall
QUIET_MEMORIES: Final = 300
ROUNDS: Final = 4
SETTLING_S: Final = 2.0
WORDS: Final = """
    harbour lantern market violin orchard meadow copper kettle winter letter garden bridge
    station pepper saddle window ticket marble basket canyon pigeon ribbon tunnel walnut
    """.split()


@dataclass
class Run:
    """Milliseconds of the quiet account's recalls, and what the noisy one was answered."""

    idle_ms: list[float] = field(default_factory=list)
    noisy_ms: list[float] = field(default_factory=list)
    noise_s: float = 0.0
    written: int = 0
    recalled: int = 0
    refused: int = 0

    def as_json(self) -> dict[str, float]:
        """The figures."""
        idle, noisy = percentile(self.idle_ms, 0.95), percentile(self.noisy_ms, 0.95)
        return {
            "quiet_recalls": len(self.idle_ms) + len(self.noisy_ms),
            "idle_p50_ms": percentile(self.idle_ms, 0.5),
            "idle_p95_ms": idle,
            "noisy_p50_ms": percentile(self.noisy_ms, 0.5),
            "noisy_p95_ms": noisy,
            "ratio_p95": round(noisy / idle, 2),
            "noise_memories_per_s": round(self.written / self.noise_s, 1),
            "noise_recalls_per_s": round(self.recalled / self.noise_s, 1),
            "noise_refused": self.refused,
        }


def main() -> int:
    """Run and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True, help="a running relayer")
    parser.add_argument("--stretch-s", type=float, default=8.0, help="of each idle or noisy one")
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(measure(arguments.url, arguments.stretch_s)).as_json(), indent=1))
    return 0


async def measure(url: str, stretch_s: float) -> Run:
    """Idle, noisy, idle, noisy …"""
    run = Run()
    async with await fresh_client(url) as quiet:
        texts = [sentence(random.Random(n)) for n in range(QUIET_MEMORIES)]  # noqa: S311  # as below
        stored = await quiet.remember_many([{"text": text} for text in texts])
        await quiet.wait(list(dict.fromkeys(one.id for one in stored)), timeout_s=300.0)
        for number in range(ROUNDS):
            await recalls(quiet, [], SETTLING_S)
            await recalls(quiet, run.idle_ms, stretch_s)
            async with await fresh_client(url) as noisy:
                await beside_noise(quiet, noisy, run, number, stretch_s)
                await noisy.close_account()
    return run


async def beside_noise(
    quiet: MemoryClient, noisy: MemoryClient, run: Run, number: int, stretch_s: float
) -> None:
    """One noisy stretch."""
    began = time.perf_counter()
    noise = [asyncio.create_task(make_noise(noisy, run, n, number)) for n in range(CLIENTS)]
    await recalls(quiet, [], SETTLING_S)  # until all of them are at it
    await recalls(quiet, run.noisy_ms, stretch_s)
    run.noise_s += time.perf_counter() - began
    for task in noise:
        task.cancel()
    await asyncio.gather(*noise, return_exceptions=True)


async def fresh_client(url: str) -> MemoryClient:
    """The founder of a new, sealed account."""
    made = await MemoryClient.create_account(url, custody="sealed", label="benchmark")
    return MemoryClient(
        url=url,
        account_id=made.account_id,
        private_key=made.private_key,
        relayer_key=made.relayer_key,
        custody="sealed",
        deadline_s=120.0,
    )


async def recalls(client: MemoryClient, times_ms: list[float], stretch_s: float) -> None:
    """One recall after the other, each with a question of its own."""
    until = time.perf_counter() + stretch_s
    while (began := time.perf_counter()) < until:
        await client.recall(sentence(random.Random()), limit=10)  # noqa: S311  # as below
        times_ms.append(1000 * (time.perf_counter() - began))


async def make_noise(client: MemoryClient, run: Run, number: int, turn: int) -> None:
    """Write or recall until cancelled."""
    dice = random.Random(f"{turn} {number}")  # noqa: S311  # no secret depends on it
    while True:
        try:
            if number % 2:
                await client.recall(sentence(dice), limit=20)
                run.recalled += 1
            else:
                items = [{"text": f"{sentence(dice)} {dice.random()}"} for _ in range(20)]
                await client.remember_many(items)
                run.written += len(items)
        except (RateLimited, Unavailable, TransportError):
            run.refused += 1


def sentence(dice: random.Random) -> str:
    """Words that others have, too."""
    return f"The {' '.join(dice.sample(WORDS, 6))} of number {dice.randrange(10_000)}."


def percentile(times_ms: list[float], share: float) -> float:
    """The value that so large a share does not exceed."""
    return round(sorted(times_ms)[int(share * (len(times_ms) - 1))], 1)


if __name__ == "__main__":
    sys.exit(main())
