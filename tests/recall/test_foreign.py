"""Queries in other languages in Latin letters, told by their words."""

import pytest

from relayer.embedding.embedders import Embedder
from relayer.words.foreign import is_foreign
from tests.sets import lines


@pytest.mark.parametrize(
    ("text", "spelt", "foreign"),
    [
        ("Kuantum bilgisayarı nasıl çalışır?", ["Kuantum", "bilgisayarı", "çalışır"], True),
        ("Jak powstaje wulkan?", ["Jak", "powstaje", "wulkan"], True),
        ("Où papa passe-t-il son temps ?", ["passe"], True),
        ("Where did Zoë meet Søren Åkesson?", ["Zoë", "Søren", "Åkesson"], False),
        ("Zoë Åkesson", ["Zoë", "Åkesson"], False),
        ("kubectl nginx ingress", ["kubectl", "nginx", "ingress"], False),
        ("jest config", ["config"], False),
        ("DE44500105175407324931", ["DE44500105175407324931"], False),
        ("Las Vegas hotel", [], False),
        ("", ["x"], False),
    ],
)
def test_function_words_and_letters_tell_it(text: str, spelt: list[str], foreign: bool) -> None:
    assert is_foreign(text, spelt) is foreign


def test_no_english_question_is_foreign_and_nine_in_ten_others_are(embedder: Embedder) -> None:
    def count(name: str, file: str = "queries") -> int:
        texts = [q["text"] for q in lines(name, file) if q["namespace"] != "russian"]
        return sum(is_foreign(text, embedder.coverage(text).spelt) for text in texts)

    assert [count(name) for name in ("long", "short", "identifiers")] == [0, 0, 0]
    assert count("languages") + count("languages", "unrelated_queries") >= 0.9 * 170
