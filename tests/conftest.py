"""Fixtures over real parts: one PostgreSQL a test process, one database a test, real servers.

A template database is migrated once; each test gets a copy of it.
"""

import gc
import os
import re
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio
from litestar.types import ASGIApp

from relayer.app import build_app
from relayer.clock import utc_now
from relayer.database.migrate import migrate
from relayer.database.pool import Database
from relayer.embedding.builtin import BuiltinEmbedder
from relayer.embedding.embedders import Embedder
from relayer.memories import record_search, related
from relayer.memory_index import sealed as sealed_index
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.postgres.server import SETTINGS
from relayer.sealed.keys import Identity
from relayer.settings import Settings
from relayer.storage import Storage, storage_on
from relayer.upkeep import provision
from tests import postgres_16
from tests.model_fixture import model_folder
from tests.one_connection import guarded
from tests.ordering import pytest_collection_modifyitems
from tests.processes import RunningRelayer, running_relayer
from tests.services import Bench, bench_on
from tests.swift import Swift, running_swift

__all__ = ["pytest_collection_modifyitems"]  # a hook

MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 8 * 2**30
# A log of every page takes longer than the files do, where they are in memory.
COPIED_AS_FILES = "STRATEGY FILE_COPY"


def pytest_configure() -> None:
    """Heed Ctrl-C and put the folders of tests into memory."""
    # A shell lets what it begins in the background ignore it, and so every process of a test.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _use_memory()


