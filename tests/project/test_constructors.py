"""No part of the relayer is built of more than six others: what needs more is two parts."""

import ast
from collections.abc import Iterator
from pathlib import Path

import relayer

ARGUMENTS_MAX = 6


def constructors() -> Iterator[tuple[str, int]]:
    """(name, how many arguments) of each `__init__` in the relayer."""
    for path in sorted(Path(relayer.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for member in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                    taken = member.args
                    count = len(taken.posonlyargs) + len(taken.args) - 1 + len(taken.kwonlyargs)
                    assert isinstance(node, ast.ClassDef)
                    yield f"{path.name}: {node.name}", count


def test_no_constructor_has_more_than_six_arguments() -> None:
    found = dict(constructors())
    assert len(found) > 100
    assert {name: count for name, count in found.items() if count > ARGUMENTS_MAX} == {}
