"""A running server: its settings, who may enter and what a way in allows, what its log keeps."""

import contextlib
import os
import stat
from pathlib import Path

import asyncpg
import pytest

from relayer.postgres.embedded import EmbeddedPostgres, check_server
from tests.postgres.servers import ROOT, fetch, server_of, status_of


async def test_first_start_makes_a_complete_cluster(folder: Path) -> None:
    async with EmbeddedPostgres(data_dir=folder / "new") as postgres:
        assert await fetch(postgres, "SELECT current_database()") == "memrelay"
        assert await fetch(postgres, "SELECT '[1,2]'::halfvec <-> '[1,4]'") == 2
        assert await fetch(postgres, "SHOW server_encoding") == "UTF8"
        assert await fetch(postgres, "SHOW data_checksums") == "on"
        assert await fetch(postgres, "SELECT lower('ÄÖ')") == "äö"
        connection = await asyncpg.connect(**postgres.connect_args)
        await check_server(connection)
        await connection.close()
    assert not list((folder / "new" / "postgres").glob("init-*"))
    assert not list(folder.rglob("password"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listen_addresses", ""),
        ("unix_socket_permissions", "0700"),
        ("log_statement", "none"),
        ("log_min_duration_statement", "-1"),
        ("log_parameter_max_length", "0"),
        ("log_parameter_max_length_on_error", "0"),
        ("log_error_verbosity", "terse"),
        ("log_min_messages", "log"),
        ("log_min_error_statement", "panic"),
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
        ("shared_buffers", "128MB"),
        ("jit", "off"),
        ("password_encryption", "scram-sha-256"),
    ],
)
async def test_setting(shared: EmbeddedPostgres, name: str, value: str) -> None:
    assert await fetch(shared, f"SHOW {name}", user="postgres", **admin(shared)) == value


def admin(postgres: EmbeddedPostgres) -> dict[str, object]:
    return {"password": postgres.admin_args["password"]}


async def test_the_connection_string_works(shared: EmbeddedPostgres) -> None:
    assert await fetch(shared.dsn, "SELECT current_user") == "memrelay"


async def test_tls_wishes_of_the_environment_do_not_matter(
    shared: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSSLMODE", "require")
    assert await fetch(shared, "SELECT 1") == 1


@pytest.mark.parametrize("user", ["memrelay", "postgres"])
@pytest.mark.parametrize("password", ["", "wrong"])
@pytest.mark.parametrize("database", ["memrelay", "postgres"])
async def test_no_way_in_without_the_password(
    shared: EmbeddedPostgres, user: str, password: str, database: str
) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await fetch(shared, "SELECT 1", user=user, password=password, database=database)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE ROLE other",
        "CREATE DATABASE other",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "SELECT pg_read_file('/etc/passwd')",
        "SET log_statement = 'all'",
        "ALTER SYSTEM SET log_statement = 'all'",
    ],
)
async def test_serving_role_is_not_a_superuser(shared: EmbeddedPostgres, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await fetch(shared, statement)


async def test_serving_role_owns_its_database(shared: EmbeddedPostgres) -> None:
    await fetch(shared, "CREATE TABLE owned (v halfvec(3))")
    await fetch(shared, "CREATE EXTENSION IF NOT EXISTS vector")
    await fetch(shared, "DROP TABLE owned")


def test_only_the_owner_can_open_anything(shared: EmbeddedPostgres) -> None:
    home = shared.log_path.parent
    for path in (home, *home.rglob("*")):
        allowed = 0o710 if ROOT and path == home else 0o700
        assert stat.S_IMODE(path.lstat().st_mode) & ~allowed == 0, path
    for name in ("passwords.json", "postgres.log"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
    socket_folder = Path(shared.connect_args["host"])
    assert stat.S_IMODE(socket_folder.stat().st_mode) == 0o700
    assert socket_folder.stat().st_uid == (home / "cluster").stat().st_uid


def test_server_process_is_confined(shared: EmbeddedPostgres) -> None:
    home = shared.log_path.parent
    pid = server_of(home.parent).pid()
    assert pid is not None
    status = status_of(pid)
    assert status["Uid"].split() == [str((home / "cluster").stat().st_uid)] * 4
    assert os.getsid(pid) == pid != os.getsid(0)
    assert int(status["PPid"]) != os.getpid()
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    core = next(line for line in limits if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]


def test_no_tcp_socket_is_open(shared: EmbeddedPostgres) -> None:
    pid = server_of(shared.log_path.parent.parent).pid()
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            sockets.add(os.readlink(descriptor))

    def inodes(table: str, column: int) -> set[str]:
        rows = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        return {f"socket:[{row.split()[column]}]" for row in rows}

    assert sockets & inodes("unix", 6)
    assert not sockets & (inodes("tcp", 9) | inodes("tcp6", 9))


async def test_log_keeps_no_value_of_a_statement(spoilt: Path) -> None:
    marker = "opalfalcon"
    async with EmbeddedPostgres(data_dir=spoilt) as postgres:
        with pytest.raises(asyncpg.InvalidTextRepresentationError, match=marker):
            await fetch(postgres, f"SELECT '{marker}'::uuid")
        connection = await asyncpg.connect(**postgres.connect_args)
        await connection.execute("CREATE TABLE t (v text PRIMARY KEY)")
        await connection.execute("INSERT INTO t VALUES ($1)", marker)
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute("INSERT INTO t VALUES ($1)", marker)
        await connection.close()
        secrets_of_roles = [postgres.connect_args["password"], postgres.admin_args["password"]]
        command = Path(f"/proc/{server_of(spoilt).pid()}/cmdline").read_text()
    log = postgres.log_path.read_text()
    assert "ready to accept connections" in log
    for secret in (marker, *secrets_of_roles):
        assert secret not in log + command
