"""Long texts as passages short enough for an embedding model, counted by its own tokenizer.

It does not own embedding, nor how many passages a memory may have.

- Passages are exact substrings, in order; together they hold every character of the text.
- No passage has more tokens than the limit, counted again on the passage itself, unless a single
  sign has (one stands for 18 letters).
- Without a tokenizer the UTF-8 bytes are counted instead: no tokenizer in use makes more tokens
  than bytes, so the limit holds, at the price of passages about four times shorter than needed.
"""

import unicodedata
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer, models, pre_tokenizers

from relayer.embedding.embedders import ALL_KNOWN, Known
from relayer.errors import Unavailable

# A longer word is one unknown token to WordPiece and would vanish from the vector.
_WORD_CHARS_MAX: Final = 100
_TOKENS_MAX_LEAST: Final = 8
_STOPS: Final = frozenset(".!?…")  # end a sentence if a space follows
_WIDE_STOPS: Final = frozenset("。！？｡")  # are followed by no space
_LOOK_BACK_CHARS: Final = 8  # past the quotes and brackets that close a sentence
_UNIGRAM_SPACE: Final = "▁"  # stands for the space before a word, alone where no piece has it
_CLOSERS: Final = "\"'”’»)]}」』）"

# How good a place is to cut at, from nothing to the end of a sentence.
_INSIDE_WORD, _BETWEEN_WORDS, _AT_SPACE, _AFTER_SENTENCE = range(4)

_Span = tuple[int, int]  # first and past-the-last character of a token