def _use_memory() -> None:
    """A copy of a database is hundreds of files."""
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK):
        return
    found = os.statvfs(MEMORY)
    [available_kib] = re.findall(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text())
    room = min(int(available_kib) * 1024, found.f_bavail * found.f_frsize)
    runs_programs = not found.f_flag & os.ST_NOEXEC  # some tests write one and run it
    if runs_programs and room >= MEMORY_BYTES_MIN and _has_attributes(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_finish() -> None:
    """What was loaded stays until the end: only what tests make is looked through for garbage."""
    gc.collect()
    gc.freeze()


def _has_attributes(folder: Path) -> bool:
    """Whether files there may have attributes of their own, which Swift needs."""
    with NamedTemporaryFile(dir=folder) as file:
        try:
            os.setxattr(file.name, "user.memrelay", b"")
        except OSError:
            return False
    return True


@pytest.fixture(scope="session", autouse=True)
def one_connection() -> Iterator[None]:
    """Whatever is tested."""
    with guarded():
        yield


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """Let relayers of this process wait longer, so that a slow machine changes no answer.

    A sealed index is loaded before a recall answers without it. What is known is found before a
    model is asked without it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealed_index, "WAIT_S", 60.0)
        patch.setattr(record_search, "WHOLE_WAIT_S", 60.0)
        patch.setattr(related, "RELATED_S_MAX", 60.0)
        yield


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """Folder of the built-in model, fetched if it is not there."""
    return model_folder()


@pytest_asyncio.fixture(scope="session")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedPostgres]:
    """A real server of this test process, of the version that is asked for."""
    # No test outlives this machine's power, and nobody guesses its password. The server is given
    # its settings when it is launched, and heeds no others.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SETTINGS, "fsync", "off")
        patch.setitem(SETTINGS, "scram_iterations", "1")  # thousands of connections, one password
        if os.environ.get("MEMRELAY_TEST_POSTGRES") == str(postgres_16.MAJOR_VERSION):
            postgres_16.use(patch)
        server = EmbeddedPostgres(data_dir=tmp_path_factory.mktemp("postgres"))
        await server.start()
    admin = await asyncpg.connect(**server.admin_args)
    assert await admin.fetchval("SHOW fsync") == "off"
    await admin.close()
    yield server
    await server.stop()


@pytest_asyncio.fixture(scope="session")
async def template(postgres: EmbeddedPostgres) -> str:
    """Name of a migrated database to copy."""
    await migrate(postgres.connect_args)
    return str(postgres.connect_args["database"])


@dataclass(frozen=True)
class TestDatabase:
    """How to reach one test's database."""

    __test__ = False
    connect_args: dict[str, Any]
    url: str


@asynccontextmanager
async def database_copy(postgres: EmbeddedPostgres, template: str) -> AsyncIterator[TestDatabase]:
    """A migrated, empty database, dropped at the end."""
    name = f"test_{uuid.uuid4().hex}"
    owner = postgres.connect_args["user"]
    admin = await asyncpg.connect(**{**postgres.admin_args, "database": "postgres"})
    try:
        await admin.execute(
            f'CREATE DATABASE "{name}" TEMPLATE "{template}" OWNER "{owner}" {COPIED_AS_FILES}'
        )
        yield TestDatabase(
            {**postgres.connect_args, "database": name},
            urlsplit(postgres.dsn)._replace(path=f"/{name}").geturl(),
        )
        await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await admin.close()


@pytest_asyncio.fixture
async def fresh_database(postgres: EmbeddedPostgres, template: str) -> AsyncIterator[TestDatabase]:
    """A migrated, empty database of this test's own."""
    async with database_copy(postgres, template) as copy:
        yield copy


@pytest.fixture
def settings(tmp_path: Path, model_dir: Path, fresh_database: TestDatabase) -> Settings:
    """Settings of a relayer on this test's database, limits as in production."""
    return Settings(
        data_dir=tmp_path, database_url=fresh_database.url, model_dir=str(model_dir), port=0
    )


@pytest_asyncio.fixture
async def storage(settings: Settings, fresh_database: TestDatabase) -> AsyncIterator[Storage]:
    """Storage on this test's database, with an identity of its own."""
    database = await Database.connect(fresh_database.connect_args, connections=5)
    yield storage_on(
        settings, fresh_database.connect_args, database, Identity(os.urandom(32)), utc_now
    )
    await database.close()


@pytest_asyncio.fixture
async def managed(storage: Storage) -> provision.NewKey:
    """A managed account and its founder's key."""
    return await provision.create_account(
        storage, label="managed", custody="managed", clock=utc_now
    )


@pytest_asyncio.fixture
async def sealed(storage: Storage) -> provision.NewKey:
    """A sealed account and its founder's key."""
    return await provision.create_account(storage, label="sealed", custody="sealed", clock=utc_now)


@pytest.fixture
def lean(settings: Settings) -> Settings:
    """Those settings without an embedder, for what needs no vectors."""
    return replace(settings, embedder="none")


@pytest.fixture
def app(storage: Storage, lean: Settings) -> ASGIApp:
    """The whole application in this process, without an embedder; its jobs are not worked at."""
    return build_app(storage, lean)


@pytest.fixture
def relayer(
    tmp_path: Path, model_dir: Path, fresh_database: TestDatabase
) -> Iterator[RunningRelayer]:
    """A real `relayer serve` process on this test's database."""
    with running_relayer(tmp_path / "data", model_dir, database_url=fresh_database.url) as process:
        yield process


@pytest_asyncio.fixture
async def database(fresh_database: TestDatabase) -> AsyncIterator[Database]:
    """A pool on this test's database."""
    database = await Database.connect(fresh_database.connect_args, connections=5)
    yield database
    await database.close()


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swift]:
    """A real store behind S3's protocol, of this test process."""
    with running_swift(tmp_path_factory.mktemp("swift")) as running:
        yield running


BenchMaker = Callable[..., Bench]


@pytest.fixture
def make_bench(settings: Settings, fresh_database: TestDatabase, database: Database) -> BenchMaker:
    """Makes relayers without their HTTP side on this test's database."""
    return partial(bench_on, settings, fresh_database.connect_args, database)


@pytest.fixture
def bench(make_bench: BenchMaker) -> Bench:
    """One without an embedder and a language model."""
    return make_bench()


@pytest_asyncio.fixture(scope="session")
async def embedder(model_dir: Path) -> AsyncIterator[Embedder]:
    """The built-in model, loaded once."""
    builtin = BuiltinEmbedder(folder=model_dir)
    yield builtin
    await builtin.close()


@pytest.fixture
def hybrid(make_bench: BenchMaker, embedder: Embedder) -> Bench:
    """One with the built-in embedder and without a language model."""
    return make_bench(embedder=embedder)
