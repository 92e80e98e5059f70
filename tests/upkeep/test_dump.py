"""A dump goes into an empty database whole or not at all; what does not fit is refused before that.

Not here: a backup made while agents write, and served again (`test_backup.py`).

- A real server and PostgreSQL's own programs; the only servers here know every setting, so what an
  older one is given is looked at in the script itself.
"""

import asyncio
import dataclasses
import hashlib
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from relayer.clock import utc_now
from relayer.database.migrate import head
from relayer.identity import load_identity, make_identity
from relayer.postgres import dump as dumping
from relayer.postgres.dump import dump, load
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.postgres.programs import PostgresError, find_binaries
from relayer.settings import Settings
from relayer.upkeep.backup import DUMP_FILE, FORMAT, MANIFEST_FILE, BackupError, Manifest, restore
from tests.conftest import TestDatabase, database_copy

SETS = b"SET transaction_timeout = 0;\n"
KNOWN_FROM = 17
MADE = """
SELECT c.oid::regclass::text || ' ' || c.relkind::text AS what
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' ORDER BY 1
"""


@pytest_asyncio.fixture
async def empty(postgres: EmbeddedPostgres) -> AsyncIterator[TestDatabase]:
    """A database in which nobody has made anything."""
    async with database_copy(postgres, "template1") as copy:
        yield copy


async def execute(database: TestDatabase, statement: str) -> None:
    connection = await asyncpg.connect(**database.connect_args)
    await connection.execute(statement)
    await connection.close()


async def made(database: TestDatabase) -> list[str]:
    """Everything that stands in a database, by name and kind."""
    connection = await asyncpg.connect(**database.connect_args)
    found = [row["what"] for row in await connection.fetch(MADE)]
    await connection.close()
    return found


# The script that the server is given


async def passed_on(script: bytes) -> bytes:
    """What a server gets of a script."""
    reader = asyncio.StreamReader()
    reader.feed_data(script)
    reader.feed_eof()
    here, there = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=here)
    server, other = await asyncio.open_connection(sock=there)

    async def pass_on() -> None:
        await dumping._pass_on(reader, writer)
        writer.close()

    _, got = await asyncio.gather(pass_on(), server.read())
    other.close()
    return got


async def test_a_server_is_asked_whether_it_knows_the_setting(empty: TestDatabase) -> None:
    """What no server before 17 knows is set by none of the statements, and by 17 and later."""
    head, body = b"BEGIN;\nSET lock_timeout = 0;\n", b"CREATE TABLE a (b int);\n"
    got = (await passed_on(head + SETS + body)).decode()
    assert SETS.decode() not in got
    assert got.startswith(head.decode())
    assert got.endswith(body.decode())
    question = got.removeprefix(head.decode()).removesuffix(body.decode())
    connection = await asyncpg.connect(**empty.connect_args)
    unknown = question.replace("transaction_timeout", "unknown_timeout")
    assert unknown != question
    assert await connection.fetch(unknown) == []
    if connection.get_server_version().major < KNOWN_FROM:
        assert await connection.fetch(question) == []
    else:
        await connection.execute("SET transaction_timeout = '1h'")
        await connection.execute(question)
        assert await connection.fetchval("SHOW transaction_timeout") == "0"
    await connection.close()


async def test_what_a_memory_says_is_passed_on_as_it_is() -> None:
    """The line may stand in somebody's data, too, which may be longer than what is read at once."""
    data = b"COPY memories FROM stdin;\n" + SETS * 9000 + b"\\.\n"
    got = await passed_on(b"BEGIN;\n" + SETS + data)
    assert got.endswith(data)
    assert got.count(SETS) == 9000


@pytest.mark.parametrize("script", [b"", b"BEGIN;\n", SETS[:-1], b"BEGIN;\n" + SETS[1:]])
async def test_a_script_without_the_line_is_passed_on_as_it_is(script: bytes) -> None:
    assert await passed_on(script) == script


def written_by_pg_restore(file: Path) -> bytes:
    command = [str(find_binaries() / "pg_restore"), "--single-transaction", "--file=-", str(file)]
    return subprocess.run(command, capture_output=True, check=True).stdout


async def test_the_line_is_the_one_that_pg_restore_writes(
    fresh_database: TestDatabase, tmp_path: Path
) -> None:
    file = tmp_path / "dump"
    await dump(fresh_database.connect_args, file)
    script = written_by_pg_restore(file)
    assert script.count(SETS) == 1
    assert script.index(SETS) < script.index(b"CREATE ")
    assert SETS not in await passed_on(script)


# Whole or not at all


