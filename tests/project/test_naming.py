"""Functions are named by verbs, and docstrings say what they do.

Not here: the pages' sentences (`test_sentences.py`).
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.project import naming, sentences

CLIENT = sentences.ROOT / "client/memrelay"
RELAYER = sentences.ROOT / "relayer"


def test_few_functions_of_the_client_are_named_by_a_participle() -> None:
    every = naming.functions(CLIENT)
    named = [function for function in every if naming.begins_with_participle(function.name)]
    assert len(every) > 1000
    assert len(named) <= 0.04 * len(every), named


def test_few_functions_of_the_relayer_are_named_by_a_participle() -> None:
    every = naming.functions(RELAYER)
    named = [function for function in every if naming.begins_with_participle(function.name)]
    assert len(every) > 2500
    assert len(named) <= 0.02 * len(every), named


def test_few_docstrings_of_the_client_begin_with_a_noun_clause() -> None:
    lines = _lines(CLIENT, sentences.first_lines)
    clauses = [line for line in lines if sentences.is_noun_clause(line)]
    assert len(lines) > 1000
    assert len(clauses) <= 0.02 * len(lines), clauses


def test_no_docstring_of_the_relayer_begins_with_a_noun_clause() -> None:
    lines = _lines(RELAYER, sentences.first_lines)
    assert len(lines) > 2000
    assert [line for line in lines if sentences.is_noun_clause(line)] == []


def test_docstrings_of_the_relayers_functions_begin_with_no_determiner() -> None:
    lines = _lines(RELAYER, sentences.first_lines_of_functions)
    assert len(lines) > 1500
    assert [line for line in lines if sentences.begins_with_determiner(line)] == []


@pytest.mark.parametrize(
    "name",
    [
        "known",
        "_told",
        "held_by",
        "signed_text",
        "listed",
        "loading",
        "unread",
        "rebuilt",
        "withheld",
    ],
)
def test_a_participle_is_found_at_the_beginning_of_a_name(name: str) -> None:
    assert naming.begins_with_participle(name)


@pytest.mark.parametrize(
    "name",
    [
        "embed",
        "feed",
        "is_known",
        "note_sent",
        "open_streams",
        "put",
        "read_named",
        "red",
        "ring",
        "string_of",
        "__exit__",
        "warning",
    ],
)
def test_a_verb_or_a_noun_is_no_participle(name: str) -> None:
    assert not naming.begins_with_participle(name)


def test_functions_inside_others_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "class A:\n    def told(self):\n        async def held(): ...\ndef send(): ...\n"
    )
    assert sorted((found.line, found.name) for found in naming.functions(tmp_path)) == [
        (2, "told"),
        (3, "held"),
        (4, "send"),
    ]


def _lines(package: Path, read: Callable[[str], list[str]]) -> list[str]:
    sources = [path.read_text() for path in sorted(package.rglob("*.py"))]
    return [line for source in sources for line in read(source)]
