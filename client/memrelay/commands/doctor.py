"""The command `doctor`: what is wrong, in plain words, and what to type.

It does not own the checks (`memrelay.doctor`) or exit codes (`cli.py`).
"""

from memrelay.commands.parsers import Adder
from memrelay.commands.shell import Shell
from memrelay.doctor import OK, PROBLEM, SKIPPED, WARNING, Case, Finding, examine
from memrelay.errors import MemrelayError

_MARKS = {OK: "ok", WARNING: "warning", PROBLEM: "PROBLEM", SKIPPED: "-"}


def register(add: Adder) -> None:
    """Add the command."""
    parser = add("doctor", doctor)
    parser.add_argument(
        "--probe", action="store_true", help="also store a memory, find it and forget it"
    )


def doctor(shell: Shell) -> None:
    """Say what is wrong, and what to type.

    The exit code is 1 if anything is.
    """
    args = shell.args
    case = Case(
        environ=shell.environ, profile=args.profile, agent=args.agent, namespace=args.namespace
    )
    findings = list(examine(case, probe=args.probe))
    problems = sum(finding.state == PROBLEM for finding in findings)
    shell.show(
        {"ok": not problems, "findings": [finding.to_json() for finding in findings]},
        [line for finding in findings for line in _lines(finding)],
    )
    if problems:
        raise MemrelayError(
            "One thing is wrong." if problems == 1 else f"{problems} things are wrong."
        )


def _lines(finding: Finding) -> list[str]:
    lines = [f"{_MARKS[finding.state]:8} {finding.check:11}  {finding.detail}"]
    return lines + ([f"{'':8} {'type:':>11}  {finding.command}"] if finding.command else [])
