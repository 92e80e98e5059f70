"""Whether a write would be durable: every part that it needs, looked at without writing.

Not here: the metrics of it (`test_metrics.py`).
"""

import asyncio
import dataclasses
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from relayer.app import build_app
from relayer.blobs.store import FolderStore, PostgresStore
from relayer.database.pool import Database
from relayer.monitoring.readiness import CHECKS, Readiness, Room
from relayer.monitoring.single_flight import SingleFlight
from relayer.settings import Settings
from relayer.storage import Storage, blobs_on
from tests.conftest import TestDatabase
from tests.life import WAIT_S_MAX
from tests.lifespan import living
from tests.processes import lasting_port
from tests.signing import client_of


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Database]:
    database = await Database.connect({"dsn": url}, connections=2)
    yield database
    await database.close()


async def failing(readiness: Readiness) -> set[str]:
    found = await readiness.checks()
    assert tuple(found) == CHECKS
    assert await readiness.write_ready() == all(found.values())
    return {name for name, holds in found.items() if not holds}


def ready(database: Database, settings: Settings, **members: Any) -> Readiness:
    if "blobs" not in members:
        members["blobs"] = blobs_on(settings, database)
    usual: dict[str, Any] = {"works": lambda: True, "deadline_s": WAIT_S_MAX}
    return Readiness(database=database, settings=settings, **usual | members)


async def test_a_relayer_that_takes_writes_says_so(storage: Storage, settings: Settings) -> None:
    app = build_app(storage, dataclasses.replace(settings, embedder="none"))
    async with client_of(app) as client, asyncio.timeout(WAIT_S_MAX):
        while (probe := await client.get("/ready")).status_code != 200:  # on a slow machine
            await asyncio.sleep(0.25)
        while not (told := (await client.get("/health")).json())["write_ready"]:
            await asyncio.sleep(0.25)
    assert (told["status"], told["mode"]) == ("ok", "relayer")
    assert probe.json() == {"write_ready": True}


async def test_one_that_does_not_is_alive_all_the_same(
    storage: Storage, settings: Settings
) -> None:
    """Clients and liveness probes see a relayer; only readiness is 503. Which part is not told."""
    await storage.database.execute("UPDATE alembic_version SET version_num = '0001'")
    app = build_app(storage, dataclasses.replace(settings, embedder="none"))
    async with client_of(app) as client:
        health, probe = await client.get("/health"), await client.get("/ready")
        version = await client.get("/version")
    told = health.json()
    assert (health.status_code, told["status"], told["write_ready"]) == (200, "ok", False)
    assert (probe.status_code, probe.json()) == (503, {"write_ready": False})
    assert version.status_code == 200
    assert set(told) - set(version.json()) >= {"status", "version", "mode", "prompt_versions"}
    assert "schema" not in health.text + probe.text


async def test_a_database_that_takes_no_writes(
    fresh_database: TestDatabase, settings: Settings
) -> None:
    """What looks writes nothing: it works where nobody can."""
    more = "&" if "?" in fresh_database.url else "?"
    read_only = f"{fresh_database.url}{more}default_transaction_read_only=on"
    async with connected(read_only) as database:
        assert await failing(ready(database, settings)) == {"database"}


async def test_a_database_that_is_away(fresh_database: TestDatabase, settings: Settings) -> None:
    async with connected(fresh_database.url) as database:
        readiness = ready(database, settings)
    assert await failing(readiness) == {"database", "schema"}


@pytest.mark.parametrize(("number", "holds"), [("0001", False), ("9999", True)])
async def test_the_schema_is_this_releases_or_a_later_one(
    database: Database, settings: Settings, number: str, holds: bool
) -> None:
    await database.execute(f"UPDATE alembic_version SET version_num = '{number}'")
    assert await failing(ready(database, settings)) == (set() if holds else {"schema"})


async def test_a_schema_that_is_not_there(database: Database, settings: Settings) -> None:
    await database.execute("DELETE FROM alembic_version")
    assert await failing(ready(database, settings)) == {"schema"}


async def test_a_table_of_schemas_that_is_not_there(database: Database, settings: Settings) -> None:
    """Not ready, rather than an answer of 500."""
    await database.execute("ALTER TABLE alembic_version RENAME TO hidden")
    assert await failing(ready(database, settings)) == {"database", "schema"}


async def test_jobs_that_nobody_takes(database: Database, settings: Settings) -> None:
    assert await failing(ready(database, settings, works=lambda: False)) == {"jobs"}


