"""Writes `client/CAPABILITIES.md` from the tests' docstrings; with `--check` it only tells.

    python -m tests.generate_capabilities [--check]

A test says which capability it shows in a line of its docstring, `capability 0.17: a sentence.`
Nothing is imported to find these lines. It does not own the sentences (the tests do).

- A row that must be shown and is not, a number that does not exist, a line that is spelt otherwise
  and a fourth line in one test are faults.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILE = "client/CAPABILITIES.md"
LINES_MAX = 3  # a test that shows more than this shows none of it well

# The systems that memrelay takes its capabilities from, and how many each of them has.
SYSTEMS = (
    ("MemWal", 45),
    ("memory-core-plus", 27),
    ("memsearch", 27),
    ("MemoryClaw", 25),
    ("OpenClaw memory-core", 27),
)
KNOWN = frozenset(
    f"{system}.{row}" for system, (_, rows) in enumerate(SYSTEMS) for row in range(1, rows + 1)
)
# What the client does, alone or with the relayer, is to be shown with the client.
CLIENT_TESTS = ("tests/client/", "tests/hermes/", "tests/openclaw/")
REQUIRED_OF_CLIENT = """
    0.1 0.2 0.3 0.6 0.7 0.8 0.9 0.11 0.12 0.13 0.14 0.15 0.16 0.17 0.18 0.19 0.20 0.21 0.22 0.23
    0.24 0.25 0.26 0.27 0.28 0.29 0.31 0.32 0.35 0.36 0.37 0.38 0.39 0.40 0.41 0.42 0.43 0.44 0.45
    1.3 1.4 1.5 1.7 1.8 1.9 1.10 1.12 1.13 1.14 1.15 1.16 1.17 1.18 1.19 1.20 1.23 1.24 1.25 1.26
    2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 2.9 2.10 2.11 2.12 2.13 2.14 2.15 2.17 2.23 2.24 2.25 2.26
    3.3 3.7 3.14 3.15 3.21
    4.7 4.10 4.11
""".split()
REQUIRED = """
    0.4 0.5 0.10 0.30 0.33 0.34 1.11 1.21 2.16 2.19 2.20 2.21 2.27 3.1 3.4 3.5 3.8 3.9 3.10 3.11
    3.12 3.13 3.16 3.17 3.18 3.19 3.20 3.24 4.6 4.15 4.16 4.17 4.18 4.20 4.23 4.24 4.25 4.26
""".split()

_LINE = re.compile(r"capability (\d+\.\d+): (\S.*\.)")
_MEANT = re.compile(r"capabilit(?:y|ies) +\d", re.IGNORECASE)
_HEAD = """\
# What memrelay does

Five memory systems for agents were taken apart, and what each of them can do was numbered. This is
what memrelay does of it; each line names a test that fails when that behaviour is switched off.
Written by `make capabilities` from the tests' docstrings.
"""


@dataclass(frozen=True)
class Shown:
    """That a test shows a capability."""

    number: str
    sentence: str
    test: str

    @property
    def order(self) -> tuple[int, ...]:
        """What rows are sorted by."""
        return tuple(map(int, self.number.split(".")))


def read(root: Path) -> tuple[list[Shown], list[str]]:
    """What the tests below a folder show, by number, and the lines that cannot be taken."""
    shown: list[Shown] = []
    faults: list[str] = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        file = path.relative_to(root).as_posix()
        for name, docstring in _tests(ast.parse(path.read_text(encoding="utf-8"))):
            test = f"{file}::{name}"
            lines = [line for line in map(str.strip, docstring.splitlines()) if _MEANT.search(line)]
            if len(lines) > LINES_MAX:
                faults.append(f"{test}: more than {LINES_MAX} capabilities")
            for line in lines:
                match = _LINE.fullmatch(line)
                if match is None:
                    faults.append(f"{test}: write `capability N.M: a sentence.`, on a line alone")
                elif match[1] not in KNOWN:
                    faults.append(f"{test}: there is no capability {match[1]}")
                else:
                    shown.append(Shown(match[1], match[2], test))
    return sorted(shown, key=lambda one: one.order), faults


def _tests(node: ast.AST, above: str = "") -> Iterator[tuple[str, str]]:
    """The tests of a module or class, by their names as pytest spells them, with docstrings."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _tests(child, f"{above}{child.name}::")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and (
            child.name.startswith("test")
        ):
            yield above + child.name, ast.get_docstring(child) or ""


def missing(shown: list[Shown]) -> list[str]:
    """The rows that must be shown and are not, in words."""
    everywhere = {one.number for one in shown}
    by_client = {one.number for one in shown if one.test.startswith(CLIENT_TESTS)}
    return [
        *(f"no test shows {number}" for number in REQUIRED if number not in everywhere),
        *(
            f"no test of the client shows {number}"
            for number in REQUIRED_OF_CLIENT
            if number not in by_client
        ),
    ]


def page(shown: list[Shown]) -> str:
    """The text of the file."""
    parts = [_HEAD]
    for system, (name, _) in enumerate(SYSTEMS):
        rows = [
            f"| {one.number} | {one.sentence.replace('|', chr(92) + '|')} | `{one.test}` |\n"
            for one in shown
            if one.order[0] == system
        ]
        parts.append(f"\n## {system}. {name}\n| | what holds | shown by |\n|---|---|---|\n")
        parts += rows
    return "".join(parts)


def main(arguments: list[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.generate_capabilities")
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(arguments).check
    shown, faults = read(root)
    faults += missing(shown)
    file, wanted = root / FILE, page(shown)
    if not file.exists() or file.read_text(encoding="utf-8") != wanted:
        if check:
            faults.append(f"{FILE} differs: make capabilities")
        else:
            file.write_text(wanted, encoding="utf-8")
    sys.stdout.writelines(f"{fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
