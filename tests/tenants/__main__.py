"""Whether time tells a stranger what is there: medians of requests for foreign and absent ids.

Asks are interleaved, in an order that changes from round to round, by one stranger's key through
the whole application and a real database. Run: `python -m tests.tenants`. Nothing is asserted.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relayer.database.migrate import migrate
from relayer.postgres.embedded import EmbeddedPostgres
from tests.conftest import database_copy
from tests.openai_server import openai_server
from tests.tenants.pairs import scene_on
from tests.tenants.places import Place, Route
from tests.tenants.scene import Asker, Pair, Scene

# Kinds whose request changes nothing for the stranger, so that it can be repeated.
_LASTING: Final = {"account", "memory", "episode", "run", "blob"}


@dataclass(frozen=True)
class Compared:
    """Medians of one place, in ms, and how far apart two halves of the absent ones were."""

    place: Place
    foreign: float
    absent: float
    noise: float

    @property
    def ratio(self) -> float:
        """How much longer a foreign id took than an absent one."""
        return self.foreign / self.absent


async def measured(scene: Scene, rounds: int, seed: int) -> list[Compared]:
    """Every place whose request can be repeated, by one stranger."""
    stranger = await scene.account()
    dice = random.Random(seed)
    places = [
        (route, place, pair)
        for route in scene.routes
        for place in route.places
        if (place.kind in _LASTING or place.kind == "webhook") and route.method != "PUT"
        for pair in scene.pairs_of(place)[:1]
    ]
    took: dict[tuple[Place, str], list[float]] = {}
    for _ in range(rounds):
        dice.shuffle(places)
        for route, place, pair in places:
            for name in dice.sample(["foreign", "absent"], 2):
                spent = await _timed(scene, stranger, route, place, pair, name)
                took.setdefault((place, name), []).append(spent)
    return [_compared(place, took) for _, place, _ in places]


async def _timed(
    scene: Scene, stranger: Asker, route: Route, place: Place, pair: Pair, name: str
) -> float:
    began = time.perf_counter()
    await scene.ask(stranger, route, place, getattr(pair, name))
    return 1000 * (time.perf_counter() - began)


def _compared(place: Place, took: dict[tuple[Place, str], list[float]]) -> Compared:
    foreign, absent = took[place, "foreign"], took[place, "absent"]
    halves = statistics.median(absent[::2]) / statistics.median(absent[1::2])
    return Compared(
        place,
        statistics.median(foreign),
        statistics.median(absent),
        max(halves, 1 / halves),
    )


async def main(rounds: int, seed: int) -> None:
    """Print a line a place, slowest difference first, and what all of them say."""
    with tempfile.TemporaryDirectory() as folder, openai_server() as model:
        server = EmbeddedPostgres(data_dir=Path(folder) / "postgres")
        async with server:
            await migrate(server.connect_args)
            template = str(server.connect_args["database"])
            async with (
                database_copy(server, template) as copy,
                scene_on(copy, Path(folder), model.base_url) as scene,
            ):
                found = await measured(scene, rounds, seed)
    for one in sorted(found, key=lambda c: -abs(c.ratio - 1)):
        shown = f"{one.foreign:7.2f} {one.absent:7.2f} {one.ratio:6.3f} {one.noise:6.3f}"
        print(f"{shown}  {one.place}")
    ratios = sorted(c.ratio for c in found)
    print(
        f"{len(found)} places, {rounds} rounds: foreign/absent {ratios[0]:.3f} to {ratios[-1]:.3f},"
        f" median {statistics.median(ratios):.3f};"
        f" absent/absent up to {max(c.noise for c in found):.3f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.rounds, arguments.seed))
