"""Arguments, exit codes and files of the command `memrelay`."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memrelay import __version__
from memrelay.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, build_parser, main
from memrelay.commands.catalogue import SUMMARIES
from memrelay.commands.exit_codes import MEANINGS
from memrelay.commands.shell import text_of
from memrelay.config import read_profile
from memrelay.errors import ConfigError
from memrelay.secure_files import write_private

KEY = "07" * 32
RELAYER = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "profile.json"
    values = {
        "url": "http://127.0.0.1:9",  # the discard port: nobody answers there
        "account_id": "0x" + "ab" * 32,
        "private_key": KEY,
        "custody": "managed",
        "relayer_key": RELAYER,
    }
    write_private(path, values)
    return str(path)


COMMANDS = [
    ["init"],
    ["remember"],
    ["recall"],
    ["analyze"],
    ["ask"],
    ["list"],
    ["get"],
    ["history"],
    ["edit"],
    ["pin"],
    ["unpin"],
    ["review"],
    ["usage"],
    ["settings"],
    ["forget"],
    ["close"],
    ["status"],
    ["namespaces"],
    ["receipts"],
    ["verify"],
    ["checkpoint"],
    ["trust"],
    ["import"],
    ["export"],
    ["doctor"],
    ["gateway"],
    ["openclaw", "install"],
    ["openclaw", "uninstall"],
    ["hermes", "install"],
    ["hermes", "uninstall"],
    ["mcp"],
    ["keys", "list"],
    ["keys", "add"],
    ["keys", "revoke"],
    ["keys", "recovery"],
    ["keys", "recover"],
    ["rotate"],
    ["agents", "provision"],
    ["agents", "list"],
    ["agents", "rotate"],
    ["agents", "revoke"],
]


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as done:
        main([*command, "--help"], {})
    assert done.value.code == 0
    shown = capsys.readouterr().out
    assert "--json" in shown or not command or command == ["keys"]


@pytest.mark.parametrize("name", sorted({command[0] for command in COMMANDS}))
def test_a_command_that_is_built_alone_is_the_same(name, capsys):
    every, alone = build_parser(), build_parser(name)
    shown = []
    for parser in (every, alone):
        with pytest.raises(SystemExit):
            parser.parse_args([name, "--help"])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert len(alone.format_help()) < len(every.format_help()), "the others are not built"


@pytest.mark.parametrize("asked", ["unknown", "--help", "-h", "", "reca"])
def test_what_is_no_command_is_told_of_all_of_them(asked):
    assert build_parser(asked).format_help() == build_parser().format_help()


def test_a_list_of_commands_has_each_in_one_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    parser = build_parser("--help")
    shown = parser.format_whole_help().splitlines()
    for name, summary in SUMMARIES.items():
        assert shown.count(f"  {name:<13}  {summary}") == 1


@pytest.mark.parametrize("command", [[], ["recall"], ["import"]], ids=" ".join)
def test_a_long_help_is_short_unless_all_is_asked_for(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = []
    for asked in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as done:
            main([*command, asked], {})
        assert done.value.code == EXIT_OK
        shown.append(capsys.readouterr().out.splitlines())
    short, whole = shown
    assert len(short) <= 42
    assert len(whole) > len(short)
    assert set(short) <= set(whole)
    assert any("--help-all" in line for line in short)


@pytest.mark.parametrize("command", [*COMMANDS, ["timeline"], ["forget"]], ids=" ".join)
def test_a_help_fits_a_screen(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*command, "--help"], {})
    assert len(capsys.readouterr().out.splitlines()) <= 40


def test_what_every_day_needs_is_in_the_short_help():
    short = build_parser("--help").format_help()
    for name in ("try", "init", "remember", "recall", "forget", "doctor", "keys"):
        assert f"\n  {name} " in short
    assert "webhooks" not in short
    assert "exit codes:" not in short


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_help_begins_with_the_arguments_alone(command, capsys):
    with pytest.raises(SystemExit):
        main([*command, "--help"], {})
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"usage: memrelay {' '.join(command)} [OPTIONS]")
    assert "--" not in first


def test_exit_codes_are_documented():
    page = (Path(__file__).parents[2] / "client/docs/commands.md").read_text()
    table = re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert table == [(str(code), meaning) for code, meaning in MEANINGS.items()]
    shown = build_parser().format_whole_help()
    assert "exit codes" in shown
    assert all(f"\n  {code:<3}  " in shown for code in MEANINGS)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["unknown"],
        ["recall", "x", "--limit", "many"],
        ["recall", "x", "--mode", "magic"],
        ["remember", "x", "--kind", "thought"],
        ["remember", "x", "--metadata", "no-pair"],
        ["keys"],
        ["keys", "add", "--role", "custodian"],
        ["agents"],
        ["agents", "provision", "coder", "--role", "owner"],
        ["agents", "provision", "coder", "--for", "magic"],
        ["agents", "list", "--agent", "coder"],
        ["init", "--agent", "coder"],
        ["init", "--custody", "shared"],
        ["get"],
    ],
)
def test_wrong_arguments_are_usage_errors(argv, capsys):
    with pytest.raises(SystemExit) as done:
        main(argv, {})
    assert done.value.code == EXIT_USAGE
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    "argv",
    [
        ["recall", "x"],
        ["keys", "add", "--profile", "PROFILE"],
        ["keys", "add", "--profile", "PROFILE", "--namespace", "a", "--whole-account"],
        ["recall", "x", "--namespace", "\u00a0", "--profile", "PROFILE"],
        ["get", "../x", "--profile", "PROFILE", "--namespace", "a"],
        ["init"],
        ["init", "http://memory.example"],
        ["trust", "ab", "--profile", "PROFILE"],
        ["recall", "x", "--profile", "PROFILE", "--agent", "nobody"],
        ["recall", "x", "--profile", "PROFILE", "--agent", "../profile"],
    ],
)
def test_wrong_settings_are_one_line_and_exit_code_2(argv, profile, tmp_path, capsys):
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "none")}
    assert main([profile if a == "PROFILE" else a for a in argv], environ) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("memrelay: ")
    assert err.count("\n") == 1
    assert KEY not in err


def test_init_keeps_a_profile_that_exists(profile, capsys):
    assert main(["init", "http://127.0.0.1:9", "--profile", profile], {}) == EXIT_USAGE
    assert "--force" in capsys.readouterr().err


def test_an_environment_without_a_profile_reaches_for_the_relayer(capsys):
    environ = {
        "MEMRELAY_URL": "http://127.0.0.1:9",
        "MEMRELAY_ACCOUNT_ID": "0x" + "ab" * 32,
        "MEMRELAY_PRIVATE_KEY": "zz",
        "XDG_CONFIG_HOME": "/nonexistent",
    }
    assert main(["recall", "tea"], environ) == EXIT_USAGE
    assert "zz" not in capsys.readouterr().err


def test_trust_pins_another_relayer(profile, example, capsys):
    other = example.agent.public_key.hex()
    assert main(["trust", other, "--profile", profile, "--json"], {}) == 0
    assert json.loads(capsys.readouterr().out) == {"relayer_key": other}
    values = read_profile(Path(profile), missing_ok=False)
    assert values["relayer_key"] == other
    assert values["private_key"] == KEY
    del values["account_id"]  # it may be the environment's
    write_private(Path(profile), values)
    assert main(["trust", other, "--profile", profile], {}) == 0


def test_text_comes_from_arguments_or_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe\n"))
    assert text_of(["some", "words"]) == "some words"
    assert text_of([]) == "from a pipe"
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe"))
    assert text_of(["-"]) == "from a pipe"
    monkeypatch.setattr(sys, "stdin", io.StringIO(" \n"))
    with pytest.raises(ConfigError):
        text_of([])


def test_the_module_runs_like_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "memrelay", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"memrelay {__version__}\n"


def test_its_process_leaves_no_core_file():
    """A gateway holds keys and texts for as long as the machine runs."""
    tell = """
