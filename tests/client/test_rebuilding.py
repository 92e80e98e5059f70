"""A real relayer that lost its database, and what its clients find afterwards."""

import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from memrelay import Memory, SyncMemoryClient, exporting
from memrelay.cli import EXIT_FAILED, EXIT_OK, main
from memrelay.commands import transfer
from memrelay.sealed.keys import Identity
from memrelay.secure_files import write_private
from relayer.postgres.embedded import EmbeddedPostgres
from tests.conftest import TestDatabase, database_copy
from tests.processes import running_relayer

ARRIVAL_S_MAX = 60


@pytest_asyncio.fixture
async def databases(
    postgres: EmbeddedPostgres, template: str
) -> AsyncIterator[tuple[TestDatabase, TestDatabase]]:
    """Two empty ones: the second is all that there is after the first was lost."""
    async with database_copy(postgres, template) as one, database_copy(postgres, template) as two:
        yield one, two


def client_of(url: str, founder: Identity, account_id: str) -> SyncMemoryClient:
    return SyncMemoryClient(
        url=url, account_id=account_id, private_key=founder.seed_hex(), namespace="team"
    )


def found_account(url: str, founder: Identity, profile: Path) -> str:
    """Make a sealed account and its profile, and return its id."""
    made = SyncMemoryClient.create_account(url, custody="sealed", identity=founder)
    move_profile(profile, url, made.account_id, founder)
    return made.account_id


def move_profile(profile: Path, url: str, account: str, founder: Identity) -> None:
    """Let a profile lead to a relayer."""
    values = {"url": url, "account_id": account, "private_key": founder.seed_hex()}
    write_private(profile, values)


def arrived(client: SyncMemoryClient, ids: Sequence[str]) -> None:
    """Wait until memories have their rows, and then their vectors."""
    until = time.monotonic() + ARRIVAL_S_MAX
    while any(one.status == "not_found" for one in client.status(ids)):
        assert time.monotonic() < until
        time.sleep(0.2)
    client.wait(ids, timeout_s=ARRIVAL_S_MAX)


def identify(memory: Memory) -> tuple[object, ...]:
    """Return what a memory keeps whatever becomes of its row, its times among it."""
    return memory.id, memory.text, memory.created_at, memory.updated_at


def test_clients_find_what_they_found(
    databases: tuple[TestDatabase, TestDatabase], model_dir: Path, tmp_path: Path
) -> None:
    """What was edited, pinned and erased before the loss is so after it."""
    before, after = databases
    folder, store = tmp_path / "data", f"file:{tmp_path / 'blobs'}"
    founders = {custody: Identity.generate() for custody in ("sealed", "managed")}
    accounts, found = {}, {}
    query = "Anna's kettle for tea"  # plainly related to both: neither is left out by a hair
    with running_relayer(
        folder, model_dir, "--blob-store", store, database_url=before.url
    ) as relayer:
        for custody, founder in founders.items():
            account = SyncMemoryClient.create_account(
                relayer.url, custody=custody, identity=founder
            )
            accounts[custody] = account.account_id
            with client_of(relayer.url, founder, account.account_id) as client:
                old, pinned, doomed = (
                    client.remember(text).id
                    for text in ("The kettle is old.", "Anna drinks tea.", "The cup is broken.")
                )
                client.edit(old, text="The kettle is new.")
                client.pin(pinned)
                client.forget(doomed)
                client.wait([old, pinned], timeout_s=60)
                found[custody] = client.recall(query).results
                assert {memory.id for memory in found[custody]} == {old, pinned}
        relayer.kill()
    with running_relayer(
        folder, model_dir, "--blob-store", store, database_url=after.url
    ) as relayer:
        for custody, founder in founders.items():
            with client_of(relayer.url, founder, accounts[custody]) as client:
                # The first request that brings keys has the memories of its namespace come back.
                client.recall("kettle")
                arrived(client, [m.id for m in found[custody]])
                results = client.recall(query).results
                assert list(map(identify, results)) == list(map(identify, found[custody]))
                kettle = next(m.id for m in results if m.text == "The kettle is new.")
                history = client.history(kettle).revisions
                assert [m.text for m in history] == ["The kettle is new.", "The kettle is old."]
                assert [m.text for m in client.list(pinned=True).memories] == ["Anna drinks tea."]
                assert "broken" not in str([m.text for m in client.list().memories])
        assert relayer.command("check", "--blob-store", store)["ok"]


