"""Fixtures: a relayer of each module, and a user of it who has Hermes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hermes.scene import Scene, scene_of
from tests.processes import RunningRelayer, running_relayer


@pytest.fixture(scope="module")
def relayer(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[RunningRelayer]:
    """One relayer for the module; each test has an account of its own."""
    with running_relayer(tmp_path_factory.mktemp("relayer"), model_dir) as process:
        yield process


@pytest.fixture
def scene(relayer: RunningRelayer, tmp_path: Path) -> Scene:
    return scene_of(tmp_path, relayer.url)