import ctypes, resource, sys
from memrelay.cli import main
sys.argv = ["memrelay", "doctor"]
main()
limit, flag = resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
print(limit, flag)
"""
    environ = os.environ | {"XDG_CONFIG_HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", tell], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "(0, 0) 0"


def test_its_process_looks_for_no_cycles_in_what_was_loaded():
    """That took a fifth of a short command, at its end."""
    tell = """
import atexit, gc, sys
from memrelay.cli import main
atexit.register(lambda: print(len(gc.get_objects()) < gc.get_freeze_count() / 2))
sys.argv = ["memrelay", "doctor"]
main()
"""
    environ = os.environ | {"XDG_CONFIG_HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", tell], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "True"


def test_json_on_a_terminal_steers_nothing():
    value = "Grüße \x9b31m \u202e 🍵"
    program = (
        "from argparse import Namespace\n"
        "from memrelay.commands.shell import Shell\n"
        f"Shell(Namespace(json=True), {{}}).show({value!r}, ())\n"
    )
    argv = [sys.executable, "-X", "utf8", "-c", program]
    ours, theirs = pty.openpty()
    subprocess.run(argv, stdout=theirs, check=True)
    os.close(theirs)
    with os.fdopen(ours, "rb") as terminal:
        shown = terminal.readline()
    assert shown.isascii()
    assert b"\x1b" not in shown
    assert json.loads(shown) == value
    piped = subprocess.run(argv, capture_output=True, check=True).stdout.decode()
    assert json.loads(piped) == value
    assert "Grüße" in piped, "a program is given the text as it is"


@pytest.mark.parametrize("asked", [["--help"], ["--version"], ["events", "--help"]])
def test_help_that_a_full_disk_does_not_take_is_an_error(asked):
    with open("/dev/full", "w") as full:
        argv = [sys.executable, "-m", "memrelay", *asked]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == EXIT_FAILED
    assert done.stderr == "memrelay: The output: No space left on device.\n"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_full_disk_is_one_line_and_exit_code_1(profile, form):
    argv = [sys.executable, "-m", "memrelay", "trust", RELAYER, "--profile", profile, *form]
    with open("/dev/full", "w") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == EXIT_FAILED
    told = "The output: No space left on device."
    if form:
        assert json.loads(done.stderr)["error"] == told
    else:
        assert done.stderr == f"memrelay: {told}\n"


def command(
    *argv: str | bytes, closed: int | None = None, said: bytes = b"", **environment: str
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command, with one of the standard streams closed and this on standard input."""
    closing = "" if closed is None else f" {closed}>&-"
    return subprocess.run(
        ["sh", "-c", f'exec "$0" "$@"{closing}', sys.executable, "-m", "memrelay", *argv],
        input=said,
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_encoding_lacks_is_escaped(encoding, profile):
    shown = command("doctor", "--profile", profile, PYTHONIOENCODING=encoding)
    assert shown.returncode == EXIT_FAILED
    assert b"ea4a\\u2026d22c" in shown.stdout
    assert b"codec" not in shown.stderr
    helped = command("import", "--help-all", PYTHONIOENCODING=encoding)
    assert (helped.returncode, helped.stderr) == (0, b"")
    assert "±HH:MM".encode(encoding, "backslashreplace") in helped.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_json_in_another_encoding_is_json(encoding, profile):
    done = command("doctor", "--profile", profile, "--json", PYTHONIOENCODING=encoding)
    assert "ea4a…d22c" in json.loads(done.stdout)["findings"][0]["detail"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["remember"], b"caf\xe9"),
        (["remember", b"caf\xe9"], b""),
        (["recall", b"caf\xe9"], b""),
        (["recall", "tea", "--tag", b"caf\xe9"], b""),
    ],
)
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_text_in_another_encoding_is_refused(argv, said, locale, profile):
    done = command(*argv, "--profile", profile, said=said, LC_ALL=locale)
    assert done.returncode == EXIT_USAGE
    assert done.stderr == b"memrelay: The text is not UTF-8.\n"


