"""What a rotation waits for is named: memories and turns without bytes, or of a later release."""

import asyncio
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_OK, main
from memrelay.secure_files import write_private
from relayer.blobs.store import BlobStore
from relayer.errors import Unavailable
from relayer.sealed.envelope import MEMORY, Address, blob_hash, blob_id, open_envelope, seal
from relayer.sealed.keys import AccountId
from relayer.tenants.rotation_progress import BLOCKED_MAX, LOOK_AT_ONCE, Blocked, Progress
from tests.conftest import TestDatabase
from tests.erasing import keep_turn
from tests.processes import RunningRelayer
from tests.rotator import CUSTODIES, NOT_NOW, Rotator, epochs, rotator
from tests.rotator import keep_turn as keep_waiting
from tests.services import OTHER, TEAM, Bench, access_of

LOSE = "DELETE FROM blobs b USING memories m WHERE b.blob_id = m.blob_id"


async def progress(owner: Rotator, key: Any = None) -> Progress:
    found = await access_of(owner.bench, key or owner.owner)
    assert found is not None
    return await owner.bench.services.rotations.progress(found)


async def of_a_later_release(bench: Bench, owner: Rotator, memory: uuid.UUID) -> None:
    """Seal a memory's record again, as of a version that nobody knows yet."""
    account, key = owner.owner.account, owner.keys(TEAM)[0]
    address = Address(MEMORY, account, memory, 1)
    stored = await bench.value(
        "SELECT bytes FROM blobs JOIN memories USING (account_id, blob_id) WHERE memory_id = $1",
        memory,
    )
    record = json.loads(open_envelope(key, address, stored)) | {"v": 2}
    blob = seal(key, address, json.dumps(record).encode(), created_ms=1)
    await bench.storage.blobs.put_many(account, {blob_id(blob): blob})
    await bench.sql(
        "UPDATE memories SET blob_id = $2 WHERE memory_id = $1", memory, blob_hash(blob_id(blob))
    )


@pytest.mark.parametrize("custody", CUSTODIES)
async def test_each_is_named_with_its_problem(bench: Bench, custody: str) -> None:
    owner = await rotator(bench, custody)
    caller = await owner.caller()
    gone, later, _ = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.", "Fine.")
    turn = await keep_turn(bench, caller, "Anna: tea, please.")
    await bench.sql("DELETE FROM blobs b USING episodes e WHERE b.blob_id = e.blob_id")
    await bench.sql(f"{LOSE} AND memory_id = $1", gone.id)
    await of_a_later_release(bench, owner, later.id)
    assert (await progress(owner)).blocked == [], "nothing is to be sealed anew yet"
    await owner.rotate(reseal="all")
    await owner.reseal()
    found = await progress(owner)
    assert sum(entry.remaining for entry in found.namespaces) == 3
    assert sorted(found.blocked, key=lambda one: one.id) == sorted(
        [
            Blocked(gone.id, TEAM, "missing"),
            Blocked(turn, TEAM, "missing"),
            Blocked(later.id, TEAM, "later"),
        ],
        key=lambda one: one.id,
    )


async def test_without_a_key_nothing_is_said_of_a_record(bench: Bench) -> None:
    owner = await rotator(bench, "sealed")
    gone, later = await bench.remember(await owner.caller(), "Anna prefers tea.", "Ben sells cups.")
    await of_a_later_release(bench, owner, later.id)
    await bench.sql(f"{LOSE} AND memory_id = $1", gone.id)
    await owner.rotate(reseal="all")
    assert (await progress(owner)).blocked == [Blocked(gone.id, TEAM, "missing")]


async def test_no_more_than_a_few_and_only_of_what_a_key_may_read(bench: Bench) -> None:
    owner = await rotator(bench, "managed")
    agent = await bench.key(owner.owner, OTHER, role="reader")
    caller = await owner.caller(None, TEAM, OTHER)
    await bench.remember(caller, *(f"Note {n}." for n in range(BLOCKED_MAX + 5)))
    [other] = await bench.remember(caller, "Elsewhere.", namespace=OTHER)
    await bench.sql(LOSE)
    await owner.rotate(reseal="all")
    assert len((await progress(owner)).blocked) == BLOCKED_MAX
    assert (await progress(owner, agent)).blocked == [Blocked(other.id, OTHER, "missing")]


