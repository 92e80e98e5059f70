"""Whose an installation is: one key, one server a folder, and nothing made where nobody asked.

Not here: backups (`test_backup.py`), replacing the key (`test_proof.py`), workers
(`test_workers.py`), how commands print and fail (`test_commands.py`), settings that cannot be meant
(`test_settings.py`).
"""

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from relayer import health
from relayer.clock import utc_now
from relayer.errors import Conflict
from relayer.identity import (
    IdentityError,
    load_identity,
    load_succession,
    load_taken_over,
    make_identity,
    take_over,
)
from relayer.installation import NotInstalled, as_found, at, open_storage
from relayer.run_file import LOCK_FILE, RUNNING_FILE, alone, find_url, is_served, write_run_file
from relayer.sealed.keys import AccountId, Identity
from relayer.settings import Settings, SettingsError
from relayer.tenants.granting import Granting
from relayer.upkeep import backup, doctor, provision, succession
from tests.conftest import TestDatabase
from tests.life import until
from tests.processes import QUIET, command, running_relayer

LOST = "there are accounts, which belong to the key that was there"


def key_of(settings: Settings) -> Path:
    return settings.data_dir / "relayer.key"


async def populated(settings: Settings) -> Identity:
    """A relayer with an account, and the key that it was written by."""
    async with open_storage(settings) as storage:
        await provision.create_account(storage, label="", custody="managed", clock=utc_now)
        return storage.identity


async def accounts_in(settings: Settings) -> list[AccountId]:
    async with open_storage(settings) as storage:
        rows = await storage.database.fetch("SELECT whole_id FROM accounts")
    return [AccountId(row["whole_id"]) for row in rows]


async def refused(settings: Settings, why: str) -> None:
    """It does not open, and makes nothing."""
    before = set(settings.data_dir.rglob("*"))
    with pytest.raises(IdentityError, match=why):
        async with open_storage(settings):
            pytest.fail("it goes on with another key")
    assert set(settings.data_dir.rglob("*")) == before


