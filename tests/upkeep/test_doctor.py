"""`relayer doctor`: what the operator learns of a key that was refused, and of two relayers."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from relayer.clock import utc_now
from relayer.database.migrate import head
from relayer.identity import make_identity
from relayer.installation import open_storage
from relayer.sealed.keys import account_text, parse_namespace
from relayer.settings import Settings
from relayer.storage import Storage, storage_on
from relayer.upkeep import doctor, provision
from relayer.upkeep.doctor import OK, PROBLEM
from tests.conftest import TestDatabase
from tests.swift import KEY, Swift

ADD = "memrelay keys add --namespace NAME"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Those of an installation: there is a key beside the database."""
    make_identity(settings.data_dir / "relayer.key")
    return settings


async def finding(settings: Settings, check: str, key: str = "") -> doctor.Finding:
    """One finding of an examination."""
    found = {f["check"]: f for f in await doctor.examine(settings, key)}
    return found[check]


async def add_key(
    settings: Settings, storage: Storage, managed: provision.NewKey, *, ended: bool = False
) -> provision.NewKey:
    """A reader of `team`; with `ended`, one whose grant ended yesterday."""
    now = utc_now()
    clock = lambda: now - timedelta(days=2) if ended else now  # noqa: E731
    return await provision.add_key(
        storage_on(settings, storage.connect_args, storage.database, storage.identity, clock),
        account=managed.account,
        namespaces=[parse_namespace("team")],
        role="reader",
        label="agent",
        expires_at=now - timedelta(days=1) if ended else None,
        owner=managed.identity,
        clock=clock,
    )


async def test_without_a_key_none_is_looked_up(settings: Settings) -> None:
    assert "key" not in {f["check"] for f in await doctor.examine(settings)}


async def test_a_valid_key_is_told_with_its_account_role_and_namespaces(
    settings: Settings, storage: Storage, managed: provision.NewKey
) -> None:
    key = (await add_key(settings, storage, managed)).identity.public_key.hex()
    expected = f"valid: reader of team in account {account_text(managed.account)}"
    for text in (key, key[:8], key.upper()):
        found = await finding(settings, "key", text)
        assert (found["state"], found["detail"], found["command"]) == (OK, expected, None)


async def test_a_founder_holds_the_whole_account(
    settings: Settings, managed: provision.NewKey
) -> None:
    found = await finding(settings, "key", managed.identity.public_key.hex())
    assert found["detail"].startswith("valid: owner of the whole account in account 0x")


async def test_a_revoked_key_is_told(
    settings: Settings, storage: Storage, managed: provision.NewKey
) -> None:
    key = await add_key(settings, storage, managed)
    await provision.revoke_key(
        storage,
        account=managed.account,
        key=key.identity.public_key,
        owner=managed.identity,
        clock=utc_now,
    )
    found = await finding(settings, "key", key.identity.public_key.hex())
    assert (found["state"], found["command"]) == (PROBLEM, ADD)
    assert found["detail"].startswith("revoked: reader of team")


async def test_an_expired_key_is_told_with_its_end(
    settings: Settings, storage: Storage, managed: provision.NewKey
) -> None:
    key = await add_key(settings, storage, managed, ended=True)
    found = await finding(settings, "key", key.identity.public_key.hex())
    assert (found["state"], found["command"]) == (PROBLEM, ADD)
    assert found["detail"].startswith("expired: reader of team until 2")


async def test_a_folder_of_blobs_that_is_not_there_is_told_and_not_made(
    settings: Settings, storage: Storage, tmp_path: Path
) -> None:
    mistyped = tmp_path / "blosb"
    found = await finding(replace(settings, blob_store=f"file:{mistyped}"), "database")
    assert found["state"] == PROBLEM
    told = f"there is no folder {mistyped}, which RELAYER_BLOB_STORE names"
    assert found["detail"].startswith(told)
    assert not mistyped.exists()
    mistyped.mkdir()
    assert (await finding(replace(settings, blob_store=f"file:{mistyped}"), "blobs"))["state"] == OK