async def test_room_where_this_machine_stores(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    """The folder of an own database and that of blobs count; another machine's disk does not."""
    full = {"disk_bytes_min": 2**62}
    far = settings
    own = dataclasses.replace(settings, database_url="")
    folder = tmp_path / "blobs"
    near = dataclasses.replace(settings, blob_store=f"file:{folder}")
    assert await failing(ready(database, far, **full)) == set()
    assert await failing(ready(database, own, **full)) == {"disk"}
    assert await failing(ready(database, near, **full)) == {"disk"}
    assert await failing(ready(database, near)) == set()
    folder.rmdir()
    assert await failing(ready(database, near, blobs=PostgresStore(database=database))) == {"disk"}


async def test_a_disk_that_hangs_is_not_ready_and_holds_one_thread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers, asked, usual = threading.Event(), list[Path](), shutil.disk_usage

    def hanging(folder: Path) -> Any:
        asked.append(folder)
        assert answers.wait(WAIT_S_MAX)
        return usual(folder)

    monkeypatch.setattr(shutil, "disk_usage", hanging)
    hurried = Room([tmp_path], bytes_min=0, deadline_s=0.01)
    assert [await hurried() for _ in range(3)] == [False] * 3
    answers.set()
    async with asyncio.timeout(WAIT_S_MAX):
        while not await hurried():
            pass
    assert asked == [tmp_path]


async def test_an_outside_store_that_cannot_be_read(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    """A file stands where the store has its folder of an account."""
    store = FolderStore(folder=tmp_path / "blobs")
    assert await failing(ready(database, settings, blobs=store)) == set()
    (tmp_path / "blobs" / ("00" * 32)).write_text("")
    assert await failing(ready(database, settings, blobs=store)) == {"store"}


async def test_a_bucket_that_is_away(database: Database, settings: Settings) -> None:
    away = dataclasses.replace(
        settings,
        blob_store="s3://memories/relayer",
        s3_endpoint=f"http://127.0.0.1:{lasting_port()}",
        s3_access_key_id="name",
        s3_secret_access_key="key",
        request_timeout_s=1.0,
    )
    assert await failing(ready(database, away)) == {"store"}


# What the log says


async def test_a_change_is_one_line_that_names_what_is_lacking(
    database: Database,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The watch says it where nobody asks."""
    caplog.set_level("INFO", "relayer.monitoring")
    monkeypatch.setattr("relayer.monitoring.readiness.KEPT_S", 0.0)
    monkeypatch.setattr("relayer.monitoring.readiness.WATCH_S", 0.0)
    holds, looks = {"works": True}, 0

    def works() -> bool:
        nonlocal looks
        looks += 1
        return holds["works"]

    async def looked_thrice() -> None:
        async with asyncio.timeout(WAIT_S_MAX):
            seen = looks
            while looks < seen + 3:
                await asyncio.sleep(0)

    watch = asyncio.create_task(ready(database, settings, works=works).watch())
    await looked_thrice()
    assert told(caplog) == []
    holds["works"] = False
    await looked_thrice()
    assert told(caplog) == [("write_ready.lost", ["jobs"])]
    await database.execute("UPDATE alembic_version SET version_num = '0001'")
    await looked_thrice()
    assert told(caplog)[1:] == [("write_ready.lost", ["schema", "jobs"])]
    await database.execute("UPDATE alembic_version SET version_num = '9999'")
    holds["works"] = True
    await looked_thrice()
    assert told(caplog)[-1] == ("write_ready.back", None)
    lines = len(told(caplog))
    await looked_thrice()
    assert len(told(caplog)) == lines
    watch.cancel()


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, list[str] | None]]:
    """The event of each line, and what it names."""
    lines = [vars(record) for record in caplog.records]
    found = [line for line in lines if str(line.get("event")).startswith("write_ready.")]
    return [(line["event"], line.get("lacking")) for line in found]


async def test_an_application_looks_by_itself(
    storage: Storage,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("relayer.monitoring.readiness.WATCH_S", 0.05)
    await storage.database.execute("UPDATE alembic_version SET version_num = '0001'")
    app = build_app(storage, dataclasses.replace(settings, embedder="none"))
    async with living(app), asyncio.timeout(WAIT_S_MAX):
        while ("write_ready.lost", ["schema"]) not in told(caplog):
            await asyncio.sleep(0.05)


# However many ask


async def test_one_reading_for_all_who_ask_at_once() -> None:
    readings, clock = 0, [0.0]
    gate = asyncio.Event()

    async def read() -> int:
        nonlocal readings
        readings += 1
        await gate.wait()
        return readings

    reading = SingleFlight(read, kept_s=1.0, now=lambda: clock[0])
    asked = [asyncio.create_task(reading()) for _ in range(500)]
    await asyncio.sleep(0)
    gate.set()
    assert set(await asyncio.gather(*asked)) == {1}
    clock[0] = 0.99
    assert await reading() == 1
    clock[0] = 1.0
    assert set(await asyncio.gather(*(reading() for _ in range(500)))) == {2}


async def test_who_gives_up_takes_the_reading_from_nobody() -> None:
    gate = asyncio.Event()

    async def read() -> str:
        await gate.wait()
        return "read"

    reading = SingleFlight(read, kept_s=1.0)
    first, second = asyncio.create_task(reading()), asyncio.create_task(reading())
    await asyncio.sleep(0)
    first.cancel()
    gate.set()
    assert await second == "read"
    assert first.cancelled() or isinstance(
        (await asyncio.gather(first, return_exceptions=True))[0], asyncio.CancelledError
    )


async def test_a_reading_that_fails_is_taken_again() -> None:
    answers: list[str | Exception] = [LookupError(), "read"]

    async def read() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    reading = SingleFlight(read, kept_s=1.0)
    with pytest.raises(LookupError):
        await reading()
    assert await reading() == "read"


async def test_a_reading_knows_nothing_of_who_asked() -> None:
    who: ContextVar[str] = ContextVar("who", default="nobody")

    async def read() -> str:
        return who.get()

    token = who.set("somebody")
    try:
        assert await SingleFlight(read, kept_s=1.0)() == "nobody"
    finally:
        who.reset(token)
