"""The command line of `relayer`: help, guesses at what was meant, exit codes, completion.

Not here: what its commands do, their streams (`test_commands.py`).
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from memrelay.commands.catalogue import is_command
from memrelay.commands.exit_codes import MEANINGS as THEIRS
from memrelay.doctor import OK, PROBLEM, SKIPPED, WARNING
from relayer.__main__ import main
from relayer.commands.catalogue import COMMANDS
from relayer.commands.completion import SHELLS
from relayer.commands.failures import MEANINGS
from relayer.commands.parsers import EVERYDAY, Setting, summary_of
from relayer.commands.suggestions import COMMANDS as MEANT
from relayer.commands.suggestions import OF_THE_CLIENT, OPTIONS
from relayer.identity import make_identity
from tests.conftest import TestDatabase
from tests.forked import forked

STATES = {OK, WARNING, PROBLEM, SKIPPED}
PAGE = Path(__file__).parents[2] / "deploy/command-line.md"


def typed(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """What the program does with these arguments and no others."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("RELAYER_", "PYTEST_"))}
    return forked("relayer", *arguments, env=env | environment, timeout_s=120)


def all_commands() -> dict[str, click.Command]:
    """Every command and action by what is typed."""
    context = click.Context(main, info_name="relayer")
    found: dict[str, click.Command] = {}
    for name in main.list_commands(context):
        one = main.get_command(context, name)
        assert one is not None
        found[name] = one
        if isinstance(one, click.Group):
            found |= {f"{name} {action}": below for action, below in one.commands.items()}
    return found


class TestHelp:
    def test_it_lists_every_command_with_its_whole_summary(self) -> None:
        shown = " ".join(typed("--help").stdout.split())
        for name, entry in COMMANDS.items():
            assert f" {name} {entry.summary}" in shown
        assert "..." not in shown.partition("Commands:")[2]

    @pytest.mark.parametrize("name", sorted(COMMANDS))
    def test_a_summary_is_what_the_command_says_of_itself(self, name: str) -> None:
        assert COMMANDS[name].summary == summary_of(all_commands()[name])

    def test_summaries_are_one_sentence_that_begins_with_a_verb(self) -> None:
        for name, one in all_commands().items():
            summary = summary_of(one)
            assert re.fullmatch(r"[A-Z][a-z]+,? [^.]+\.", summary), name
            assert len(summary.split()) <= 14, name

    @pytest.mark.parametrize("line", ["account", "blobs", "key", "identity"])
    def test_actions_are_listed_whole(self, line: str) -> None:
        shown = " ".join(typed(line, "-h").stdout.split())
        for name, one in all_commands().items():
            if name.startswith(f"{line} "):
                assert summary_of(one) in shown

    def test_a_short_one_leaves_most_settings_to_the_long_one(self) -> None:
        short = typed("serve", "--help").stdout
        long = typed("serve", "--help-all").stdout
        settings = [one for one in all_commands()["serve"].params if isinstance(one, Setting)]
        for one in settings:
            assert (one.opts[0] in short) == (one.name in EVERYDAY), one.name
            assert one.opts[0] in long
            assert str(one.envvar) in long
        assert "relayer serve --help-all" in short
        assert len(short.splitlines()) < 50

    def test_a_few_settings_are_shown_at_once(self) -> None:
        shown = typed("model", "fetch", "--help").stdout
        assert "RELAYER_MODEL_DIR" in shown
        assert "--help-all" not in shown

    def test_a_program_without_a_command_shows_its_help(self) -> None:
        done = typed()
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("Usage: relayer [OPTIONS] COMMAND")

    def test_the_version_is_named_as_the_client_names_its_own(self) -> None:
        assert re.fullmatch(r"relayer \d+\.\d+\.\d+\n", typed("--version").stdout)


class TestSuggestions:
    @pytest.mark.parametrize(
        ("line", "meant"),
        [
            ("srve", "serve"),
            ("start", "serve"),
            ("run", "serve"),
            ("up", "serve"),
            ("START", "serve"),
            ("status", "health or doctor"),
            ("verify", "check"),
            ("dump", "backup"),
            ("upgrade", "migrate"),
            ("metrics", "top"),
            ("users", "account"),
            ("recall tea", "memrelay recall"),
            ("account add", "create"),
            ("account delete 0x1", "erase"),
            ("account ls", "list"),
            ("key rm", "revoke"),
            ("model download", "fetch"),
            ("backup load x", "restore"),
            ("blobs cp", "copy"),
            ("serve --prot 1", "--port"),
            ("serve --bind ::1", "--host"),
            ("serve --db x", "--database-url"),
            ("serve -p 1", "--port"),
            ("serve --llm x", "--llm-model"),
            ("check --output json", "--json"),
            ("key add --ttl 3d", "--expires"),
            ("account erase 0x1 --force", "--yes"),
            ("--verison", "--version"),
        ],
    )
    def test_what_may_have_been_meant_is_told(self, line: str, meant: str) -> None:
        done = typed(*line.split())
        assert (done.returncode, done.stdout) == (2, "")
        assert f"; did you mean {meant}? (see `relayer " in done.stderr
        assert done.stderr.count("\n") == 1

    @pytest.mark.parametrize("line", ["xyzzy", "account xyzzy", "serve --xyzzy", "q" * 100_000])
    def test_what_is_like_nothing_is_told_no_guess(self, line: str) -> None:
        done = typed(*line.split())
        assert (done.returncode, "did you mean" in done.stderr) == (2, False)

    def test_options_go_behind_the_command(self) -> None:
        done = typed("--data-dir", "x", "check")
        told = "relayer: --data-dir goes behind the command (see `relayer --help`)\n"
        assert (done.returncode, done.stderr) == (2, told)

    def test_control_characters_of_an_argument_are_not_printed(self) -> None:
        done = typed("\x1b[31mred")
        assert (done.returncode, "\x1b" in done.stderr) == (2, False)

    def test_every_suggestion_is_there(self) -> None:
        commands = all_commands()
        words = {word for name in commands for word in name.split()}
        options = {option for one in commands.values() for p in one.params for option in p.opts}
        assert {name for name in MEANT if name not in words} <= set(commands)
        assert set(OPTIONS) <= {*options, "--help"}
        assert [name for name in OF_THE_CLIENT if not (is_command(name) or name == "try")] == []


