"""What `serve` is given: settings that cannot be meant, and a database that cannot be reached.

Not here: whose an installation is (`test_installation.py`), what a setting does.
"""

from pathlib import Path

import pytest

from relayer.origins import parse_origins
from relayer.settings import Settings, SettingsError, list_unknown_variables, may_lack_tls
from tests.conftest import TestDatabase
from tests.processes import QUIET, command, running_relayer


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
            ({"blob_store": "file:"}, "RELAYER_BLOB_STORE is postgres, file:PATH or"),
            ({"blob_store": "file: "}, "RELAYER_BLOB_STORE is postgres, file:PATH or"),
            ({"trusted_proxies": "foo"}, "foo is no address"),
            ({"trusted_proxies": "127.0.0.1, 10.0.0.0/8"}, "10.0.0.0/8 is no address"),
            ({"cors_origins": "*"}, "list each origin"),
            ({"cors_origins": "https://*.a.example"}, "list each origin"),
            ({"cors_origins": "null"}, "list each origin"),
            ({"cors_origins": "a.example"}, "a.example is no origin"),
            ({"cors_origins": "file:///home"}, "is no origin"),
            ({"cors_origins": "https://a.example/"}, "write https://a.example$"),
            ({"cors_origins": "https://a.example/app"}, "write https://a.example$"),
            ({"cors_origins": "https://A.Example"}, "write https://a.example$"),
            ({"cors_origins": "https://ann@a.example"}, "is no origin"),
            ({"cors_origins": "https://bücher.example"}, "is no origin"),
            ({"cors_origins": "https://a.example:443"}, "written https://a.example by browsers"),
            ({"cors_origins": "http://a.example:80"}, "written http://a.example by browsers"),
            ({"cors_origins": "https://a.example:99999"}, "no port that there is"),
            ({"cors_origins": "https://a.example b.example"}, "is no origin"),
            ({"cors_origins": ",".join(f"https://{n}.example" for n in range(65))}, "64 at most"),
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
        for origin in (
            *("https://a.example", "https://a.example:8443", "http://localhost:5173"),
            *("http://127.0.0.1:8000", "http://[::1]:8000", "tauri://localhost"),
            "chrome-extension://abcdefghijklmnopabcdefghijklmnop",
        ):
            assert parse_origins(f" {origin}, {origin},") == (origin,)

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
        assert done.stderr.startswith(f"relayer: {told}")

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
        assert list_unknown_variables([*names, "RELAYER_DATABASE_URL_FILE"]) == ["RELAYER_PORTT"]

    def test_it_starts_all_the_same(
        self, tmp_path: Path, model_dir: Path, fresh_database: TestDatabase
    ) -> None:
        odd = {"RELAYER_PORTT": "1", "RELAYER_ZZ": "2"} | QUIET
        with running_relayer(
            tmp_path, model_dir, database_url=fresh_database.url, **odd
        ) as relayer:
            said = relayer.log.read_text()
        assert "WARNING: no such setting, so without effect: RELAYER_PORTT, RELAYER_ZZ\n" in said

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