class TestKey:
    """Receipts of two keys can never be verified again: a key is made once."""

    async def test_a_key_that_is_gone_is_not_made_anew(self, settings: Settings) -> None:
        identity = await populated(settings)
        kept = key_of(settings).rename(settings.data_dir / "kept")
        await refused(settings, LOST)
        elsewhere = f"file:{settings.data_dir / 'elsewhere'}"  # a store that knows of no account
        await refused(replace(settings, blob_store=elsewhere), LOST)
        kept.rename(key_of(settings))
        async with open_storage(settings) as storage:
            assert storage.identity == identity

    async def test_nor_for_accounts_that_were_erased(self, settings: Settings) -> None:
        async with open_storage(settings) as storage:
            made = await provision.create_account(
                storage, label="", custody="sealed", clock=utc_now
            )
            await provision.erase_account(storage, account=made.account, clock=utc_now)
        key_of(settings).unlink()
        await refused(settings, LOST)

    async def test_a_key_file_of_another_name_is_not_made(self, settings: Settings) -> None:
        await populated(settings)
        await refused(replace(settings, key_file=str(settings.data_dir / "other.key")), LOST)

    async def test_nor_beside_blobs_of_a_database_that_is_lost(
        self, settings: Settings, tmp_path: Path
    ) -> None:
        """Whoever rebuilds with a new key forgets what was forgotten."""
        settings = replace(settings, blob_store=f"file:{tmp_path / 'blobs'}")
        async with open_storage(settings) as storage:
            await provision.create_account(storage, label="", custody="sealed", clock=utc_now)
            await storage.outbox.publish()
            await storage.database.execute("TRUNCATE accounts CASCADE")
        kept = key_of(settings).rename(settings.data_dir / "kept")
        await refused(settings, LOST)
        kept.rename(key_of(settings))
        async with open_storage(settings):
            pass

    async def test_another_key_is_refused(self, settings: Settings) -> None:
        await populated(settings)
        other = settings.data_dir / "other.key"
        make_identity(other)
        await refused(replace(settings, key_file=str(other)), "last written")

    async def test_the_key_before_is_refused_and_the_one_after_is_not(
        self, settings: Settings
    ) -> None:
        first = await populated(settings)
        before = settings.data_dir / "before.key"
        shutil.copy2(key_of(settings), before)
        await succession.rotate(settings, utc_now)
        async with open_storage(settings) as storage:
            assert storage.relayers[0] == first.public_key
            await provision.create_account(storage, label="", custody="sealed", clock=utc_now)
        await refused(replace(settings, key_file=str(before)), "last written")

    async def test_a_sealed_account_that_nobody_has_written_to_since_is_ours(
        self, settings: Settings
    ) -> None:
        async with open_storage(settings) as storage:
            await provision.create_account(storage, label="", custody="sealed", clock=utc_now)
        await succession.rotate(settings, utc_now)
        async with open_storage(settings):
            pass

    async def test_a_key_goes_on_with_accounts_that_it_took_over(self, settings: Settings) -> None:
        lost = await populated(settings)
        key_of(settings).unlink()
        make_identity(key_of(settings))
        for _ in range(2):
            take_over(key_of(settings), [lost.public_key])
        assert key_of(settings).stat().st_mode & 0o777 == 0o600
        assert load_taken_over(key_of(settings)) == (lost.public_key,)
        async with open_storage(settings) as storage:
            assert storage.relayers == (storage.identity.public_key,)
        found = {f["check"]: f for f in await doctor.examine(settings)}
        assert found["identity"]["state"] == "ok"
        await succession.rotate(settings, utc_now)
        assert len(load_succession(key_of(settings))) == 1
        assert lost.public_key in load_taken_over(key_of(settings))
        async with open_storage(settings):
            pass

    async def test_a_key_that_took_over_is_made_as_the_page_says(self, settings: Settings) -> None:
        lost = await populated(settings)
        page = (Path(__file__).parents[2] / "deploy/backup.md").read_text()
        [line] = [line for line in page.splitlines() if "took over %s" in line]
        line = line.replace("PUBLIC_KEY", lost.public_key.hex())
        key_of(settings).unlink()
        await asyncio.to_thread(
            subprocess.run, ["sh", "-c", line], cwd=settings.data_dir, check=True
        )
        async with open_storage(settings) as storage:
            assert storage.identity != lost

    def test_a_taken_over_key_that_is_none_is_told(self, tmp_path: Path) -> None:
        make_identity(tmp_path / "relayer.key")
        with (tmp_path / "relayer.key").open("a") as file:
            file.write("took over nothing\n")
        with pytest.raises(IdentityError, match="taken over"):
            load_taken_over(tmp_path / "relayer.key")

    def test_the_command_says_so_in_one_line(
        self, tmp_path: Path, fresh_database: TestDatabase
    ) -> None:
        def told(*arguments: str) -> "subprocess.CompletedProcess[str]":
            return command(*arguments, data=tmp_path, database_url=fresh_database.url)

        assert told("account", "create").returncode == 0
        (tmp_path / "relayer.key").unlink()
        for arguments in (["serve", "--port", "0"], ["account", "create"], ["account", "list"]):
            done = told(*arguments)
            assert (done.returncode, done.stdout) == (1, "")
            *starts, line = done.stderr.splitlines()
            is_said = [" is starting with " in start for start in starts]
            assert is_said == [True] * ("serve" in arguments)
            assert str(tmp_path / "relayer.key") in line
            assert "deploy/backup.md" in line
        found = json.loads(told("doctor", "--json").stdout)["findings"]
        [detail] = [finding["detail"] for finding in found if finding["check"] == "database"]
        assert LOST in detail
        assert not (tmp_path / "relayer.key").exists()

    async def test_commands_that_look_name_it_beside_an_embedded_database(
        self, lean: Settings
    ) -> None:
        embedded = replace(lean, database_url="")
        await populated(embedded)
        key_of(embedded).unlink()
        for looking in (as_found(embedded), open_storage(embedded, new=False)):
            with pytest.raises(IdentityError, match=LOST):
                async with looking:
                    pytest.fail("it goes on without the key")
        assert not key_of(embedded).exists()


