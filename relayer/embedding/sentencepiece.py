"""A SentencePiece unigram model as the tokenizer file that everything here reads.

Not here: where the model comes from (`model.py`), what reads the tokenizer (`passages.py`). Set-up
only; a serving process reads the result.

Source: the protocol of SentencePiece's model files, of which three fields are needed.
"""

import math
import struct
from collections.abc import Iterator
from typing import Final

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

_PIECES, _NORMALIZER = 1, 3  # fields of a model
_PIECE, _SCORE = 1, 2  # of a piece
_CHARACTERS_MAP: Final = 2  # of the normalizer
_VARINT, _EIGHT_BYTES, _DELIMITED, _FOUR_BYTES = 0, 1, 2, 5  # wire types
_UNKNOWN, _FIRST, _LAST = range(3)  # ids of the pieces that stand for no text
_GROUPS_MAX: Final = 10  # of seven bits, as many as 64 bits take
_SPACE: Final = "▁"


def tokenizer(data: bytes) -> str:
    """Return the model in `data` as the JSON of a `tokenizers.Tokenizer`.

    Raises:
        ValueError: these are not the bytes of a SentencePiece unigram model.
    """
    try:
        return _build_tokenizer(*_read(data)).to_str()
    except Exception as error:  # the library raises the bare class
        raise ValueError("not a SentencePiece model") from error


def _build_tokenizer(pieces: list[tuple[str, float]], characters: bytes) -> Tokenizer:
    made = Tokenizer(models.Unigram(pieces, unk_id=_UNKNOWN, byte_fallback=False))
    made.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(characters),
            normalizers.Strip(),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme="always")
    (first, _), (last, _) = pieces[_FIRST], pieces[_LAST]
    made.post_processor = processors.TemplateProcessing(
        single=[first, "$A", last], special_tokens=[(first, _FIRST), (last, _LAST)]
    )
    return made


def _read(data: bytes) -> tuple[list[tuple[str, float]], bytes]:
    """Return the pieces with their scores, in order, and the compiled map of characters."""
    pieces, characters = list[tuple[str, float]](), None
    for number, value in _fields(data):
        if number == _PIECES:
            piece = dict(_fields(value))
            (score,) = struct.unpack("<f", piece.get(_SCORE, bytes(4)))
            if not math.isfinite(score):  # the tokenizer file has no word for it
                raise ValueError(score)
            name = piece[_PIECE].decode()
            # What stands for no text is named as no text can be, where a blank is another sign.
            pieces.append((f" {name}" if len(pieces) <= _LAST else name, score))
        elif number == _NORMALIZER:
            characters = dict(_fields(value))[_CHARACTERS_MAP]
    if characters is None:
        raise KeyError(_NORMALIZER)
    return pieces, characters


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each field of a message, without those of whole numbers."""
    at = 0
    while at < len(data):
        tag, at = _whole_number(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            _, at = _whole_number(data, at)
            continue
        size = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(kind)
        if kind == _DELIMITED:
            size, at = _whole_number(data, at)
        if size is None or at + size > len(data):
            raise IndexError(at)
        yield number, data[at : at + size]
        at += size


def _whole_number(data: bytes, at: int) -> tuple[int, int]:
    """Return the number in groups of seven bits that begins at `at`, and where it ends."""
    value = 0
    for group in range(_GROUPS_MAX):
        byte = data[at + group]
        value |= (byte & 0x7F) << 7 * group
        if byte < 0x80:  # the last group
            return value, at + group + 1
    raise IndexError(at)
