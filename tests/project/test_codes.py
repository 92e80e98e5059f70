"""The codes of errors that stand in SPEC §20 are those that the relayer answers with."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from relayer import errors
from relayer.http import connections, middleware

RELAYER = Path(errors.__file__).parent
SPEC = RELAYER.parent / "SPEC.md"
CODE = re.compile(r"`([a-z_]+(?:\.[a-z_]+)?)`")
# What only commands say, and a start.
COMMANDS = ("upkeep", "run_file.py", "embedding/model.py", "embedding/passages.py")


def given_by_name() -> Iterator[str]:
    """Each `code="…"` of a call."""
    for path in RELAYER.rglob("*.py"):
        if str(path.relative_to(RELAYER)).startswith(COMMANDS):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                values = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
                yield from (str(v.value) for v in values if isinstance(v, ast.Constant))


def test_every_code_is_told_and_no_other() -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type)]
    answered = {c.code for c in classes if issubclass(c, errors.RelayerError)}
    answered |= {*given_by_name(), *middleware._CODES.values(), "request.refused"}
    answered |= {connections._TOO_LARGE[2], connections._FULL[2]}
    table = SPEC.read_text().partition("\n## 20. ")[2]
    rows = [row.split("|")[2] for row in table.splitlines() if row.startswith("| ")]
    told = [code for row in rows for code in CODE.findall(row)]
    assert sorted(told) == sorted(answered)
