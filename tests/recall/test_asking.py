"""A memory that only asks stands behind those that state something."""

import pytest

from relayer.query.asking import is_about_questions, only_asks
from relayer.query.fusion import Weights as LegWeights
from tests.recalling import found
from tests.services import Bench


@pytest.mark.parametrize(
    "text",
    [
        "What is your dog called?",
        "[8 May 2023] Anna: Lovely! How old is the dog?",
        "User: How does a heat pump work? And what does it cost?",
        "Wie heißt dein Hund?",
        "你的狗叫什么名字？",
        "??",
        "كم عمر كلبك؟",
    ],
)
def test_a_question_alone_only_asks(text: str) -> None:
    assert only_asks(text)


@pytest.mark.parametrize(
    "text",
    [
        "The dog is called Rex.",
        "The dog is called Rex, and he is four. What is yours called?",
        "Can you find a vet near my flat in Lyon?",
        "Kannst du meinen Hund nehmen?",
        "我的狗生病了，怎么办？",
        "What about the dog? " + "He is the one from the shelter. " * 8,
        "Why " + "so " * 100 + "?",
        "User: ",
        "",
    ],
)
def test_what_states_something_does_not(text: str) -> None:
    assert not only_asks(text)


def test_a_query_may_look_for_questions() -> None:
    for query in ("What did Anna ask about the dog?", "Was hat sie gefragt?", "她问了什么？"):
        assert is_about_questions(query)
    for query in ("What is the dog called?", "Which task is next?", ""):
        assert not is_about_questions(query)


async def test_it_stands_behind_what_has_a_little_less(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    question, statement = "Does tea help?", "A tea with honey helps when somebody has a cold."
    other = "Anna sells cups, plates and all kinds of bowls for tea on the market."
    await bench.remember(caller, statement, question, other)
    assert await bench.texts(caller, "tea help") == [statement, question, other]
    hits = {f.memory.text: f.hit.score for f in await found(bench, caller, "tea help")}
    assert hits[question] > hits[statement] > hits[question] - 0.3 > hits[other]
    assert (await bench.texts(caller, "tea help", limit=1)) == [statement]


async def test_it_keeps_its_place_where_questions_are_meant(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    question, statement = "Does tea help?", "A tea with honey helps when somebody has a cold."
    await bench.remember(caller, statement, question)
    for query, options in (
        ("question: does tea help", {}),
        ("tea help", {"mode": "keyword_first", "min_primary_results": 0}),
        ("tea help", {"leg_weights": LegWeights(meaning=0.0, words=1.0)}),
    ):
        assert (await bench.texts(caller, query, **options))[0] == question
