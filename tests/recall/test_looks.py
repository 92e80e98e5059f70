"""Further looks: what is taken of a model's plan, and the places of what they find."""

import pytest

from relayer.query.looks import (
    LOOK_CHARACTERS_MAX,
    LOOKS_MAX,
    choose_looks,
    merge_looks,
    read_plan,
)

QUESTION = "Which pets does Anna have?"


def merged(own: str, *looks: str) -> list[str]:
    """The finds in order, each a letter behind the number of its look."""
    return [f"{number}{one}" for number, one in merge_looks(own, looks, key=str)]


@pytest.mark.parametrize(
    "value",
    [None, "a dog", ["a dog"], {}, {"looks": "a dog"}, {"looks": [1]}, {"looks": [["a dog"]]}],
    ids=str,
)
def test_what_is_no_plan_is_none(value: object) -> None:
    assert read_plan(value) is None


def test_a_plan_is_its_texts() -> None:
    assert read_plan({"looks": ["a dog", "a cat"], "namespace": "other"}) == ["a dog", "a cat"]
    assert read_plan({"looks": []}) == []


def test_neither_the_question_nor_a_repetition_is_a_look() -> None:
    planned = ["a dog", "A  Dog.", "", " \n", "which pets does anna have", "a cat"]
    assert choose_looks(planned, QUESTION) == ["a dog", "a cat"]


def test_no_more_looks_than_four_and_none_that_is_long() -> None:
    long, short = "a" * (LOOK_CHARACTERS_MAX + 1), "b" * LOOK_CHARACTERS_MAX
    planned = [long, short, *(f"pet {n}" for n in range(9))]
    assert choose_looks(planned, QUESTION) == [short, "pet 0", "pet 1", "pet 2"]
    assert len(choose_looks(planned, QUESTION)) == LOOKS_MAX


def test_the_end_of_an_endless_plan_is_not_read() -> None:
    assert choose_looks(["a dog"] * 1_000 + ["a cat"], QUESTION) == ["a dog"]


def test_a_look_is_a_line_that_can_be_encoded() -> None:
    [look] = choose_looks(["a\x00 dog\nnamed\ud800 Rex\x1b"], QUESTION)
    assert look.encode() == b"a dog named Rex"


def test_every_other_place_is_the_querys_own() -> None:
    assert merged("abcd", "vw", "xyz") == ["0a", "1v", "0b", "2x", "0c", "1w", "0d", "2y", "2z"]


def test_what_several_find_has_one_place() -> None:
    assert merged("abc", "abd", "da") == ["0a", "2d", "0b", "0c"]


def test_without_its_own_or_without_looks_the_places_are_the_others() -> None:
    assert merged("", "ab", "c") == ["1a", "2c", "1b"]
    assert merged("abc") == ["0a", "0b", "0c"]
    assert merged("abc", "", "") == ["0a", "0b", "0c"]
