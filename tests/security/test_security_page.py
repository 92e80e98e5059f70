"""SECURITY.md: every row of it is shown by tests, and these exist.

Not here: what the rows say.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.readable import COUNTED, READABLE

ROOT = Path(__file__).parents[2]
PAGE = "SECURITY.md"
TEST = re.compile(r"`(tests/[\w/]+\.py(?:::\w+)+)`")
HEAD = "| | | shown by |"
# Who may attack, by the word that the heading of a section has to have.
ATTACKERS = (
    "disk database relayer agent revoked account proxy provider machine archive".split()
)  # fmt: skip


def rows(page: str) -> Iterator[tuple[str, str]]:
    """(row, its last cell) of every table."""
    for line in page.splitlines():
        if line.startswith("|") and line != HEAD and not set(line) <= set("|-"):
            yield line, line.strip("|").split("|")[-1]


def unshown(page: str) -> list[str]:
    """Rows that name no test in their last cell."""
    return [row for row, cell in rows(page) if not TEST.search(cell)]


def existing(file: Path) -> set[str]:
    """`name` and `Class::name` of the tests in a file, which is not imported."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for one in members:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                found |= {f"{prefix}{one.name}"} if one.name.startswith("test") else set()
    return found


def missing(page: str, root: Path) -> list[str]:
    """Named tests that do not exist."""
    named = sorted(set(TEST.findall(page)))
    known = {
        file: existing(root / file) if (root / file).is_file() else set()
        for file in {test.partition("::")[0] for test in named}
    }
    return [t for t in named if t.partition("::")[2] not in known[t.partition("::")[0]]]


def test_every_row_is_shown_by_tests_that_exist() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert len(list(rows(page))) > 40
    assert unshown(page) == []
    assert missing(page, ROOT) == []


def test_every_attacker_has_a_section_with_what_they_do_not_get() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    sections = {s.partition("\n")[0]: s for s in page.split("### ")[1:]}
    for word in ATTACKERS:
        assert any(word in head and "| does not get |" in s for head, s in sections.items()), word


@pytest.mark.parametrize(
    ("cell", "faults"),
    [
        ("`tests/test_x.py::test_one`", (0, 0)),
        ("`tests/test_x.py::TestAll::test_two`, `tests/test_x.py::test_one`", (0, 0)),
        ("`tests/test_x.py::TestAll::test_one`", (0, 1)),
        ("`tests/test_x.py::TestAll`", (0, 1)),
        ("`tests/test_y.py::test_one`", (0, 1)),
        ("`tests/test_x.py::helper`", (0, 1)),
        ("tests/test_x.py::test_one", (1, 0)),
        ("tested", (1, 0)),
        ("", (1, 0)),
    ],
)
def test_a_row_without_its_test_is_seen(tmp_path: Path, cell: str, faults: tuple[int, int]) -> None:
    (tmp_path / "tests").mkdir()
    source = (
        "def helper(): ...\ndef test_one(): ...\nclass TestAll:\n    async def test_two(): ...\n"
    )
    (tmp_path / "tests/test_x.py").write_text(source)
    page = f"{HEAD}\n|---|---|---|\n| does not get | a thing | {cell} |\n"
    assert (len(unshown(page)), len(missing(page, tmp_path))) == faults


def test_whatever_is_readable_on_the_disk_is_named() -> None:
    """In the row of the thief, and in the specification's list of what is not protected."""
    told, _ = next(
        one for one in rows((ROOT / PAGE).read_text()) if "names of namespaces" in one[0]
    )
    section = (ROOT / "SPEC.md").read_text().partition("\n## 10. ")[2].partition("\n## ")[0]
    for page in (told, " ".join(section.split())):
        named = {*READABLE.values(), *COUNTED.values()}
        assert {words for words in named if words not in page} == set()


FIGURES = ("1 to 5 of the 100", "35 to 41, 47 to 53 or 62 to 69 %", "67 to 80 %", "85 %")


def test_what_a_stolen_index_tells_is_said_in_figures() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert [figure for figure in FIGURES if figure not in page] == []
    for name in ("README.md", "SPEC.md", PAGE):
        assert "without one readable" not in (ROOT / name).read_text(encoding="utf-8")
    assert "#what-a-stolen-index-tells-in-figures" in (ROOT / "README.md").read_text("utf-8")
