"""The words of a text, as the keyword index counts them.

Not here: hashing them (`sealed.index`) and ranking (`fusion`).

- Pure and versioned: a change that gives other words for the same text raises `INDEX_VERSION`.
- A query and a memory go through the same steps, a query with less of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from relayer.normalization import normalize
from relayer.settings import Limits
from relayer.words.languages import ENGLISH, function_words, language_of, stems
from relayer.words.spelling import GroupedNumber, fold, forms_of, spellings_of, take_out_numbers
from relayer.words.tokens import is_plain, terms_of

INDEX_VERSION: Final = 5


@dataclass(frozen=True)
class QueryWords:
    """The words that a text is searched for by.

    Attributes:
        forms: its distinct words in order, each with other forms that may stand for it.
        groups: of numbers that are written so; the whole numbers are words.
    """

    forms: Mapping[str, Sequence[str]] = field(repr=False)
    groups: Sequence[str] = field(default=(), repr=False)


def words(text: str) -> list[str]:
    """Return index terms in order, with repeats: stems, identifiers with their parts, CJK bigrams.

    Other forms of these are there, too. Identifiers are whole as well. Numbers in groups come
    first.

    Function words are left out unless nothing else remains. A text that NFKC makes longer than any
    may be counts with its beginning.
    """
    if is_plain(text):  # each word of a query is asked for by itself, too
        return list(stems(text.casefold(), ENGLISH))
    rest, grouped = _parse(normalize("NFKC", text)[: Limits.text_bytes_max])
    found = [term for each in grouped for term in (each.whole, *each.groups)]
    found += chain.from_iterable(terms_of(rest))
    language, kept = _drop_function_words(found)
    stems_of = dict[str, tuple[str, ...]]()
    for term in kept:
        if term not in stems_of:
            stems_of[term] = stems(term, language)
            for form in forms_of(term):
                stems_of[term] += stems(form, language)
    return [stem for term in kept for stem in stems_of[term]]


def distinct_words(text: str, *, words_max: int) -> QueryWords:
    """Return the words of a query, at most so many of them, and of groups; of a text in NFKC.

    What is behind twice as many terms is not looked at: enough words are left of them without
    function words.
    """
    rest, grouped = (text, []) if is_plain(text) else _parse(text)
    found = dict.fromkeys(each.whole for each in grouped)
    for terms in terms_of(rest):
        found.update(dict.fromkeys(terms))
        if len(found) > 2 * words_max:
            break
    language, kept = _drop_function_words(list(found))
    forms: dict[str, list[str]] = {}
    for term in kept:
        first, *others = stems(term, language)
        spelt = [stems(form, language) for form in (*forms_of(term), *spellings_of(term))]
        forms.setdefault(first, []).extend(chain.from_iterable(spelt))
        for other in others:
            forms.setdefault(other, [])
    groups = dict.fromkeys(group for each in grouped for group in each.groups)
    return QueryWords(dict(list(forms.items())[:words_max]), list(groups)[:words_max])


def _parse(text: str) -> tuple[str, list[GroupedNumber]]:
    return take_out_numbers(fold(text))


def _drop_function_words(found: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the language of terms, and those without its function words; all if none is left."""
    language = language_of(found)
    left_out = function_words(language)
    return language, [term for term in found if term not in left_out] or found
