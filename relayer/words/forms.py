"""Other forms of a word, by which it is found as well: one word of a query counts once for all.

Not here: stems (`languages`), spellings that are folded everywhere (`spelling`).

- Memories and queries have these: a Hebrew word without the small words that are written before it,
  a long number by its end.
- Queries alone have those that would only make memories longer: "ae" for "ä".
- Hiragana do not stand for katakana: pairs of a loanword would meet the endings of any sentence.
"""

import re
from collections.abc import Iterator
from typing import Final

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
