"""PgBouncer in transaction mode between a relayer and a server of the operator's own.

`make test-pgbouncer` runs this file; it needs the program `pgbouncer` (a package of that name).
Two server connections serve all clients, so that what depends on a session fails at once.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from memrelay import SyncMemoryClient
from relayer.database.migrate import refuse_pooler
from relayer.postgres.embedded import EmbeddedPostgres, PostgresError
from tests.conftest import database_copy
from tests.life import until
from tests.own_server import HOST, OwnServer, own_server
from tests.processes import RunningRelayer, client, create_account, lasting_port, running_relayer
from tests.traffic import lost_or_doubled, traffic

INI = """
[databases]
memrelay = host={host} port={server_port} dbname={database} user={user} password={password}

[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
server_tls_sslmode = verify-full
server_tls_ca_file = {authority}
"""


@contextmanager
def pgbouncer(folder: Path, server: OwnServer) -> Iterator[str]:
    """Its address, with no options: PgBouncer is on this machine."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    assert program, "install the package pgbouncer"
    port = lasting_port()
    settings, authority = folder / "pgbouncer.ini", folder / "authority.crt"
    authority.write_bytes(server.authority.read_bytes())
    reached = {"host": HOST, "port": port, "server_port": server.port}
    values = server.connect_args | reached
    settings.write_text(INI.format(authority=authority, **values))
    owner = "nobody" if os.geteuid() == 0 else None  # it refuses root
    folder.chmod(0o755)
    process = subprocess.Popen([program, str(settings)], user=owner, stderr=subprocess.DEVNULL)
    try:
        until(lambda: _accepts(port), "PgBouncer listens")
        yield f"postgresql://memrelay@{HOST}:{port}/memrelay?sslmode=disable"
    finally:
        process.terminate()
        process.wait(timeout=30)


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@pytest_asyncio.fixture(scope="module")
async def server(
    postgres: EmbeddedPostgres, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[OwnServer]:
    async with database_copy(postgres, template) as copy:
        with own_server(copy.connect_args, tmp_path_factory.mktemp("own")) as running:
            yield running


@pytest.fixture(scope="module")
def pooled(server: OwnServer) -> Iterator[str]:
    # pytest closes its own folders to PgBouncer's account.
    with tempfile.TemporaryDirectory() as folder, pgbouncer(Path(folder), server) as url:
        yield url


@pytest.fixture(scope="module")
def relayer(
    server: OwnServer, pooled: str, model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningRelayer]:
    direct = {"RELAYER_DATABASE_DIRECT_URL": server.url(), "RELAYER_RATE_LIMIT": "off"}
    folder = tmp_path_factory.mktemp("pooled")
    with running_relayer(
        folder, model_dir, "--workers", "2", database_url=pooled, **direct
    ) as process:
        yield process


def test_what_is_remembered_is_found_by_meaning(relayer: RunningRelayer) -> None:
    """Jobs announce themselves past the pooler; vectors and statements go through it."""
    account = create_account(relayer, "sealed")
    with client(account, relayer.url) as memory:
        memory.remember("The lighthouse keeper is called Ottilie.")
        until(lambda: _found(memory), "its vector is there")
        kept = memory.remember("Anna prefers tea.")
        memory.forget(kept.id)
    assert relayer.command("check")["ok"]


def _found(memory: SyncMemoryClient) -> bool:
    found = memory.recall("Who looks after the beacon by the sea?", mode="vector")
    return [m.text for m in found.results] == ["The lighthouse keeper is called Ottilie."]


def test_many_at_once_share_few_connections(relayer: RunningRelayer) -> None:
    accounts = {
        f"{custody} {n}": create_account(relayer, custody)
        for custody in ("sealed", "managed")
        for n in range(3)
    }
    with traffic(relayer.url, accounts) as going:
        going.goes_on(20)
    for who, account in accounts.items():
        assert lost_or_doubled(relayer.url, account, going.acknowledged[who]) == []


def test_without_a_direct_address_it_says_so(pooled: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relayer", "serve", "--data-dir", str(tmp_path), "--port", "0"],
        env=os.environ | {"RELAYER_DATABASE_URL": pooled},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "RELAYER_DATABASE_DIRECT_URL" in done.stderr


async def test_the_server_itself_is_no_pooler(server: OwnServer, pooled: str) -> None:
    await refuse_pooler({"dsn": server.url()})
    with pytest.raises(PostgresError, match="pooler"):
        await refuse_pooler({"dsn": pooled})
    connection = await asyncpg.connect(server.url())
    try:
        clients = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'memrelay'"
        )
    finally:
        await connection.close()
    assert clients <= 2, "as many as PgBouncer may open"
