"""Counts as people say them."""

import pytest

from memrelay.plurals import format_count, format_size


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (1, "memory", "1 memory"),
        (0, "memory", "0 memories"),
        (2, "memory", "2 memories"),
        (3, "new memory", "3 new memories"),
        (1, "captured turn", "1 captured turn"),
        (21, "captured turn", "21 captured turns"),
        (0, "page", "0 pages"),
        (2, "entry", "2 entries"),
    ],
)
def test_one_is_not_many(number: int, noun: str, said: str) -> None:
    assert format_count(number, noun) == said


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1304, "1.3 KiB"),
        (8190, "8.0 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (10 * 2**30, "10 GiB"),
        (2**60, "1048576 TiB"),
    ],
)
def test_sizes_are_short(number: int, said: str) -> None:
    assert format_size(number) == said
