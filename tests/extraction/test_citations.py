"""Citations of notes in a model's answer, and answers without any."""

import pytest

from relayer.extraction.citations import find_citations

NOTES = (
    "Anna prefers tea.",
    "Bob lives in Lyon.",
    "The staging server moved to Frankfurt on 3 May 2026.",
)


@pytest.mark.parametrize(
    ("answer", "cited"),
    [
        ("Tea [1].", (0,)),
        ("Bob does [2, 3], and Anna does not [1].", (1, 2, 0)),
        ("All of them [1-3].", (0, 1, 2)),
        ("\u8336\u3067\u3059\u30102\u3011", (1,)),
        ("Yes [note 1], see [Notes 2; 3].", (0, 1, 2)),
        ("Tea [1] [9] [1-999].", (0, 1, 2)),
    ],
)
def test_numbers_of_notes_are_citations(answer: str, cited: tuple[int, ...]) -> None:
    assert find_citations(answer, "Who?", NOTES) == cited


@pytest.mark.parametrize(
    "answer",
    [
        "NOT IN MEMORY",
        "**Not in memory.**",
        "NOT IN MEMORY: the notes name Lyon [2] only.",
        "The memories do not contain the answer.",
        "Nobody knows [4].",
        "Nobody knows [0].",
        "It is [1](https://example.com).",
        "",
    ],
)
def test_what_rests_on_no_note_cites_none(answer: str) -> None:
    assert find_citations(answer, "Where does Carl live?", NOTES) == ()


@pytest.mark.parametrize(
    ("question", "answer", "cited"),
    [
        ("Where does Bob live?", "Bob lives in Lyon.", (1,)),
        ("Where is staging?", "It moved to Frankfurt on 3 May 2026.", (2,)),
        ("Where is staging?", "It moved to Frankfurt on 4 May 2026.", ()),
        ("Where does Carl live?", "Carl lives in Lyon.", ()),
        ("Where does Bob live?", "It is not said where Bob lives.", ()),
    ],
)
def test_without_citations_the_notes_have_to_bear_an_answer_out(
    question: str, answer: str, cited: tuple[int, ...]
) -> None:
    assert find_citations(answer, question, NOTES) == cited
