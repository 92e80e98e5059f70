"""Opening many ciphertexts at once: numbers that do not fit are refused before anything is read.

Not here: the contents of what opens, and that one by one opens the same (`test_index_record.py`).
"""

import numpy as np
import pytest

from relayer.sealed.bulk_opening import OVERHEAD_BYTES, open_all
from relayer.sealed.primitives import KEY_BYTES, CryptoError

KEY = bytes(KEY_BYTES)
SEALED = bytes(3 * OVERHEAD_BYTES)
ASSOCIATED = np.zeros((2, 4), np.uint8)
BEGINS, SIZES = [0, OVERHEAD_BYTES], [OVERHEAD_BYTES, OVERHEAD_BYTES + 8]


def opened(
    key: bytes = KEY, begins: list[int] = BEGINS, sizes: list[int] = SIZES
) -> tuple[bytes, list[bool]]:
    plain, _, opens = open_all(key, SEALED, np.array(begins), np.array(sizes), ASSOCIATED)
    return bytes(plain), opens.tolist()


def test_zeros_are_in_the_place_of_what_does_not_open() -> None:
    assert opened() == (bytes(8), [False, False])


@pytest.mark.parametrize("key", [b"", KEY[1:], KEY + b"0"])
def test_a_key_of_another_length_is_refused(key: bytes) -> None:
    with pytest.raises(CryptoError):
        opened(key)


@pytest.mark.parametrize(
    ("begins", "sizes"),
    [([0], SIZES), (BEGINS, [OVERHEAD_BYTES]), ([0, 1, 2], [OVERHEAD_BYTES] * 3)],
)
def test_numbers_of_different_counts_are_refused(begins: list[int], sizes: list[int]) -> None:
    with pytest.raises(CryptoError):
        opened(begins=begins, sizes=sizes)


@pytest.mark.parametrize(
    ("begins", "sizes"),
    [
        (BEGINS, [OVERHEAD_BYTES, OVERHEAD_BYTES - 1]),
        (BEGINS, [OVERHEAD_BYTES, 0]),
        ([-1, 0], SIZES),
        (BEGINS, [OVERHEAD_BYTES, 2 * OVERHEAD_BYTES + 1]),
        ([0, len(SEALED)], SIZES),
    ],
)
def test_a_text_that_is_not_within_what_is_sealed_is_refused(
    begins: list[int], sizes: list[int]
) -> None:
    with pytest.raises(CryptoError):
        opened(begins=begins, sizes=sizes)