def test_closed_input_is_no_text(profile):
    done = command("remember", "--profile", profile, closed=0)
    assert done.returncode == EXIT_USAGE
    assert done.stderr == b"memrelay: Give the text as arguments or on standard input.\n"


@pytest.mark.parametrize("name", ["remember", "recall", "analyze", "ask"])
@pytest.mark.parametrize("text", ["", " \t"])
def test_an_empty_argument_is_no_text(profile, capsys, name, text):
    """As an unset variable of a shell gives it: nothing is asked for."""
    assert main([name, text, "--profile", profile], {}) == EXIT_USAGE
    assert capsys.readouterr().err.startswith("memrelay: Give the text as arguments")


def test_a_closed_output_is_told_before_anything_is_done(profile):
    other = "ab" * 32
    done = command("trust", other, "--profile", profile, closed=1)
    assert done.returncode == EXIT_FAILED
    assert done.stderr.startswith(b"memrelay: Standard output is closed;")
    assert done.stderr.count(b"\n") == 1
    assert read_profile(Path(profile), missing_ok=False)["relayer_key"] == RELAYER


def test_warnings_do_not_take_the_place_of_the_output(profile):
    done = command("recall", "--profile", profile, closed=2)
    assert (done.returncode, done.stdout) == (EXIT_USAGE, b"")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_nobody_there_is_exit_code_1(profile, capsys, form):
    assert main(["list", "--profile", profile, *form], {}) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert out == ""
    told = "http://127.0.0.1:9 was not reached: connection refused; `memrelay doctor` says more."
    if form:
        assert json.loads(err) == {"error": told, "code": "unreachable", "request_id": None}
    else:
        assert err == f"memrelay: {told}\n"


def test_nobody_has_that_name(profile, capsys):
    assert main(["list", "--profile", profile], {"MEMRELAY_URL": "https://nobody.invalid"}) == 1
    assert "nobody.invalid was not reached: no address is known" in capsys.readouterr().err
