"""Particles of a question: what it is not asked by, though memories have them in their index."""

import pytest

from relayer.query.terms import GOAL_WEIGHT, PARTICLE_WEIGHT, query_terms
from relayer.words.tokens import words


@pytest.mark.parametrize(
    ("text", "asked", "particles"),
    [
        ("猫在哪里？", ["猫在", "里", "猫"], ["在哪", "哪里", "在", "哪"]),
        ("猫はどこですか", ["猫", "こで"], ["はど", "どこ", "です", "すか"]),
        ("집은 어디예요?", ["집은", "디예", "집", "디", "예"], ["어디", "예요", "은", "어", "요"]),
        ("मेरी बिल्ली का नाम क्या है?", ["बिल्ल", "नाम"], ["मेर", "क", "क्य", "है"]),
        ("ما هو اسم قطتي؟", ["اسم", "قطت"], ["ما", "هو"]),
        ("what is the cat called", ["cat", "call"], []),
        ("Kim kedimizi nerede buldu?", ["kedimizi", "buldu"], ["kim", "nered"]),
        ("jest config", ["jest", "config"], []),
    ],
)
def test_particles_stand_behind_what_a_question_is_asked_by(
    text: str, asked: list[str], particles: list[str]
) -> None:
    terms = query_terms(text)
    assert set(terms.words[: terms.query_words]) == set(asked)
    assert set(terms.words[terms.query_words :]) == set(particles)
    weights = {terms.words[t.ordinal]: t.weight for t in terms.terms if t.index == "w"}
    assert weights == dict.fromkeys(asked, 1.0) | dict.fromkeys(particles, PARTICLE_WEIGHT)
    assert set(particles) <= set(words(text)), "memories are indexed with them, as ever"


def test_of_particles_alone_all_are_asked_for() -> None:
    terms = query_terms("什么")
    assert terms.query_words == len(terms.words) == 3


def test_a_goal_adds_no_particles() -> None:
    terms = query_terms("茶", goal="我的猫")
    assert terms.words == ["茶", "的猫", "猫"]
    assert [t.weight for t in terms.terms if t.index == "w"] == [1.0, GOAL_WEIGHT, GOAL_WEIGHT]


def test_an_alias_stands_for_a_word_and_not_for_a_particle() -> None:
    terms = query_terms("我的猫叫什么", aliases={"我的猫": ["年糕"]})
    [ordinal] = {t.ordinal for t in terms.terms if t.text == "年糕"}
    assert ordinal < terms.query_words


def test_words_are_known_again_as_they_were_typed() -> None:
    terms = query_terms("Who are Zorvath's friends?")
    assert [terms.words[n] for n in terms.ordinals_of(["Zorvath", "unsaid"])] == ["zorvath"]
