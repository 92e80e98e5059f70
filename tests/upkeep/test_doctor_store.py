"""`relayer doctor` of stores that lack what the database speaks of, of models and of disks.

Not here: what starts and what does not (`recovery/test_other_store.py`).
"""

import asyncio
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relayer import health
from relayer.clock import utc_now
from relayer.database.accounts import newest_accounts
from relayer.database.blobs import newest_names
from relayer.identity import make_identity
from relayer.installation import open_storage
from relayer.settings import Settings
from relayer.upkeep import check, doctor, provision, sample
from relayer.upkeep.doctor import OK, PROBLEM
from tests.conftest import BenchMaker, TestDatabase
from tests.life import until
from tests.optional import unwrap
from tests.processes import QUIET, running_relayer

OPENED = Counter[str]()  # files of models, by their names


def note_opened(event: str, arguments: Any) -> None:
    if event == "open" and str(arguments[0]).endswith(".onnx"):
        OPENED[str(arguments[0])] += 1


sys.addaudithook(note_opened)


@pytest.fixture
def blobs_folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def outside(lean: Settings, blobs_folder: Path) -> Settings:
    """Settings of a relayer whose blobs are in a folder."""
    return replace(lean, blob_store=f"file:{blobs_folder}")


async def store_of(settings: Settings) -> doctor.Finding:
    """What is found of the blob store."""
    return next(f for f in await doctor.examine(settings) if f["check"] == "blobs")


@pytest.fixture
async def scattered(outside: Settings, blobs_folder: Path) -> Path:
    """The folder of an account's blobs; it has no memory yet."""
    async with open_storage(outside) as storage:
        new = await provision.create_account(storage, label="", custody="managed", clock=utc_now)
    return blobs_folder / new.account.hex()


async def test_an_empty_store_is_told_as_check_tells_it(
    outside: Settings, scattered: Path, tmp_path: Path
) -> None:
    assert (await store_of(outside))["state"] == OK
    (empty := tmp_path / "empty").mkdir()
    found = await store_of(replace(outside, blob_store=f"file:{empty}"))
    assert found["state"] == PROBLEM
    assert found["detail"] == (
        f"file:{empty}: {check.NONE_THERE} (1 looked for); {check.LOOK_AT_STORE}"
    )
    assert list(empty.iterdir()) == []


async def test_a_blob_that_is_lost_is_told(
    outside: Settings, make_bench: BenchMaker, blobs_folder: Path
) -> None:
    identity = make_identity(outside.data_dir / "relayer.key")
    bench = make_bench(identity=identity, blob_store=outside.blob_store)
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
    assert (await store_of(outside))["state"] == OK  # some may not be published yet
    await bench.storage.outbox.publish()
    assert (await store_of(outside))["state"] == OK
    account = caller.access.account
    [name, _] = await newest_names(bench.storage.database, account, 2)
    (blobs_folder / account.hex() / name[:2] / name).unlink()
    found = await store_of(outside)
    assert found["state"] == PROBLEM
    assert found["detail"].endswith("of 3 blobs looked for, 1 are not there or cannot be read")
    assert unwrap(found["command"]).startswith("relayer check")


@pytest.mark.parametrize("embedder", ["builtin", "none"])
async def test_a_models_files_are_read_once(
    settings: Settings, embedder: Any, fresh_database: object
) -> None:
    make_identity(settings.data_dir / "relayer.key")
    OPENED.clear()
    found = {f["check"]: f for f in await doctor.examine(replace(settings, embedder=embedder))}
    assert (found["model"]["detail"], found["index"]["state"]) == ("complete", OK)
    assert set(OPENED.values()) == {1}


async def test_the_room_of_every_folder_is_told(lean: Settings) -> None:
    """Blobs are on another disk, often, than the data folder."""
    [disk] = [
        f
        for f in await doctor.examine(replace(lean, blob_store="file:/proc"))
        if f["check"] == "disk"
    ]
    assert disk["state"] == PROBLEM
    assert disk["detail"] == "0.0 GiB free in /proc; make room in /proc"


def test_a_running_relayer_that_takes_no_writes_is_told(
    tmp_path: Path, model_dir: Path, fresh_database: TestDatabase
) -> None:
    folder, data = tmp_path / "blobs", tmp_path / "data"
    url, store = fresh_database.url, f"file:{folder}"
    with running_relayer(data, model_dir, database_url=url, RELAYER_BLOB_STORE=store, **QUIET):
        folder.rename(tmp_path / "aside")
        folder.mkdir()
        until(lambda: health.ask(data)["write_ready"] is False, "it takes no writes")
        settings = Settings(data_dir=data, database_url=url, blob_store=store, embedder="none")
        found = {f["check"]: f for f in asyncio.run(doctor.examine(settings))}
    assert found["server"]["state"] == PROBLEM
    assert ", but takes no writes now; look at its log" in found["server"]["detail"]


async def test_only_the_newest_accounts_are_asked_for(
    outside: Settings, make_bench: BenchMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(blob_store=outside.blob_store)
    made = []
    for _ in range(4):
        made.append((await bench.account()).account)
        bench.clock.advance(1)
    await bench.storage.outbox.publish()
    fetched: list[int] = []
    fetch = bench.storage.database.fetch

    async def counted(statement: str, *arguments: Any) -> Any:
        found = await fetch(statement, *arguments)
        fetched.append(len(found))
        return found

    monkeypatch.setattr(bench.storage.database, "fetch", counted)
    monkeypatch.setattr(sample, "ACCOUNTS_MAX", 2)
    assert await sample.take(bench.storage) == sample.Sample(looked=2, missing=0)
    assert max(fetched) == 2
    assert await newest_accounts(bench.storage.database, 3) == made[:0:-1]


async def test_an_altered_blob_is_not_there(outside: Settings, make_bench: BenchMaker) -> None:
    bench = make_bench(blob_store=outside.blob_store)
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Anna prefers tea.")
    await bench.storage.outbox.publish()
    whole = await sample.take(bench.storage)
    assert whole.missing == 0
    folder = Path(outside.blob_store.removeprefix("file:"))
    for file in (f for f in folder.rglob("*") if f.is_file() and f.read_bytes()[:1] == b"\x01"):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert await sample.take(bench.storage) == sample.Sample(whole.looked, missing=1)
