"""The words of a text, as the keyword index counts them.

Not here: hashing them (`sealed.index`) and ranking (`database.recall`).

- Pure and versioned: a change that gives other words for the same text raises `INDEX_VERSION`.
- A query and a memory go through the same function, but for single CJK characters.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

import Stemmer

INDEX_VERSION: Final = 1
WORD_CHARACTERS_MAX: Final = 64

# Letters and digits, joined inside by what identifiers, addresses, versions and paths use.
_TOKEN: Final = re.compile(r"[^\W_]+(?:[-_.@/:+'’][^\W_]+)*")
_PART: Final = re.compile(r"[^\W_]+")
_CJK: Final = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002fa1f]+"
)
_POSSESSIVE: Final = re.compile(r"['’]s$")
_STOP: Final = frozenset(
    """a an and are as at be been but by did do does for from had has have how i if in into is
    it its me my of on or our she he so that the their them then there these they this to was we
    were what
    when where which who will with you your
    das dem den der des die ein eine einem einen einer eines er es ich im ist mit sie sind und von
    war wir zu zum zur""".split()
)
_english = Stemmer.Stemmer("english")
_russian = Stemmer.Stemmer("russian")


def words(text: str) -> list[str]:
    """Index terms in order, with repeats: stems, whole identifiers with their parts, CJK bigrams.

    Stop words are left out unless nothing else remains.
    """
    found = [term for token in _tokens(text) for term in _terms(token)]
    kept = [term for term in found if term not in _STOP]
    return [stem(term) for term in (kept or found)]


def indexed_words(text: str) -> list[str]:
    """The words of a text that is kept: single CJK characters too, which a query may consist of."""
    return words(text) + [c for run in _CJK.findall(_folded(text)) if len(run) > 1 for c in run]


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(_folded(text))


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _terms(token: str) -> list[str]:
    """A plain word as it is; a joined one whole and in parts; CJK runs as overlapping pairs."""
    if _CJK.search(token):
        return [term for run in _runs(token) for term in run]
    token = _POSSESSIVE.sub("", token)
    parts = _PART.findall(token)
    joined = [token] if len(parts) > 1 else []
    return [term for term in (*joined, *parts) if len(term) <= WORD_CHARACTERS_MAX]


def _runs(token: str) -> list[list[str]]:
    runs, at = [], 0
    for match in _CJK.finditer(token):
        runs.append(_PART.findall(token[at : match.start()]))
        runs.append(_bigrams(match.group()))
        at = match.end()
    runs.append(_PART.findall(token[at:]))
    return runs


def _bigrams(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


@lru_cache(maxsize=65536)
def stem(term: str) -> str:
    """The stem of a word; identifiers and numbers stay as they are."""
    if not term.isalpha():
        return term
    if "а" <= term[0] <= "я":
        return str(_russian.stemWord(term))
    return str(_english.stemWord(term))
