"""How the relayer's lists look at a terminal and in a pipe, and the short ids that they show.

Not here: what is listed.
"""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from relayer.tables import Column, format_rows, format_table, measure_width, shorten_ids
from tests.conftest import TestDatabase
from tests.processes import QUIET, command

Call = Callable[..., "subprocess.CompletedProcess[str]"]
ACCOUNT = "0x" + "ab" * 32
ROW = {"account_id": ACCOUNT, "label": "Anna's laptop", "custody": "sealed", "memory_count": 12}


class TestTables:
    @pytest.mark.parametrize("width", [24, 40, 80, 200])
    def test_rows_fit_the_terminal_and_begin_with_a_short_id(self, width: int) -> None:
        heading, line = format_rows([ROW], width)
        assert max(map(measure_width, (heading, line))) <= width
        assert heading.split()[:2] == ["account", "label"]
        assert line.startswith("0xabababab  Anna")
        assert ("sealed" in line, line.endswith("12")) == (width >= 40, width >= 80)

    def test_a_pipe_gets_whole_values_and_no_heading(self) -> None:
        assert format_rows([ROW], None) == [f"{ACCOUNT}\tAnna's laptop\tsealed\t12"]

    def test_nothing_of_a_label_moves_the_terminal_or_breaks_a_line(self) -> None:
        evil = ROW | {"label": "\x1b[2Ja\nb\tc\u202e"}
        for width in (80, None):
            lines = format_rows([evil], width)
            assert len(lines) == (1 if width is None else 2)
            assert all(char.isprintable() or char == "\t" for line in lines for char in line)
            assert lines[-1].count("\t") == (3 if width is None else 0)

    def test_wide_characters_count_twice(self) -> None:
        rows = [ROW | {"label": "\u8336" * 30}, ROW]
        assert max(map(measure_width, format_rows(rows, 40))) <= 40

    def test_ids_that_begin_alike_are_shown_further(self) -> None:
        one, other = "0x" + "ab" * 5 + "0" * 54, "0x" + "ab" * 5 + "1" * 54
        assert set(shorten_ids([one, other]).values()) == {one[:13], other[:13]}
        assert shorten_ids(["c" * 64]) == {"c" * 64: "c" * 8}
        assert shorten_ids([]) == {}

    def test_no_rows_are_no_lines(self) -> None:
        assert format_rows([], 80) == format_rows([], None) == []

    def test_a_column_that_has_no_rank_stays_and_is_cut(self) -> None:
        columns = (Column("a"), Column("b", rank=1))
        assert format_table(columns, [["x" * 50, "y"]], 20)[1] == "x" * 19 + "…"


class TestCommands:
    @pytest.fixture
    def call(self, tmp_path: Path, fresh_database: TestDatabase) -> Call:
        def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
            return command(*arguments, data=tmp_path, database_url=fresh_database.url)

        return run

    def test_short_ids_are_shown_and_taken(
        self, call: Call, tmp_path: Path, fresh_database: TestDatabase
    ) -> None:
        made = json.loads(
            call("account", "create", "--custody", "managed", "--label", "Anna", "--json").stdout
        )
        account = made["account_id"]
        added = json.loads(call("key", "add", "--account", account[:10], "--json").stdout)
        assert added["account_id"] == account
        piped = call("key", "list", "--account", account[2:14]).stdout.splitlines()
        assert {made["public_key"], added["public_key"]} < {line.split("\t")[0] for line in piped}
        shown = at_terminal(tmp_path, fresh_database, "account", "list")
        assert max(map(len, shown)) <= 60
        assert shown[0].split()[:2] == ["account", "label"]
        assert shown[1].split()[:2] == [account[:10], "Anna"]
        told = call("key", "revoke", "--account", account[:10], "--key", added["public_key"][:8])
        assert told.stdout.startswith(f"revoked {added['public_key']}\n")
        gone = call("account", "erase", account[:12], "--yes")
        assert gone.stdout == "the account is erased, 0 memories with it\n"

    def test_a_beginning_of_none_or_too_short_a_one(self, call: Call) -> None:
        account = json.loads(call("account", "create", "--json").stdout)["account_id"]
        none = call("key", "list", "--account", "0x00000000")
        told = "relayer: No account begins with 0x00000000.\n"
        assert (none.returncode, none.stderr) == (3, told)
        short = call("key", "list", "--account", account[:9])
        assert (short.returncode, "64 lower-case hex digits" in short.stderr) == (2, True)
        none = call("key", "revoke", "--account", account, "--key", "00000000")
        assert (none.returncode, none.stderr) == (3, "relayer: No key begins with 00000000.\n")


def at_terminal(data: Path, database: TestDatabase, *arguments: str) -> list[str]:
    """The lines that a command prints at a terminal of 60 columns."""
    ours, its = pty.openpty()
    env = os.environ | QUIET | {"RELAYER_DATABASE_URL": database.url, "COLUMNS": "60"}
    done = subprocess.run(
        [sys.executable, "-m", "relayer", *arguments, "--data-dir", str(data)],
        env=env,
        stdout=its,
        stderr=subprocess.PIPE,
        timeout=120,
        check=False,
    )
    os.close(its)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert done.returncode == 0, done.stderr
    return shown.decode().splitlines()
