"""Words the result of a check, with the command to type.

It does not own the checks (`examination.py` lists them). No finding holds a private key, a memory
or a query; public keys are masked.
"""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from memrelay.answers import Answer

OK, WARNING, PROBLEM, SKIPPED = "ok", "warning", "problem", "not looked at"


class Verdict(NamedTuple):
    """The result of one check; `command` is the text to type about it, None for nothing."""

    state: str
    detail: str
    command: str | None = None


@dataclass(frozen=True, kw_only=True)
class Finding(Answer):
    """The verdict of a check, with the check's name."""

    check: str
    state: str
    detail: str
    command: str | None = None


def ok(detail: str) -> Verdict:
    """Return that nothing is to be done."""
    return Verdict(OK, detail)


def warning(detail: str, command: str | None = None) -> Verdict:
    """Return that it works, but not as it should, or not for long."""
    return Verdict(WARNING, detail, command)


def problem(detail: str, command: str) -> Verdict:
    """Return that it does not work."""
    return Verdict(PROBLEM, detail, command)


def skip(detail: str) -> Verdict:
    """Return that there was no ground for looking."""
    return Verdict(SKIPPED, detail)


def describe_repair(path: Path, otherwise: str) -> str:
    """Return what makes a file private that others may read, or mends another fault of it."""
    if not path.is_file():  # such as a folder: what mends files makes it no better
        return describe_move(path)
    shared = os.name == "posix" and path.stat().st_mode & 0o077
    return f"chmod 600 {shlex.quote(str(path))}" if shared else otherwise


def describe_move(path: Path) -> str:
    """Return what gets a file or a folder out of the way."""
    quoted = shlex.quote(str(path))
    return f"mv {quoted} {quoted}.old"
