"""The words of a text, as the keyword index counts them.

Not here: hashing them (`sealed.index`) and ranking (`fusion`).

- Pure and versioned: a change that gives other words for the same text raises `INDEX_VERSION`.
- A query and a memory go through the same function.
"""

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
    found = [term for terms in terms_of(plain) for term in terms]
    language = language_of(found)
    left_out = function_words(language)
    kept = [term for term in found if term not in left_out]
    return [stem for term in (kept or found) for stem in stems(term, language)]
