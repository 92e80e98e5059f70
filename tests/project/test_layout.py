"""Where tests keep what several of them use."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_no_test_is_imported_by_another() -> None:
    """What several use stands in a module that is no test: who changes a test changes no other."""
    found = [
        f"{path.relative_to(TESTS)} imports {node.module}"
        for path in sorted(TESTS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.")
        if "test_" in (node.module or "").rpartition(".")[2][:5]
    ]
    assert found == []
