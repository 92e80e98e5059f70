"""Whose an installation is: one key, one server a folder, and nothing made where nobody asked.

Not here: backups (`test_backup.py`), replacing the key (`test_proof.py`), workers
(`test_workers.py`).
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shlex import quote
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
from relayer.running import LOCK_FILE, RUNNING_FILE, alone, announced, is_served, running_url
from relayer.sealed.keys import AccountId, Identity
from relayer.settings import Settings, SettingsError, may_lack_tls, unknown_variables
from relayer.storage import NotInstalled, as_found, opened
from relayer.tenants.granting import Granting
from relayer.upkeep import backup, check, doctor, provision, succession
from tests.conftest import TestDatabase
from tests.life import until
from tests.processes import QUIET, command, running_relayer

Shell = Callable[[str], "subprocess.CompletedProcess[str]"]
LOST = "there are accounts, which belong to the key that was there"


def key_of(settings: Settings) -> Path:
    return settings.data_dir / "relayer.key"


async def populated(settings: Settings) -> Identity:
    """A relayer with an account, and the key that it was written by."""
    async with opened(settings) as storage:
        await provision.create_account(storage, label="", custody="managed", clock=utc_now)
        return storage.identity


async def accounts_in(settings: Settings) -> list[AccountId]:
    async with opened(settings) as storage:
        rows = await storage.database.fetch("SELECT account_id FROM accounts")
    return [AccountId(row["account_id"]) for row in rows]


async def refused(settings: Settings, why: str) -> None:
    """It does not open, and makes nothing."""
    before = set(settings.data_dir.rglob("*"))
    with pytest.raises(IdentityError, match=why):
        async with opened(settings):
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
        async with opened(settings) as storage:
            assert storage.identity == identity

    async def test_nor_for_accounts_that_were_erased(self, settings: Settings) -> None:
        async with opened(settings) as storage:
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
        async with opened(settings) as storage:
            await provision.create_account(storage, label="", custody="sealed", clock=utc_now)
            await storage.outbox.publish()
            await storage.database.execute("TRUNCATE accounts CASCADE")
        kept = key_of(settings).rename(settings.data_dir / "kept")
        await refused(settings, LOST)
        kept.rename(key_of(settings))
        async with opened(settings):
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
        async with opened(settings) as storage:
            assert storage.relayers[0] == first.public_key
            await provision.create_account(storage, label="", custody="sealed", clock=utc_now)
        await refused(replace(settings, key_file=str(before)), "last written")

    async def test_a_sealed_account_that_nobody_has_written_to_since_is_ours(
        self, settings: Settings
    ) -> None:
        async with opened(settings) as storage:
            await provision.create_account(storage, label="", custody="sealed", clock=utc_now)
        await succession.rotate(settings, utc_now)
        async with opened(settings):
            pass

    async def test_a_key_goes_on_with_accounts_that_it_took_over(self, settings: Settings) -> None:
        lost = await populated(settings)
        key_of(settings).unlink()
        make_identity(key_of(settings))
        for _ in range(2):
            take_over(key_of(settings), [lost.public_key])
        assert key_of(settings).stat().st_mode & 0o777 == 0o600
        assert load_taken_over(key_of(settings)) == (lost.public_key,)
        async with opened(settings) as storage:
            assert storage.relayers == (storage.identity.public_key,)
        found = {f["check"]: f for f in await doctor.examine(settings)}
        assert found["identity"]["ok"]
        await succession.rotate(settings, utc_now)
        assert len(load_succession(key_of(settings))) == 1
        assert lost.public_key in load_taken_over(key_of(settings))
        async with opened(settings):
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
        async with opened(settings) as storage:
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
            [line] = done.stderr.splitlines()
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
        for looking in (as_found(embedded), opened(embedded, new=False)):
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
        async with opened(lean):
            pass
        untold = replace(lean, database_url="")
        before = sorted(tmp_path.iterdir())
        for arguments in (["account", "create", "--custody", "managed"], ["account", "list"]):
            done = command(*arguments, data=tmp_path)
            assert done.returncode == 1
            assert "RELAYER_DATABASE_URL is not given" in done.stderr
        with pytest.raises(SettingsError, match=r"database\.elsewhere"):
            async with opened(untold):
                pytest.fail("it begins anew")
        assert sorted(tmp_path.iterdir()) == before
        (tmp_path / "database.elsewhere").unlink()
        async with opened(untold):
            assert (tmp_path / "postgres" / "cluster").exists()

    async def test_nor_is_the_one_from_before_a_move_opened(
        self, lean: Settings, tmp_path: Path
    ) -> None:
        """What was erased since is alive in it."""
        embedded = replace(lean, database_url="")
        async with opened(embedded):
            pass
        await populated(lean)
        moved = await accounts_in(lean)
        for untold in (opened(embedded), as_found(embedded)):
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
            assert running_url(tmp_path) == relayer.url
            key = load_identity(tmp_path / "relayer.key")
            done = command("identity", "rotate", data=tmp_path, database_url=url)
            assert (done.returncode, "Stop the relayer" in done.stderr) == (1, True)
            assert load_identity(tmp_path / "relayer.key") == key
            relayer.command("account", "list")
            relayer.kill()
            assert running_url(tmp_path) is None
            assert (tmp_path / RUNNING_FILE).exists(), "nobody was there to remove it"
        with running_relayer(tmp_path, model_dir, database_url=url, **QUIET) as relayer:
            assert running_url(tmp_path) == relayer.url
        assert running_url(tmp_path) is None

    def test_a_number_that_is_another_process_by_now_does_not_count(self, tmp_path: Path) -> None:
        told = {"pid": os.getpid(), "url": "http://127.0.0.1:9", "workers": 1}
        (tmp_path / RUNNING_FILE).write_text(json.dumps(told))
        assert running_url(tmp_path) is None
        assert not is_served(tmp_path)
        with pytest.raises(OSError, match="no relayer serves"):
            health.ask(tmp_path)
        with alone(tmp_path):
            assert is_served(tmp_path)
            assert running_url(tmp_path) is None, "that was the one before"

    def test_one_that_does_not_answer_is_told(self, tmp_path: Path) -> None:
        with (
            alone(tmp_path),
            announced(tmp_path, "http://127.0.0.1:9"),
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
            announced(tmp_path, "http://127.0.0.1:9"),
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
        assert done.stderr == f"Error: Cannot lock {tmp_path / LOCK_FILE}: Is a directory.\n"

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


class TestStart:
    """What `serve` is given is told where it cannot be meant."""

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"public_url": "foo"}, "RELAYER_PUBLIC_URL is no URL"),
            ({"public_url": "https://"}, "RELAYER_PUBLIC_URL is no URL"),
            ({"public_url": "https://a.example:x"}, "RELAYER_PUBLIC_URL is no URL"),
            ({"public_url": "https://a.example?b"}, "RELAYER_PUBLIC_URL is no URL"),
            ({"public_url": "https://ann@a.example"}, "RELAYER_PUBLIC_URL is no URL"),
            ({"public_url": "ftp://a.example"}, "RELAYER_PUBLIC_URL is no URL"),
            ({"openai_base_url": "notaurl"}, "OPENAI_BASE_URL is no URL"),
            ({"openai_base_url": "https://"}, "OPENAI_BASE_URL is no URL"),
            ({"openai_base_url": "file:///v1"}, "OPENAI_BASE_URL is no URL"),
            ({"trusted_proxies": "foo"}, "foo is no address"),
            ({"trusted_proxies": "127.0.0.1, 10.0.0.0/8"}, "10.0.0.0/8 is no address"),
            ({"database_url": "foo"}, "RELAYER_DATABASE_URL is no URL"),
            (
                {"database_url": "postgresql://a/b", "database_direct_url": "b"},
                "RELAYER_DATABASE_DIRECT_URL is no URL",
            ),
        ],
    )
    def test_nonsense_is_refused(self, given: dict[str, str], told: str) -> None:
        with pytest.raises(SettingsError, match=told):
            Settings(**given)  # type: ignore[arg-type]  # as texts, like an environment's

    def test_what_makes_sense_is_not(self) -> None:
        for url in ("https://a.example/m/", "http://127.0.0.1:8000", "http://[::1]:8000"):
            assert Settings(public_url=url).public_url == url
        assert Settings(trusted_proxies="127.0.0.1, ::1,").trusted_proxies

    @pytest.mark.parametrize(
        ("url", "told"),
        [
            (
                "ann:s3cret@127.0.0.1:9/m",
                "The database at 127.0.0.1:9 is away: Connection refused.",
            ),
            (
                "ann:s3cret@/m?host=/nowhere",
                "The database at /nowhere is away: No such file or directory.",
            ),
            (
                "ann:s3cret@127.0.0.1:9/m?sslmode=s3cret",
                "RELAYER_DATABASE_URL: `sslmode` parameter must be one of: disable, allow, prefer,"
                " require, verify-ca, verify-full",
            ),
            (
                "ann:s3/cret@127.0.0.1:9/m",
                "RELAYER_DATABASE_URL is malformed: postgresql://USER:PASSWORD@HOST:PORT/NAME;"
                " write signs in a password as %XX",
            ),
            ("s3cret/a@127.0.0.1/m?host=127.0.0.1&port=9", "The database is away: "),
        ],
    )
    def test_a_database_that_is_away_is_named_and_nothing_else(
        self, tmp_path: Path, url: str, told: str
    ) -> None:
        done = command("account", "create", data=tmp_path, database_url=f"postgresql://{url}")
        assert (done.returncode, "s3cret" in done.stderr) == (1, False)
        assert done.stderr.startswith(f"Error: {told}")

    @pytest.mark.parametrize("password", ["s3[cret", "s3\u2100cret"])
    def test_a_start_tells_nothing_of_a_password_that_breaks_its_url(
        self, tmp_path: Path, password: str
    ) -> None:
        url = f"postgresql://ann:{password}@db.invalid/m"
        done = command("serve", "--port", "0", data=tmp_path, database_url=url)
        told = "RELAYER_DATABASE_URL is malformed: write signs in a password as %XX"
        assert done.returncode != 0
        assert done.stderr.splitlines()[-1].endswith(told)
        assert "s3" not in done.stderr

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://a:b@db.example/c",
            "postgresql://a:b@db.example:5432/c?application_name=d",
            "postgresql://a:b@[2001:db8::1]:5432/c",
            "postgresql://a:b@localhost,10.0.0.7/c",
            "postgresql:///c?host=db.example&user=a",
        ],
    )
    def test_a_database_that_tls_may_be_talked_out_of_is_told(self, url: str) -> None:
        assert may_lack_tls(url)
        with_tls = f"{url}{'&' if '?' in url else '?'}sslmode=verify-full"
        assert not may_lack_tls(with_tls)

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "postgresql:///c",
            "postgresql://a:b@localhost:5432/c",
            "postgresql://a:b@127.0.0.2/c",
            "postgresql://a:b@[::1]:5432/c",
            "postgresql://a:b@%2Fvar%2Frun%2Fpostgresql/c",
            "postgresql://a:b@/c?host=%2Frun%2Fpg&port=5432",
        ],
    )
    def test_one_on_this_machine_is_not(self, url: str) -> None:
        assert not may_lack_tls(url)

    def test_a_start_warns_of_it(self, tmp_path: Path) -> None:
        url = "postgresql://a:secret@db.invalid/c"
        done = command("serve", "--port", "0", data=tmp_path, database_url=url)
        assert "WARNING: RELAYER_DATABASE_URL leads to another machine" in done.stderr
        assert "secret" not in done.stderr

    def test_a_variable_that_is_no_setting_is_told(self) -> None:
        names = ["HOME", "RELAYER_PORTT", "RELAYER_PORT", "OPENAI_API_KEY", "RELAYER_OWNER_KEY"]
        assert unknown_variables([*names, "RELAYER_DATABASE_URL_FILE"]) == ["RELAYER_PORTT"]

    def test_it_starts_all_the_same(
        self, tmp_path: Path, model_dir: Path, fresh_database: TestDatabase
    ) -> None:
        odd = {"RELAYER_PORTT": "1", "RELAYER_ZZ": "2"} | QUIET
        with running_relayer(
            tmp_path, model_dir, database_url=fresh_database.url, **odd
        ) as relayer:
            said = relayer.log.read_text()
        assert "WARNING: no setting, and ignored: RELAYER_PORTT, RELAYER_ZZ\n" in said

    def test_a_model_that_is_missing_is_told_with_its_folder(
        self, tmp_path: Path, fresh_database: TestDatabase
    ) -> None:
        done = command(
            *("serve", "--port", "0", "--model-dir", str(tmp_path / "model")),
            data=tmp_path,
            database_url=fresh_database.url,
            RELAYER_EMBEDDER="builtin",
        )
        assert done.returncode == 1
        assert str(tmp_path / "model") in done.stderr
        assert "relayer model fetch" in done.stderr


class TestScripts:
    """With --json, whatever keeps a command from its work is one JSON object."""

    @pytest.mark.parametrize(
        ("arguments", "code", "exit_code"),
        [
            (["account", "list"], "not_installed", 1),
            (["account", "list", "--nothing"], "arguments", 2),
            (["nothing"], "arguments", 2),
            (["--nothing", "check"], "arguments", 2),
            (["check", "--request-timeout-s", "0"], "settings", 2),
            (["identity", "show"], "failed", 1),
        ],
    )
    def test_a_failure_is_one_object(
        self, tmp_path: Path, arguments: list[str], code: str, exit_code: int
    ) -> None:
        plain = command(*arguments, data=tmp_path / "none")
        done = command(*arguments, "--json", data=tmp_path / "none")
        told = json.loads(done.stderr)
        assert (done.returncode, done.stdout, told["code"]) == (exit_code, "", code)
        assert plain.stderr.splitlines()[-1] == f"Error: {told['error']}"
        assert told["request_id"] is None

    def test_a_refusal_keeps_its_code(self, tmp_path: Path, fresh_database: TestDatabase) -> None:
        make_identity(tmp_path / "relayer.key")
        unknown = f"0x{'0' * 64}"
        done = command(
            *("key", "list", "--account", unknown, "--json"),
            data=tmp_path,
            database_url=fresh_database.url,
        )
        assert (done.returncode, json.loads(done.stderr)["code"]) == (1, "not_found")


class TestStreams:
    """A command ends with a line and a code, whatever is the matter with where it prints."""

    @pytest.fixture
    def shell(self, tmp_path: Path, fresh_database: TestDatabase) -> Shell:
        make_identity(tmp_path / "relayer.key")

        def run(line: str) -> "subprocess.CompletedProcess[str]":
            return subprocess.run(
                ["sh", "-c", line.replace("relayer", f"{quote(sys.executable)} -m relayer", 1)],
                env={
                    **os.environ,
                    "RELAYER_DATA_DIR": str(tmp_path),
                    "RELAYER_DATABASE_URL": fresh_database.url,
                },
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )

        return run

    def test_no_room(self, shell: Shell) -> None:
        done = shell("relayer account list > /dev/full")
        expected = (1, "Error: cannot print: No space left on device\n")
        assert (done.returncode, done.stderr) == expected

    @pytest.mark.parametrize("streams", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
    def test_nobody_there(self, shell: Shell, streams: str) -> None:
        done = shell(f"relayer check {streams}")
        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.parametrize(
        ("begun", "how"),
        [("click", "come()"), ("litestar", "come()"), ("litestar", "class B:\n    a = A()")],
    )
    def test_ctrl_c_while_it_begins(
        self, tmp_path: Path, begun: str, how: str, fresh_database: TestDatabase
    ) -> None:
        """Among the imports of every command, among those of a server, and within a class."""
        (tmp_path / begun).mkdir()
        (tmp_path / begun / "__init__.py").write_text(
            "import os, signal, time\n"
            "def come(*_):\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(60)\n"
            f"class A:\n    __set_name__ = come\n{how}\n"
        )
        done = command(
            *("serve", "--port", "0"),
            data=tmp_path / "data",
            database_url=fresh_database.url,
            PYTHONPATH=str(tmp_path),
        )
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


class TestAccounts:
    """What commands on accounts and keys say."""

    def test_a_key_is_shown_with_what_it_was_given(
        self, tmp_path: Path, fresh_database: TestDatabase
    ) -> None:
        def told(*arguments: str) -> "subprocess.CompletedProcess[str]":
            return command(*arguments, data=tmp_path, database_url=fresh_database.url)

        made = json.loads(told("account", "create", "--custody", "managed", "--json").stdout)
        add = ["key", "add", "--account", made["account_id"]]
        whole = json.loads(told(*add, "--json").stdout)
        assert (whole["namespaces"], whole["expires_at"]) == (None, None)
        shown = told(*add, "--namespaces", "a, b", "--expires", "3d").stdout
        assert re.search(r"^namespaces +a, b$", shown, re.MULTILINE)
        assert re.search(r"^expires_at +20\d\d-", shown, re.MULTILINE)
        shown = told(*add).stdout
        assert re.search(r"^namespaces +the whole account$", shown, re.MULTILINE)
        assert re.search(r"^expires_at +never$", shown, re.MULTILINE)
        unset = told(*add, "--namespaces", "")
        assert (unset.returncode, "--namespaces" in unset.stderr) == (2, True)
        wrong = told(*add, "--namespaces", "a,,b")
        assert (wrong.returncode, "--namespaces" in wrong.stderr) == (2, True)
        (tmp_path / "owner").write_bytes(bytes(range(128, 192)))
        wrong = told(*add, "--owner-key-file", str(tmp_path / "owner"))
        assert (wrong.returncode, "64 hex digits" in wrong.stderr) == (2, True)
        place = f"file:{tmp_path / 'owner'}"
        wrong = told("blobs", "copy", "--to", place)
        expected = f"Error: {place}: cannot make that folder for blobs: File exists\n"
        assert (wrong.returncode, wrong.stderr) == (1, expected)
        said = told("check").stdout
        assert "checked 1 account, " in said
        gone = told("account", "erase", made["account_id"], "--yes").stdout
        assert gone == "the account is erased, 0 memories with it\n"
        assert told("check").stdout.startswith("checked 1 erased account, 1 journal object: ")

    def test_one_problem_is_not_several(self) -> None:
        report = check.Report()
        report.checked["memories"] += 1
        report.problem(AccountId(bytes(32)), "it is gone", "x")
        assert report.as_text().splitlines()[0] == "checked 1 memory: 1 problem"
        report.problem(AccountId(bytes(32)), "it is gone", "y")
        report.checked["memories"] += 1
        assert report.as_text().splitlines()[0] == "checked 2 memories: 2 problems"
