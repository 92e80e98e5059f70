"""Queries that several memories answer."""

import pytest

from relayer.query.several import asks_for_several


@pytest.mark.parametrize(
    "text",
    [
        "Which film have Anna and Ben both seen?",
        "How many times did we move?",
        "List my allergies.",
        "What types of bread does Mia bake?",
        "Which books have I read?",
        "Where has Mia sung?",
        "And in which countries has Ben been?",
        "Wie viele Katzen hat Mia?",
        "Quels livres ai-je lus ?",
        "¿Cuáles son mis alergias?",
        "Сколько раз мы переезжали?",
        "我去过哪些城市？",
        "アレルギーをすべて教えて",
        "우리가 간 도시 모두",
    ],
)
def test_words_that_ask_for_several(text: str) -> None:
    assert asks_for_several(text)


@pytest.mark.parametrize(
    "text",
    [
        "What did Mia bake yesterday?",
        "Where do I live?",
        "Is it all right to call Ben?",
        "What is the name of the dog?",
        "Tell me about the dentist, and then tell me what it is that they have said",
        "Wo wohne ich?",
        "我住在哪里？",
        "",
        "x " * 300 + "both",
    ],
)
def test_words_that_ask_for_one(text: str) -> None:
    assert not asks_for_several(text)
