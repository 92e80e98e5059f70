"""Long texts as passages short enough for an embedding model, counted by its own tokenizer.

It does not own embedding, nor how many passages a memory may have, nor what a model knows of a
text (`vocabulary.py`).

- Passages are exact substrings, in order; together they hold every character of the text.
- No passage has more tokens than the limit, counted again on the passage itself, unless a single
  sign has (one stands for 18 letters).
- Without a tokenizer the UTF-8 bytes are counted instead: no tokenizer in use makes more tokens
  than bytes, so the limit holds, at the price of passages about four times shorter than needed.
"""

import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from tokenizers import Encoding, Tokenizer, models, pre_tokenizers

from relayer.errors import Unavailable

# A longer word is one unknown token to WordPiece and would vanish from the vector.
_WORD_CHARS_MAX: Final = 100
_TOKENS_MAX_LEAST: Final = 8
_STOPS: Final = frozenset(".!?…")  # end a sentence if a space follows
_WIDE_STOPS: Final = frozenset("。！？｡")  # are followed by no space
_VERSION_BYTES: Final = 6
_LOOK_BACK_CHARS: Final = 8  # past the quotes and brackets that close a sentence
_CLOSERS: Final = "\"'”’»)]}」』）"

# How good a place is to cut at, from nothing to the end of a sentence.
_INSIDE_WORD, _BETWEEN_WORDS, _AT_SPACE, _AFTER_SENTENCE = range(4)

# One call of the library about a long text would stop the whole process for seconds.
_PIECE_CHARS: Final = 16_384
_SPACE: Final = re.compile(r"(?<=\S)\s")

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
    # Of all calls only those of batches let other threads go on meanwhile; and these would start
    # threads of their own, one a core, unless told not to.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
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
        self.tokenizer = tokenizer
        self._tokens_max = tokens_max
        self._overlap_tokens = overlap_tokens
        # Whether no text has more tokens than bytes: others take compatibility forms apart first.
        self._is_within_bytes = tokenizer is None or isinstance(tokenizer.model, models.WordPiece)

    @property
    def name(self) -> str:
        """Return the name of how texts are cut, which tells vectors apart: "254+32 tokens"."""
        unit = "bytes" if self.tokenizer is None else "tokens"
        return f"{self._tokens_max}+{self._overlap_tokens} {unit}"

    def count(self, text: str) -> int:
        """Return how many tokens `text` has, special ones not counted; without a tokenizer, bytes.

        Takes as long as `split`.
        """
        if self.tokenizer is None:
            return count_bytes(text)
        return sum(len(encoding) for _, encoding in _encode(self.tokenizer, text))

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
            passages.append(_text_of_tokens(text, spans, first, end))
            first = self._next_first(text, spans, first, end)
        return passages

    def _spans(self, text: str) -> list[_Span]:
        if self.tokenizer is not None:
            return [
                (at + first, at + end)
                for at, encoding in _encode(self.tokenizer, text)
                for first, end in encoding.offsets
            ]
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
            excess = len(self._spans(_text_of_tokens(text, spans, first, end))) - self._tokens_max
            if excess <= 0 or end == first + 1:
                return end
            end_max = max(first + 1, end - excess)

    def _next_first(self, text: str, spans: Sequence[_Span], first: int, end: int) -> int:
        """Return the token to go on from: the earliest of the best places within the overlap."""
        places = range(max(first + 1, end - self._overlap_tokens), end)
        first = max(places, key=lambda at: (_rank(text, spans, at), -at), default=end)
        return first if _rank(text, spans, first) >= _AT_SPACE else end


def version_of(model_id: str, splitter: Splitter) -> str:
    """Return eight characters for a model and how texts are cut for it; each row has them."""
    name = f"{model_id} {splitter.name}"
    return urlsafe_b64encode(sha256(name.encode()).digest()[:_VERSION_BYTES]).decode()


def _encode(tokenizer: Tokenizer, text: str) -> Iterator[tuple[int, Encoding]]:
    """Yield where each piece of a text begins, and its tokens."""
    for at, piece in _pieces(text):
        [encoding] = tokenizer.encode_batch([piece], add_special_tokens=False)
        yield at, encoding


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield a text in pieces, each with where it begins: before a blank, if there is one."""
    at = 0
    while at < len(text):
        end = len(text)
        if end - at > 2 * _PIECE_CHARS:
            near = at + _PIECE_CHARS
            blank = _SPACE.search(text, near, near + _PIECE_CHARS)
            end = blank.start() if blank else near
        yield at, text[at:end]
        at = end


def _text_of_tokens(text: str, spans: Sequence[_Span], first: int, end: int) -> str:
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
