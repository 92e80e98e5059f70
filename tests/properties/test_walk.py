"""A memory's whole life, at random: what is shown is what a plain dictionary says, after each step.

Not here: what can happen (`walk.py`) and the dictionary (`dictionary.py`).
`MEMRELAY_WALKS` and `MEMRELAY_WALK_STEPS` make a long run of it: `make fuzz`.
"""

import os
import random
from pathlib import Path

import pytest

from relayer.embedding.embedders import Embedder
from tests.conftest import BenchMaker
from tests.properties.walk import Walk
from tests.rebuilding import Leave, Lose, elsewhere, lose
from tests.rotator import Rotator

__all__ = ["elsewhere", "lose"]  # fixtures
WALKS = int(os.environ.get("MEMRELAY_WALKS", "4"))
STEPS = int(os.environ.get("MEMRELAY_WALK_STEPS", "30"))


@pytest.mark.parametrize("seed", range(WALKS))
async def test_a_life_is_as_a_dictionary_says(
    make_bench: BenchMaker,
    embedder: Embedder,
    lose: Lose,
    elsewhere: Leave,
    tmp_path: Path,
    seed: int,
) -> None:
    bench = make_bench(embedder=embedder, blob_store=f"file:{tmp_path / 'blobs'}")
    founder = await bench.account("sealed" if seed % 2 else "managed")
    walk = Walk(bench, Rotator(bench, founder), lose, elsewhere, random.Random(seed))
    try:
        for _ in range(STEPS):
            await walk.step()
        await walk.house(await walk.caller())
        await walk.holds()
    except BaseException:
        print(f"seed {seed}", *walk.done, sep="\n")
        raise
