"""One spelling for what is written in several, of digits, letters and marks.

Not here: accents of Latin and Greek letters (`languages`), several forms of one word (`forms`).

- A character becomes another one wherever it stands, or by the letters right beside it: what a text
  quotes of another has the same words in both.
- What people leave out or exchange is folded, where few words are told apart by it.
"""

import re
import unicodedata
from importlib import resources
from typing import Final

# Left out by most: points of Hebrew and Arabic, a stretched line, nuktas; what says how letters
# are joined, where a line may break, and how an emoji is drawn. First and last of each range.
_UNWRITTEN: Final = (
    "\u0591\u05bd \u05bf\u05bf \u05c1\u05c2 \u05c4\u05c5 \u05c7\u05c7 "
    "\u0610\u061a \u0640\u0640 \u064b\u065f \u0670\u0670 \u06d6\u06dc \u06df\u06e4 \u06e7\u06e8 "
    "\u06ea\u06ed \u093c\u093c \u09bc\u09bc \u0a3c\u0a3c \u0abc\u0abc \u0b3c\u0b3c \u0cbc\u0cbc "
    "\u00ad\u00ad \u200c\u200d \u2060\u2060 \ufe0e\ufe0f \ufeff\ufeff"
)
_LETTERS: Final = {
    # The same letters in Persian and Urdu, and on keyboards of both.
    **dict.fromkeys("\u06cc\u06d2\u06d0\u06cd", "\u064a"),
    **dict.fromkeys("\u06a9\u06aa", "\u0643"),
    **dict.fromkeys("\u06c1\u06be\u06d5\u06c0\u06c2", "\u0647"),
    **dict.fromkeys("\u06c3", "\u0629"),
    # A candra bindu is mostly written as a bindu.
    "\u0901": "\u0902",
    "\u0491": "\u0433",  # Ukrainian, on few keyboards
    # Apostrophes, geresh and gershayim as they are typed, and dashes inside what is grouped.
    **dict.fromkeys("\u2018\u2019\u02bc\u02b9\u05f3", "'"),
    "\u05f4": '"',
    **dict.fromkeys("\u2010\u2011\u2212", "-"),
    **dict.fromkeys("\u2044", "/"),
}
# A sign without which nothing is to be done, what is written, and what is read.
_BESIDE: Final = tuple(
    (sign, re.compile(pattern), written)
    for sign, pattern, written in (
        # A nasal before a consonant of its own is mostly written as a bindu.
        ("\u094d", "\u0919\u094d(?=[\u0915-\u0918])|\u091e\u094d(?=[\u091a-\u091d])", "\u0902"),
        ("\u094d", "\u0923\u094d(?=[\u091f-\u0922])|\u0928\u094d(?=[\u0924-\u0927])", "\u0902"),
        ("\u094d", "\u092e\u094d(?=[\u092a-\u092d])", "\u0902"),
        # The last letter of a longer word is typed for a yeh; in short ones it tells words apart.
        ("\u0649", "(?<=[\u0620-\u064a]{3})\u0649(?![\u0620-\u064a])", "\u064a"),
        # Thai and Lao: a vowel of two characters, with the tone between them or behind; ee for ae.
        ("\u0e4d", "\u0e4d([\u0e48-\u0e4b])", r"\1" + "\u0e4d"),
        ("\u0ecd", "\u0ecd([\u0ec8-\u0ecb])", r"\1" + "\u0ecd"),
        ("\u0e40", "\u0e40\u0e40", "\u0e41"),
        # A stress, which only textbooks write: other letters of the script keep their marks.
        ("\u0300", "(?<=[\u0400-\u04ff])\u0300", ""),
        ("\u0301", "(?<=[\u0400-\u04ff])\u0301", ""),
    )
)


def _han_variants() -> dict[str, str]:
    text = resources.files("relayer.words").joinpath("han_variants.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {variant: line[0] for line in lines for variant in line[1:]}


def _unwritten() -> dict[str, None]:
    ranges = (range(ord(pair[0]), ord(pair[1]) + 1) for pair in _UNWRITTEN.split())
    return dict.fromkeys(chr(character) for characters in ranges for character in characters)


def _digits() -> dict[str, str]:
    """Return those of living scripts, all below 0x10000."""
    return {c: str(unicodedata.decimal(c)) for c in map(chr, range(0x80, 0x10000)) if c.isdecimal()}


_CHARACTERS: Final = str.maketrans({**_han_variants(), **_digits(), **_LETTERS, **_unwritten()})


def fold(text: str) -> str:
    """Return a text in NFKC in the spelling in which its words are counted."""
    if text.isascii():
        return text
    text = text.translate(_CHARACTERS)
    for sign, pattern, written in _BESIDE:
        if sign in text:
            text = pattern.sub(written, text)
    return text