def test_an_export_loses_nothing_that_is_not_back_yet(
    databases: tuple[TestDatabase, TestDatabase],
    model_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits for what comes back; after that, pages and files stay, and the command fails."""
    before, after = databases
    folder, store = tmp_path / "data", f"file:{tmp_path / 'blobs'}"
    founder, profile = Identity.generate(), tmp_path / "profile.json"
    out, archive, lines = tmp_path / "pages", tmp_path / "all.archive", tmp_path / "all.jsonl"
    pages = ["--all-namespaces", "--out", str(out)]
    as_lines = ["--format", "jsonl", "--all-namespaces", "--force", "--out", str(lines)]

    def export(code: int, *arguments: str) -> str:
        assert main(["export", *arguments, "--profile", str(profile)], {}) == code
        return capsys.readouterr().err

    def written() -> dict[str, str]:
        files = [*out.glob("*/*.md"), lines]
        return {str(path.relative_to(tmp_path)): path.read_text() for path in files}

    with running_relayer(
        folder, model_dir, "--blob-store", store, database_url=before.url
    ) as relayer:
        account = found_account(relayer.url, founder, profile)
        with client_of(relayer.url, founder, account) as client:
            client.remember("Anna drinks tea.")
            client.remember("Ben sells cups.", namespace="shop")
        for arguments in (pages, as_lines, [str(archive)]):
            export(EXIT_OK, *arguments)
        relayer.kill()
    whole, archived = written(), archive.read_bytes()
    assert len(whole) == 3
    with running_relayer(
        folder, model_dir, "--blob-store", store, database_url=after.url
    ) as relayer:
        move_profile(profile, relayer.url, account, founder)
        with monkeypatch.context() as impatient:
            listing = ["list", "--namespace", "third", "--profile", str(profile)]
            assert main(listing, {}) == EXIT_OK
            assert "not all memories are back" in capsys.readouterr().err
            impatient.setattr(exporting, "RESTORE_S", -1.0)
            for arguments in ([str(archive), "--force"], pages):
                assert "not all memories are back" in export(EXIT_FAILED, *arguments)
            # By now the pages' export has lent the keys, so all may be back.
            impatient.setattr(transfer, "await_restored", lambda *_: False)
            for arguments in (as_lines, pages):
                assert "not all memories are back" in export(EXIT_FAILED, *arguments)
            assert (written(), archive.read_bytes()) == (whole, archived)
        monkeypatch.setattr(exporting, "RESTORE_S", 4.0 * ARRIVAL_S_MAX)
        for arguments in ([str(archive), "--force"], as_lines, pages):
            assert "not all memories" not in export(EXIT_OK, *arguments)
        assert written() == whole
        export(EXIT_OK, *pages, "--from-archive", str(archive))
        assert written() == whole


def test_a_rotation_ends_no_epoch_of_what_is_not_back(
    databases: tuple[TestDatabase, TestDatabase],
    model_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command says why, and ends it when it is asked again."""
    before, after = databases
    folder, store = tmp_path / "data", f"file:{tmp_path / 'blobs'}"
    founder, profile = Identity.generate(), tmp_path / "profile.json"

    def rotate(*arguments: str) -> str:
        assert main(["rotate", *arguments, "--profile", str(profile)], {}) == EXIT_OK
        return capsys.readouterr().out

    with running_relayer(
        folder, model_dir, "--blob-store", store, database_url=before.url
    ) as relayer:
        account = found_account(relayer.url, founder, profile)
        with client_of(relayer.url, founder, account) as client:
            kept = client.remember("Anna drinks tea.").id
        relayer.kill()
    with running_relayer(
        folder, model_dir, "--blob-store", store, database_url=after.url
    ) as relayer:
        move_profile(profile, relayer.url, account, founder)
        shown = json.loads(rotate("--json"))
        assert (shown["retired"], shown["epochs"]) == (False, [1, 2])
        assert (shown["progress"]["older"], shown["progress"]["unrestored"]) == (0, True)
        assert "older     not known" in rotate("--status")
        with SyncMemoryClient.from_profile(profile) as client:
            client.recall("tea", namespace="team")
            arrived(client, [kept])
            shown = json.loads(rotate("--resume", "--reseal", "--json"))
            assert (shown["retired"], shown["epochs"]) == (True, [2])
            assert "older     nothing" in rotate("--status")
            assert client.recall("tea", namespace="team").results[0].id == kept
