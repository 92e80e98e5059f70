"""The words of texts and queries."""

import pytest

from relayer.words import indexed_words, stem, words


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Anna prefers tea.", ["anna", "prefer", "tea"]),
        ("TEA tea Tea", ["tea", "tea", "tea"]),
        ("Anna's tea, Ben’s cup", ["anna", "tea", "ben", "cup"]),
        ("the of and", ["the", "of", "and"]),
        ("what is in the tea", ["tea"]),
        ("OPS-4127", ["ops-4127", "op", "4127"]),
        ("anna.k@example.org", ["anna.k@example.org", "anna", "k", "exampl", "org"]),
        ("v2.14.1", ["v2.14.1", "v2", "14", "1"]),
        ("src/app/main.py", ["src/app/main.py", "src", "app", "main", "py"]),
        ("snake_case C++ x", ["snake_case", "snake", "case", "c", "x"]),
        ("Straße", ["strass"]),
        ("ﬁle ２０３１", ["file", "2031"]),
        ("cafe\u0301", ["café"]),
        ("пользователя моря", ["пользовател", "мор"]),
        ("火车站", ["火车", "车站"]),
        ("火", ["火"]),
        ("用iPhone拍照", ["用", "iphon", "拍照"]),
        ("版本2发布", ["版本", "2", "发布"]),
        ("x" * 64, ["x" * 64]),
        ("x" * 65, []),
        ("", []),
        ("!? …🙂", []),
        ("\u0000", []),
    ],
)
def test_terms(text: str, terms: list[str]) -> None:
    """capability 3.12: identifiers are keywords whole and in parts.
    capability 4.23: scripts without blanks are cut into words, too.
    """
    assert words(text) == terms


def test_a_memory_has_every_word_of_a_query_that_quotes_it() -> None:
    text = "猫は窓のそばで寝ています Anna's OPS-4127 火"
    runs = text.split()
    quotes = [*runs, *(runs[0][a:b] for b in range(1, 13) for a in range(b))]
    for quote in quotes:
        assert set(words(quote)) <= set(indexed_words(text)), quote
    assert indexed_words("plain words") == words("plain words")


def test_identifiers_and_numbers_have_no_stem() -> None:
    assert [stem(t) for t in ("v2", "4127s", "ops-4127", "running", "бегает")] == [
        "v2", "4127s", "ops-4127", "run", "бега",
    ]  # fmt: skip


def test_a_long_text_takes_linear_time() -> None:
    joined = "-".join(["a"] * 50_000)
    assert len(words(joined)) == 50_000
    assert len(indexed_words("猫" * 100_000)) == 199_999