def load_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer in the file `path` (`tokenizer.json`), without truncation or padding.

    Words beyond what a WordPiece model can look up are cut into pieces it can.

    Raises:
        Unavailable: `embedder.model_missing`, there is no such file or it is not a tokenizer.
    """
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises the bare class
        raise Unavailable(
            "The embedding model's tokenizer.json is missing or unreadable.",
            code="embedder.model_missing",
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if isinstance(tokenizer.model, models.WordPiece) and tokenizer.pre_tokenizer is not None:
        pieces = pre_tokenizers.FixedLength(length=_WORD_CHARS_MAX)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([tokenizer.pre_tokenizer, pieces])
    return tokenizer


def count_bytes(text: str) -> int:
    """Return the UTF-8 bytes of `text`: no tokenizer in use makes more tokens than that."""
    return len(text.encode("utf-8", "replace"))


class Splitter:
    """Cuts texts into passages of at most `tokens_max` tokens, special tokens not counted.

    `overlap_tokens` is the most that a passage repeats of the one before it.
    """

    def __init__(
        self, *, tokenizer: Tokenizer | None, tokens_max: int, overlap_tokens: int
    ) -> None:
        if tokens_max < _TOKENS_MAX_LEAST or not 0 <= overlap_tokens < tokens_max // 2:
            raise ValueError("a passage needs 8 tokens or more, and an overlap below half of it")
        self._tokenizer = tokenizer
        self._tokens_max = tokens_max
        self._overlap_tokens = overlap_tokens
        # Whether no text has more tokens than bytes: others take compatibility forms apart first.
        self._is_within_bytes = tokenizer is None or isinstance(tokenizer.model, models.WordPiece)

    @property
    def name(self) -> str:
        """How texts are cut, for telling vectors of other passages apart: "254+32 tokens"."""
        unit = "bytes" if self._tokenizer is None else "tokens"
        return f"{self._tokens_max}+{self._overlap_tokens} {unit}"

    def count(self, text: str) -> int:
        """Return how many tokens `text` has, special ones not counted; without a tokenizer, bytes.

        Takes as long as `split`.
        """
        if self._tokenizer is None:
            return count_bytes(text)
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def known(self, text: str) -> Known:
        """Return what the model knows of `text`.

        It is all without a tokenizer, and with one that can spell every text in smaller pieces.
        Signs that it lacks, an emoji for one, say nothing of the words beside them.
        """
        if self._tokenizer is None:
            return ALL_KNOWN
        if isinstance(self._tokenizer.model, models.Unigram):
            return _known_by_unigrams(self._tokenizer, text)
        if not isinstance(self._tokenizer.model, models.WordPiece):
            return ALL_KNOWN
        unknown_token = self._tokenizer.model.unk_token  # each look at the model makes an object
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
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
        return _known(len(encoding.tokens) - unknown - signs, unknown, signs, spelt)

    def split(self, text: str) -> list[str]:
        """Return the passages of `text`: none if it is empty, else at least one.

        Takes a second or more for each megabyte: long texts belong in a worker thread.
        """
        if self._is_within_bytes and count_bytes(text) <= self._tokens_max:
            return [text] if text else []
        spans = self._spans(text)
        if len(spans) <= self._tokens_max:
            return [text] if text else []
        passages = []
        first = end = 0
        while end < len(spans):
            end = self._end(text, spans, first)
            passages.append(_substring(text, spans, first, end))
            first = self._next_first(text, spans, first, end)
        return passages

    def _spans(self, text: str) -> list[_Span]:
        if self._tokenizer is not None:
            return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)
        return [(at, at + 1) for at, char in enumerate(text) for _ in char.encode()]

    def _end(self, text: str, spans: Sequence[_Span], first: int) -> int:
        """Return the token to end before: the best place in the passage's second half."""
        end_max = first + self._tokens_max
        while True:
            end = len(spans)
            if end_max < end:
                places = range(first + (end_max - first + 1) // 2, end_max + 1)
                end = max(places, key=lambda at: (_rank(text, spans, at), at))
            # A cut inside a word can change how its parts are tokenised, so the passage counts.
            excess = len(self._spans(_substring(text, spans, first, end))) - self._tokens_max
            if excess <= 0 or end == first + 1:
                return end
            end_max = max(first + 1, end - excess)

    def _next_first(self, text: str, spans: Sequence[_Span], first: int, end: int) -> int:
        """Return the token to go on from: the earliest of the best places within the overlap."""
        places = range(max(first + 1, end - self._overlap_tokens), end)
        first = max(places, key=lambda at: (_rank(text, spans, at), -at), default=end)
        return first if _rank(text, spans, first) >= _AT_SPACE else end


def _substring(text: str, spans: Sequence[_Span], first: int, end: int) -> str:
    """Return the text of tokens `first`…`end`, with what follows them and belongs to no token."""
    start = spans[first][0] if first else 0
    stop = max(spans[end - 1][1], spans[end][0]) if end < len(spans) else len(text)
    return text[start:stop]


def _rank(text: str, spans: Sequence[_Span], at: int) -> int:
    """Return how good a place before token `at` is to cut; past the last token it is the best."""
    if at == len(spans):
        return _AFTER_SENTENCE
    end, start = spans[at - 1][1], spans[at][0]
    if start < end:  # one character made several tokens
        return _INSIDE_WORD
    # Some tokenizers count the space between two words to one of them, others to none.
    gap = text[end - 1 : start + 1]
    spaced = any(char.isspace() for char in gap)
    last = text[max(0, end - _LOOK_BACK_CHARS) : end].rstrip().rstrip(_CLOSERS)[-1:]
    if "\n" in gap or (last in _STOPS and spaced):
        return _AFTER_SENTENCE
    if last in _WIDE_STOPS and text[start] not in _CLOSERS:
        return _AFTER_SENTENCE
    if spaced:
        return _AT_SPACE
    inside = text[end - 1].isalnum() and text[start].isalnum()
    return _INSIDE_WORD if inside else _BETWEEN_WORDS


def _known_by_unigrams(tokenizer: Tokenizer, text: str) -> Known:
    """What a vocabulary of several languages knows of `text`: whole words of it, where it has them.

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
    return _known(known, unknown, signs, spelt)


def _known(known: int, unknown: int, signs: int, spelt: Sequence[str]) -> Known:
    """What is known of a text of so many tokens; signs that are not count where nothing else is."""
    share = known / (known + unknown) if known or unknown else float(not signs)
    return Known(share, tuple(dict.fromkeys(spelt)))


def _is_foreign_by_letters(parts: Sequence[str]) -> bool:
    """Whether a word is spelt in letters of which the model knows no words: it knows Latin ones."""
    letters = [part for part in parts if any(map(_is_letter, part))]
    latin = any(unicodedata.name(part[0], "").startswith("LATIN") for part in letters)
    return len(letters) > 1 and not latin and all(len(part) == 1 for part in letters)


def _is_letter(char: str) -> bool:
    return unicodedata.category(char)[0] in "LM"


def _is_wide(char: str) -> bool:
    """Whether a character belongs to a script of East Asia, of which one can be a word."""
    return unicodedata.east_asian_width(char) in "WF"


def _is_by_letters(word: str, pieces: Sequence[_Span]) -> bool:
    """Whether a word is in a script of which the model knows the letters and no word.

    In Latin letters it is an acronym or a code, which says nothing of the words around it.
    """
    letters = len(pieces) > 1 and all(end - begin <= 1 for begin, end in pieces)
    return letters and not word.isascii()
