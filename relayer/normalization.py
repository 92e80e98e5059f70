"""Unicode's normal forms, of any text in a time that grows as its length does.

Not here: which form a text is brought into, and what for.

- What comes out is what `unicodedata.normalize` gives, for every text.
- That sorts marks that follow one another by exchanging neighbours, and nothing else runs
  meanwhile: a MiB of marks in the wrong order would stop the process for hours. A long run of them
  is put in order before, so that nothing is left to exchange.
- A long text goes piece by piece: other threads go on in between.
"""

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

_APART: Final[dict[Form, Form]] = {"NFC": "NFD", "NFD": "NFD", "NFKC": "NFKD", "NFKD": "NFKD"}
_PIECE_CHARS: Final = 4_096  # one character may become eighteen
_HANGUL_JAMO: Final = (("\u1100", "\u11ff"), ("\ua960", "\ua97f"), ("\ud7b0", "\ud7ff"))
_RUN_MAX: Final = 30  # marks on one letter; Unicode's stream-safe texts have no more, either


def normalize(form: Form, text: str) -> str:
    """Return `text` in a normal form, as `unicodedata.normalize` does."""
    ordered = in_order(form, text)
    if len(ordered) <= _PIECE_CHARS or ordered.isascii():
        return unicodedata.normalize(form, ordered)
    return "".join(unicodedata.normalize(form, piece) for piece in _pieces(form, ordered))


def _pieces(form: Form, text: str) -> Iterator[str]:
    """Yield a text in pieces, of which none becomes anything else beside the others."""
    at = 0
    while at < len(text):
        end = at + _PIECE_CHARS
        while end < len(text) and not _begins_anew(form, text[end]):
            end += 1
        yield text[at:end]
        at = end


@lru_cache(1024)
def _begins_anew(form: Form, char: str) -> bool:
    """Return True if a character neither is exchanged with what stands before it nor joins it.

    Source: Unicode Standard, section 3.11. What joins is a mark, or a vowel or an end of Hangul.
    """
    first = _apart(form, char)[0]
    is_mark = unicodedata.category(first)[0] == "M"
    return not (is_mark or any(low <= first <= high for low, high in _HANGUL_JAMO))


def in_order(form: Form, text: str) -> str:
    """Return `text` with every long run of marks taken apart and in canonical order: another
    spelling of the same in the given form.

    Source: Unicode Standard, section 3.11, canonical ordering.
    """
    if text.isascii():
        return text
    pieces, position = list[str](), 0
    for begin, end in _long_runs(form, text):
        marks = "".join(_apart(form, mark) for mark in text[begin:end])
        pieces += [text[position:begin], *_sort_marks(marks)]
        position = end
    return "".join(pieces) + text[position:] if pieces else text


def _sort_marks(marks: str) -> Iterator[str]:
    """Yield marks in canonical order, those of a class together; a sort would stop all threads."""
    by_class: dict[int, list[str]] = {}
    for mark in marks:
        by_class.setdefault(unicodedata.combining(mark), []).append(mark)
    for each in sorted(by_class):
        yield "".join(by_class[each])


def _long_runs(form: Form, text: str) -> Iterator[tuple[int, int]]:
    """Yield where runs of more marks than `_RUN_MAX` begin and end: each has one at a multiple."""
    end = 0
    for at in range(0, len(text), _RUN_MAX):
        if at < end or not _is_mark(form, text[at]):
            continue
        begin, end = at, at + 1
        while begin and _is_mark(form, text[begin - 1]):
            begin -= 1
        while end < len(text) and _is_mark(form, text[end]):
            end += 1
        if end - begin > _RUN_MAX:
            yield begin, end


@lru_cache(1024)
def _is_mark(form: Form, char: str) -> bool:
    """Return true if a character comes to nothing but marks that have an order.

    Of U+0F73, which has none itself, that holds as well.
    """
    return unicodedata.combining(_apart(form, char)[0]) != 0


@lru_cache(1024)
def _apart(form: Form, char: str) -> str:
    return unicodedata.normalize(_APART[form], char)