async def test_slices_reach_what_is_behind_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short they are: each begins with what is blocked, and ends when something moved."""
    monkeypatch.setattr("relayer.memories.reseal.PAGE", 2)
    owner = await rotator(bench, "managed")
    caller = await owner.caller()
    stored = await bench.remember(caller, *(f"Note {n}." for n in range(7)))
    await bench.sql(f"{LOSE} AND seq <= 3")
    await of_a_later_release(bench, owner, stored[3].id)
    await keep_waiting(bench, caller)
    await owner.rotate(reseal="all")
    assert [await owner.reseal(go_on=NOT_NOW) for _ in range(4)] == [False, False, False, True]
    assert await epochs(bench) == {1: 4, 2: 3}
    assert await bench.value("SELECT epoch FROM episodes") == 2


async def test_an_altered_one_is_not_waited_for(bench: Bench) -> None:
    owner = await rotator(bench, "managed")
    await bench.remember(await owner.caller(), "Anna prefers tea.")
    await bench.sql("UPDATE blobs SET bytes = set_byte(bytes, 300, get_byte(bytes, 300) # 1)")
    await owner.rotate(reseal="all")
    assert (await progress(owner)).blocked == []


class Counted:
    """A store that tells how many of its blobs were asked for."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs, self.asked = blobs, 0

    async def get_many(self, account: AccountId, names: Sequence[str]) -> Any:
        self.asked += len(names)
        return await self.blobs.get_many(account, names)


async def test_while_something_moves_no_more_is_looked_at(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await rotator(bench, "managed")
    caller = await owner.caller()
    gone, *_ = await bench.remember(caller, *(f"Note {n}." for n in range(3 * LOOK_AT_ONCE)))
    await bench.sql(f"{LOSE} AND memory_id = $1", gone.id)
    await owner.rotate(reseal="all")
    store = Counted(bench.storage.blobs)
    monkeypatch.setattr(bench.services.rotations._progress, "_blobs", store)
    assert (await progress(owner)).blocked == [Blocked(gone.id, TEAM, "missing")]
    assert store.asked == LOOK_AT_ONCE


class Away:
    """A store that answers nobody."""

    async def get_many(self, *_: Any) -> Any:
        raise Unavailable("The store is away.")


async def test_of_a_store_that_is_away_nothing_is_missing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await rotator(bench, "managed")
    await bench.remember(await owner.caller(), "Anna prefers tea.")
    await owner.rotate(reseal="all")
    monkeypatch.setattr(bench.services.rotations._progress, "_blobs", Away())
    found = await progress(owner)
    assert (found.blocked, [entry.remaining for entry in found.namespaces]) == ([], [1])


def test_the_command_names_them_and_does_not_wait(
    relayer: RunningRelayer,
    fresh_database: TestDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    account = relayer.command("account", "create", "--custody", "managed")
    values = {name: account[name] for name in ("account_id", "private_key", "relayer_key")}
    profile = tmp_path / "profile.json"
    write_private(profile, values | {"url": relayer.url})
    with SyncMemoryClient.from_profile(profile) as client:
        gone = client.remember("Anna prefers tea.").id
        client.remember("Ben sells cups.")

    def run(*arguments: str) -> tuple[int, str]:
        code = main([*arguments, "--profile", str(profile)], {})
        return code, capsys.readouterr().out

    asyncio.run(lost(fresh_database, uuid.UUID(gone)))
    code, said = run("rotate", "--reseal", "all")
    assert code == EXIT_FAILED
    assert f"blocked   {gone} in default: its stored bytes are missing" in said.splitlines()
    code, said = run("rotate", "--status", "--json")
    assert code == EXIT_OK
    shown = json.loads(said)["progress"]
    assert (shown["remaining"], shown["done"]) == (1, 1)
    assert shown["blocked"] == [{"id": gone, "namespace": "default", "problem": "missing"}]


async def lost(database: TestDatabase, memory: uuid.UUID) -> None:
    connection = await asyncpg.connect(**database.connect_args)
    await connection.execute(f"{LOSE} AND memory_id = $1", memory)
    await connection.close()
