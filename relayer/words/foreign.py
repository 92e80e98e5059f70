"""Recognition of queries in a language other than English, of those in Latin letters.

Not here: the languages that the index itself knows (`languages`), what a model knows of a query
(`embedding.vocabulary`). A query alone is looked at, so no memory has to be indexed again.

- Function words tell it, and letters that English has not; a query of one word shows neither.
"""

import re
from collections.abc import Collection, Set
from typing import Final

from relayer.normalization import normalize
from relayer.words.languages import ENGLISH, FUNCTION_WORDS, read_word_lists, stems
from relayer.words.spelling import fold

_LOOKED_AT: Final = 512  # characters, of which a question has a tenth
_TOLD_BY: Final = 2  # words that tell a language: of one, "jest" may be a program
_SURELY: Final = 3  # words that tell it, though the model has tokens for most of the others
_WORD: Final = re.compile(r"(?<!\w)[^\W\d_]+(?!\w)")
_ENGLISH: Final = FUNCTION_WORDS[ENGLISH]
_LATER: Final = {
    language: terms - _ENGLISH for language, terms in read_word_lists("foreign_words.txt").items()
}
_FOREIGN: Final = frozenset[str]().union(*FUNCTION_WORDS.values(), *_LATER.values()) - _ENGLISH


def is_foreign(text: str, spelt: Collection[str]) -> bool:
    """Return true if a query is in another language, which its embedding model does not know.

    `spelt` are the words that the model only spells. An English text of rare names has English
    between them.
    """
    typed = _typed(text) if spelt else set()
    told = len(_FOREIGN & typed)
    if not told:
        return False  # also of names alone: a name is of any language
    unknown = {word for term in spelt for word in _typed(term)} - _ENGLISH - _FOREIGN
    told += sum(not word.isascii() for word in unknown)
    content = len(typed - _ENGLISH - _FOREIGN)
    if not unknown or told <= len(_ENGLISH & typed):
        return False
    if told < _TOLD_BY:
        return len(unknown) == content > 1
    return told >= _SURELY or 2 * len(unknown) >= content


def particles(text: str) -> Set[str]:
    """Return the function words, stemmed, of a query in a language that the index does not know."""
    typed = _typed(text)
    found = max((terms & typed for terms in _LATER.values()), key=len)
    if len(found) < _TOLD_BY or len(found) <= len(_ENGLISH & typed):
        return frozenset()
    return {stem for word in found for stem in stems(fold(word), ENGLISH)}


def _typed(text: str) -> set[str]:
    return set(_WORD.findall(normalize("NFC", text[:_LOOKED_AT]).casefold()))
