"""Arguments, exit codes and files of the command `memrelay`."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from memrelay import __version__
from memrelay.cli import EXIT_FAILED, EXIT_USAGE, build_parser, main
from memrelay.commands.lines import ProgressLine, read_drafts
from memrelay.commands.shell import text_of
from memrelay.config import read_profile, write_private
from memrelay.errors import ConfigError
from memrelay.models import Draft

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
    ["forget"],
    ["status"],
    ["namespaces"],
    ["receipts"],
    ["trust"],
    ["import"],
    ["export"],
    ["doctor"],
    ["gateway"],
    ["openclaw", "install"],
    ["openclaw", "uninstall"],
    ["keys", "list"],
    ["keys", "add"],
    ["keys", "revoke"],
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


def test_exit_codes_are_documented():
    shown = build_parser().format_help()
    assert "exit codes" in shown
    assert all(f"\n  {code}  " in shown for code in range(4))


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
        ["agents", "provision"],
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
        ["remember", "x", "--jsonl", "-", "--profile", "PROFILE"],
        ["remember", "--jsonl", "/nonexistent.jsonl", "--profile", "PROFILE"],
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


def test_text_comes_from_arguments_or_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe\n"))
    assert text_of(["some", "words"]) == "some words"
    assert text_of([]) == "from a pipe"
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe"))
    assert text_of(["-"]) == "from a pipe"
    monkeypatch.setattr(sys, "stdin", io.StringIO(" \n"))
    with pytest.raises(ConfigError):
        text_of([])


def test_lines_become_drafts_with_one_warning():
    warnings = []
    lines = [
        '{"text": "a", "id": 7, "lang": "en"}\n',
        "\n",
        '{"text": "b", "namespace": "team", "tags": ["x"], "metadata": {"k": "v"}, "id": 8}\n',
        '{"text": "c", "event_time": "2026-05-04T00:00:00Z", "kind": "event", "source": null}',
    ]
    assert read_drafts(lines, warnings.append) == [
        Draft(text="a"),
        Draft(text="b", namespace="team", tags=("x",), metadata={"k": "v"}),
        Draft(text="c", event_time="2026-05-04T00:00:00Z", kind="event"),
    ]
    assert warnings == ["Unknown fields were left out: id, lang."]


@pytest.mark.parametrize(
    "line",
    [
        "text",
        "[]",
        '"text"',
        "{}",
        '{"text": 5}',
        '{"text": null}',
        '{"text": "a", "tags": "b"}',
        '{"text": "a", "tags": [1]}',
        '{"text": "a", "metadata": []}',
        '{"text": "a", "kind": 1}',
        '{"text": "a", "event_time": 5}',
    ],
)
def test_a_wrong_line_is_named_without_its_text(line):
    with pytest.raises(ConfigError, match=r"^Line 2") as caught:
        read_drafts(['{"text": "fine"}', line], warn=pytest.fail)
    assert "fine" not in str(caught.value)


def test_a_file_with_a_wrong_line_sends_nothing(profile, tmp_path, capsys):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"text": "a"}\nwrong\n')
    assert main(["remember", "--jsonl", str(path), "--profile", profile], {}) == EXIT_USAGE
    assert capsys.readouterr().err == "memrelay: Line 2 is not JSON.\n"


def test_progress_is_told_at_most_once_a_second_and_at_the_end():
    stream, now = io.StringIO(), [0.0]
    progress = ProgressLine(stream, monotonic=lambda: now[0])
    for done, when in ((20, 0.5), (40, 0.9), (60, 1.6), (80, 2.0), (100, 2.0)):
        now[0] = when
        progress(done, 100)
    assert stream.getvalue().splitlines() == [
        "20 of 100 stored, 40 a second",
        "60 of 100 stored, 38 a second",
        "100 of 100 stored, 50 a second",
    ]


def test_the_module_runs_like_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "memrelay", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"memrelay {__version__}\n"


def test_nobody_there_is_exit_code_1(profile, capsys, monkeypatch):
    monkeypatch.setattr("memrelay.exchange.ATTEMPTS_MAX", 1)
    assert main(["list", "--profile", profile, "--json"], {}) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "memrelay: The relayer was not reached.\n"
