"""Changes of an input: bytes, numbers, pieces, words of the format, pieces of another input.

Not here: which changes are kept (`loop.py`).
"""

import random
from collections.abc import Callable, Sequence

BYTES_MAX = 8 * 2**10
STEPS_MAX = 4
# Where readers of numbers, texts and lengths go wrong.
EDGES = (
    *(b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(b"0", b"-1", b"1e9", b"9" * 20, b"9007199254740993", b"NaN", b"null", b"true"),
    *(b'""', b"[]", b"{}", b"\\ud800", b"\\u0000", b"\r\n", b"\n", b" ", b"\t"),
    *(b'"', b"'", b",", b":", b"{", b"[", b"]", b"}", b"%", b"\\", b"."),
    *(text.encode() for text in ("ſ", "İ", "١", "東京", "e\u0301", "\u2028", "\u202e")),
)

Change = Callable[[random.Random, bytearray, Sequence[bytes], Sequence[bytes]], None]


def mutated(rnd: random.Random, corpus: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """An input made of one of the corpus, rather of a late one, by one to a few changes."""
    chosen = (
        corpus[rnd.randrange(len(corpus))] if rnd.random() < 0.5 else corpus[_late(rnd, corpus)]
    )
    data = bytearray(chosen)
    for _ in range(rnd.randint(1, STEPS_MAX)):
        rnd.choice(CHANGES)(rnd, data, words or EDGES, corpus)
    return bytes(data[:BYTES_MAX])


def _late(rnd: random.Random, corpus: Sequence[bytes]) -> int:
    return len(corpus) - 1 - min(int(rnd.expovariate(0.1)), len(corpus) - 1)


def _place(rnd: random.Random, data: bytearray) -> int:
    return rnd.randint(0, len(data))


def _flip(rnd: random.Random, data: bytearray, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    if data:
        data[rnd.randrange(len(data))] ^= 1 << rnd.randrange(8)


def _replace(rnd: random.Random, data: bytearray, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    if data:
        data[rnd.randrange(len(data))] = rnd.randrange(256)


def _cut(rnd: random.Random, data: bytearray, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    at = _place(rnd, data)
    del data[at : at + rnd.choice((1, 2, 4, 16, 64, len(data)))]


def _repeat(rnd: random.Random, data: bytearray, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    at = _place(rnd, data)
    piece = bytes(data[at : at + rnd.choice((1, 4, 16, 64))])
    data[at:at] = (piece * rnd.choice((1, 2, 8, 200)))[:BYTES_MAX]


def _edge(rnd: random.Random, data: bytearray, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    at = _place(rnd, data)
    data[at : at + rnd.choice((0, 0, 1, 4))] = rnd.choice(EDGES)


def _word(rnd: random.Random, data: bytearray, words: Sequence[bytes], _: Sequence[bytes]) -> None:
    at = _place(rnd, data)
    data[at : at + rnd.choice((0, 0, 1, 8))] = rnd.choice(words)


def _splice(
    rnd: random.Random, data: bytearray, _: Sequence[bytes], corpus: Sequence[bytes]
) -> None:
    other = rnd.choice(corpus)
    begin = rnd.randint(0, len(other))
    at = _place(rnd, data)
    data[at : at + rnd.choice((0, 8, len(data)))] = other[begin : begin + rnd.choice((8, 64, 4096))]


def _number(rnd: random.Random, data: bytearray, _: Sequence[bytes], __: Sequence[bytes]) -> None:
    """Another number in place of one that is written in digits."""
    places = [i for i, byte in enumerate(data) if 48 <= byte < 58]
    if places:
        at = end = rnd.choice(places)
        while end < len(data) and 48 <= data[end] < 58:
            end += 1
        value = rnd.choice((0, 1, 12, 31, 255, 256, 65_536, 2**32, 2**53, 2**63, 10**18))
        data[at:end] = str(value + rnd.choice((-1, 0, 0, 1))).encode()


CHANGES: Sequence[Change] = (_flip, _replace, _cut, _repeat, _edge, _word, _word, _splice, _number)