LOOKING = [
    ["check"],
    ["migrate"],
    ["account", "list"],
    ["key", "list", "--account", f"0x{'0' * 64}"],
    ["reindex", "--status"],
    ["reindex"],
    ["rebuild"],
    ["account", "erase", f"0x{'0' * 64}", "--yes"],
    ["key", "add", "--account", f"0x{'0' * 64}"],
    ["key", "revoke", "--account", f"0x{'0' * 64}", "--key", "0" * 64],
    ["blobs", "copy", "--to", "file:elsewhere"],
    ["identity", "rotate"],
]


class TestNothingHere:
    """A mistyped folder is told, not filled."""

    @pytest.mark.parametrize("arguments", LOOKING, ids=lambda words: "-".join(words[:2]))
    def test_a_command_makes_no_installation(self, tmp_path: Path, arguments: list[str]) -> None:
        done = command(*arguments, data=tmp_path / "mistyped")
        assert (done.returncode, done.stdout) == (1, "")
        [line] = done.stderr.splitlines()
        assert f"no installation here: there is no {tmp_path / 'mistyped'}" in line
        assert list(tmp_path.iterdir()) == []

    def test_a_relative_one_is_told_whole(self) -> None:
        with pytest.raises(OSError, match=f"no relayer serves {Path.cwd() / 'mistyped'}$"):
            health.ask(Path("mistyped"))
        done = command("check", data=Path("mistyped"))
        assert f"there is no {Path.cwd() / 'mistyped'}:" in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["blobs", "copy", "--to", "nonsense"], "--to: it is postgres, file:PATH or s3://"),
            (["key", "revoke", "--account", f"0x{'0' * 64}", "--key", "nonsense"], "64 lower-case"),
        ],
        ids=["to", "key"],
    )
    def test_an_option_that_cannot_be_meant_is_a_wrong_one(
        self, tmp_path: Path, fresh_database: TestDatabase, arguments: list[str], told: str
    ) -> None:
        make_identity(tmp_path / "relayer.key")
        done = command(*arguments, data=tmp_path, database_url=fresh_database.url)
        assert done.returncode == 2
        assert told in done.stderr
        assert "RELAYER_BLOB_STORE" not in done.stderr

    def test_an_empty_one_is_told(self, tmp_path: Path, fresh_database: TestDatabase) -> None:
        make_identity(tmp_path / "relayer.key")
        done = command("check", data=tmp_path, database_url=fresh_database.url)
        assert (done.returncode, done.stdout) == (0, "there is no account here\n")

    async def test_no_database_is_made_beside_one_that_is_elsewhere(
        self, lean: Settings, tmp_path: Path
    ) -> None:
        async with open_storage(lean):
            pass
        untold = replace(lean, database_url="")
        before = sorted(tmp_path.iterdir())
        for arguments in (["account", "create", "--custody", "managed"], ["account", "list"]):
            done = command(*arguments, data=tmp_path)
            assert done.returncode == 1
            assert "RELAYER_DATABASE_URL is not given" in done.stderr
        with pytest.raises(SettingsError, match=r"database\.elsewhere"):
            async with open_storage(untold):
                pytest.fail("it begins anew")
        assert sorted(tmp_path.iterdir()) == before
        (tmp_path / "database.elsewhere").unlink()
        async with open_storage(untold):
            assert (tmp_path / "postgres" / "cluster").exists()

    async def test_nor_is_the_one_from_before_a_move_opened(
        self, lean: Settings, tmp_path: Path
    ) -> None:
        """What was erased since is alive in it."""
        embedded = replace(lean, database_url="")
        async with open_storage(embedded):
            pass
        await populated(lean)
        moved = await accounts_in(lean)
        for untold in (open_storage(embedded), as_found(embedded)):
            with pytest.raises(SettingsError, match=r"database\.elsewhere"):
                async with untold:
                    pytest.fail("it goes on with what is outdated")
        await backup.create(lean, tmp_path / "backup", utc_now)
        (tmp_path / "database.elsewhere").unlink()
        with pytest.raises(backup.BackupError, match="holds tables already"):
            await backup.restore(embedded, tmp_path / "backup", utc_now)
        shutil.rmtree(tmp_path / "postgres")
        await backup.restore(embedded, tmp_path / "backup", utc_now)
        assert await accounts_in(embedded) == moved != []

    async def test_an_empty_one_makes_none_of_before_outdated(self, lean: Settings) -> None:
        """It was tried, or its URL is a shell's for something else."""
        embedded = replace(lean, database_url="")
        await populated(embedded)
        assert await accounts_in(lean) == []
        assert await accounts_in(embedded) != []

    @pytest.mark.parametrize("place", ["file/data", "file"])
    def test_a_folder_that_cannot_be_made_is_one_line(self, tmp_path: Path, place: str) -> None:
        (tmp_path / "file").write_text("")
        for arguments in (["serve", "--port", "0"], ["account", "create"], ["check"]):
            done = command(*arguments, data=tmp_path / place)
            assert done.returncode in (1, 2)
            assert "Traceback" not in done.stderr
            assert str(tmp_path / place) in done.stderr