async def test_all_of_it_comes_into_an_empty_database(
    fresh_database: TestDatabase, empty: TestDatabase, tmp_path: Path
) -> None:
    await dump(fresh_database.connect_args, tmp_path / "dump")
    assert await made(empty) == []
    await load(empty.connect_args, tmp_path / "dump")
    assert await made(empty) == await made(fresh_database)


@pytest.mark.parametrize("rest", [0.0, 0.5, 0.9])
async def test_a_dump_that_breaks_off_leaves_nothing(
    fresh_database: TestDatabase, empty: TestDatabase, tmp_path: Path, rest: float
) -> None:
    file = tmp_path / "dump"
    await dump(fresh_database.connect_args, file)
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * rest)])
    with pytest.raises(PostgresError, match="pg_restore failed"):
        await load(empty.connect_args, file)
    assert await made(empty) == []


@pytest.mark.parametrize("name", ["accounts", "vectors", "webhooks"])
async def test_what_the_server_refuses_leaves_what_was_there(
    fresh_database: TestDatabase, empty: TestDatabase, tmp_path: Path, name: str
) -> None:
    """Somebody else's table of one of our names, wherever in the script it comes up."""
    await dump(fresh_database.connect_args, tmp_path / "dump")
    await execute(empty, f"CREATE TABLE {name} (somebody text)")
    with pytest.raises(PostgresError, match=f'psql failed: ERROR:  relation "{name}"'):
        await load(empty.connect_args, tmp_path / "dump")
    assert await made(empty) == [f"{name} r"]


# Refused before anything is touched


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The data folder of a relayer that is to be: its key, and nothing else."""
    make_identity(tmp_path / "home/relayer.key")
    return tmp_path / "home"


def backup_in(folder: Path, home: Path, *, blobs_inside: bool) -> Path:
    """A backup by all that is looked at first; its dump is never to be opened."""
    folder.mkdir()
    data = b"no dump at all"
    (folder / DUMP_FILE).write_bytes(data)
    manifest = Manifest(
        format=FORMAT,
        release="0.1.0",
        schema=head(),
        relayer_key=load_identity(home / "relayer.key").public_key.hex(),
        blobs_inside=blobs_inside,
        created_at="2026-11-22T00:00:00Z",
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest.as_json()))
    return folder


@pytest.mark.parametrize("blobs_inside", [True, False])
async def test_the_wrong_place_of_the_blobs_is_named(
    empty: TestDatabase, tmp_path: Path, home: Path, blobs_inside: bool
) -> None:
    folder = backup_in(tmp_path / "backup", home, blobs_inside=blobs_inside)
    right, wrong = "postgres", f"file:{tmp_path / 'blobs'}"
    said = "Its blobs are in the database: let RELAYER_BLOB_STORE"
    if not blobs_inside:
        right, wrong = wrong, right
        said = "Its blobs are in a folder or bucket: let RELAYER_BLOB_STORE"
    settings = Settings(data_dir=home, database_url=empty.url, blob_store=wrong)
    with pytest.raises(BackupError, match=said):
        await restore(settings, folder, utc_now)
    with pytest.raises(BackupError, match=said):
        await restore(settings, folder, utc_now, other_key=True)
    assert await made(empty) == []
    assert not (tmp_path / "blobs").exists()
    # With the right one it comes as far as the dump, which is none.
    with pytest.raises(PostgresError, match="pg_restore failed"):
        await restore(dataclasses.replace(settings, blob_store=right), folder, utc_now)
    assert await made(empty) == []
    assert os.listdir(home) == ["relayer.key"]


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("CREATE TABLE notes (text text)", ["notes r"]),
        ("CREATE SCHEMA other; CREATE TABLE other.notes (text text)", ["other.notes r"]),
        ("CREATE TABLE accounts (somebody text)", ["accounts r"]),
        ("CREATE TABLE parts (n int) PARTITION BY LIST (n)", ["parts p"]),
        ("CREATE VIEW answers AS SELECT 42 AS answer", ["answers v"]),
        ("CREATE MATERIALIZED VIEW answers AS SELECT 42 AS answer", ["answers m"]),
        ("CREATE SEQUENCE numbers", ["numbers S"]),
    ],
)
async def test_a_database_that_holds_anything_of_anybody_s_is_refused(
    empty: TestDatabase, tmp_path: Path, home: Path, statement: str, found: list[str]
) -> None:
    folder = backup_in(tmp_path / "backup", home, blobs_inside=True)
    await execute(empty, statement)
    settings = Settings(data_dir=home, database_url=empty.url)
    with pytest.raises(BackupError, match="holds tables already: name an empty one"):
        await restore(settings, folder, utc_now)
    assert await made(empty) == found
    assert os.listdir(home) == ["relayer.key"]
