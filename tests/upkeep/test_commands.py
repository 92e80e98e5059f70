"""How the relayer's commands print and fail.

Not here: what a mistyped folder comes to (`test_installation.py`), what each of them does.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shlex import quote

import pytest

from relayer.identity import make_identity
from relayer.sealed.keys import AccountId
from relayer.upkeep import check
from tests.conftest import TestDatabase
from tests.processes import command

Shell = Callable[[str], "subprocess.CompletedProcess[str]"]


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
        assert plain.stderr.splitlines()[-1] == f"relayer: {told['error']}"
        assert told["request_id"] is None

    def test_a_refusal_keeps_its_code(self, tmp_path: Path, fresh_database: TestDatabase) -> None:
        make_identity(tmp_path / "relayer.key")
        unknown = f"0x{'0' * 64}"
        done = command(
            *("key", "list", "--account", unknown, "--json"),
            data=tmp_path,
            database_url=fresh_database.url,
        )
        assert (done.returncode, json.loads(done.stderr)["code"]) == (3, "not_found")


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
        expected = (1, "relayer: cannot print: No space left on device\n")
        assert (done.returncode, done.stderr) == expected

    @pytest.mark.parametrize("streams", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
    @pytest.mark.parametrize("command", ["check", "account list"])
    def test_nobody_there(self, shell: Shell, command: str, streams: str) -> None:
        done = shell(f"relayer {command} {streams}")
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
        assert (done.returncode, done.stdout) == (130, "")
        said = [line for line in done.stderr.splitlines() if " is starting with its" not in line]
        assert said == []


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
        expected = f"relayer: {place}: cannot make that folder for blobs: File exists\n"
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