@pytest.mark.parametrize("key", ["ab" * 32, "0badc0de", "no hex at all", "%", "_"])
async def test_an_unknown_key_is_told(
    settings: Settings, managed: provision.NewKey, key: str
) -> None:
    found = await finding(settings, "key", key)
    assert (found["state"], found["command"]) == (PROBLEM, ADD)
    assert found["detail"].startswith("unknown")


async def test_a_beginning_of_several_keys_is_not_enough(
    settings: Settings, storage: Storage, managed: provision.NewKey
) -> None:
    for last in (b"\1", b"\2"):
        await storage.database.execute(
            "INSERT INTO key_owner (public_key, whole_id) VALUES ($1, $2)",
            bytes(31) + last,
            managed.account,
        )
    found = await finding(settings, "key", "0" * 62)
    assert (found["state"], found["detail"]) == (
        PROBLEM,
        "several begin so; give the whole public key",
    )


async def test_the_clock_is_compared_with_the_databases(settings: Settings) -> None:
    found = await finding(settings, "clock")
    assert found["state"] == OK
    assert found["detail"].endswith("Z, 0 s off the database's")


@pytest.mark.parametrize("minutes", [5, -5])
async def test_a_clock_that_is_off_the_databases_is_told(settings: Settings, minutes: int) -> None:
    found = {
        f["check"]: f
        for f in await doctor.examine(
            settings, clock=lambda: utc_now() + timedelta(minutes=minutes)
        )
    }["clock"]
    assert found["state"] == PROBLEM
    assert found["detail"].endswith("300 s off the database's")
    assert found["command"] == "sudo timedatectl set-ntp true"


async def test_the_relayers_own_key_is_told(settings: Settings) -> None:
    async with open_storage(settings) as storage:
        own = storage.identity.public_key.hex()
        await provision.create_account(storage, label="", custody="sealed", clock=utc_now)
    found = await finding(settings, "identity")
    assert (found["state"], found["detail"]) == (OK, own)


async def test_another_relayer_on_the_same_database_is_told(
    settings: Settings, managed: provision.NewKey
) -> None:
    """The fixture's account was written with a key that is not in this data folder."""
    found = await finding(settings, "identity")
    assert found["state"] == PROBLEM
    assert "1 of 1 accounts were last written by another key" in found["detail"]
    assert "; put the old key file back" in found["detail"]


