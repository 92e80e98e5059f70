"""One word for what is written in several ways: spellings, other forms, numbers in groups.

Not here: accents of Latin and Greek letters, and stems (`languages`); numbers without gaps
(`tokens`).

- A character becomes another one wherever it stands, or by the letters right beside it: what a text
  quotes of another has the same words in both.
- What people leave out or exchange is folded, where few words are told apart by it.
- A word is found by other forms as well; one word of a query counts once for all. Memories and
  queries have these: a Hebrew word without the small words that are written before it, a long
  number by its end. Queries alone have those that would only make memories longer: "ae" for "ä".
- Hiragana do not stand for katakana: pairs of a loanword would meet the endings of any sentence.
- A number or code that is written in groups, as of a telephone or an account, is one word, whatever
  stands between its groups. The groups are words beside it. Dates and years are none, nor are
  decimal numbers, addresses of a network and rows of a table. Two numbers side by side look the
  same: they make a word that nobody asks for.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final

from relayer.chunks import fixed_window, substitute

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


_ENDS: Final = (9, 7)  # digits of a telephone's number that are the same from near and abroad
# "and", "when" or "that", "in", "like", "to" or "from", "the": in this order, each at most once.
_HEBREW: Final = re.compile(
    "(\u05d5?)((?:\u05dc?\u05db|\u05de)?\u05e9|)([\u05d1\u05db\u05dc\u05de]?)(\u05d4?)"
)
_HEBREW_LEAST: Final = 3  # letters of a root; behind the article two are a word, too
_ARABIC_AND: Final = re.compile("[\u0648\u0641](?=\u0627\u0644[\u0620-\u064a]{3})")
_LATIN: Final = re.compile("[a-z\u00df-\u024f]+")
_UMLAUTS: Final = str.maketrans(
    {"\u00e4": "ae", "\u00f6": "oe", "\u00fc": "ue", "\u00e5": "aa", "\u00f8": "oe"}
)
_DIGRAPHS: Final = re.compile("ae|oe|ue|aa")


def forms_of(term: str) -> tuple[str, ...]:
    """Return by what else a case-folded word is found, in a memory as in a query."""
    if term.isascii():
        return tuple(term[-n:] for n in _ENDS if n < len(term)) if term.isdecimal() else ()
    if "\u05d0" <= term[0] <= "\u05ea":
        return tuple(dict.fromkeys(_without_clitics(term)))
    if _ARABIC_AND.match(term):
        return (term[1:],)
    return ()


def spellings_of(term: str) -> tuple[str, ...]:
    """Return how else a case-folded word may be spelt in a memory."""
    if not _LATIN.fullmatch(term):
        return ()
    spelt = _DIGRAPHS.sub(lambda pair: pair[0][0], term), term.translate(_UMLAUTS)
    return tuple(other for other in dict.fromkeys(spelt) if other != term)


def _without_clitics(word: str) -> Iterator[str]:
    found = _HEBREW.match(word)
    ends = [] if found is None else [found.end(n) for n in range(1, 5)]
    for end in ends:
        least = 2 if end and word[end - 1] == "\u05d4" else _HEBREW_LEAST
        if end and len(word) - end >= least:
            yield word[end:]


_CHARACTERS_MIN, _CHARACTERS_MAX = 7, 34  # of all groups; the longest account has 34
_GROUPS_MAX: Final = 9
# Bounded, and atomic: else a number could be read in four ways in each of its groups.
_GROUP: Final = r"(?>[A-Za-z0-9]{0,3}[0-9][A-Za-z0-9]{0,11}(?![^\W_]))"
_BEFORE: Final = r"(?:(?<!\w)\(?\+|(?<![\w+/\\@'-])(?<!\d[.,:]))\(?"
_BEHIND: Final = r"(?![-_.,@/\\:+'][^\W_])"  # else it is a part of a longer name
# In full an account has groups of letters, too.
_ACCOUNT: Final = r"\b[A-Z]{2}\d\d(?:[ -][A-Z0-9]{4}){2,7}(?:[ -][A-Z0-9]{1,3})?\b"
_ACCOUNT_WHOLE: Final = re.compile(r"[a-z]{2}\d{13,32}")
_WRITTEN_MAX: Final = 512  # characters; sixteen groups of fifteen, and what parts them, are fewer
_GROUPED: Final = re.compile(
    rf"{_ACCOUNT}|{_BEFORE}{_GROUP}"
    rf"(?:(?:[ /()-]{{1,3}}{_GROUP}){{1,15}}|(?:\.{_GROUP}){{1,15}}){_BEHIND}"
)
_DIGIT: Final = re.compile("[0-9]")
_ALNUM: Final = re.compile("[a-z0-9]+")
_THOUSANDS: Final = re.compile(r"\d{1,3}(?: \d{3})+")
_OTHER: Final = re.compile(
    r"(?:19|20)\d\d(?:[ /-](?:19|20)\d\d)+|\d+\.\d+|\d{1,3}(?:\.\d{3})+|\d{1,3}(?:\.\d{1,3}){3}"
)
_DATE: Final = re.compile(r"(?<!\d)(?:\d{4}([-/.])\d\d?\1\d\d?|\d\d?([-/.])\d\d?\2\d{4})(?!\d)")
_TRUNK: Final = "(0)"  # to be dialled at home only: +49 (0)30 …


@dataclass(frozen=True, slots=True)
class GroupedNumber:
    """A number without what parts its groups, and these, case-folded."""

    whole: str
    groups: Sequence[str]


def take_out_numbers(text: str) -> tuple[str, list[GroupedNumber]]:
    """Return a text without its numbers in groups, and these numbers."""
    if not _DIGIT.search(text):
        return text, []
    found: list[GroupedNumber] = []

    def take(match: re.Match[str]) -> str:
        groups = _ALNUM.findall(match[0].replace(_TRUNK, " ").casefold())
        if not _is_one(match[0], groups):
            return match[0]
        found.append(GroupedNumber("".join(groups), groups))
        return " "

    return substitute([(_GROUPED, take)], text, fixed_window(_WRITTEN_MAX)), found


def _is_one(written: str, groups: Sequence[str]) -> bool:
    whole = "".join(groups)
    if _THOUSANDS.fullmatch(written):
        return True
    # Years, a decimal number, thousands in points: each is told apart by itself.
    if _OTHER.fullmatch(written) or _DATE.search(written) or len(groups) > _GROUPS_MAX:
        return False
    # With letters it is a name with hyphens or dots, or several words, unless it is in capitals.
    is_code = " " in written and written == written.upper()
    is_one = whole.isdecimal() or is_code or _ACCOUNT_WHOLE.fullmatch(whole) is not None
    return is_one and _CHARACTERS_MIN <= len(whole) <= _CHARACTERS_MAX
