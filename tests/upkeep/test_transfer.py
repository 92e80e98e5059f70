"""Blobs in another store: all of them, each read back, and none lost by any interruption."""

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from relayer.blobs.store import BlobStore
from relayer.errors import Conflict, Unavailable
from relayer.identity import make_identity
from relayer.memories.opener import Caller
from relayer.run_file import alone, is_served
from relayer.sealed.envelope import blob_id
from relayer.sealed.keys import AccountId
from relayer.settings import SettingsError, variable
from relayer.storage import blobs_on
from relayer.upkeep import transfer as transfer_module
from relayer.upkeep.check import check
from relayer.upkeep.transfer import Report, Transfer, leads_to, transfer
from tests.chains import assert_chain_holds
from tests.collecting import collect
from tests.conftest import BenchMaker
from tests.services import TEAM, Bench
from tests.swift import Swift
from tests.unreadable import make_unreadable

MakeRelayer = Callable[..., Bench]
ORDER = ("postgres", "bucket", "folder", "postgres")
STRANGER = AccountId(bytes([7]) * 32)


@pytest.fixture
def relayer(make_bench: BenchMaker, tmp_path: Path) -> MakeRelayer:
    """Makes relayers with the key that commands on this folder read."""
    identity = make_identity(tmp_path / "relayer.key")
    return lambda **changes: make_bench(identity=identity, **changes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


def on(bench: Bench, place: str) -> Bench:
    """The same relayer, started anew with its blobs elsewhere."""
    return replace(bench, settings=replace(bench.settings, blob_store=place)).another()


def store_at(bench: Bench, place: str) -> BlobStore:
    settings = replace(bench.settings, blob_store=place, blob_cache_bytes=0)
    return blobs_on(settings, bench.storage.database)


async def contents(store: BlobStore, account: AccountId) -> dict[str, object]:
    names = [name async for name in store.names(account)]
    return dict(await store.get_many(account, names))


async def bring(bench: Bench, to: str, *, move: bool = False) -> Report:
    return await transfer(bench.settings, to, move=move, tell=lambda report: None)


async def busy(bench: Bench) -> Caller:
    """Memories, one of which is erased, and a journal."""
    caller = await bench.caller(await bench.account())
    doomed, *_ = await bench.remember(
        caller, "Anna prefers tea.", *(f"Cup {n}." for n in range(17))
    )
    await bench.services.memory.forget(caller.access, doomed.id)
    await bench.storage.outbox.publish()
    await bench.storage.outbox.empty()
    return caller


async def test_from_store_to_store_and_back(
    relayer: MakeRelayer, swift: Swift, folder: Path
) -> None:
    place = f"{swift.bucket()}/relayer"
    places = {"postgres": "postgres", "folder": f"file:{folder}", "bucket": f"s3://{place}"}
    others = {k: v for k, v in swift.settings(place).items() if k != "blob_store"}
    bench = relayer(request_timeout_s=500.0, **others)
    caller = await busy(bench)
    account = caller.access.account
    expected = await contents(bench.storage.blobs, account)
    for old, new in pairwise(ORDER):
        report = await bring(bench, places[new], move=True)
        assert (report.problems, report.copied) == ([], len(expected))
        assert report.removed == report.copied
        assert await contents(store_at(bench, places[old]), account) == {}
        bench = on(bench, places[new])
        assert await contents(bench.storage.blobs, account) == expected
        assert (await check(bench.storage)).problems == []
        assert "Cup 7." in await bench.texts(caller, "cup", mode="keyword", limit=20)
    await assert_chain_holds(bench, account)


async def test_a_second_copy_brings_what_has_come_since(relayer: MakeRelayer, folder: Path) -> None:
    bench = relayer()
    caller = await busy(bench)
    first = await bring(bench, f"file:{folder}")
    [new] = await bench.remember(caller, "Ben sells cups.")
    await bench.services.memory.forget(caller.access, new.id)
    [kept] = await bench.remember(caller, "Clara has the cups.")
    [erased] = [m for m in await memories(bench) if m != kept.id][:1]
    await bench.services.memory.forget(caller.access, erased)
    second = await bring(bench, f"file:{folder}")
    assert first.already_there == 0
    assert second.already_there < first.copied  # without what was erased
    assert 0 < second.copied < first.copied
    moved = on(bench, f"file:{folder}")
    assert await moved.texts(caller, "clara", mode="keyword") == ["Clara has the cups."]
    await collect(moved)  # which knows what was erased between the two
    assert (await check(moved.storage)).problems == []


async def test_an_account_erased_since_it_was_copied_goes_there_too(
    relayer: MakeRelayer, folder: Path
) -> None:
    bench = relayer()
    caller, other = await busy(bench), await busy(bench)
    account = caller.access.account
    await bring(bench, f"file:{folder}")
    closed = await bench.services.closing.close(caller.access)
    await bench.services.closing.purge()
    assert (await bring(bench, f"file:{folder}", move=True)).problems == []
    moved = on(bench, f"file:{folder}")
    assert len(await contents(moved.storage.blobs, account)) > 1
    kept = await contents(moved.storage.blobs, other.access.account)
    await moved.services.closing.purge()
    left = await contents(moved.storage.blobs, account)
    assert left == {blob_id(closed.receipt): closed.receipt}
    assert await contents(moved.storage.blobs, other.access.account) == kept
    assert (await check(moved.storage)).problems == []


async def test_an_account_that_is_empty_there_stays_done_with(
    relayer: MakeRelayer, folder: Path
) -> None:
    bench = relayer()
    caller = await busy(bench)
    await bench.services.closing.close(caller.access)
    await bench.services.closing.purge()
    await bring(bench, f"file:{folder}", move=True)
    assert await bench.value("SELECT count(*) FROM accounts WHERE purged_at IS NOT NULL") == 1


async def memories(bench: Bench) -> list[uuid.UUID]:
    return [r["memory_id"] for r in await bench.sql("SELECT memory_id FROM memories")]


async def test_an_interrupted_move_goes_on(relayer: MakeRelayer, folder: Path) -> None:
    bench = relayer()
    caller = await busy(bench)
    account = caller.access.account
    expected = await contents(bench.storage.blobs, account)
    new, names = store_at(bench, f"file:{folder}"), sorted(expected)
    half = {n: d for n, d in expected.items() if n in names[::2] and isinstance(d, bytes)}
    await new.put_many(account, half)
    for name in names[:4:2]:  # of which some are gone here already
        await bench.storage.blobs.delete(account, name)
    [torn] = (folder / account.hex()).rglob(names[4])
    torn.write_bytes(torn.read_bytes()[:9])
    report = await bring(bench, f"file:{folder}", move=True)
    assert (report.problems, report.removed) == ([], len(names) - 2)
    assert (report.already_there, report.copied) == (len(half) - 3, len(names) - len(half) + 1)
    assert await contents(new, account) == expected


async def test_one_that_has_removed_what_the_database_had_goes_on(
    relayer: MakeRelayer, folder: Path
) -> None:
    bench = relayer()
    account = (await busy(bench)).access.account
    await bring(bench, f"file:{folder}")
    await bench.sql("DELETE FROM blobs b USING memories m WHERE b.blob_id = m.blob_id")
    with pytest.raises(SettingsError, match="RELAYER_BLOB_STORE"):
        await bring(bench, f"file:{folder.with_name('other')}", move=True)
    report = await bring(bench, f"file:{folder}", move=True)
    assert report.problems == []
    assert await contents(bench.storage.blobs, account) == {}


async def test_what_is_altered_is_told_and_nothing_is_removed(
    relayer: MakeRelayer, folder: Path
) -> None:
    bench = relayer()
    caller = await busy(bench)
    before = await contents(bench.storage.blobs, caller.access.account)
    spoilt = sorted(before)[3]
    await bench.sql("UPDATE blobs SET bytes = 'other' WHERE bytes = $1", before[spoilt])
    report = await bring(bench, f"file:{folder}", move=True)
    [problem] = report.problems
    assert (problem["problem"], problem["id"]) == ("it does not match its name", spoilt)
    assert (report.copied, report.removed) == (len(before) - 1, 0)
    assert len(await contents(bench.storage.blobs, caller.access.account)) == len(before)


async def test_what_cannot_be_read_is_told_and_nothing_is_removed(
    relayer: MakeRelayer, folder: Path, tmp_path: Path
) -> None:
    bench = relayer(blob_store=f"file:{folder}")
    caller = await busy(bench)
    before = await contents(bench.storage.blobs, caller.access.account)
    hidden = sorted(before)[3]
    back = make_unreadable(folder, hidden)
    report = await bring(bench, f"file:{tmp_path / 'other'}", move=True)
    [problem] = report.problems
    assert (problem["problem"], problem["id"]) == ("it cannot be read", hidden)
    assert (report.copied, report.removed) == (len(before) - 1, 0)
    back()
    assert await contents(bench.storage.blobs, caller.access.account) == before


async def test_only_what_the_new_store_gives_back_is_removed(
    relayer: MakeRelayer, folder: Path
) -> None:
    bench = relayer()
    caller = await busy(bench)
    account, late = caller.access.account, b"\x02 put by a relayer nobody stopped"
    work = Transfer(bench.storage, store_at(bench, f"file:{folder}"), lambda report: None)
    await work.copy_all()
    await bench.storage.blobs.put_many(account, {blob_id(late): late})
    await work.remove_all()
    assert [p["id"] for p in work.report.problems] == [blob_id(late)]
    assert await contents(bench.storage.blobs, account) == {blob_id(late): late}


async def test_the_mark_comes_along(relayer: MakeRelayer, folder: Path) -> None:
    bench = relayer()
    caller = await busy(bench)
    await bring(bench, f"file:{folder}")
    newest = await bench.value("SELECT receipt_seq FROM accounts")
    assert await store_at(bench, f"file:{folder}").read_mark(caller.access.account) == newest


async def test_a_new_store_that_is_away_costs_nothing(relayer: MakeRelayer, folder: Path) -> None:
    bench = relayer()
    caller = await busy(bench)
    before = await contents(bench.storage.blobs, caller.access.account)
    folder.mkdir()
    (folder / caller.access.account.hex()).write_text("in the way")
    with pytest.raises(Unavailable):
        await bring(bench, f"file:{folder}", move=True)
    assert await contents(bench.storage.blobs, caller.access.account) == before


class TestRefusals:
    @pytest.mark.parametrize("to", ["", "file", "folder:/tmp", "s3://", "s3://nokeys/here"])
    async def test_what_is_no_store(self, relayer: MakeRelayer, to: str) -> None:
        with pytest.raises(SettingsError):
            await bring(relayer(), to)

    async def test_the_same_store(self, relayer: MakeRelayer) -> None:
        with pytest.raises(Conflict, match="already"):
            await bring(relayer(), "postgres", move=True)

    @pytest.mark.parametrize("move", [False, True])
    @pytest.mark.parametrize("name", ["{0}/copy", "{1}/link/a/b", "{1}"])
    async def test_a_folder_within_the_store_or_around_it(
        self, relayer: MakeRelayer, folder: Path, name: str, move: bool
    ) -> None:
        """What is put there would be listed as the other store's."""
        bench = relayer(blob_store=f"file:{folder}")
        account = (await busy(bench)).access.account
        before = await contents(bench.storage.blobs, account)
        (folder.parent / "link").symlink_to(folder)
        there = sorted(folder.parent.rglob("*"))
        with pytest.raises(Conflict, match="within one another"):
            await bring(bench, f"file:{name.format(folder, folder.parent)}", move=move)
        assert await contents(bench.storage.blobs, account) == before
        assert sorted(folder.parent.rglob("*")) == there

    @pytest.mark.parametrize("move", [False, True])
    @pytest.mark.parametrize("name", ["{0}/", "{0}/.", "{0}/../blobs", "{1}/link"])
    async def test_the_same_folder_by_another_name(
        self, relayer: MakeRelayer, folder: Path, name: str, move: bool
    ) -> None:
        bench = relayer(blob_store=f"file:{folder}")
        account = (await busy(bench)).access.account
        before = await contents(bench.storage.blobs, account)
        (folder.parent / "link").symlink_to(folder)
        with pytest.raises(Conflict, match="already"):
            await bring(bench, f"file:{name.format(folder, folder.parent)}", move=move)
        assert await contents(bench.storage.blobs, account) == before

    async def test_the_same_bucket_by_another_name(self, relayer: MakeRelayer) -> None:
        place = "s3://blobs/relayer"
        given = {"blob_store": place, "s3_endpoint": "http://127.0.0.1:9"}
        bench = relayer(**given, s3_access_key_id="the-key", s3_secret_access_key="hush")
        with pytest.raises(Conflict, match="already"):
            await bring(bench, f"{place}/", move=True)

    @pytest.mark.parametrize("move", [False, True])
    async def test_another_folder_that_leads_back(
        self, relayer: MakeRelayer, folder: Path, tmp_path: Path, move: bool
    ) -> None:
        bench = relayer(blob_store=f"file:{folder}")
        account = (await busy(bench)).access.account
        before = await contents(bench.storage.blobs, account)
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / account.hex()).symlink_to(folder / account.hex())
        with pytest.raises(Conflict, match="already"):
            await bring(bench, f"file:{tmp_path}/other", move=move)
        assert await contents(bench.storage.blobs, account) == before

    async def test_what_is_put_by_one_name_is_found_by_the_other(
        self, relayer: MakeRelayer, folder: Path, tmp_path: Path
    ) -> None:
        bench = relayer()
        account = (await busy(bench)).access.account
        await bring(bench, f"file:{folder}")
        one, same = store_at(bench, f"file:{folder}"), store_at(bench, f"file:{folder}")
        other = store_at(bench, f"file:{tmp_path}/other")
        before = await contents(one, account)
        assert await leads_to(one, same)
        assert not await leads_to(one, other)
        assert not await leads_to(other, store_at(bench, f"file:{tmp_path}/third"))
        assert (await contents(one, account), await contents(other, account)) == (before, {})

    async def test_a_move_beside_a_relayer(self, relayer: MakeRelayer, folder: Path) -> None:
        bench = relayer()
        await busy(bench)
        with alone(bench.settings.data_dir):
            with pytest.raises(Conflict, match="Stop the relayer"):
                await bring(bench, f"file:{folder}", move=True)
            assert (await bring(bench, f"file:{folder}")).copied > 0

    async def test_no_relayer_begins_beside_a_move(
        self, relayer: MakeRelayer, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench, seen = relayer(), set[tuple[bool, bool]]()
        await busy(bench)
        monkeypatch.setattr(transfer_module, "TOLD_EVERY", 1)

        def note(move: bool, _: object) -> None:
            seen.add((move, is_served(bench.settings.data_dir)))

        for move in (False, True):
            place = f"file:{folder}"
            await transfer(bench.settings, place, move=move, tell=partial(note, move))
        assert seen == {(False, False), (True, True)}

    async def test_a_copy_that_would_not_last(self, relayer: MakeRelayer, folder: Path) -> None:
        with pytest.raises(Conflict, match="publish"):
            await bring(relayer(blob_store=f"file:{folder}"), "postgres")

    async def test_somebody_elses_store(self, relayer: MakeRelayer, folder: Path) -> None:
        bench = relayer()
        caller = await busy(bench)
        theirs = store_at(bench, f"file:{folder}")
        await theirs.put_many(STRANGER, {blob_id(b"theirs"): b"theirs"})
        with pytest.raises(Conflict, match="does not know"):
            await bring(bench, f"file:{folder}", move=True)
        assert await contents(theirs, caller.access.account) == {}


async def test_the_command(relayer: MakeRelayer, swift: Swift, tmp_path: Path) -> None:
    bench = relayer()
    caller = await busy(bench)
    place = f"{swift.bucket()}/moved"
    told = swift.settings(place) | {"database_url": bench.settings.database_url}
    environment = {variable(name): value for name, value in told.items() if name != "blob_store"}
    command = ["-m", "relayer", "blobs", "move", "--to", f"s3://{place}", "--json"]
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, *command, "--data-dir", str(tmp_path)],
        env=os.environ | environment | {"RELAYER_REQUEST_TIMEOUT_S": "500"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ok"]
    assert report["copied"] == report["removed"] > 0
    assert told["s3_secret_access_key"] not in done.stdout + done.stderr
    changed = replace(bench.settings, request_timeout_s=500.0, **swift.settings(place))
    moved = replace(bench, settings=changed).another()
    found = await moved.services.memory.get(caller, (await memories(bench))[0])
    assert found.namespace == TEAM
