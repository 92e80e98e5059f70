"""Function words, the language that a text is in, and stems.

Not here: what a word is, and the order of steps (`tokens`).

- A language is guessed by function words alone: they are in every sentence, and in no other
  language's. A text that shows none is taken for English.
- A word of another language in Latin letters has two stems, that language's and English's: a
  query of two or three words often shows no language, and meets the text in the English one.
- Particles of languages that came later are in the index like all words: a query alone tells them
  apart, so no memory has to be indexed again.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from functools import lru_cache
from importlib import resources
from typing import Final
from unicodedata import category

import Stemmer

from relayer.normalization import normalize
from relayer.words.spelling import fold

ENGLISH: Final = "english"

# Scripts that tell their language, or a near relative's, and the stemmer to use.
_SCRIPTS: Final = (
    ("\u0370", "\u03ff", "greek"),
    ("\u0400", "\u04ff", "russian"),
    ("\u0600", "\u06ff", "arabic"),
    ("\u0900", "\u097f", "hindi"),
)
# Han, kana and Hangul syllables: no stemmer knows them, and none joins with the one beside it. A
# long text has some hundred thousand different pairs of them.
_UNSTEMMED: Final = re.compile(
    "[\u3005-\u3007\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\U00020000-\U0002f7ff\U00030000-\U0003ffff]+"
)
_ACCENTS: Final = re.compile("(?<=[a-zα-ω])[\u0300-\u036f]+")
_NOT_COMPOSED: Final = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "ħ": "h", "ŋ": "n", "ŧ": "t", "ı": "i"}
    | {"æ": "ae", "œ": "oe", "þ": "th"}
)


def _lines(name: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (what stands before the colon, words) of the lines of a file beside this one."""
    text = resources.files("relayer.words").joinpath(name).read_text("utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            head, _, rest = line.rpartition(":")
            yield head, rest.split()


def read_word_lists(name: str) -> dict[str, frozenset[str]]:
    """Return per language its words of a file beside this one."""
    found: dict[str, set[str]] = {}
    for language, terms in _lines(name):
        found.setdefault(language, set()).update(terms)
    return {language: frozenset(terms) for language, terms in found.items()}


def _forms() -> dict[str, dict[str, str]]:
    """Return per language: form → the word that it counts as."""
    months = dict(_lines("months.txt"))
    forms = {
        language: dict(zip(names, months[ENGLISH], strict=True))
        for language, names in months.items()
    }
    for _, (word, *others) in _lines("english_forms.txt"):
        forms[ENGLISH].update(dict.fromkeys(others, word))
    return forms


_FORMS: Final = _forms()
MONTHS: Final = tuple(dict(_lines("months.txt"))[ENGLISH])
FUNCTION_WORDS: Final = read_word_lists("function_words.txt")
# Told by its letters, its words are in no other language of these.
_RUSSIAN: Final = FUNCTION_WORDS.pop("russian")
_LANGUAGES_OF: Final = {
    term: tuple(language for language, terms in FUNCTION_WORDS.items() if term in terms)
    for term in frozenset[str]().union(*FUNCTION_WORDS.values())
}
_STOP: Final = {
    language: terms | FUNCTION_WORDS[ENGLISH] | _RUSSIAN
    for language, terms in FUNCTION_WORDS.items()
}
# Its own cache costs more than it spares, and would keep words that `_stems` has let go.
_STEMMERS: Final = {
    name: Stemmer.Stemmer(name, 0) for name in (*FUNCTION_WORDS, *(name for _, _, name in _SCRIPTS))
}


def language_of(terms: Iterable[str]) -> str:
    """Return the language in Latin letters that a text is in, by its function words."""
    known = _LANGUAGES_OF.keys() & terms
    if known <= FUNCTION_WORDS[ENGLISH]:  # as mostly: no language has more of them here
        return ENGLISH
    seen = Counter(language for term in known for language in _LANGUAGES_OF[term])
    english = seen.pop(ENGLISH, 0)
    # Of equals always the same one: what is stored and what is asked may be of two processes.
    hits, best = max((count, language) for language, count in seen.items())
    return best if hits > max(english, 1) else ENGLISH


def function_words(language: str) -> Set[str]:
    """Return the words that are left out of a text in this language."""
    return _STOP[language]


def stems(term: str, language: str) -> tuple[str, ...]:
    """Return the stems of a case-folded word; identifiers and numbers stay as they are."""
    if term.isascii():
        return _stems(term, language) if term.isalpha() else (term,)
    if _UNSTEMMED.fullmatch(term) or not (term.isalpha() or _has_marks(term)):
        return (term,)
    return _stems(term, language)


# Plain words only: what tells people apart, an address or a number, is not kept in memory.
@lru_cache(maxsize=65536)
def _stems(term: str, language: str) -> tuple[str, ...]:
    for first, last, script in _SCRIPTS:
        if first <= term[0] <= last:
            return (fold_accents(_stem(term, script)),)
    english = _stem(fold_accents(term), ENGLISH)
    if language == ENGLISH:
        return (english,)
    return tuple(dict.fromkeys((fold_accents(_stem(term, language)), english)))


def _has_marks(term: str) -> bool:
    """Return true if a word is spelt with vowel signs, which are not letters to Python."""
    return not term.isascii() and all(c.isalpha() or category(c)[0] == "M" for c in term)


def _stem(term: str, language: str) -> str:
    form = _FORMS.get(language, {}).get(term, term)
    return str(_STEMMERS[language if form == term else ENGLISH].stemWord(form))


def fold_accents(term: str) -> str:
    """Return a word without the accents of Latin and Greek letters."""
    if term.isascii():
        return term
    bare = _ACCENTS.sub("", normalize("NFD", term.translate(_NOT_COMPOSED)))
    return normalize("NFC", bare)


# As a query has them, stemmed: what it is not asked by, though memories have it in their index.
PARTICLES: Final = frozenset(
    stem
    for _, terms in _lines("particles.txt")
    for term in terms
    for stem in stems(fold(term), ENGLISH)
)