def everything_in(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize("missing", ["data", "data/relayer.key", "data/postgres/cluster"])
async def test_a_mistyped_folder_is_told_and_not_filled(tmp_path: Path, missing: str) -> None:
    """With each part of an installation that is looked for, up to the missing one."""
    data = tmp_path / "far" / "data"
    if missing != "data":
        data.mkdir(mode=0o700, parents=True)
    if missing == "data/postgres/cluster":
        make_identity(data / "relayer.key")
    before = everything_in(tmp_path)
    found = {f["check"]: f for f in await doctor.examine(Settings(data_dir=data))}
    expected = f"no installation here: there is no {tmp_path / 'far' / missing}"
    assert found["database"]["state"] == PROBLEM
    assert found["database"]["detail"].startswith(f"{expected}; ")
    assert "--data-dir" in found["database"]["detail"]
    assert not {"clock", "identity", "key"} & set(found)
    assert everything_in(tmp_path) == before


async def test_a_missing_key_beside_a_database_elsewhere_is_told(
    settings: Settings, fresh_database: TestDatabase
) -> None:
    (settings.data_dir / "relayer.key").unlink()
    found = await finding(settings, "database")
    assert (found["state"], found["detail"][:20]) == (PROBLEM, "no installation here")
    assert not (settings.data_dir / "relayer.key").exists()


async def test_the_schema_is_told(settings: Settings) -> None:
    found = await finding(settings, "database")
    assert (found["state"], found["detail"]) == (OK, f"schema {head()}, answering")


@pytest.mark.parametrize(("present", "do"), [("0000", "relayer serve"), ("9999", "install")])
async def test_another_schema_is_told_and_left(
    settings: Settings, fresh_database: TestDatabase, present: str, do: str
) -> None:
    connection = await asyncpg.connect(**fresh_database.connect_args)
    try:
        await connection.execute("UPDATE alembic_version SET version_num = $1", present)
        found = await finding(settings, "database")
        assert await connection.fetchval("SELECT version_num FROM alembic_version") == present
    finally:
        await connection.close()
    expected = f"its schema is {present}, this release needs {head()}"
    assert found["state"] == PROBLEM
    assert found["detail"].startswith(expected)
    assert do in f"{found['detail']} {found['command']}"


async def test_an_empty_database_stays_empty(
    settings: Settings, fresh_database: TestDatabase
) -> None:
    connection = await asyncpg.connect(**fresh_database.connect_args)
    try:
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        found = await finding(settings, "database")
        tables = await connection.fetchval(
            "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        )
    finally:
        await connection.close()
    assert (found["state"], tables) == (PROBLEM, 0)
    assert found["detail"].startswith("its schema is not there yet")


async def test_a_database_that_refuses_is_told(
    settings: Settings, fresh_database: TestDatabase
) -> None:
    url = urlsplit(fresh_database.url)
    wrong = {
        'database "no_such_database" does not exist': url._replace(path="/no_such_database"),
        'password authentication failed for user "memrelay"': url._replace(
            netloc="memrelay:wrong@"
        ),
    }
    for why, other in wrong.items():
        found = await finding(replace(settings, database_url=other.geturl()), "database")
        assert re.fullmatch(f"the database at /.* refuses us: {why}", found["detail"])
        assert "wrong" not in found["detail"]


async def test_a_database_that_is_away_hides_the_rest(settings: Settings) -> None:
    away = replace(settings, database_url="postgresql://nobody@127.0.0.1:9/none")
    found = {f["check"]: f for f in await doctor.examine(away, "ab" * 32)}
    assert found["database"]["state"] == PROBLEM
    assert not {"clock", "identity", "key"} & set(found)


async def test_a_blob_store_that_answers(settings: Settings, storage: Storage) -> None:
    assert await finding(settings, "blobs") == {
        "check": "blobs",
        "state": OK,
        "detail": "postgres, answering",
        "command": None,
    }


async def test_a_bucket_that_is_not_there_is_told_without_its_key(
    settings: Settings, storage: Storage, swift: Swift
) -> None:
    settings = replace(settings, request_timeout_s=500.0, **swift.settings("nowhere/here"))
    found = await finding(settings, "blobs")
    assert found["state"] == PROBLEM
    told = "s3://nowhere/here: The blob store has no such bucket; look at RELAYER_BLOB_STORE"
    assert found["detail"].startswith(told)
    assert KEY not in str(found)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "registration and /metrics without a token for whoever asks at 127.0.0.1"),
        ({"metrics_token": "m" * 32}, "registration without a token"),
        ({"registration": "token", "registration_token": "r" * 32}, "/metrics without a token"),
        ({"public_url": "http://localhost:8000"}, "registration and /metrics without a token"),
        ({"public_url": "https://memory.example.org"}, "opens nothing by itself"),
        ({"host": "0.0.0.0"}, "opens nothing by itself"),
        (
            {"registration": "closed", "metrics_token": "m" * 32},
            "opens nothing by itself",
        ),
    ],
)
async def test_what_is_open_to_this_machine_is_told(
    settings: Settings, changes: dict[str, Any], told: str
) -> None:
    """Behind a proxy on it, that is everybody."""
    found = await finding(replace(settings, **changes), "loopback")
    assert found["detail"].startswith(told)
    assert ("set RELAYER_PUBLIC_URL" in found["detail"]) is ("without" in told)


@pytest.mark.parametrize(
    ("origins", "state", "told"),
    [
        ("", "ok", "no page elsewhere may ask"),
        ("https://a.example,http://localhost:1", "ok", "https://a.example, http://localhost:1 may"),
        ("https://a.example,http://b.example", "warning", "pages of http://b.example may ask"),
    ],
)
async def test_pages_that_may_ask_are_told(
    settings: Settings, origins: str, state: str, told: str
) -> None:
    found = await finding(replace(settings, cors_origins=origins), "cors")
    assert found["state"] == state
    assert told in found["detail"]
