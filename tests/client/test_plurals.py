"""Counts as people say them."""

import pytest

from memrelay.plurals import format_count


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (1, "memory", "1 memory"),
        (0, "memory", "0 memories"),
        (2, "memory", "2 memories"),
        (1, "captured turn", "1 captured turn"),
        (21, "captured turn", "21 captured turns"),
        (0, "page", "0 pages"),
        (2, "entry", "2 entries"),
    ],
)
def test_one_is_not_many(number: int, noun: str, said: str) -> None:
    assert format_count(number, noun) == said
