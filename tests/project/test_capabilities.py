"""The list of capabilities: up to date, complete, and made only of lines that can be taken."""

from pathlib import Path

import pytest

from tests import generate_capabilities as capabilities

TEST = """
class TestHooks:
    async def test_hook(self) -> None:
        '''{docstring}'''
"""


def project(tmp_path: Path, *lines: str) -> Path:
    """A project with one test, in whose docstring these lines are."""
    path = tmp_path / "tests" / "client" / "test_hooks.py"
    path.parent.mkdir(parents=True)
    (tmp_path / "client").mkdir()
    path.write_text(TEST.format(docstring="\n        ".join(lines)))
    return tmp_path


def test_the_list_is_complete_and_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert capabilities.main(["--check"]) == 0, capsys.readouterr().out


def test_required_rows_exist_once() -> None:
    required = capabilities.REQUIRED + capabilities.REQUIRED_OF_CLIENT
    assert set(required) <= capabilities.KNOWN
    assert len(set(required)) == len(required) == 87 + 38


def test_lines_name_their_test_and_are_sorted_by_number(tmp_path: Path) -> None:
    root = project(
        tmp_path, "Hooks.", "", "capability 0.17: it is quiet.", "capability 0.2: it is."
    )
    shown, faults = capabilities.read(root)
    test = "tests/client/test_hooks.py::TestHooks::test_hook"
    assert faults == []
    assert shown == [
        capabilities.Shown("0.2", "it is.", test),
        capabilities.Shown("0.17", "it is quiet.", test),
    ]
    assert capabilities.page(shown).count(f"| 0.17 | it is quiet. | `{test}` |\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        "Capability 0.17: it is quiet.",
        "capability 0.17",
        "capability 0.17: it is quiet",
        "capability 0.17, 0.18: it is quiet.",
        "capabilities 0.17 and 0.18: it is quiet.",
        "This shows capability 0.17: it is quiet.",
        "capability 0.17:it is quiet.",
        "capability 0.46: there are 45.",
        "capability 5.1: there are five systems, from 0.",
        "capability 0.07: a number in another form.",
        "capability 0.0: there is no row 0.",
    ],
)
def test_another_spelling_or_number_is_a_fault(tmp_path: Path, line: str) -> None:
    shown, faults = capabilities.read(project(tmp_path, line))
    assert (shown, len(faults)) == ([], 1)
    assert faults[0].startswith("tests/client/test_hooks.py::TestHooks::test_hook: ")


def test_three_rows_are_enough_for_a_test(tmp_path: Path) -> None:
    lines = [f"capability 0.{row}: it holds." for row in (1, 2, 3, 4)]
    assert capabilities.read(project(tmp_path / "three", *lines[:3]))[1] == []
    [fault] = capabilities.read(project(tmp_path / "four", *lines))[1]
    assert "more than 3" in fault


@pytest.mark.parametrize(
    ("file", "unseen"),
    [("tests/client/test_x.py", set()), ("tests/test_x.py", {"no test of the client shows 0.17"})],
)
def test_a_required_row_without_a_test_is_told(file: str, unseen: set[str]) -> None:
    numbers = capabilities.REQUIRED + capabilities.REQUIRED_OF_CLIENT
    every = [
        capabilities.Shown(number, "it holds.", "tests/client/test_a.py::a") for number in numbers
    ]
    others = [one for one in every if one.number not in {"0.17", "4.26"}]
    shown = [*others, capabilities.Shown("0.17", "it is quiet.", f"{file}::test")]
    assert capabilities.missing(every) == []
    assert set(capabilities.missing(shown)) == {"no test shows 4.26"} | unseen


def test_check_writes_nothing_and_tells_of_a_changed_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, "capability 0.17: it is quiet.")
    file = root / capabilities.FILE
    assert capabilities.main(["--check"], root) == 1
    assert "differs" in capsys.readouterr().out
    assert not file.exists()
    assert capabilities.main([], root) == 1  # written, but rows are missing
    assert "it is quiet." in file.read_text()
    assert capabilities.main(["--check"], root) == 1
    assert "differs" not in capsys.readouterr().out
    file.write_text(file.read_text().replace("quiet", "loud"))
    assert capabilities.main(["--check"], root) == 1
    assert "differs" in capsys.readouterr().out