class TestOneServer:
    """A folder has one server, however that one ends."""

    def test_a_second_one_is_refused_and_takes_nothing_away(
        self, tmp_path: Path, model_dir: Path, fresh_database: TestDatabase
    ) -> None:
        url = fresh_database.url
        with running_relayer(tmp_path, model_dir, database_url=url, **QUIET) as relayer:
            for more in ([], ["--workers", "2"]):
                done = command("serve", "--port", "0", *more, data=tmp_path, database_url=url)
                assert (done.returncode, done.stdout) == (1, "")
                assert f"another relayer serves this folder at {relayer.url}" in done.stderr
            assert find_url(tmp_path) == relayer.url
            key = load_identity(tmp_path / "relayer.key")
            done = command("identity", "rotate", data=tmp_path, database_url=url)
            assert (done.returncode, "Stop the relayer" in done.stderr) == (1, True)
            assert load_identity(tmp_path / "relayer.key") == key
            relayer.command("account", "list")
            relayer.kill()
            assert find_url(tmp_path) is None
            assert (tmp_path / RUNNING_FILE).exists(), "nobody was there to remove it"
        with running_relayer(tmp_path, model_dir, database_url=url, **QUIET) as relayer:
            assert find_url(tmp_path) == relayer.url
        assert find_url(tmp_path) is None

    def test_a_number_that_is_another_process_by_now_does_not_count(self, tmp_path: Path) -> None:
        told = {"pid": os.getpid(), "url": "http://127.0.0.1:9", "workers": 1}
        (tmp_path / RUNNING_FILE).write_text(json.dumps(told))
        assert find_url(tmp_path) is None
        assert not is_served(tmp_path)
        with pytest.raises(OSError, match="no relayer serves"):
            health.ask(tmp_path)
        with alone(tmp_path):
            assert is_served(tmp_path)
            assert find_url(tmp_path) is None, "that was the one before"

    def test_one_that_does_not_answer_is_told(self, tmp_path: Path) -> None:
        with (
            alone(tmp_path),
            write_run_file(tmp_path, "http://127.0.0.1:9"),
            pytest.raises(OSError, match=r"at http://127\.0\.0\.1:9 does not answer: .*refused"),
        ):
            health.ask(tmp_path)

    async def test_one_that_takes_no_writes_is_told_and_answers_all_the_same(
        self, tmp_path: Path, model_dir: Path, fresh_database: TestDatabase
    ) -> None:
        def told(*more: str) -> str:
            done = command("health", *more, data=tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            return done.stdout

        with running_relayer(tmp_path, model_dir, database_url=fresh_database.url, **QUIET):
            until(lambda: told().endswith(" answers\n"), "it takes writes")
            connection = await asyncpg.connect(**fresh_database.connect_args)
            await connection.execute("UPDATE alembic_version SET version_num = '0001'")
            await connection.close()
            until(lambda: "takes no writes" in told(), "it says that it takes none")
            assert json.loads(told("--json"))["write_ready"] is False

    def test_nobody_else_gets_in(self, tmp_path: Path) -> None:
        with (
            alone(tmp_path),
            write_run_file(tmp_path, "http://127.0.0.1:9"),
            pytest.raises(Conflict, match=r"serves this folder at http://127\.0\.0\.1:9$"),
            alone(tmp_path),
        ):
            pytest.fail("two are alone")
        with alone(tmp_path), pytest.raises(Conflict, match="in use"), alone(tmp_path):
            pytest.fail("two are alone")

    def test_a_lock_that_is_not_ours_is_one_line(self, tmp_path: Path) -> None:
        """As where somebody else once ran it here."""
        (tmp_path / LOCK_FILE).mkdir()
        done = command("serve", "--port", "0", data=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        _, line = done.stderr.splitlines()  # behind the one that says what starts
        assert line == f"relayer: Cannot lock {tmp_path / LOCK_FILE}: Is a directory."

    async def test_none_begins_while_the_key_is_replaced(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await populated(settings)
        hand_over, seen = Granting.hand_over, []

        async def looked_at(*arguments: Any) -> bool:
            seen.append(is_served(settings.data_dir))
            return await hand_over(*arguments)

        monkeypatch.setattr(Granting, "hand_over", looked_at)
        await succession.rotate(settings, utc_now)
        assert seen == [True]
        assert not is_served(settings.data_dir)

    async def test_a_rotation_needs_an_installation(self, tmp_path: Path) -> None:
        with pytest.raises(NotInstalled):
            await succession.rotate(Settings(data_dir=tmp_path), utc_now)
        assert list(tmp_path.iterdir()) == []

    def test_a_reload_of_one_worker_goes_on(
        self, tmp_path: Path, model_dir: Path, fresh_database: TestDatabase
    ) -> None:
        url = fresh_database.url
        with running_relayer(tmp_path, model_dir, database_url=url, **QUIET) as relayer:
            relayer.process.send_signal(signal.SIGHUP)
            until(lambda: "--workers 2" in relayer.log.read_text(), "it says how")
            assert httpx.get(f"{relayer.url}/health").json()["status"] == "ok"
            relayer.process.send_signal(signal.SIGTERM)
            assert relayer.process.wait(timeout=30) == 0


async def test_a_mistyped_key_file_makes_no_folder(lean: Settings, tmp_path: Path) -> None:
    mistyped = replace(lean, key_file=str(tmp_path / "sercets" / "relayer.key"))
    with pytest.raises(IdentityError, match=r"There is no folder .*sercets.*--key-file"):
        async with open_storage(mistyped):
            pass
    assert not (tmp_path / "sercets").exists()


def test_what_is_to_be_typed_names_the_same_installation(tmp_path: Path) -> None:
    """Options that were given, as a shell takes them; nothing that has a password."""
    assert at(Settings()) == ""
    given = Settings(
        data_dir=tmp_path / "my data",
        key_file="/safe/relayer.key",
        blob_store="file:/mnt/it's here",
        database_url="postgres://relayer:secret@127.0.0.1/memrelay",
    )
    assert shlex.split(at(given)) == [
        *("--data-dir", str(tmp_path / "my data"), "--key-file", "/safe/relayer.key"),
        *("--blob-store", "file:/mnt/it's here"),
    ]
