"""Long texts of several kinds, as a model without blanks or sentences meets them."""

import numpy as np

from tests.sentences import sentences


def prose(bytes_min: int) -> str:
    text = "\n".join(sentences())
    return (text + "\n") * (bytes_min // len(text.encode()) + 1)


def letters(alphabet: str, count: int) -> str:
    """Return text that repeats nowhere, so that a passage has one place only."""
    picks = np.random.default_rng(11).integers(0, len(alphabet), count)
    return "".join(alphabet[at] for at in picks)


LONG = {
    "prose": prose(25_000),
    "unbroken": letters("abcdefgh0123456789", 25_000),
    "han": letters("我们明天坐火车去海边他说好的。，", 12_000),
    "kana": letters("ねこはまどのそばでていますカタナ", 12_000),
    "thai": letters("กขคงจฉชซญดตถ", 12_000),
    "accents": "".join(letter + "\u0301" for letter in letters("aeioun", 8_000)),
    "punctuation": letters("?!,;:-", 12_000),
    "digits": letters("0123456789", 12_000),
    "lines": letters("ab\n", 12_000),
}