class TestExitCodes:
    """The table of the page, the two programs' help, and what commands really end with."""

    def test_the_page_has_what_the_programs_say(self) -> None:
        row = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
        rows = row.findall(PAGE.read_text())
        assert {int(code): ours for code, ours, _ in rows} == MEANINGS
        assert {int(code): theirs for code, _, theirs in rows} == THEIRS

    def test_commands_end_with_them(self, tmp_path: Path, fresh_database: TestDatabase) -> None:
        make_identity(tmp_path / "relayer.key")

        def code(*arguments: str) -> int:
            place = {"RELAYER_DATA_DIR": str(tmp_path), "RELAYER_DATABASE_URL": fresh_database.url}
            return typed(*arguments, **place).returncode

        unknown = f"0x{'0' * 64}"
        assert code("account", "list") == 0
        assert code("health") == 1
        assert code("account", "list", "--nothing") == 2
        assert code("account", "list", "--request-timeout-s", "0") == 2
        assert code("key", "list", "--account", unknown) == 3
        assert code("account", "erase", unknown, "--yes") == 3

    def test_ctrl_c_ends_with_its_own(self, tmp_path: Path) -> None:
        (tmp_path / "click.py").write_text(
            "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
        )
        done = subprocess.run(  # none that is forked begins so early
            [sys.executable, "-m", "relayer", "health"],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


class TestCompletion:
    def words(self, shell: str, line: str) -> str:
        """What a shell is told behind these words, by the variables that its script sets."""
        number = len(line.split(" ")) - 1
        last = line.rsplit(" ", maxsplit=1)[-1]
        done = typed(
            _RELAYER_COMPLETE=f"{shell}_complete",
            COMP_WORDS=line,
            COMP_CWORD=last if shell == "fish" else str(number),
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    @pytest.mark.parametrize("shell", SHELLS)
    def test_a_script_is_printed_by_one_command(self, shell: str) -> None:
        done = typed("completion", shell)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"_RELAYER_COMPLETE={shell}_complete" in done.stdout
        assert f"relayer completion {shell}" in PAGE.read_text()

    @pytest.mark.parametrize("shell", SHELLS)
    @pytest.mark.parametrize(
        ("line", "found"),
        [
            ("relayer re", {"rebuild", "reindex"}),
            ("relayer account c", {"create"}),
            ("relayer serve --rate", {"--rate-limit"}),
            ("relayer account create --custody ", {"managed", "sealed"}),
            ("relayer completion z", {"zsh"}),
        ],
    )
    def test_words_are_completed(self, shell: str, line: str, found: set[str]) -> None:
        told = self.words(shell, line)
        assert found <= set(re.split(r"[\n,\t]", told))
        assert "migrate" not in told

    def test_a_real_bash_takes_the_script(self, tmp_path: Path) -> None:
        (tmp_path / "relayer").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m relayer "$@"\n')
        (tmp_path / "relayer").chmod(0o755)
        script = (
            'eval "$(relayer completion bash)"\n'
            "COMP_WORDS=(relayer account er) COMP_CWORD=2\n"
            "_relayer_completion relayer er account\n"
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "--norc", "-c", script],
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.stdout, done.returncode) == ("erase\n", 0), done.stderr

    def test_another_shell_is_told(self) -> None:
        done = typed("completion", "csh")
        assert done.returncode == 2
        assert all(f"'{shell}'" in done.stderr for shell in SHELLS)


class TestDoctor:
    """`relayer doctor` answers in the form of `memrelay doctor`."""

    def test_one_form_for_both_programs(self, tmp_path: Path) -> None:
        folder = str(tmp_path / "none")
        ours = typed("doctor", "--data-dir", folder, "--embedder", "none", "--json")
        profile = {"MEMRELAY_PROFILE": str(tmp_path / "profile.json")}
        theirs = forked("memrelay", "doctor", "--json", env=os.environ | profile, timeout_s=120)
        for done in (ours, theirs):
            told = json.loads(done.stdout)
            assert (set(told), told["ok"], done.returncode) == ({"ok", "findings"}, False, 1)
            for finding in told["findings"]:
                assert set(finding) == {"check", "state", "detail", "command"}
                assert finding["state"] in STATES
            assert json.loads(done.stderr.splitlines()[-1])["code"] == "failed"

    def test_what_is_wrong_is_marked_with_what_to_type(self, tmp_path: Path) -> None:
        folder = str(tmp_path / "none")
        done = typed("doctor", "--data-dir", folder, "--embedder", "none")
        assert f"PROBLEM  server     not running\n{'type:':>18}  relayer serve" in done.stdout
        assert done.stderr == "relayer: 2 things are wrong.\n"
