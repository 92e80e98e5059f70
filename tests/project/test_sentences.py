"""The pages are written in short sentences, and the measure of that reads pages rightly.

Not here: whether what the pages tell to type can be typed (`test_pages.py`).
"""

import pytest

from tests.project import sentences

PLAIN = {
    "BENCHMARKS.md": (20.0, 0.03),
    "CHANGELOG.md": (20.0, 0.03),
    "COMPARISON.md": (17.0, 0.0),
    "CONTRIBUTING.md": (20.0, 0.03),
    "DECISIONS.md": (20.0, 0.03),
    "README.md": (17.0, 0.0),
    "SECURITY.md": (20.0, 0.03),
    "SPEC.md": (20.0, 0.03),
    "client/README.md": (17.0, 0.0),
    "client/docs/agents.md": (17.0, 0.0),
    "client/docs/coding-agents.md": (17.0, 0.0),
    "client/docs/console.md": (17.0, 0.0),
    "client/docs/hermes.md": (17.0, 0.0),
    "client/docs/import-export.md": (17.0, 0.0),
    "client/docs/mcp.md": (17.0, 0.0),
    "client/docs/openai.md": (17.0, 0.0),
    "client/docs/openclaw.md": (17.0, 0.0),
    "client/docs/sync.md": (17.0, 0.0),
    "client/docs/teams.md": (17.0, 0.0),
    "client/docs/troubleshooting.md": (17.0, 0.0),
    "client/openclaw/skills/memrelay/SKILL.md": (17.0, 0.0),
    "deploy/README.md": (17.0, 0.0),
    "deploy/backup.md": (17.0, 0.0),
    "deploy/citus.md": (17.0, 0.0),
    "deploy/monitoring/README.md": (17.0, 0.0),
    "deploy/upgrade.md": (17.0, 0.0),
}
"""The greatest average, and the greatest share of sentences of more than 35 words, of each page."""


@pytest.mark.parametrize("page", PLAIN)
def test_a_page_is_written_in_short_sentences(page: str) -> None:
    prose = sentences.measure((sentences.ROOT / page).read_text())
    average, share = PLAIN[page]
    assert len(prose.sentences) >= 10
    assert prose.average <= average
    assert len(prose.long) <= share * len(prose.sentences), prose.long
    assert prose.inverted == []


def test_prose_is_paragraphs_quotations_and_items() -> None:
    page = """# A heading of several words
A first
sentence. And a second one!

- An item is prose.
  - So is one inside it.

1. A numbered item, too

> A quotation is prose.

| a table | is no prose |
|---|---|
| its rows | are none |

    code that is indented is none

```
code in a fence is none
```
<p>Nor is a line of HTML.</p>
"""
    assert sentences.measure(page).sentences == (
        "A first sentence.",
        "And a second one!",
        "An item is prose.",
        "So is one inside it.",
        "A numbered item, too",
        "A quotation is prose.",
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("It keeps 0.3 of them. They stay.", ["It keeps 0.3 of them."]),
        (
            "Take one, e.g. Alpine or St. Gallen here.",
            ["Take one, e.g. Alpine or St. Gallen here."],
        ),
        ("It ends (as said.) Then it begins.", ["It ends (as said.)", "Then it begins."]),
        (
            "Was it there? “Yes it was.” So he said.",
            ["Was it there?", "“Yes it was.”", "So he said."],
        ),
        ("One goes here. `make test` comes next.", ["One goes here.", "`make test` comes next."]),
        ("It reads a.b.c and x.y. then goes on.", ["It reads a.b.c and x.y. then goes on."]),
        ("One; two: three, and four", ["One; two: three, and four"]),
        ("Äpfel are good. Über all of it.", ["Äpfel are good.", "Über all of it."]),
        ("Yes. No.", []),
    ],
)
def test_a_sentence_ends_where_another_begins(text: str, parts: list[str]) -> None:
    assert sentences.split(text) == parts


def test_no_sign_in_a_code_span_ends_a_sentence() -> None:
    assert sentences.measure("Type `relayer x. Now y` and wait.").sentences == (
        "Type `relayer x_ Now y` and wait.",
    )


def test_a_link_counts_by_its_words_and_a_picture_by_none() -> None:
    page = (
        "![A picture of it](a.svg) See [the long page](https://a.example/b) — or **not** / at all."
    )
    [sentence] = sentences.measure(page).sentences
    assert sentences.count_words(sentence) == 8


def test_averages_and_shares() -> None:
    exactly, longer = " ".join(["word"] * 35), " ".join(["word"] * 36)
    prose = sentences.measure(f"{exactly}.\n\n{longer}.\n\nOne two three.\n\nFour five six.")
    assert prose.lengths == [35, 36, 3, 3]
    assert prose.average == 77 / 4
    assert prose.long == [f"{longer}."]
    assert prose.long_share == 0.25
    empty = sentences.measure("# Nothing\n")
    assert (empty.average, empty.long_share) == (0.0, 0.0)


def test_inverted_sentences_are_found_and_questions_are_not() -> None:
    page = (
        "What it has is sealed. Who asks, waits. What is it for? It is what it is. Whatever. Whole."
    )
    assert sentences.measure(page).inverted == ["What it has is sealed.", "Who asks, waits."]


def test_first_lines_of_public_docstrings() -> None:
    source = '''"""Reads pages.

What follows does not count.
"""
class Page:
    """What a page is."""
    def read(self) -> None:
        """Whether it
        is read."""
    def _close(self) -> None:
        """What nobody sees."""
async def open() -> None:
    """Opens what is closed."""
'''
    lines = sentences.first_lines(source)
    assert sorted(lines) == [
        "Opens what is closed.",
        "Reads pages.",
        "What a page is.",
        "Whether it",
    ]
    assert [line for line in sorted(lines) if sentences.is_noun_clause(line)] == [
        "What a page is.",
        "Whether it",
    ]
    of_functions = sentences.first_lines_of_functions(source)
    assert sorted(of_functions) == ["Opens what is closed.", "Whether it"]


@pytest.mark.parametrize(
    "line", ["Whole texts.", "Whatsoever.", "Thatched.", "Howls.", "Reads what."]
)
def test_a_word_that_only_begins_like_one_is_no_clause(line: str) -> None:
    assert not sentences.is_noun_clause(line)


def test_a_determiner_is_found_at_the_beginning_of_a_line() -> None:
    lines = ["The page.", "A page.", "Every page.", "Add a page.", "Then read.", "Allow it."]
    assert [line for line in lines if sentences.begins_with_determiner(line)] == lines[:3]
