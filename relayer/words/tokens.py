"""The words of a text, as the keyword index counts them: what stands between blanks, and its forms.

Not here: other spellings, and numbers in groups (`spelling`); stems and function words
(`languages`); hashing words (`sealed.index`) and ranking (`fusion`).

- A change that gives other words for the same text raises `INDEX_VERSION`.
- A query and a memory go through the same steps, a query with less of them.
- An identifier is a term whole, in its dotted and slashed segments and in its parts, so that any of
  them finds it. Hyphens, underscores and humps are taken out of the whole: `fooBar` is `foo_bar`.
- Numbers and dates have one form, however they are written.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Final

from relayer.normalization import normalize
from relayer.settings import Limits
from relayer.words.languages import ENGLISH, MONTHS, function_words, language_of, stems
from relayer.words.spelling import GroupedNumber, fold, forms_of, spellings_of, take_out_numbers

INDEX_VERSION: Final = 5
TERM_CHARACTERS_MAX: Final = 64
_SHORT: Final = 512  # characters
REPEATED_MAX: Final = 1_024  # words of a text that are taken apart once, however often they come
_HEX_PREFIX: Final = 7  # what git shows of a commit

# Scripts that put no blank between words, each by itself: a change of script ends a word.
_HAN: Final = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HANGUL: Final = "\u1100-\u11ff\uac00-\ud7af"
_OTHERS: Final = (
    "\u3041-\u309f",  # hiragana
    "\u30a1-\u30fa\u30fc-\u30ff",  # katakana
    "\u0e00-\u0eff",  # Thai, Lao
    "\u1000-\u109f",  # Burmese
    "\u1780-\u17ff",  # Khmer
)
# An emoji is a word, and so is a flag, of two letters; not what lines and boxes are drawn with.
_EMOJI: Final = re.compile(
    "[\u231a-\u23ff\u2600-\u27bf\u2b1b\u2b1c\u2b50\u2b55"
    "\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff]"
    "|[\U0001f1e6-\U0001f1ff]{2}"
)
_RUN: Final = re.compile(
    f"(?P<whose_characters_are_words>[{_HAN}]+|[{_HANGUL}]+)|(?P<emoji>{_EMOJI.pattern})|"
    + "|".join(f"[{script}]+" for script in _OTHERS)
)
# What any of these begins with: it is looked for many times as fast.
_BEGINS_RUN: Final = re.compile(
    f"[{_HAN}{_HANGUL}{''.join(_OTHERS)}\u231a-\u23ff\u2600-\u27bf\u2b1b\u2b1c\u2b50\u2b55"
    "\U0001f000-\U0001faff]"
)
# Marks that no letter has taken in, and vowel signs of Indic scripts, are not letters to Python.
_LETTER: Final = r"(?:[^\W_]|[\u0300-\u036f\u0900-\u0963\u0966-\u0dff])"
_JOINT: Final = r"[-_.@/\\:+']|(?<=\d),(?=\d)|(?<=[^\W\d_])&(?=[^\W\d_])"
# Letters and digits, joined inside by what identifiers, addresses, paths and numbers use.
_JOINED: Final = rf"(?:(?:{_JOINT}){_LETTER}+)*"
_END: Final = r"(?:\+\+|\#(?!\w))?"
_TOKEN: Final = re.compile(rf"{_LETTER}+{_JOINED}{_END}")
_MORE_OF_TOKEN: Final = re.compile(rf"{_LETTER}*{_JOINED}")
_END_OF_TOKEN: Final = re.compile(_END)
# So much of a text is looked at in one call: other threads stand still for as long.
_AT_ONCE: Final = 16_384
_NEAR_END: Final = 4  # a token that ends before has nothing more behind what was looked at
_FIGURES: Final = re.compile(r"(?<!\d)\d{1,4}(?:[-/.年月]\d{1,4})+日?(?:T(?=\d))?")
_DATES: Final = (
    re.compile(r"(?P<year>\d{4})([-/])(?P<month>\d\d?)\2(?P<day>\d\d?)T?"),
    re.compile(r"(?:(?P<year>\d{4})年)?(?P<month>\d\d?)月(?P<day>\d\d?)日"),
    re.compile(r"(?P<day>\d\d?)\.(?P<month>\d\d?)\.(?P<year>\d{4})"),
)
_THOUSANDS: Final = re.compile(r"(\d{1,3}(?:,\d{3})+)(?:\.(\d+))?|(\d{1,3}(?:\.\d{3})+)(?:,(\d+))?")
_DECIMAL_COMMA: Final = re.compile(r"\d+,\d+")
_ORDINAL: Final = re.compile(r"(\d+)(?:st|nd|rd|th)")
_NUMERIC: Final = re.compile(r"v?(\d+(?:\.\d+)*)")
_CLITIC: Final = re.compile(r"(?:'(?:s|m|re|ve|ll|d)){1,2}$", re.IGNORECASE)  # Anna's, we'll
_ELISION: Final = re.compile(  # l'eau, dell'acqua
    r"^(?:[cdjlmnst]|(?:jus|lors|puis)?qu|(?:d|n|s)?all|(?:d|n|s)?ell|un)'", re.IGNORECASE
)
_ACRONYMS: Final = re.compile(r"[A-Z]{2,}s")
_HUMP: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^A-Za-z]+")
_INITIALS: Final = re.compile(r"[A-Za-z](?:\.[A-Za-z]){2,}")  # U.S.A; U.S would be "us"
_LETTERS_DIGITS: Final = re.compile(r"([a-z]{2,})(\d{2,8})")
_HEX: Final = re.compile(r"(?=\d*[a-f])[0-9a-f]{8,}")


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


def terms_of(text: str) -> Iterator[tuple[str, ...]]:
    """Yield, for each word of a text in one spelling, the case-folded terms that it is found by."""
    text = _FIGURES.sub(_write_date, text)
    # Of this text only: an address is kept nowhere. In a short one few come again.
    terms = _terms if len(text) <= _SHORT else lru_cache(REPEATED_MAX)(_terms)
    at = 0
    for run in () if text.isascii() else _runs(text):
        yield from map(terms, _tokens(text, at, run.start()))
        yield from _run_terms(run)
        at = run.end()
    yield from map(terms, _tokens(text, at, len(text)))


def _runs(text: str) -> Iterator[re.Match[str]]:
    """Yield the runs without blanks, and the emoji."""
    at = 0
    while begin := _BEGINS_RUN.search(text, at):
        run = _RUN.match(text, begin.start())
        if run is not None:
            yield run
        at = begin.end() if run is None else run.end()


def _tokens(text: str, at: int, end: int) -> Iterable[str]:
    """Find the tokens in a part of a text, piece by piece in a long one."""
    if end - at <= _AT_ONCE:
        return _TOKEN.findall(text, at, end)
    return _tokens_by_pieces(text, at, end)


def _tokens_by_pieces(text: str, at: int, end: int) -> Iterator[str]:
    while at < end:
        found = _TOKEN.search(text, at, min(at + _AT_ONCE, end))
        if found is None:
            at += _AT_ONCE
            continue
        begin, stop = found.span(0)
        if stop > at + _AT_ONCE - _NEAR_END:
            stop = _token_end(text, begin, end)
        yield text[begin:stop]
        at = stop


def _token_end(text: str, begin: int, end: int) -> int:
    """Return the end of the token that begins there, however long it is."""
    at, more = begin, True
    while more:
        found = _MORE_OF_TOKEN.match(text, at, min(at + _AT_ONCE, end))
        assert found is not None
        more, at = found.end() > at, found.end()
    last = _END_OF_TOKEN.match(text, at, end)
    assert last is not None
    return last.end()


def _write_date(figures: re.Match[str]) -> str:
    """Return a date in figures as it would be said, and whole; other figures as they are."""
    date = next(filter(None, (pattern.fullmatch(figures[0]) for pattern in _DATES)), None)
    if date is None or not (1 <= int(date["month"]) <= 12 and 1 <= int(date["day"]) <= 31):
        return figures[0]
    day, month, year = int(date["day"]), int(date["month"]), date["year"] or ""
    whole = f"{year}{month:02}{day:02}" if year else ""
    return f" {day} {MONTHS[month - 1]} {year} {whole} "


def _run_terms(run: re.Match[str]) -> Iterator[tuple[str, ...]]:
    """Yield overlapping pairs; single characters, too, where one can be a word; an emoji."""
    text = run[0]
    if run["emoji"]:
        yield (text,)
        return
    for at in range(0, len(text) - 1, _AT_ONCE):
        yield tuple(text[i : i + 2] for i in range(at, min(at + _AT_ONCE, len(text) - 1)))
    if run["whose_characters_are_words"]:
        for at in range(0, len(text), _AT_ONCE):
            yield tuple(text[at : at + _AT_ONCE])


def is_emoji(term: str) -> bool:
    """Return True for an emoji: it stands everywhere and says little, unless it stands alone."""
    return _EMOJI.fullmatch(term) is not None


def is_plain(token: str) -> bool:
    """Return true if a token is a word without anything to take apart, as most are."""
    cased = token.islower() or token.istitle()
    return cased and token.isascii() and token.isalpha() and len(token) <= TERM_CHARACTERS_MAX


def _terms(token: str) -> tuple[str, ...]:
    if is_plain(token):
        return (token.casefold(),)
    if token.isalpha() and not token.isascii():  # as is_plain, of other letters: one word
        whole = token.casefold()
        return (whole,) if len(whole) <= TERM_CHARACTERS_MAX else ()
    if token.isascii() and token.isdecimal():
        return (token,) if len(token) <= TERM_CHARACTERS_MAX else ()
    if token[-3:].casefold() == "n't":
        return ()  # don't, isn't: nothing but function words
    token = _ELISION.sub("", _CLITIC.sub("", token))
    if _ACRONYMS.fullmatch(token):
        token = token[:-1]
    found = _number(token) or [t for item in token.split(",") for t in _path_terms(item)]
    # A single letter is a word where it stands alone, and says nothing as a part.
    length_min = 1 if len(found) == 1 else 2
    return tuple(
        term
        for term in dict.fromkeys(found)
        if len(term) <= TERM_CHARACTERS_MAX and (len(term) >= length_min or term.isdecimal())
    )


def _number(token: str) -> list[str] | None:
    """Return a number without what groups its thousands, with a point; None for anything else."""
    if ordinal := _ORDINAL.fullmatch(token):
        return [ordinal[1]]
    if _DECIMAL_COMMA.fullmatch(token) and not _THOUSANDS.fullmatch(token):
        return _segment_terms(token.replace(",", "."))
    if not (match := _THOUSANDS.fullmatch(token)):
        return None
    whole = re.sub("[,.]", "", match[1] or match[3])
    fraction = (match[2] or match[4] or "").rstrip("0")
    found = [f"{whole}.{fraction}", whole] if fraction else [whole]
    # 2.000 may be a version or a measure as well.
    return found if match[1] or match[4] else [*found, *_segment_terms(token)]


def _path_terms(token: str) -> list[str]:
    segments = re.split(r"[/\\:@+]", token)
    whole = [_whole(token)] if len(segments) > 1 else []
    return [*whole, *(term for segment in segments for term in _segment_terms(segment))]


def _segment_terms(segment: str) -> list[str]:
    """Return the terms between slashes: a version with its beginnings, a name with its parts."""
    if match := _NUMERIC.fullmatch(segment.casefold()):
        numbers = match[1].split(".")
        lengths = dict.fromkeys((len(numbers), *range(min(len(numbers), 4), 0, -1)))
        return [".".join(numbers[:n]) for n in lengths]
    if "." not in segment:
        return _piece_terms(segment)
    if _INITIALS.fullmatch(segment):
        return [segment.replace(".", "").casefold()]
    chunks = segment.split("-")
    if any(_NUMERIC.fullmatch(chunk.casefold()) for chunk in chunks):  # 1.0.9-rc2
        inner = [term for chunk in chunks for term in _segment_terms(chunk)]
    else:
        inner = [term for piece in segment.split(".") for term in _piece_terms(piece)]
    return [_whole(segment), *inner]


def _piece_terms(piece: str) -> list[str]:
    whole = _whole(piece)
    parts = [p.casefold() for part in re.split("[-_'&]", piece) for p in _parts(part)]
    prefix = [whole[:_HEX_PREFIX]] if _HEX.fullmatch(whole) else []
    return [whole, *prefix, *(part for part in parts if part != whole)]


def _parts(part: str) -> list[str]:
    if match := _LETTERS_DIGITS.fullmatch(part.casefold()):
        return [match[1], match[2]]
    return _HUMP.findall(part) if part.isascii() and part.isalpha() else [part]


def _whole(name: str) -> str:
    return re.sub("[-_'&]", "", name.casefold())
