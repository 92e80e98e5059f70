"""The words of a text, as the keyword index counts them.

Not here: hashing them (`sealed.index`) and ranking (`fusion`).

- Pure and versioned: a change that gives other words for the same text raises `INDEX_VERSION`.
- A query and a memory go through the same steps, a query with less of them.
"""

from collections.abc import Sequence
from typing import Final

from relayer.forms import normalize
from relayer.settings import Limits
from relayer.words.languages import ENGLISH, function_words, language_of, stems
from relayer.words.tokens import is_plain, terms_of

INDEX_VERSION: Final = 3


def words(text: str) -> list[str]:
    """Index terms in order, with repeats: stems, whole identifiers with their parts, CJK bigrams.

    Function words are left out unless nothing else remains. A text that NFKC makes longer than any
    may be counts with its beginning.
    """
    if is_plain(text):  # each word of a query is asked for by itself, too
        return list(stems(text.casefold(), ENGLISH))
    plain = normalize("NFKC", text)[: Limits.text_bytes_max]
    return _stemmed([term for terms in terms_of(plain) for term in terms])


def distinct_words(text: str, *, words_max: int) -> list[str]:
    """The same without repeats, at most so many of them; of a text in NFKC.

    What is behind twice as many terms is not looked at: enough words are left of them without
    function words.
    """
    if is_plain(text):
        return list(stems(text.casefold(), ENGLISH))
    found: dict[str, None] = {}
    for terms in terms_of(text):
        found.update(dict.fromkeys(terms))
        if len(found) > 2 * words_max:
            break
    return list(dict.fromkeys(_stemmed(list(found))))[:words_max]


def _stemmed(found: Sequence[str]) -> list[str]:
    """The stems of terms without function words, unless there are no others."""
    language = language_of(found)
    left_out = function_words(language)
    kept = [term for term in found if term not in left_out] or found
    stems_of = {term: stems(term, language) for term in set(kept)}
    return [stem for term in kept for stem in stems_of[term]]
