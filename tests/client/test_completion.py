"""What a shell completes: commands, actions, options and choices, as the parsers have them."""

import subprocess
import sys
from pathlib import Path

import pytest

from memrelay.cli import EXIT_OK, main
from memrelay.commands.catalogue import SUMMARIES
from memrelay.commands.completion import SHELLS, find_completions


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["reca"], ["recall"]),
        (["agents", "pro"], ["provision"]),
        (["keys", ""], ["list", "add", "admit", "revoke", "recovery", "recover"]),
        (["list", "--ki"], ["--kind"]),
        (["list", "--kind", "pr"], ["preference", "procedural"]),
        (["recall", "tea", "--mode", "key"], ["keyword", "keyword_first"]),
        (["agents", "provision", "coder", "--for", "her"], ["hermes"]),
        (["review", "a"], ["approve"]),
        (["review", "approve", "0"], []),
        (["import", "notes"], []),
        (["remember", "--source", ""], []),
        (["completion", "zs"], ["zsh"]),
        (["nonsense", "more"], []),
        (["agents", "nonsense", "--"], []),
    ],
)
def test_what_is_typed_is_completed(words: list[str], found: list[str]) -> None:
    assert find_completions(words) == found


def test_nothing_typed_is_any_command() -> None:
    assert find_completions([]) == find_completions([""]) == list(SUMMARIES)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_asks_this_program(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell], {}) == EXIT_OK
    assert "memrelay completion words -- " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("reca", ["recall"]),
        ("list --kind pref", ["preference"]),
        ("list --ki", ["--kind"]),
        ("recall --mode ''", ["hybrid", "keyword", "vector", "keyword_first"]),
    ],
)
def test_bash_completes(typed: str, found: list[str], tmp_path: Path) -> None:
    program = tmp_path / "memrelay"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m memrelay "$@"\n')
    program.chmod(0o755)
    asked = f"""
eval "$(memrelay completion bash)"
COMP_WORDS=(memrelay {typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_memrelay
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", asked],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.splitlines(), done.stderr) == (found, "")
