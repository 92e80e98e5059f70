"""The order of a run, all of it drawn from a seed before anything happens.

Not here: the faults themselves (`faults.py`). What the machine does between two of them is its own.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.torture.faults import KILLS, Fault

HOLD_S_MAX_SHORT = 3.0


@dataclass(frozen=True)
class Round:
    """A fault that lasts for a while, and a kill in the midst of it."""

    kill: Fault
    companion: Fault
    hold_s: float
    kill_after_s: float
    settle_s: float

    def __str__(self) -> str:
        return f"{self.companion.name} for {self.hold_s:.1f} s; {self.kill.name}"


def planned(
    seed: int, rounds: int, companions: Sequence[Fault], *, short: bool = False
) -> list[Round]:
    """`rounds` rounds: kinds come equally often, in an order that the seed decides."""
    rng = random.Random(seed)
    kills, others = _shuffled(rng, KILLS, rounds), _shuffled(rng, companions, rounds)
    drawn = []
    for kill, companion in zip(kills, others, strict=True):
        low, high = companion.hold_s
        hold_s = min(rng.uniform(low, high), HOLD_S_MAX_SHORT if short else high)
        drawn.append(Round(kill, companion, hold_s, rng.uniform(0, hold_s), rng.uniform(0.3, 1.5)))
    return drawn


def _shuffled(rng: random.Random, kinds: Sequence[Fault], number: int) -> list[Fault]:
    drawn: list[Fault] = []
    while len(drawn) < number:
        drawn += rng.sample(kinds, len(kinds))
    return drawn[:number]
