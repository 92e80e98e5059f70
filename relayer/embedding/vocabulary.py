"""Measurement of how much of a text a model knows, by how its tokenizer takes words apart.

Not here: what follows for a query (`query.fusion`), cutting texts (`passages.py`).

- A vocabulary of one language spells foreign words by letter, or has none for their script. One of
  several languages says of each piece whether it has it.
- Signs that a model lacks, an emoji for one, say nothing of the words beside them.
"""

import unicodedata
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from tokenizers import Tokenizer, models

from relayer.embedding.embedders import FULL_COVERAGE, Coverage

_UNIGRAM_SPACE: Final = "▁"  # stands for the space before a word, alone where no piece has it

_Span = tuple[int, int]  # first and past-the-last character of a token


def measure_coverage(tokenizer: Tokenizer | None, text: str) -> Coverage:
    """Return what the model with this tokenizer knows of `text`.

    It is all without a tokenizer, and with one that can spell every text in smaller pieces.
    """
    if tokenizer is None:
        return FULL_COVERAGE
    model = tokenizer.model  # each look at it makes an object
    if isinstance(model, models.Unigram):
        return _by_unigrams(tokenizer, text)
    if isinstance(model, models.WordPiece):
        return _by_word_pieces(tokenizer, model.unk_token, text)
    return FULL_COVERAGE


def _by_word_pieces(tokenizer: Tokenizer, unknown_token: str, text: str) -> Coverage:
    """Measure a vocabulary of one language: it knows words that it has pieces for, not letters."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    tokens = zip(encoding.word_ids, encoding.tokens, encoding.offsets, strict=True)
    unknown = signs = 0
    spelt = list[str]()
    for _, pieces in groupby(tokens, key=itemgetter(0)):
        _, names, spans = zip(*pieces, strict=True)
        word = text[spans[0][0] : spans[-1][1]]
        if names == (unknown_token,) and not any(map(_is_letter, word)):
            signs += 1
        elif names == (unknown_token,) or _is_by_letters(word, spans):
            unknown += len(names)
            spelt.append(word)
        elif len(names) > 1:
            spelt.append(word)
    return _to_coverage(len(encoding.tokens) - unknown - signs, unknown, signs, spelt)


def _by_unigrams(tokenizer: Tokenizer, text: str) -> Coverage:
    """Measure a vocabulary of several languages: it knows whole words of `text`, where it has them.

    Where words are not told apart by spaces, a piece of one character is a word like any other.
    """
    encoding = tokenizer.encode(text, add_special_tokens=False)
    tokens = zip(encoding.word_ids, encoding.tokens, encoding.ids, encoding.offsets, strict=True)
    known = unknown = signs = 0
    spelt = list[str]()
    for _, word in groupby(tokens, key=itemgetter(0)):
        pieces = [piece for piece in word if piece[1] != _UNIGRAM_SPACE]
        parts = [text[begin:end].strip() for *_, (begin, end) in pieces]
        lacking = [
            part
            for part, (_, name, number, _) in zip(parts, pieces, strict=True)
            if tokenizer.token_to_id(name) != number
        ]
        missing = [part for part in lacking if any(map(_is_letter, part))]
        signs += len(lacking) - len(missing)
        written = text[pieces[0][3][0] : pieces[-1][3][1]].strip() if pieces else ""
        if (missing or _is_foreign_by_letters(parts)) and not any(map(_is_wide, written)):
            unknown += len(pieces)
            spelt.append(written)
        else:
            known += len(pieces) - len(lacking)
            unknown += len(missing)
            spelt += missing
    return _to_coverage(known, unknown, signs, spelt)


def _to_coverage(known: int, unknown: int, signs: int, spelt: Sequence[str]) -> Coverage:
    """Return the coverage of a text; unknown signs count only where nothing else is there."""
    share = known / (known + unknown) if known or unknown else float(not signs)
    return Coverage(share, tuple(dict.fromkeys(spelt)))


def _is_foreign_by_letters(parts: Sequence[str]) -> bool:
    """Return true if a word is spelt in non-Latin letters of which the model knows no words."""
    letters = [part for part in parts if any(map(_is_letter, part))]
    latin = any(unicodedata.name(part[0], "").startswith("LATIN") for part in letters)
    return len(letters) > 1 and not latin and all(len(part) == 1 for part in letters)


def _is_letter(char: str) -> bool:
    return unicodedata.category(char)[0] in "LM"


def _is_wide(char: str) -> bool:
    """Return true if a character belongs to a script of East Asia, of which one can be a word."""
    return unicodedata.east_asian_width(char) in "WF"


def _is_by_letters(word: str, pieces: Sequence[_Span]) -> bool:
    """Return true if a word is in a script of which the model knows the letters and no word.

    In Latin letters it is an acronym or a code, which says nothing of the words around it.
    """
    letters = len(pieces) > 1 and all(end - begin <= 1 for begin, end in pieces)
    return letters and not word.isascii()
