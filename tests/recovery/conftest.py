"""Fixtures: where a relayer's blobs lie."""

from pathlib import Path

import pytest

from tests.conftest import BenchMaker
from tests.services import Bench


@pytest.fixture
def blobs_folder(tmp_path: Path) -> Path:
    """Where they lie if they are outside of the database."""
    return tmp_path / "blobs"


@pytest.fixture(params=["postgres", "folder"])
def bench_on_either_store(
    request: pytest.FixtureRequest, make_bench: BenchMaker, blobs_folder: Path
) -> Bench:
    """A relayer with its blobs in the database, and one with them in a folder."""
    return (
        make_bench()
        if request.param == "postgres"
        else make_bench(blob_store=f"file:{blobs_folder}")
    )
