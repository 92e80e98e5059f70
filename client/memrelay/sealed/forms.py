"""Unicode's normal forms, of any text in a time that grows as its length does.

Not here: which form a text is brought into, and what for.

- What comes out is what `unicodedata.normalize` gives, for every text.
- That sorts marks that follow one another by exchanging neighbours, and nothing else runs
  meanwhile: a MiB of marks in the wrong order would stop the process for hours. A long run of them
  is put in order before, so that nothing is left to exchange.
"""

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

_APART: Final[dict[Form, Form]] = {"NFC": "NFD", "NFD": "NFD", "NFKC": "NFKD", "NFKD": "NFKD"}
_RUN_MAX: Final = 30  # marks on one letter; Unicode's stream-safe texts have no more, either


def normalize(form: Form, text: str) -> str:
    """Return `text` in a normal form, as `unicodedata.normalize` does."""
    return unicodedata.normalize(form, in_order(form, text))


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
        pieces += [text[position:begin], *sorted(marks, key=unicodedata.combining)]
        position = end
    return "".join(pieces) + text[position:] if pieces else text


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
    """Return whether a character becomes nothing but marks that have an order.

    That holds of U+0F73 as well, which has none itself."""
    return unicodedata.combining(_apart(form, char)[0]) != 0


@lru_cache(1024)
def _apart(form: Form, char: str) -> str:
    return unicodedata.normalize(_APART[form], char)
